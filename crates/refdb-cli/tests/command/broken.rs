//! Broken refs in a listing: told and left out, and so are symrefs that lead to them. In a long one,
//! which two threads make, everything is told in its order.

use std::fs;

use bstr::ByteSlice;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format, oracle};

#[test]
fn a_listing_goes_on_behind_a_broken_ref() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!(
            "create refs/heads/main {commit}\ncreate refs/heads/zz {commit}\n"
        ));
        fs::write(repo.git_dir().join("refs/heads/broken"), "").expect("an empty ref");
        let target = "refs/heads/broken";
        repo.git(["symbolic-ref", "refs/heads/sym", target])
            .run()
            .ok();
        for list in [
            &["for-each-ref"][..],
            &["for-each-ref", "--format=%(refname)"],
        ] {
            let git = repo.git(list).run();
            let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(list)
                .run();
            assert_eq!(ours.stdout, git.stdout, "{format}: {list:?}");
            assert_eq!(ours.stderr, git.stderr, "{format}: {list:?}");
            assert_eq!((ours.code(), git.code()), (0, 0), "{format}: {list:?}");
        }
    }
}

/// What it says is what the ref can be mended by. (Git expires it as well.)
#[test]
fn a_broken_ref_keeps_its_reflog_and_stops_no_other() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for expire in [
            &["--expire=now"][..],
            &["--expire-unreachable=now", "-n"],
            &[],
        ] {
            let repo = Repo::init(format);
            let commit = &repo.objects().commits[0];
            for name in ["broken", "whole"] {
                let create = ["update-ref", "--create-reflog", "-m", "made"];
                let name = format!("refs/heads/{name}");
                repo.git(create).args([&name, commit]).run().ok();
            }
            fs::write(repo.git_dir().join("refs/heads/broken"), "").expect("an empty ref");
            let entries = |name: &str| {
                let log = repo.git_dir().join("logs/refs/heads").join(name);
                fs::read_to_string(log).expect("a reflog").lines().count()
            };
            let out = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(["reflog", "expire", "--all"])
                .args(expire)
                .run();
            assert_eq!(out.code(), 0, "{expire:?}: {out:?}");
            assert!(
                out.stderr
                    .contains_str("the reflog of 'refs/heads/broken' is kept")
            );
            let left = usize::from(expire.contains(&"-n"));
            assert_eq!(
                (entries("broken"), entries("whole")),
                (1, left),
                "{expire:?}"
            );
        }
    }
}

for_every_format! {
    fn a_ref_to_an_object_that_cannot_be_read_is_shown(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        let hash = ["hash-object", "-w", "--stdin"];
        let damaged = repo.git(hash).stdin("damaged").run().text();
        let lost = repo.git(hash).stdin("lost").run().text();
        let path = |id: &str| {
            let (dir, rest) = id.split_at(2);
            repo.git_dir().join("objects").join(dir).join(rest)
        };
        repo.update_refs(format!(
            "create refs/damaged {damaged}\ncreate refs/replaced {}\ncreate refs/whole {}\n\
             create refs/replace/{} {lost}\n",
            commits[0], commits[1], commits[0]
        ));
        fs::remove_file(path(&damaged)).expect("it is there");
        fs::write(path(&damaged), "no object").expect("room");
        fs::remove_file(path(&lost)).expect("it is there");
        for arguments in [
            &["show-ref", "-d", "damaged", "replaced", "whole"][..],
            &["show-ref", "whole", "replaced", "damaged"],
            &["show-ref", "--verify", "refs/damaged"],
            &["show-ref", "--verify", "refs/whole", "refs/replaced"],
            &["show-ref", "replace"],
        ] {
            answers_as_git(&repo, arguments);
        }
    }

    fn a_tag_leads_to_what_it_says(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        let lost = repo.git(["hash-object", "-w", "--stdin"]).stdin("lost").run().text();
        repo.git(["tag", "-a", "-m", "one", "lost", &lost]).run().ok();
        repo.git(["tag", "-a", "-m", "two", "replaced", commit]).run().ok();
        let replaced = repo.git(["rev-parse", "refs/tags/replaced"]).run().text();
        repo.git(["pack-refs", "--all"]).run().ok();
        repo.update_refs(format!("create refs/replace/{replaced} {commit}\n"));
        let (dir, rest) = lost.split_at(2);
        fs::remove_file(repo.git_dir().join("objects").join(dir).join(rest)).expect("it is there");
        answers_as_git(&repo, &["show-ref", "-d"]);
        answers_as_git(&repo, &["show-ref", "-d", "--tags"]);
    }

    fn objects_whose_ids_begin_alike_are_told_apart(format) {
        let repo = Repo::init(format);
        let paths: Vec<String> = (0..400).map(|number| format!("blob-{number}")).collect();
        for path in &paths {
            fs::write(repo.path().join(path), path).expect("room");
        }
        let hash = repo.git(["hash-object", "-w", "--stdin-paths"]);
        let ids = hash.stdin(paths.join("\n")).run().text();
        let ids: Vec<&str> = ids.lines().collect();
        let numbered = ids.iter().enumerate();
        let refs = numbered.map(|(number, id)| format!("create refs/blobs/b{number:03} {id}\n"));
        repo.update_refs(refs.collect::<String>());
        // A listing remembers what it found by bits of the beginnings of ids, of which so many differ here.
        let bits = |id: &str| u16::from_str_radix(&id[..4], 16).expect("digits") & 0x3ff;
        let is_like = |at: usize| ids[..at].iter().any(|id| bits(id) == bits(ids[at]));
        let lost = (0..ids.len()).rev().find(|at| is_like(*at)).expect("two of these are alike");
        let (dir, rest) = ids[lost].split_at(2);
        fs::remove_file(repo.git_dir().join("objects").join(dir).join(rest)).expect("it is there");
        answers_as_git(&repo, &["show-ref"]);
        answers_as_git(&repo, &["show-ref", "-d"]);
    }

    fn a_pack_that_is_not_that_of_its_index_holds_nothing(format) {
        let repo = Repo::init(format);
        let mut made = String::new();
        for number in 0..20 {
            let hash = repo.git(["hash-object", "-w", "--stdin"]).stdin(number.to_string());
            made.push_str(&format!("create refs/blobs/b{number} {}\n", hash.run().text()));
        }
        repo.update_refs(made);
        repo.git(["repack", "-adq"]).run().ok();
        repo.git(["prune-packed"]).run().ok();
        let packs = repo.git_dir().join("objects/pack");
        let packs = fs::read_dir(packs).expect("it is there").map(|entry| entry.expect("a file").path());
        let packs: Vec<_> = packs.filter(|path| path.extension().is_some_and(|it| it == "pack")).collect();
        for path in &packs {
            let whole = fs::read(path).expect("a pack");
            let len = whole.len();
            let mut other = whole.clone();
            other[11] ^= 1;
            let grown = [&whole[..], b"more"].concat();
            for content in [&whole[..len / 2], &whole[..len - 1], &grown, &other, &whole] {
                fs::remove_file(path).expect("it is there");
                fs::write(path, content).expect("room");
                answers_as_git(&repo, &["show-ref"]);
                answers_as_git(&repo, &["show-ref", "--verify", "refs/blobs/b7"]);
                answers_as_git(&repo, &["for-each-ref"]);
            }
        }
    }

    fn a_reflog_whose_commit_is_damaged_is_told(format) {
        let repo = Repo::init(format);
        let message: String = (0..500_u32).map(|number| format!("{} ", number * number)).collect();
        let tree = repo.git(["hash-object", "-t", "tree", "-w", "--stdin"]).run().text();
        let commit = repo.git(["commit-tree", tree.trim(), "-m", &message]).run().text();
        let commit = commit.trim();
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let (dir, rest) = commit.split_at(2);
        let path = repo.git_dir().join("objects").join(dir).join(rest);
        let content = fs::read(&path).expect("a loose object");
        fs::remove_file(&path).expect("it is there");
        fs::write(&path, &content[..content.len() / 2]).expect("room");
        let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
            .args(["reflog", "show", "refs/heads/main"])
            .run();
        let said = String::from_utf8_lossy(&ours.stderr).into_owned();
        assert_eq!((ours.code(), ours.stdout.len()), (128, 0), "{format}: {said}");
        assert!(said.contains(commit), "{said}");
    }
}

#[test]
fn nothing_behind_a_missing_object_is_told() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        let heads = repo.git_dir().join("refs/heads");
        fs::create_dir_all(&heads).expect("there are refs");
        let lost = format!("{}\n", "12".repeat(commit.len() / 2));
        let files = [
            ("a", "no id"),
            ("b", lost.as_str()),
            ("c", "no id"),
            ("d", commit),
        ];
        for (name, content) in files {
            fs::write(heads.join(name), content).expect("a ref");
        }
        for format in [
            "--format=%(objecttype) %(refname)",
            "--format=%(objectname) %(objecttype)",
        ] {
            let git = repo.git(["for-each-ref", format]).run();
            let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let ours = ours.args(["for-each-ref", format]).run();
            assert_eq!(ours.stderr.as_bstr(), git.stderr.as_bstr());
            assert_eq!(ours.code(), git.code());
            assert_eq!(ours.stdout.as_bstr(), git.stdout.as_bstr());
        }
    }
}

for_every_format! {
    fn a_long_listing_tells_all_in_its_order(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        let create = |numbers: std::ops::Range<u32>, value: &str| {
            let one = |number| format!("create refs/many/{number:05}-{} {value}\n", "x".repeat(50));
            numbers.map(one).collect::<String>()
        };
        // Objects that are lost while there are refs to them.
        let write = |text: &str| {
            let written = repo.git(["hash-object", "-w", "--stdin"]).stdin(text);
            let id = written.run().text().trim().to_owned();
            let path = repo.git_dir().join("objects").join(&id[..2]).join(&id[2..]);
            (id, path)
        };
        let (early, late) = (write("early"), write("late"));
        repo.update_refs(create(0..12_000, commit));
        repo.update_refs(create(12_000..12_002, &early.0));
        repo.update_refs(create(12_002..20_000, commit));
        repo.update_refs(create(20_000..20_001, &late.0));
        repo.update_refs(create(20_001..24_000, commit));
        repo.git(["pack-refs", "--all"]).run().ok();
        if format.refs == RefFormat::Files {
            for name in ["05000-broken", "15000-broken"] {
                let path = repo.git_dir().join("refs/many").join(name);
                fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
                fs::write(path, "").expect("an empty ref");
            }
        }
        fs::remove_file(early.1).expect("an object");
        fs::remove_file(late.1).expect("an object");
        for paranoia in ["0", "1"] {
            for list in [
                &["for-each-ref"][..],
                &["for-each-ref", "--format=%(refname)"],
                &["for-each-ref", "--format=%(objectname)%00%(refname) %(objecttype)", "refs/many"],
                &["for-each-ref", "--exclude=refs/many/1*", "--exclude=refs/many/20000*"],
                &["for-each-ref", "--format=", "--omit-empty"],
                &["for-each-ref", "--count=13000", "--format=%(refname)"],
            ] {
                let git = repo.git(list).env("GIT_REF_PARANOIA", paranoia).run();
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                let ours = ours.args(list).env("GIT_REF_PARANOIA", paranoia).run();
                let what = format!("{list:?}, paranoia {paranoia}");
                assert_eq!(ours.stderr, git.stderr, "{what}");
                assert_eq!(ours.code(), git.code(), "{what}");
                let (ours, git) = (ours.stdout, git.stdout);
                assert!(ours == git, "{what}: {} bytes instead of {}", ours.len(), git.len());
            }
        }
    }
}

/// Asks both programs, and compares what they print and how they end.
fn answers_as_git(repo: &Repo, arguments: &[&str]) {
    let git = repo.git(arguments).run();
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(arguments)
        .run();
    let answer = |run: &oracle::Output| {
        (
            String::from_utf8_lossy(&run.stdout).into_owned(),
            run.code(),
        )
    };
    let format = repo.format();
    assert_eq!(answer(&ours), answer(&git), "{format}: {arguments:?}");
}

/// A power failure leaves zeros. Git reads what comes before one, and would update a ref of another name.
#[test]
fn a_head_with_a_zero_in_it_is_broken_whoever_asks() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let heads = ["ref: refs/heads/main\0\n", "ref: refs/heads/ma\0in\n"];
        for head in heads
            .map(str::to_owned)
            .into_iter()
            .chain([format!("{commit}\0\n")])
        {
            fs::write(repo.git_dir().join("HEAD"), &head).expect("HEAD");
            let run = |arguments: &[&str]| {
                oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                    .args(arguments)
                    .run()
            };
            for arguments in [
                &["show-ref", "--head"][..],
                &["update-ref", "HEAD", commit],
                &["update-ref", "-d", "HEAD"],
                &["symbolic-ref", "HEAD", "refs/heads/other"],
                &["reflog"],
            ] {
                let said = run(arguments);
                let broken = "unable to resolve reference 'HEAD': reference broken";
                assert!(said.stderr.contains_str(broken), "{arguments:?}: {head:?}");
                assert_ne!(said.code(), 0, "{arguments:?}: {head:?}");
            }
            let listed = run(&["for-each-ref", "--include-root-refs"]);
            let warning = "warning: ignoring broken ref HEAD\n";
            assert_eq!(listed.stderr.to_str_lossy(), warning, "{head:?}");
            let kept = fs::read_to_string(repo.git_dir().join("HEAD"));
            assert_eq!(kept.expect("HEAD"), head);
        }
    }
}
