//! The reference commands on a store that many machines share: what they print there is what they print of
//! the local refs it was made from, and what they write there Git reads once it is exported.

use std::fs;
use std::path::{Path, PathBuf};

use refdb_testkit::format::{ObjectFormat, RefFormat};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run()
}

/// A repository with branches, tags, symrefs and reflogs, and an empty store beside it.
fn scene(format: Format) -> (Repo, tempfile::TempDir, String) {
    let repo = Repo::init(format);
    let objects = repo.objects();
    for (at, commit) in objects.commits.iter().take(4).enumerate() {
        let name = format!("refs/heads/b{at}");
        let message = format!("made {at}");
        repo.git([
            "update-ref",
            "--create-reflog",
            "-m",
            &message,
            &name,
            commit,
        ])
        .run()
        .ok();
    }
    repo.git(["update-ref", "-m", "moved", "HEAD", &objects.commits[0]])
        .run()
        .ok();
    repo.git(["update-ref", "refs/tags/t", &objects.tags[0].id])
        .run()
        .ok();
    repo.git(["symbolic-ref", "refs/remotes/o/HEAD", "refs/heads/b1"])
        .run()
        .ok();
    let temp = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", temp.path().join("store").display());
    refdb(&repo, &["store", "init", &url]).ok();
    (repo, temp, url)
}

/// What reads refs and reflogs.
const READING: [&[&str]; 9] = [
    &["for-each-ref", "--include-root-refs"],
    &[
        "for-each-ref",
        "--format=%(refname) %(*objectname) %(symref)",
        "--sort=-refname",
    ],
    &["show-ref", "--head", "-d"],
    &["symbolic-ref", "HEAD"],
    &["refs", "list"],
    &["refs", "exists", "refs/heads/b2"],
    &["reflog", "list"],
    &["reflog", "show", "refs/heads/b1"],
    &["reflog", "exists", "refs/heads/b1"],
];

/// Asserts that every command that reads prints the same of both.
fn same(repo: &Repo, url: &str, other: &Repo) {
    for args in READING {
        let here = refdb(other, args);
        let there = refdb(repo, &[&["--store", url], args].concat());
        assert_eq!(said(&here), said(&there), "{args:?}");
    }
}

/// Everything that a command said, and how it ended.
fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    format!("{}: {}", output.code(), String::from_utf8_lossy(&text))
}

for_every_format! {
    fn the_commands_work_on_a_store(format) {
        let (repo, _temp, url) = scene(format);
        let told = refdb(&repo, &["store", "import", &url]).text();
        assert!(told.starts_with("Imported 8 refs and "), "{told}");
        same(&repo, &url, &repo);
        let commit = repo.objects().commits[5].clone();
        let store = ["--store", url.as_str()];
        let write = |args: &[&str]| refdb(&repo, &[&store, args].concat());
        write(&["update-ref", "-m", "there", "refs/heads/there", &commit]).ok();
        write(&["update-ref", "-d", "refs/heads/b3"]).ok();
        write(&["symbolic-ref", "HEAD", "refs/heads/b1"]).ok();
        write(&["refs", "rename", "refs/heads/b2", "refs/heads/c2"]).ok();
        write(&["pack-refs", "--all"]).ok();
        write(&["update-ref", "refs/heads/there", &repo.objects().commits[6]]).ok();
        write(&["refs", "verify"]).ok();
        write(&["store", "maintain", "--grace=0"]).ok();
        write(&["store", "verify"]).ok();
        // What is refused here is refused there, in the same words.
        let refused = write(&["update-ref", "refs/heads/there/below", &commit]);
        assert!(said(&refused).contains("'refs/heads/there' exists"), "{}", said(&refused));

        // The local refs are as they were, and what was written there is exported to Git.
        let missing = repo.git(["show-ref", "--verify", "refs/heads/there"]).run();
        assert!(missing.code() != 0);
        let frozen = write(&["store", "freeze", "--reason=moving"]).text();
        assert!(frozen.starts_with("Frozen"), "{frozen}");
        let refused = write(&["update-ref", "refs/heads/late", &commit]);
        assert!(said(&refused).contains("frozen (moving)"), "{}", said(&refused));
        let new = Repo::init(format);
        let told = refdb(&new, &["store", "export", &url]).text();
        assert!(told.starts_with("Exported 8 refs and "), "{told}");
        same(&repo, &url, &new);
        let state = new.state();
        assert_eq!(state.difference(&new.state()), "");
        let read = new.git(["rev-parse", "refs/heads/there"]).run().text();
        assert_eq!(read.trim(), repo.objects().commits[6]);
        assert_eq!(new.git(["symbolic-ref", "HEAD"]).run().text().trim(), "refs/heads/b1");
        let log = new.git(["reflog", "show", "--format=%gs", "refs/heads/there"]).run().text();
        assert!(log.ends_with("there\n") || log.trim_end().ends_with("there"), "{log}");
    }
}

/// The moment that the last line names.
fn until(output: Output) -> (Vec<String>, String) {
    let text = output.text();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.pop().expect("a line at least");
    let moment = last.strip_prefix("until ").expect("the moment comes last");
    (lines, moment.to_owned())
}

for_every_format! {
    fn changes_are_told_once_and_in_order(format) {
        let (repo, _temp, url) = scene(format);
        refdb(&repo, &["store", "import", &url]).ok();
        let run = |args: &[&str]| refdb(&repo, &[&["--store", url.as_str()], args].concat());
        let since = |moment: &str| until(run(&["watch", &format!("--since={moment}")]));
        let (all, first) = until(run(&["watch"]));
        assert_eq!((all[0].as_str(), all.len()), ("resync", 9));
        // Nothing is news.
        assert_eq!(run(&["watch", &format!("--since={first}")]).text(), "");
        let commit = &repo.objects().commits[7];
        run(&["update-ref", "refs/heads/z", commit]).ok();
        run(&["update-ref", "-d", "refs/heads/b3"]).ok();
        run(&["symbolic-ref", "refs/heads/s", "refs/heads/z"]).ok();
        let (news, second) = since(&first);
        let news: Vec<&str> = news.iter().map(|line| line.split_once(' ').expect("words").1).collect();
        let made = format!("{commit} refs/heads/z");
        assert_eq!(news, [made.as_str(), "deleted refs/heads/b3", "ref:refs/heads/z refs/heads/s"]);
        run(&["update-ref", "refs/heads/y", commit]).ok();
        let (news, _) = since(&second);
        assert_eq!(news.len(), 1);
        let json = run(&["watch", "--json", &format!("--since={second}")]).text();
        assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{json}");
        // What is in the head needs no merging, and is told as before.
        run(&["pack-refs"]).ok();
        let (news, third) = since(&first);
        assert_eq!(news.len(), 4);
        run(&["update-ref", "-d", "refs/heads/y"]).ok();
        let (news, _) = since(&third);
        assert!(news.len() == 1 && news[0].ends_with(" deleted refs/heads/y"), "{news:?}");
        // A moment of another store says nothing of this one.
        let other = format!("{:032x}-5", 7);
        assert_eq!(since(&other).0[0], "resync");
        assert!(said(&run(&["watch", "--since=5"])).contains("not a moment"));
    }
}

for_every_format! {
    fn a_damaged_store_is_repaired_and_told(format) {
        let (repo, temp, url) = scene(format);
        refdb(&repo, &["store", "import", &url]).ok();
        repo.config("refdb.store", &url);
        let commits = &repo.objects().commits;
        let input: String = (0..3000).map(|at| format!("create refs/x/{at:05} {}\n", commits[at % 4])).collect();
        let stdin = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(["update-ref", "--stdin"]);
        stdin.stdin(input.as_str()).run().ok();
        let before = refdb(&repo, &["for-each-ref"]).text();
        assert_eq!(said(&refdb(&repo, &["store", "repair"])), "0: ");
        // A table: some blocks are lost, and the refs in them.
        let store = temp.path().join("store");
        let table = std::fs::read_dir(store.join("tables")).expect("a folder").next();
        let table = table.expect("a table").expect("a name").path();
        let good = std::fs::read(&table).expect("a table");
        let mut bad = good.clone();
        bad[9000..9100].fill(0xff);
        std::fs::write(&table, &bad).expect("a file");
        assert_eq!(refdb(&repo, &["store", "verify"]).code(), 255);
        let plan = refdb(&repo, &["store", "repair", "--dry-run"]);
        let text = said(&plan);
        assert!(text.starts_with("1: ") && text.contains("could not be read"), "{text}");
        assert!(text.contains("Nothing was changed"), "{text}");
        let copies = temp.path().join("copies");
        std::fs::create_dir(&copies).expect("a folder");
        std::fs::write(copies.join(table.file_name().expect("a name")), &good).expect("a file");
        let tables = format!("--tables={}", copies.display());
        let text = said(&refdb(&repo, &["store", "repair", &tables]));
        assert!(text.starts_with("0: ") && text.contains("taken from a copy"), "{text}");
        assert_eq!(refdb(&repo, &["for-each-ref"]).text(), before);
        let aside: Vec<_> = std::fs::read_dir(store.join("aside")).expect("a folder").collect();
        assert_eq!(aside.len(), 1);
        assert_eq!(std::fs::read(aside[0].as_ref().expect("a name").path()).expect("a file"), bad);

        // The head: without a copy there is no way, and with one of before there is.
        let copied = temp.path().join("copy");
        std::fs::copy(head_of(temp.path()), &copied).expect("a head");
        refdb(&repo, &["update-ref", "refs/heads/late", &commits[0]]).ok();
        damage(temp.path());
        assert!(said(&refdb(&repo, &["for-each-ref"])).contains("checksum"));
        let text = said(&refdb(&repo, &["store", "repair"]));
        assert!(text.starts_with("128: ") && text.contains("no head can be read"), "{text}");
        let head = format!("--head={}", copied.display());
        let text = said(&refdb(&repo, &["store", "repair", &head]));
        assert!(text.starts_with("1: ") && text.contains("if anything, is lost"), "{text}");
        assert_eq!(refdb(&repo, &["for-each-ref"]).text(), before);
        refdb(&repo, &["update-ref", "refs/heads/late", &commits[0]]).ok();
        refdb(&repo, &["store", "verify"]).ok();
    }
}

for_every_format! {
    /// Somebody took one of the files away, or put an older one back: in its turn, nobody could write there.
    fn a_slot_that_went_back_is_told_and_mended(format) {
        let (repo, temp, _) = scene(format);
        let url = format!("file://{}", temp.path().join("ring").display());
        refdb(&repo, &["store", "init", "--slots=4", &url]).ok();
        repo.config("refdb.store", &url);
        let commit = &repo.objects().commits[0];
        for at in 0..9 {
            refdb(&repo, &["update-ref", &format!("refs/heads/n{at}"), commit]).ok();
        }
        let before = refdb(&repo, &["for-each-ref"]).text();
        let heads = temp.path().join("ring/head");
        let kept: Vec<_> = (heads.read_dir().expect("a folder"))
            .map(|entry| entry.expect("a name").path())
            .map(|path| (fs::read(&path).expect("a head"), path))
            .collect();
        // The newest head is in slot 1.
        for (slot, is_next, with_all_before) in
            [(0, false, false), (0, false, true), (2, true, false), (2, true, true), (3, false, false)]
        {
            let context = format!("{slot}, {with_all_before}");
            fs::remove_dir_all(&heads).expect("a folder");
            fs::create_dir(&heads).expect("a folder");
            kept.iter().for_each(|(content, path)| fs::write(path, content).expect("a file"));
            let of_slot = |path: &&PathBuf| {
                let name = path.file_name().expect("a name").to_str().expect("text");
                name.starts_with(&format!("{slot}."))
            };
            let mut files: Vec<_> = kept.iter().map(|(_, path)| path).filter(of_slot).collect();
            files.sort();
            let gone = if with_all_before { &files[..] } else { &files[files.len() - 1..] };
            gone.iter().for_each(|path| fs::remove_file(path).expect("a head"));

            let told = said(&refdb(&repo, &["store", "verify"]));
            assert!(!told.starts_with("0: "), "{context}: {told}");
            let listed = refdb(&repo, &["for-each-ref"]);
            // Nothing says then which head is the newest.
            let is_unknown = is_next || slot == 0 && with_all_before;
            assert_eq!(listed.code() != 0, is_unknown, "{context}: {}", said(&listed));
            let made = said(&refdb(&repo, &["store", "init", &url]));
            assert!(!made.starts_with("0: "), "{context}: {made}");
            let repaired = said(&refdb(&repo, &["store", "repair", "--no-dry-run"]));
            let expected = if is_next { "1: " } else { "0: " };
            assert!(repaired.starts_with(expected), "{context}: {repaired}");
            assert!(repaired.contains(&format!("head/{slot}: ")), "{context}: {repaired}");
            assert_eq!(refdb(&repo, &["for-each-ref"]).text(), before, "{context}");
            refdb(&repo, &["store", "verify"]).ok();
            for at in 0..5 {
                refdb(&repo, &["update-ref", "-d", &format!("refs/heads/n{at}")]).ok();
            }
        }
    }

    /// Its files have other numbers.
    fn a_copy_of_a_store_with_other_versions_is_told_at_once(format) {
        let (repo, temp, _) = scene(format);
        let url = format!("file://{}", temp.path().join("ring").display());
        refdb(&repo, &["store", "init", "--slots=2", &url]).ok();
        repo.config("refdb.store", &url);
        let commit = &repo.objects().commits[0];
        for at in 0..3 {
            refdb(&repo, &["update-ref", &format!("refs/heads/n{at}"), commit]).ok();
        }
        let heads = temp.path().join("ring/head");
        fs::rename(heads.join("0.2"), heads.join("0.9")).expect("a head");
        refdb(&repo, &["for-each-ref"]).ok();
        let create = ["update-ref", "refs/heads/new", commit];
        let told = said(&refdb(&repo, &create));
        assert!(told.contains("the store was copied"), "{told}");
        refdb(&repo, &["store", "repair", "--no-dry-run"]).ok();
        refdb(&repo, &create).ok();
        refdb(&repo, &["store", "verify"]).ok();
    }
}

/// Fails unless a command says how a store is mended, and not how local refs are.
fn advises_the_repair_of_the_store(repo: &Repo, args: &[&str]) {
    let text = said(&refdb(repo, args));
    assert!(!text.starts_with("0: "), "{args:?}: {text}");
    assert!(
        text.contains("'refdb store repair' mends"),
        "{args:?}: {text}"
    );
    assert!(
        !text.contains("refs repair") && !text.contains("refs verify"),
        "{args:?}: {text}"
    );
}

for_every_format! {
    fn what_is_damaged_in_a_store_is_mended_by_the_repair_of_the_store(format) {
        let (repo, temp, url) = scene(format);
        refdb(&repo, &["store", "import", &url]).ok();
        repo.config("refdb.store", &url);
        let commit = &repo.objects().commits[0];
        let input: String = (0..3000).map(|at| format!("create refs/x/{at:05} {commit}\n")).collect();
        let stdin = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(["update-ref", "--stdin"]);
        stdin.stdin(input.as_str()).run().ok();
        let create = ["update-ref", "refs/heads/new", commit];
        let tables = temp.path().join("store/tables");
        let table = std::fs::read_dir(&tables).expect("a folder").next();
        let table = table.expect("a table").expect("a name").path();
        let good = std::fs::read(&table).expect("a table");
        let copy = Repo::init_bare(Format::new(refdb_testkit::format::RefFormat::Reftable, format.objects));
        copy.config("refdb.store", &url);
        let commands: [&[&str]; 6] = [
            &["for-each-ref"],
            &["show-ref", "--verify", "refs/heads/b1"],
            &["reflog", "show", "refs/heads/b1"],
            &create,
            &["watch"],
            &["refs", "list"],
        ];
        let damaged = || {
            commands.iter().for_each(|args| advises_the_repair_of_the_store(&repo, args));
            advises_the_repair_of_the_store(&copy, &["sync"]);
            for args in [&["refs", "verify"][..], &["store", "verify"]] {
                let text = said(&refdb(&repo, args));
                assert!(!text.starts_with("0: ") && !text.contains("refs repair"), "{text}");
            }
        };
        // Other bytes, none, another table, and then another head.
        let mut other = good.clone();
        other[40] ^= 1;
        std::fs::write(&table, &other).expect("a file");
        damaged();
        std::fs::remove_file(&table).expect("a table");
        damaged();
        std::fs::write(&table, &good).expect("a file");
        refdb(&repo, &create).ok();
        damage(temp.path());
        damaged();
    }
}

for_every_format! {
    /// A clone can bring a bare repository as files. It must not choose where the user's commands write.
    fn a_bare_repository_that_was_found_names_no_store(format) {
        let (repo, temp, url) = scene(format);
        refdb(&repo, &["store", "import", &url]).ok();
        let hash = format!("--object-format={}", format.objects.name());
        repo.git(["init", "-q", "--bare", &hash, "thing"]).run().ok();
        repo.git(["--git-dir=thing", "config", "refdb.store", &url]).run().ok();
        let head = || std::fs::read(head_of(temp.path())).expect("a head");
        let before = head();
        let thing = repo.path().join("thing");
        let run = |args: &[&str]| {
            oracle::run_of(env!("CARGO_BIN_EXE_refdb"), &thing).args(args).run()
        };
        for args in [&["update-ref", "-d", "refs/heads/b1"][..], &["pack-refs"], &["for-each-ref"]] {
            let output = run(args);
            assert_eq!(output.code(), 128, "{args:?}: {}", said(&output));
            assert!(said(&output).contains("refdb.store is not followed here"), "{}", said(&output));
        }
        assert_eq!(head(), before);
        // Whoever names the repository, or the store, means it.
        for named in ["--git-dir=.".to_owned(), format!("--store={url}")] {
            assert!(run(&[&named, "for-each-ref", "--format=%(refname)"]).text().contains("refs/heads/b1"), "{named}");
        }
    }
}

#[test]
fn a_directory_keeps_its_word() {
    let (repo, temp, url) = scene(Format::REFTABLE_SHA1);
    let before = std::fs::read(head_of(temp.path())).expect("a head");
    let output = refdb(&repo, &["probe", &url]);
    assert!(
        said(&output).ends_with("can keep a store\n"),
        "{}",
        said(&output)
    );
    // The store that is there is as it was, and nothing is left beside it.
    for (dir, left) in [("head", 1), ("tables", 0), ("probe", 0), ("tmp", 0)] {
        let entries = std::fs::read_dir(temp.path().join("store").join(dir)).expect("a folder");
        assert_eq!(entries.count(), left, "{dir}");
    }
    assert_eq!(std::fs::read(head_of(temp.path())).expect("a head"), before);
}

#[test]
fn what_cannot_work_on_a_store_says_so() {
    let (repo, temp, url) = scene(Format::REFTABLE_SHA1);
    let store = ["--store", url.as_str()];
    for args in [
        &["refs", "migrate", "--ref-format=files"][..],
        &["refs", "repair"],
        &["store", "import", &url],
        &["store", "export", &url],
    ] {
        let output = refdb(&repo, &[&store, args].concat());
        assert!(output.code() != 0, "{args:?}");
        assert!(
            said(&output).contains("fatal: "),
            "{args:?}: {}",
            said(&output)
        );
    }
    refdb(&repo, &["store", "import", &url]).ok();
    let again = refdb(&repo, &["store", "import", &url]);
    assert!(said(&again).contains("into a new one"), "{}", said(&again));
    let again = refdb(&repo, &["store", "init", &url]);
    assert!(
        said(&again).contains("there is a store already"),
        "{}",
        said(&again)
    );
    // Nothing is missing because it could not be read.
    let none = format!("file://{}", temp.path().join("none").display());
    for url in [none.as_str(), "s3://key:secret@bucket/x", "file://relative"] {
        let output = refdb(&repo, &["--store", url, "for-each-ref"]);
        assert!(output.code() != 0, "{url}");
        assert!(!said(&output).contains("secret"), "{}", said(&output));
    }
    damage(temp.path());
    let output = refdb(&repo, &["--store", &url, "for-each-ref"]);
    assert!(
        said(&output).contains("checksum of the head"),
        "{}",
        said(&output)
    );
}

for_every_format! {
    fn a_store_is_inspected_like_a_stack(format) {
        let (repo, temp, url) = scene(format);
        refdb(&repo, &["store", "import", &url]).ok();
        let commit = repo.objects().commits[5].clone();
        let on_store = |args: &[&str]| refdb(&repo, &[&["--store", url.as_str()], args].concat());
        let shape = |args: &[&str]| -> serde_json::Value {
            let text = on_store(&[&["inspect", "--json"], args].concat()).text();
            serde_json::from_str(&text).expect("an object")
        };
        on_store(&["update-ref", "refs/heads/later", &commit]).ok();
        on_store(&["update-ref", "-d", "refs/heads/b0"]).ok();
        let listed = || on_store(&["for-each-ref", "--include-root-refs"]).text().lines().count();
        assert_eq!(shape(&[])["live_refs"], listed());
        // All of it has room in the head.
        let head = shape(&["--table=head", "--records"]);
        let records = head["records"].to_string();
        let has_record = |words: [&str; 2]| {
            let mut lines = head["records"].as_array().expect("lines").iter();
            lines.any(|line| words.iter().all(|word| line.as_str().expect("text").contains(word)))
        };
        assert!(has_record(["ref refs/heads/later ", &commit]), "{records}");
        assert!(has_record(["ref refs/heads/b0 ", " deleted"]), "{records}");
        // So many have not: a table of them lies in the store, and a maintainer makes one of all.
        let lines: String = (0..3000)
            .map(|at| format!("create refs/heads/many/{at:05} {commit}\n"))
            .collect();
        let write = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
        write.args(["--store", &url, "update-ref", "--stdin"]).stdin(lines).run().ok();
        on_store(&["update-ref", "refs/heads/last", &commit]).ok();
        on_store(&["pack-refs"]).ok();
        let after = shape(&[]);
        let tables = after["tables"].as_array().expect("tables");
        let name = tables[0]["name"].as_str().expect("a name");
        assert!(tables.len() == 2 && name.starts_with('m'), "{after}");
        assert_eq!((&tables[1]["name"], &tables[1]["refs"]), (&"head".into(), &0.into()));
        let head = shape(&["--table=head", "--records"]);
        assert_eq!(head["records"].as_array().map(Vec::len), Some(0), "{head}");
        assert!(temp.path().join("store/tables").join(name).exists(), "{after}");
        assert_eq!(shape(&["--table", name])["refs"], listed());
        assert_eq!((&after["live_refs"], &after["dead_refs"]), (&listed().into(), &0.into()));
        assert!(on_store(&["inspect"]).text().contains("compaction: nothing is due"));
        std::fs::remove_file(temp.path().join("store/tables").join(name)).expect("it was there");
        let told = said(&on_store(&["inspect"]));
        assert!(told.contains(&format!("{name}: the table is missing")), "{told}");
    }
}

#[test]
fn what_works_on_local_refs_alone_says_what_does_so_on_a_store() {
    let (repo, _temp, url) = scene(Format::FILES_SHA1);
    for (args, instead) in [
        (&["refs", "repair"][..], "refdb store repair"),
        (
            &["refs", "migrate", "--ref-format=files"],
            "refdb store export",
        ),
    ] {
        let output = refdb(&repo, &[&["--store", url.as_str()], args].concat());
        assert!(said(&output).contains(instead), "{}", said(&output));
        assert_eq!(output.code(), 128);
    }
}

/// Returns the path of the head: of the files of slot 0, the one with the greatest number.
fn head_of(temp: &Path) -> PathBuf {
    let files = std::fs::read_dir(temp.join("store/head")).expect("a folder");
    let number = |path: &PathBuf| -> u64 {
        let number = path.extension().and_then(|it| it.to_str());
        number.and_then(|it| it.parse().ok()).expect("a number")
    };
    let files = files.map(|file| file.expect("a file").path());
    files.max_by_key(number).expect("there is a head")
}

/// Flips a bit of the head.
fn damage(temp: &Path) {
    let path = head_of(temp);
    let mut content = std::fs::read(&path).expect("a head");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&path, content).expect("written");
}

/// Whoever was killed while it wrote left a file that is nobody's: it stays until somebody looks after the store.
#[test]
fn what_a_killed_writer_left_goes_with_the_next_maintenance_or_repair() {
    let (repo, _temp, url) = scene(Format::new(RefFormat::Files, ObjectFormat::Sha1));
    let root = Path::new(url.strip_prefix("file://").expect("a path"));
    let left = root.join("tmp/0123456789abcdef");
    let other = root.join("tmp/somebody's");
    for args in [
        &["store", "maintain", "--grace=0", &url][..],
        &["store", "repair", &url],
    ] {
        for path in [&left, &other] {
            std::fs::write(path, "half").expect("a file");
        }
        refdb(&repo, args).ok();
        assert!(!left.exists(), "{args:?}");
        assert!(other.exists(), "{args:?}");
    }
    std::fs::write(&left, "half").expect("a file");
    refdb(&repo, &["store", "repair", "--dry-run", &url]).ok();
    assert!(left.exists(), "a dry run changes nothing");
}
