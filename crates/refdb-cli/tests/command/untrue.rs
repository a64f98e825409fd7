//! Objects that are damaged, and files about objects that say something untrue: every answer is Git's or an error
//! that says so, and no entry of a reflog goes for it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bstr::ByteSlice;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run()
}

/// Makes six commits in a line, of which `main` got one after the other; returns them.
fn line_of_commits(repo: &Repo) -> Vec<String> {
    repo.config("core.logAllRefUpdates", "true");
    let mut commits: Vec<String> = Vec::new();
    for number in 0..6 {
        let parent = commits.last().map(|last| ["-p".to_owned(), last.clone()]);
        let made = repo
            .git(["commit-tree", "-m", &format!("commit {number}")])
            .arg(&repo.objects().tree)
            .args(parent.iter().flatten())
            .at(1_700_000_000 + number, "+0000")
            .run();
        let commit = made.text().trim().to_owned();
        repo.git(["update-ref", "-m", "on", "refs/heads/main", &commit])
            .run()
            .ok();
        commits.push(commit);
    }
    commits
}

/// Does something in a repository whose objects are damaged meanwhile, since Git shows no entries of these.
fn with_damage<T>(repo: &Repo, damage: impl FnOnce(), run: impl FnOnce() -> T) -> T {
    let (objects, kept) = (repo.git_dir().join("objects"), repo.git_dir().join("kept"));
    let copy = Command::new("cp")
        .arg("-r")
        .args([&objects, &kept])
        .status();
    assert!(copy.is_ok_and(|status| status.success()));
    damage();
    let done = run();
    fs::remove_dir_all(&objects).expect("own files");
    fs::rename(&kept, &objects).expect("room");
    done
}

fn entries(repo: &Repo) -> usize {
    let log = repo.git(["reflog", "show", "--format=%H", "refs/heads/main"]);
    log.run().stdout.lines().count()
}

fn loose(repo: &Repo, oid: &str) -> PathBuf {
    let (dir, file) = oid.split_at(2);
    repo.git_dir().join("objects").join(dir).join(file)
}

/// Changes a file that nobody may write.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = fs::read(path).expect("a file");
    change(&mut content);
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("own file");
    fs::write(path, content).expect("room");
}

/// Returns the file of the pack that there is.
fn packed(repo: &Repo, end: &str) -> PathBuf {
    let folder = fs::read_dir(repo.git_dir().join("objects/pack")).expect("a folder");
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(end);
    let mut files = folder.flatten().map(|entry| entry.path());
    files.find(is_it).expect(end)
}

/// Packs everything, and breaks what the pack has of a commit.
fn break_packed(repo: &Repo, oid: &str) {
    repo.git(["repack", "-adq"]).run().ok();
    let index = fs::read(packed(repo, ".idx")).expect("an index");
    let shown = repo.git(["show-index"]).stdin(index).run().text();
    let line = shown.lines().find(|line| line.contains(oid)).expect(oid);
    let offset: usize = line.split(' ').next().expect("a line").parse().expect(line);
    change(&packed(repo, ".pack"), |pack| {
        pack[offset + 20..offset + 24].fill(0xff)
    });
}

for_every_format! {
    fn a_damaged_commit_keeps_the_entries_behind_it(format) {
        type Break = fn(&Repo, &str);
        let breaks: [Break; 6] = [
            |repo, _| {
                repo.git(["repack", "-adq"]).run().ok();
                change(&packed(repo, ".pack"), |pack| pack.truncate(pack.len() / 2));
            },
            |repo, oid| {
                fs::remove_file(loose(repo, oid)).expect("a file");
                let list = repo.git_dir().join("objects/info/alternates");
                fs::write(list, "/none/objects\n").expect("room");
            },
            |repo, oid| change(&loose(repo, oid), |content| content.truncate(60)),
            |repo, oid| change(&loose(repo, oid), |content| content.extend(b"x")),
            |repo, oid| {
                fs::remove_file(loose(repo, oid)).expect("a file");
                fs::create_dir(loose(repo, oid)).expect("room");
            },
            break_packed,
        ];
        // The value of the ref itself, and one in its history.
        for at in [5, 3] {
            for (number, damage) in breaks.iter().enumerate() {
                for how in [None, Some("--stale-fix")] {
                    let repo = Repo::init(format);
                    let commits = line_of_commits(&repo);
                    let expire = ["reflog", "expire", "--expire=never", "--expire-unreachable=now"];
                    let args: Vec<&str> = expire.into_iter().chain(how).chain(["refs/heads/main"]).collect();
                    let damage = || damage(&repo, &commits[at]);
                    let out = with_damage(&repo, damage, || refdb(&repo, &args));
                    let context = format!("{at} {number} {how:?} {out:?}");
                    assert_ne!(out.code(), 0, "{context}");
                    assert_eq!(entries(&repo), 6, "{context}");
                }
            }
        }
        // One that no ref reaches any more, and of which nothing is left.
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        let back = ["update-ref", "-m", "back", "refs/heads/main", &commits[0]];
        repo.git(back).run().ok();
        let args = ["reflog", "expire", "--expire=never", "--stale-fix", "refs/heads/main"];
        let damage = || change(&loose(&repo, &commits[5]), Vec::clear);
        let out = with_damage(&repo, damage, || refdb(&repo, &args));
        assert_ne!(out.code(), 0, "{out:?}");
        assert_eq!(entries(&repo), 7);
        // What is missing does not keep anybody from it, as in Git.
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        fs::remove_file(loose(&repo, &commits[3])).expect("a file");
        let twin = repo.duplicate();
        let args = ["reflog", "expire", "--expire=never", "--expire-unreachable=now", "refs/heads/main"];
        let (ours, beside) = (refdb(&repo, &args), twin.git(args).run());
        assert_eq!(ours.code(), beside.code(), "{ours:?}");
        assert_eq!(entries(&repo), entries(&twin));
    }

    fn what_is_read_instead_of_an_object_is_as_for_git(format) {
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        let (tip, other, none) = (&commits[5], &commits[0], &repo.objects().missing);
        repo.update_refs(format!("create refs/heads/z {other}\n"));
        let ways: [&[String]; 5] = [
            &[format!("create refs/replace/{tip} {other}")],
            &[format!("symref-create refs/replace/{tip} refs/heads/z")],
            &[format!("symref-create refs/replace/{tip} refs/heads/none")],
            &[
                format!("create refs/replace/{tip} {other}"),
                format!("create refs/replace/x/{tip} {other}"),
            ],
            &[format!("create refs/replace/{none} {other}")],
        ];
        for way in ways {
            let repo = repo.duplicate();
            repo.update_refs(format!("{}\n", way.join("\n")));
            let args = ["for-each-ref", "--format=%(subject)", "refs/heads/main"];
            let (ours, beside) = (refdb(&repo, &args), repo.git(args).run());
            assert_eq!(ours.code(), beside.code(), "{way:?}: {ours:?} {beside:?}");
            assert_eq!(ours.stdout, beside.stdout, "{way:?}");
        }
        if format.refs == RefFormat::Files {
            // Who cannot read them does not know what to read.
            let packed = repo.git_dir().join("packed-refs");
            let _ = fs::remove_file(&packed);
            fs::create_dir(&packed).expect("room");
            let args = ["reflog", "expire", "--expire=never", "--expire-unreachable=now", "refs/heads/main"];
            let out = refdb(&repo, &args);
            assert_ne!(out.code(), 0, "{out:?}");
            assert!(out.stderr.contains_str("packed-refs"), "{out:?}");
        }
    }

    fn the_ends_of_a_shallow_history_are_read_as_by_git(format) {
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        let end = &commits[3];
        for list in [
            format!("{end}\n"),
            end.to_owned(),
            format!("{end} more\n"),
            format!("{end}\r\n"),
            format!("{end}\0\n"),
            format!("{}\n", &end[1..]),
            "nonsense\n".to_owned(),
            format!("{end}\n\n"),
        ] {
            fs::write(repo.git_dir().join("shallow"), &list).expect("room");
            let args = ["for-each-ref", "--format=%(refname)", "--contains", &commits[1]];
            let (ours, beside) = (refdb(&repo, &args), repo.git(args).run());
            assert_eq!(ours.code(), beside.code(), "{list:?}: {ours:?} {beside:?}");
            assert_eq!(ours.stdout, beside.stdout, "{list:?}");
        }
    }

    fn a_file_with_something_wrong_behind_its_header_holds_no_object(format) {
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        type Change = fn(&mut Vec<u8>);
        let changes: [Change; 5] = [
            |_| {},
            |content| content.extend(b"garbage"),
            |content| content.extend_from_within(..),
            |content| content.truncate(content.len() - 4),
            |content| *content.last_mut().expect("a sum") ^= 1,
        ];
        for (number, wrong) in changes.into_iter().enumerate() {
            let repo = repo.duplicate();
            change(&loose(&repo, &commits[5]), wrong);
            for args in [
                &["for-each-ref", "--format=%(subject)", "refs/heads/main"][..],
                &["for-each-ref", "--format=%(refname)", "--contains", &commits[1]],
            ] {
                let (ours, beside) = (refdb(&repo, args), repo.git(args).run());
                assert_eq!(ours.code(), beside.code(), "{number}: {ours:?} {beside:?}");
                assert_eq!(ours.stdout, beside.stdout, "{number}");
            }
        }
    }
}

/// Writes the commit-graph of what there is, as one more part of a chain, and returns that part's file.
fn add_to_chain(repo: &Repo) -> PathBuf {
    repo.git(["commit-graph", "write", "--reachable", "--split=no-merge"])
        .run()
        .ok();
    let folder = repo.git_dir().join("objects/info/commit-graphs");
    let chain = fs::read_to_string(folder.join("commit-graph-chain")).expect("a chain");
    folder.join(format!(
        "graph-{}.graph",
        chain.lines().last().expect("a part")
    ))
}

/// Returns where a chunk of a commit-graph begins.
pub(crate) fn chunk(graph: &[u8], id: &[u8]) -> usize {
    let entry = graph[8..]
        .windows(4)
        .position(|it| it == id)
        .expect("a chunk")
        + 12;
    let offset = graph[entry..entry + 8].try_into().expect("eight bytes");
    usize::try_from(u64::from_be_bytes(offset)).expect("small")
}

const QUESTIONS: [&str; 4] = [
    "--contains=c1",
    "--merged=c5",
    "--no-merged=c2",
    "--format=%(refname) %(ahead-behind:c2)",
];

/// Gives each commit a tag of its own, so that questions can name it.
fn tag(repo: &Repo, commits: &[String]) {
    let lines = commits.iter().enumerate();
    let lines = lines.map(|(at, oid)| format!("create refs/tags/c{at} {oid}\n"));
    repo.update_refs(lines.collect::<String>());
}

#[test]
fn a_chain_whose_parts_do_not_belong_together_is_believed_as_by_git() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        let tip = &commits[5];
        repo.update_refs(format!("update refs/heads/main {}\n", commits[2]));
        add_to_chain(&repo);
        repo.update_refs(format!("update refs/heads/main {tip}\n"));
        let upper = add_to_chain(&repo);
        tag(&repo, &commits);
        change(&upper, |graph| {
            // Its base has another name, and all its commits have no parents.
            let (base, data) = (chunk(graph, b"BASE"), chunk(graph, b"CDAT"));
            graph[base] ^= 1;
            for at in 0..3 {
                let parent = data + at * 36 + 20;
                graph[parent..parent + 4].copy_from_slice(&0x7000_0000_u32.to_be_bytes());
            }
        });
        for question in QUESTIONS {
            let args = ["for-each-ref", question, "refs/tags"];
            let (ours, beside) = (refdb(&repo, &args), repo.git(args).run());
            assert_eq!(ours.stdout, beside.stdout, "{question}: {ours:?}");
        }
    }
}

#[test]
fn generations_that_cannot_be_right_are_told_and_delete_nothing() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let repo = Repo::init(format);
        let commits = line_of_commits(&repo);
        tag(&repo, &commits);
        let args = ["commit-graph", "write", "--reachable"];
        repo.git(args).run().ok();
        let path = repo.git_dir().join("objects/info/commit-graph");
        change(&path, |graph| {
            let data = chunk(graph, b"CDAT");
            for at in 0..6 {
                let word = data + at * 36 + 28;
                graph[word..word + 4].copy_from_slice(&(1_u32 << 2).to_be_bytes());
            }
        });
        for question in QUESTIONS {
            let args = ["for-each-ref", question, "refs/tags"];
            let (ours, beside) = (refdb(&repo, &args), repo.git(args).run());
            let is_told = ours.stderr.contains_str("no later than its parents");
            assert!(
                is_told || ours.stdout == beside.stdout,
                "{question}: {ours:?}"
            );
            let without = refdb(
                &repo,
                &[&["-c", "core.commitGraph=false"], &args[..]].concat(),
            );
            assert_eq!(without.stdout, beside.stdout, "{question}");
        }
        let args = [
            "reflog",
            "expire",
            "--expire=never",
            "--expire-unreachable=now",
            "refs/heads/main",
        ];
        assert_eq!(refdb(&repo, &args).code(), 0);
        assert_eq!(entries(&repo), 6);
    }
}

/// Runs refdb with limits as `ulimit` takes them.
fn limited(repo: &Repo, limits: &str, args: &str) -> Output {
    let script = format!("ulimit {limits} && exec \"$0\" {args}");
    oracle::run_of("/bin/bash", repo.path())
        .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
        .run()
}

/// A file of some kilobytes can be an object of a hundred megabytes.
#[test]
fn objects_that_are_very_large_together_are_told() {
    let repo = Repo::init(Format::FILES_SHA1);
    let mut bomb = ZlibEncoder::new(Vec::new(), Compression::fast());
    let len = 120 << 20;
    write!(bomb, "commit {len}\0tree {}\n\n", repo.objects().tree).expect("memory");
    let head = usize::try_from(bomb.total_in()).expect("small") - format!("commit {len}\0").len();
    let lines = vec![b'\n'; 1 << 20];
    for _ in 0..119 {
        bomb.write_all(&lines).expect("memory");
    }
    bomb.write_all(&lines[head..]).expect("memory");
    let bomb = bomb.finish().expect("memory");
    for at in 10..30 {
        let folder = repo.git_dir().join(format!("objects/{at}"));
        fs::create_dir_all(&folder).expect("room");
        fs::write(folder.join(at.to_string().repeat(19)), &bomb).expect("room");
    }
    let lines = (10..30).map(|at| format!("{} refs/heads/b{at}\n", at.to_string().repeat(20)));
    fs::write(
        repo.git_dir().join("packed-refs"),
        lines.collect::<String>(),
    )
    .expect("room");
    for question in ["--format='%(numparent)'", "--contains=b29"] {
        let args = format!("for-each-ref {question}");
        let out = limited(&repo, "-v 1200000", &args);
        assert_eq!(out.code(), 128, "{question}: {out:?}");
        assert!(
            out.stderr.contains_str("more than 1 GiB would be read"),
            "{question}: {out:?}"
        );
    }
    let few = limited(
        &repo,
        "-v 700000",
        "for-each-ref --format='%(numparent)' refs/heads/b1[01]",
    );
    assert_eq!(few.stdout.lines().count(), 2, "{few:?}");
}

for_every_format! {
    fn an_alternate_with_a_nul_in_its_name_is_passed_over(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/x {commit}\n"));
        fs::write(repo.git_dir().join("objects/info/alternates"), "\0\nb\0c\n").expect("room");
        let list = ["for-each-ref", "--format=%(refname) %(objecttype)"];
        let by_git = repo.git(list).run().ok();
        let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(list).run().ok();
        assert_eq!(ours.as_bstr(), by_git.as_bstr());
    }
}
