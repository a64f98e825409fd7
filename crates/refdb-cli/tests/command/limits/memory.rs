//! Files of very many small things: memory stays bounded.

use std::fs;

use bstr::ByteSlice;
use refdb_testkit::repo::Repo;

use super::{branches, create, limited, list};

#[test]
fn files_of_nothing_but_bad_lines_are_repaired_in_little_memory() {
    let repo = Repo::init(refdb_testkit::Format::FILES_SHA1);
    let commits = &repo.objects().commits;
    repo.update_refs(create(branches(20), &commits[0]));
    repo.git(["pack-refs", "--all"]).run().ok();
    let before = list(repo.path());
    // Bad lines of two kinds in turn: each of three bytes was a finding of some hundred bytes.
    let junk = b"\n\0\n".repeat(1 << 20);
    for file in ["logs/refs/heads/b00004", "packed-refs"] {
        let path = repo.git_dir().join(file);
        let good = fs::read(&path).expect("it is there");
        fs::write(&path, [&good, &junk[..]].concat()).expect("room");
        let out = limited(
            repo.path(),
            "-v 250000 -t 20",
            "refs repair --no-dry-run",
            "",
        );
        let said = out.stderr.as_bstr();
        assert_eq!(out.status.code(), Some(1), "{file}: {said}");
        assert!(fs::read(&path).expect("it is there") == good, "{file}");
    }
    assert_eq!(list(repo.path()), before);
}

/// The file has 18 MiB.
#[test]
fn many_packed_refs_are_checked_and_repaired_in_little_memory() {
    let repo = Repo::init(refdb_testkit::Format::FILES_SHA1);
    let id = &repo.objects().commits[0];
    let line = |number: usize| format!("{id} refs/heads/b{number:07}\n");
    let lines: String = (0..300_000).map(line).collect();
    let good = format!("# pack-refs with: peeled fully-peeled sorted \n{lines}");
    let path = repo.git_dir().join("packed-refs");
    fs::write(&path, &good).expect("room");
    let out = limited(repo.path(), "-v 110000", "refs verify --deep", "");
    assert!(out.status.success(), "{}", out.stderr.as_bstr());
    fs::write(&path, format!("{good}bad line\n")).expect("room");
    let out = limited(repo.path(), "-v 160000", "refs repair --no-dry-run", "");
    let said = out.stderr.as_bstr();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains_str("nobody can name"), "{said}");
    assert!(fs::read_to_string(&path).expect("text") == good);
}

/// A million lines of a section, and one whose name is long: Git needs less than 100 MiB for either.
#[test]
fn a_configuration_of_many_lines_needs_little_memory() {
    let repo = Repo::init(refdb_testkit::Format::FILES_SHA1);
    let config = repo.git_dir().join("config");
    let before = fs::read_to_string(&config).expect("it is there");
    let long = "a".repeat(20_000);
    for more in [
        format!("[a]\n{}", "b\n".repeat(1 << 20)),
        format!("[{long}]\n{}", "b\nc\n".repeat(10_000)),
    ] {
        fs::write(&config, before.clone() + &more).expect("room");
        let out = limited(repo.path(), "-v 200000", "symbolic-ref HEAD", "");
        let told = out.stderr.as_bstr();
        assert_eq!(out.stdout.as_bstr(), "refs/heads/main\n", "{told}");
    }
}

#[test]
fn trailers_of_a_long_message_need_little_memory() {
    let repo = Repo::init(refdb_testkit::Format::FILES_SHA1);
    let tree = format!("{}^{{tree}}", repo.objects().commits[0]);
    let message = ["s\n\n", &"\n".repeat(30 << 20), "K: v\n"].concat();
    let commit = repo.git(["commit-tree", &tree]).stdin(message).run().ok();
    repo.update_refs(format!("create refs/heads/x {}", commit.to_str_lossy()));
    let list = "for-each-ref --format='%(trailers)%(trailers:only)'";
    let out = limited(repo.path(), "-v 300000", list, "");
    assert_eq!(
        out.stdout.as_bstr(),
        "K: v\nK: v\n\n",
        "{}",
        out.stderr.as_bstr()
    );
}
