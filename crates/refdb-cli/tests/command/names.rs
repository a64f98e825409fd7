//! Names that a file says and no ref can have: none of them becomes a path, and each is told.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb_testkit::forge::{self, RefValue};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

/// Targets that no symref can have, and what they are.
const TARGETS: [&str; 16] = [
    "../../out",
    "../out",
    "refs/heads/../../../out",
    "refs/../../out",
    "/OUT/out",
    "refs//heads/main",
    "refs/heads/a..b",
    "refs/heads/sp ace",
    "refs/heads/x.lock",
    "refs/heads/.hidden",
    ".",
    "..",
    "HEAD/..",
    "worktrees/../HEAD",
    "worktrees/../../out/HEAD",
    "main-worktree/../out",
];

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
    ours.args(args).run()
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A repository within another folder, so that all can be looked at that lies around it.
struct Within {
    repo: Repo,
    commit: String,
}

impl Within {
    fn new(format: Format) -> Within {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        Within { repo, commit }
    }

    /// Makes `refs/heads/s` a symref to what no symref can lead to.
    fn symref(&self, target: &str) {
        let target = self.target(target);
        let git_dir = self.repo.git_dir();
        match self.repo.format().refs {
            RefFormat::Files => {
                let content = format!("ref: {target}\n");
                fs::write(git_dir.join("refs/heads/s"), content).expect("a loose ref");
            }
            RefFormat::Reftable => {
                let symref = RefValue::Symref(target.as_bytes());
                let refs = [(&b"refs/heads/s"[..], symref)];
                forge::on_top(&git_dir, self.repo.format().objects, &refs, &[]);
            }
        }
    }

    fn target(&self, target: &str) -> String {
        let out = self.repo.path().join("elsewhere").display().to_string();
        target.replace("/OUT", &out)
    }

    /// Returns everything in and around the repository, objects aside.
    fn around(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let git_dir = self.repo.git_dir();
        let parent = self.repo.path().parent().expect("a parent");
        // Beside the repository lie those of other tests.
        for name in ["out", "out.lock"] {
            look(&parent.join(name), &git_dir, &mut found);
        }
        look(self.repo.path(), &git_dir, &mut found);
        found
    }
}

fn look(path: &Path, git_dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let Ok(stat) = path.symlink_metadata() else {
        return;
    };
    if stat.is_file() {
        found.insert(path.to_owned(), fs::read(path).expect("a file"));
    } else if stat.is_dir() && path != git_dir.join("objects") {
        for entry in fs::read_dir(path).expect("a folder") {
            look(&entry.expect("an entry").path(), git_dir, found);
        }
    } else {
        found.insert(path.to_owned(), Vec::new());
    }
}

for_every_format! {
    fn a_symref_to_no_name_is_read_as_git_reads_it(format) {
        let all = "%(refname) %(objectname) %(symref)";
        for target in TARGETS {
            let within = Within::new(format);
            within.symref(target);
            for args in [
                &["symbolic-ref", "refs/heads/s"][..],
                &["symbolic-ref", "-q", "refs/heads/s"],
                &["symbolic-ref", "--no-recurse", "refs/heads/s"],
                &["for-each-ref", "--format", all],
                &["for-each-ref", "--include-root-refs", "--format", all],
                &["show-ref"],
                &["show-ref", "--head"],
                &["show-ref", "--verify", "refs/heads/s"],
                &["show-ref", "--exists", "refs/heads/s"],
                &["refs", "exists", "refs/heads/s"],
                &["reflog", "exists", "refs/heads/s"],
                &["reflog", "list"],
            ] {
                let (git, ours) = (within.repo.git(args).run(), refdb(&within.repo, args));
                assert_eq!(
                    (ours.code(), ours.stdout.as_bstr(), ours.stderr.as_bstr()),
                    (git.code(), git.stdout.as_bstr(), git.stderr.as_bstr()),
                    "{target}: {args:?}"
                );
            }
        }
    }

    fn nothing_is_written_through_a_symref_to_no_name(format) {
        for target in TARGETS {
            let within = Within::new(format);
            within.symref(target);
            let (commit, before) = (within.commit.as_str(), within.around());
            let null = format.zero();
            let target_of = within.target(target);
            // Where it has to be there, it is missing, as for Git.
            let told = [
                format!("the symref 'refs/heads/s' points to '{target_of}'"),
                format!("unable to resolve reference '{target_of}'"),
            ];
            for args in [
                &["update-ref", "refs/heads/s", commit][..],
                &["update-ref", "--create-reflog", "refs/heads/s", commit],
                &["update-ref", "refs/heads/s", commit, &null],
                &["update-ref", "-d", "refs/heads/s"],
                &["update-ref", "-d", "refs/heads/s", commit],
            ] {
                let out = refdb(&within.repo, args);
                assert_ne!(out.code(), 0, "{target}: {args:?}");
                let is_told = told.iter().any(|told| out.stderr.contains_str(told));
                assert!(is_told, "{target}: {}", out.stderr.as_bstr());
                assert_eq!(within.around(), before, "{target}: {args:?}");
            }
            // The symref itself can be set right, and go.
            let set = ["symbolic-ref", "refs/heads/s", "refs/heads/main"];
            let done = refdb(&within.repo, &set);
            assert_eq!(done.code(), 0, "{target}: {}", done.stderr.as_bstr());
            let read = within.repo.git(["rev-parse", "refs/heads/s"]).run();
            assert_eq!(read.stdout.trim_ascii_end().as_bstr(), commit);
            let within = Within::new(format);
            within.symref(target);
            let gone = ["update-ref", "--no-deref", "-d", "refs/heads/s"];
            let done = refdb(&within.repo, &gone);
            assert_eq!(done.code(), 0, "{target}: {}", done.stderr.as_bstr());
        }
    }

    fn a_migration_refuses_names_that_lead_out_and_can_leave_them_behind(format) {
        if format.refs == RefFormat::Files {
            // What a folder lists leads nowhere else; a symref can.
            let within = Within::new(format);
            within.symref("../../out");
            refused(&within, &["refs/heads/s: the symref points to '../../out'"], "reftable");
            return;
        }
        let within = Within::new(format);
        let id = unhex(&within.commit);
        let bad: [(&[u8], RefValue<'_>); 2] = [
            (b"refs/../../out", RefValue::Direct(&id)),
            (b"refs/heads/s", RefValue::Symref(b"../../out")),
        ];
        let logs: [&[u8]; 3] = [b"../../out", b"refs/heads/../../../../out", b"refs/heads/a b"];
        let table = forge::on_top(&within.repo.git_dir(), format.objects, &bad, &logs);
        let table = table.file_name().expect("a name").to_string_lossy().into_owned();
        let told = [
            "refs/../../out: the name is not well-formed",
            "refs/heads/s: the symref points to '../../out'",
            "reflog of ../../out: the name is not well-formed",
            "reflog of refs/heads/../../../../out: the name is not well-formed",
            "reflog of refs/heads/a b: the name is not well-formed",
            &table,
        ];
        refused(&within, &told, "files");
    }
}

/// Migrates with and without leave to skip.
fn refused(within: &Within, told: &[&str], to: &str) {
    let to = format!("--ref-format={to}");
    let before = within.around();
    let out = refdb(&within.repo, &["refs", "migrate", &to]);
    assert_ne!(out.code(), 0);
    for told in told {
        assert!(
            out.stderr.contains_str(told),
            "{told}: {}",
            out.stderr.as_bstr()
        );
    }
    assert_eq!(within.around(), before);
    let out = refdb(&within.repo, &["refs", "migrate", &to, "--skip-broken"]);
    assert_eq!(out.code(), 0, "{}", out.stderr.as_bstr());
    let parent = within.repo.path().parent().expect("a parent");
    assert!(!parent.join("out").exists() && !within.repo.path().join("out").exists());
    let listed = within
        .repo
        .git(["for-each-ref", "--format=%(refname)"])
        .run();
    assert_eq!(listed.stdout.as_bstr(), "refs/heads/main\n");
}

for_every_format! {
    fn names_that_lead_out_are_told_and_taken_away(format) {
        let within = Within::new(format);
        let git_dir = within.repo.git_dir();
        let kept: Vec<String> = match format.refs {
            RefFormat::Files => {
                within.symref("../../out");
                let packed = format!(
                    "# pack-refs with: peeled fully-peeled sorted \n{} refs/../../../out\n",
                    within.commit
                );
                fs::write(git_dir.join("packed-refs"), packed).expect("packed-refs");
                let log = git_dir.join("logs/refs/heads/a b");
                fs::copy(git_dir.join("logs/refs/heads/main"), log).expect("a reflog");
                ["refs/heads/s", "the name is none that a ref can have", "logs/refs/heads/a b"]
                    .map(str::to_owned)
                    .into()
            }
            RefFormat::Reftable => {
                let id = unhex(&within.commit);
                let refs: [(&[u8], RefValue<'_>); 2] = [
                    (b"refs/../../out", RefValue::Direct(&id)),
                    (b"refs/heads/s", RefValue::Symref(b"../../out")),
                ];
                let logs: [&[u8]; 2] = [b"../../out", b"refs/heads/../../../../out"];
                forge::on_top(&git_dir, format.objects, &refs, &logs);
                [
                    "refs/../../out: no name that a ref can have",
                    "the reflog of ../../out: no name that a ref can have",
                    "the reflog of refs/heads/../../../../out: no name",
                    "the symref points to '../../out'",
                ]
                .map(str::to_owned)
                .into()
            }
        };
        let out = refdb(&within.repo, &["refs", "verify", "--deep"]);
        assert_eq!(out.code(), 2, "{}", out.stdout.as_bstr());
        for told in kept {
            assert!(out.stdout.contains_str(&told), "{told}: {}", out.stdout.as_bstr());
        }
        let done = refdb(&within.repo, &["refs", "repair"]);
        assert_eq!(done.code(), 1, "{}{}", done.stdout.as_bstr(), done.stderr.as_bstr());
        let again = refdb(&within.repo, &["refs", "verify", "--deep"]);
        assert_eq!(again.code(), 0, "{}", again.stdout.as_bstr());
        let listed = within.repo.git(["for-each-ref", "--format=%(refname)"]).run();
        assert_eq!(listed.stdout.as_bstr(), "refs/heads/main\n");
        let logs = within.repo.git(["reflog", "list"]).run();
        assert_eq!(logs.stdout.as_bstr(), "HEAD\nrefs/heads/main\n");
    }

    fn a_listing_meets_bad_names_as_git_does(format) {
        let within = Within::new(format);
        let git_dir = within.repo.git_dir();
        let id = unhex(&within.commit);
        for (name, logs) in [
            ("refs/heads/a b", [&b"refs/heads/a b"[..]]),
            ("refs/heads/../../../out", [&b"../out"[..]]),
        ] {
            match format.refs {
                RefFormat::Files => {
                    let header = "# pack-refs with: peeled fully-peeled sorted \n";
                    let packed = format!("{header}{} {name}\n", within.commit);
                    fs::write(git_dir.join("packed-refs"), packed).expect("packed-refs");
                }
                RefFormat::Reftable => {
                    let refs = [(name.as_bytes(), RefValue::Direct(&id))];
                    let list = git_dir.join("reftable/tables.list");
                    let before = fs::read(&list).expect("a list");
                    forge::on_top(&git_dir, format.objects, &refs, &logs);
                    same(&within, name);
                    fs::write(list, before).expect("a list");
                }
            }
            if format.refs == RefFormat::Files {
                same(&within, name);
            }
        }
    }
}

fn same(within: &Within, name: &str) {
    for args in [
        &["for-each-ref", "--format=%(refname)"][..],
        &["show-ref"],
        &["show-ref", "--verify", name],
        &["reflog", "list"],
        &["refs", "verify"],
    ] {
        let (git, ours) = (within.repo.git(args).run(), refdb(&within.repo, args));
        let first = |out: &Output| out.stderr.lines().next().unwrap_or_default().to_vec();
        let is_listing = args.first() == Some(&"for-each-ref");
        let is_table = within.repo.format().refs == RefFormat::Reftable;
        if is_listing && is_table && git.stderr.contains_str("refname is dangerous") {
            // Git lists nothing for the sake of one name in a table; here it is left out.
            assert_eq!((git.code(), git.stdout.as_bstr()), (128, "".into()));
            assert_eq!(ours.code(), 0, "{}", first(&ours).as_bstr());
            assert!(!ours.stdout.contains_str(name), "{}", ours.stdout.as_bstr());
            continue;
        }
        assert_eq!(
            (ours.code(), ours.stdout.as_bstr()),
            (git.code(), git.stdout.as_bstr()),
            "{name}: {args:?}\n{}\n{}",
            first(&ours).as_bstr(),
            first(&git).as_bstr()
        );
    }
}

/// Somebody made a table with the last update indices that there are: nothing is written that nobody could
/// read, and what is there is read.
#[test]
fn nothing_is_written_where_no_update_index_is_left() {
    for (format, index) in [
        (Format::REFTABLE_SHA1, u64::MAX),
        (Format::REFTABLE_SHA256, u64::MAX - 1),
        (Format::REFTABLE_SHA1, u64::MAX - 100),
    ] {
        let Within { repo, commit } = Within::new(format);
        let oid = unhex(&commit);
        let refs = [(&b"refs/heads/top"[..], RefValue::Direct(&oid))];
        forge::on_top_at(index, &repo.git_dir(), format.objects, &refs, &[]);
        let before = refdb(&repo, &["for-each-ref"]).ok();
        assert!(before.contains_str("refs/heads/top"));
        for args in [
            &["update-ref", "refs/heads/new", &commit][..],
            &["update-ref", "-d", "refs/heads/main"],
            &["reflog", "expire", "--all", "--expire=now"],
            &["refs", "rename", "refs/heads/main", "refs/heads/other"],
        ] {
            let out = refdb(&repo, args);
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(
                !out.status.success() && said.contains("update ind"),
                "{args:?}: {said}"
            );
            assert_eq!(
                refdb(&repo, &["for-each-ref"]).ok(),
                before,
                "{args:?}: {said}"
            );
        }
        refdb(&repo, &["refs", "migrate", "--ref-format=files"]).ok();
        assert_eq!(refdb(&repo, &["for-each-ref"]).ok(), before);
        refdb(&repo, &["refs", "migrate", "--ref-format=reftable"]).ok();
        refdb(&repo, &["update-ref", "refs/heads/new", &commit]).ok();
    }
}
