//! `refs verify` beside Git's: the same findings in the same words and order, and the same exit
//! code, whatever lies in the repository.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bstr::{BString, ByteSlice};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

const HEADER: &str = "# pack-refs with: peeled fully-peeled sorted \n";

/// What ends a run of both in the same way.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: i32,
    stdout: BString,
    stderr: BString,
}

fn told(out: Output) -> Told {
    Told {
        code: out.code(),
        stdout: out.stdout.into(),
        stderr: out.stderr.into(),
    }
}

/// Runs both in `dir`; returns what both told.
#[track_caller]
fn both(dir: &Path, config: &[&str], options: &[&str]) -> Told {
    let mut args: Vec<&str> = Vec::new();
    for value in config {
        args.extend(["-c", value]);
    }
    args.extend(["refs", "verify"]);
    args.extend(options);
    let git = told(oracle::git(dir).args(&args).run());
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir);
    assert_eq!(told(ours.args(&args).run()), git, "{args:?}");
    git
}

#[track_caller]
fn both_ways(repo: &Repo) -> Told {
    both(repo.path(), &[], &["--strict"]);
    both(repo.path(), &[], &["--verbose"]);
    both(repo.path(), &[], &[])
}

fn write(repo: &Repo, path: &str, content: impl AsRef<[u8]>) {
    let path = repo.git_dir().join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
    fs::write(path, content).expect("it can be written");
}

/// The formats with loose refs.
fn files(each: impl Fn(Repo, String, String)) {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let (oid, null) = (repo.objects().commits[0].clone(), format.zero());
        repo.update_refs(format!(
            "create refs/heads/main {oid}\ncreate refs/tags/x {oid}\n"
        ));
        each(repo, oid, null);
    }
}

#[test]
fn contents_of_loose_refs() {
    files(|repo, oid, null| {
        assert_eq!(both_ways(&repo).code, 0);
        let mut ids = 0;
        for content in [
            "",
            "x",
            "bad\nbad\n",
            "\n",
            "%",
            "%\n\n",
            "% x\n",
            "%x\n",
            "%\tx\\y\n\nz",
            "% \n",
            "% ",
            "^\n",
            "^",
            "^ x\n",
            " %\n",
            "%\n\0x",
            "%\0x",
            "ab \0\0\n",
            "\0\0\0",
            "ref: refs/heads/main",
            "ref:refs/heads/main\n",
            "ref: refs/heads/main  \n",
            "ref: refs/heads/main\n\n",
            "ref: refs/heads/main \n ",
            "ref: refs/heads/a b\n",
            "ref: refs/heads/..\n",
            "ref: \n",
            "ref:",
            "ref: HEAD\nx\n",
            "ref: HEAD\n",
            "ref: ORIG_HEAD\n",
            "ref: FETCH_HEAD\n",
            "ref: OTHER\n",
            "ref: logs/x\n",
            "ref: x\n",
            "ref: refs\n",
            "ref: refs/x\n",
            "ref: worktrees/a/b\n",
            "ref: worktrees/\n",
            "ref: main-worktree/HEAD\n",
            "ref: refs/heads/a\0b\n",
            "ref: refs/heads/x.lock\n",
        ] {
            ids += 1;
            let content = content.replace('%', &oid).replace('^', &null);
            write(&repo, &format!("refs/heads/case-{ids}"), content);
        }
        let answer = both_ways(&repo);
        assert_eq!(answer.code, 255);
        assert!(answer.stderr.lines().count() > 30);
    });
}

#[test]
fn names_and_kinds_of_loose_refs() {
    files(|repo, oid, _| {
        for name in [
            "refs/heads/a..b",
            "refs/heads/@{x",
            "refs/heads/.x",
            "refs/heads/.x.lock",
            "refs/heads/x.lock",
            "refs/.lock",
            "refs/one",
            "refs/heads/d.lock/x",
            "refs/.d/x.lock",
            "refs/.d/y",
            "refs/heads/a b",
            "FETCH_HEAD",
            "OTHER",
            "logs/refs/heads/odd",
        ] {
            write(&repo, name, format!("{oid}\n"));
        }
        let git_dir = repo.git_dir();
        for (text, name) in [
            ("main", "refs/heads/l1"),
            ("../tags/x", "refs/heads/l2"),
            ("../../HEAD", "refs/heads/l3"),
            ("../../../outside", "refs/heads/l4"),
            ("missing", "refs/heads/l5"),
            ("heads", "refs/l6"),
            ("refs/heads/main", "L_HEAD"),
            ("nowhere", "M_HEAD"),
        ] {
            symlink(text, git_dir.join(name)).expect("a link");
        }
        fs::create_dir(git_dir.join("D_HEAD")).expect("a folder");
        assert_eq!(both_ways(&repo).code, 255);
        symlink("no/such/ref", git_dir.join("refs/heads/l7")).expect("a link");
        assert_eq!(both_ways(&repo).code, 128);
    });
}

#[test]
fn root_refs() {
    files(|repo, oid, null| {
        for content in [
            "ref: refs/tags/x\n",
            "ref: refs/tags/x ",
            "ref: refs/heads/a b\n",
            "ref: refs/tags/a..b\n",
            "%",
            "%\nx",
            "^\n",
        ] {
            let content = content.replace('%', &oid).replace('^', &null);
            write(&repo, "HEAD", content);
            both_ways(&repo);
            both(repo.path(), &["fsck.badHeadTarget=warn"], &[]);
        }
        write(&repo, "HEAD", "ref: refs/heads/main\n");
        for name in [
            "ORIG_HEAD",
            "A_HEAD",
            "Z_HEAD",
            "AUTO_MERGE",
            "BISECT_EXPECTED_REV",
        ] {
            write(&repo, name, "bad");
        }
        assert_eq!(both_ways(&repo).stderr.lines().count(), 1);
        both(repo.path(), &["fsck.badRefContent=warn"], &[]);
    });
}

#[test]
fn lines_of_packed_refs() {
    files(|repo, oid, null| {
        for content in [
            "",
            "@",
            "# x\n",
            "#\n",
            "# pack-refs with:\n",
            "\n",
            "x",
            "x\n",
            "@x\n",
            "@x",
            "# x\n% refs/heads/b\n% refs/heads/a\n",
            "# x sorted\nx\n% refs/heads/a\n^%\n",
            "% refs/heads/b\n% refs/heads/a\n",
            "@% refs/heads/b\n% refs/heads/a\n% refs/heads/a\n",
            "@% refs/heads/a\n% refs/heads/a\n",
            "@0 refs/heads/a\n",
            "@%\n",
            "@% \n",
            "@%refs/x\n",
            "@%\trefs/heads/a\n",
            "@%  refs/heads/a\n",
            "@% refs/heads/a..b\n% HEAD\n% refs/../x\n",
            "@% refs/heads/a\0b\n",
            "@\n% refs/heads/a\n",
            "@^%\n% refs/heads/a\n",
            "@% refs/heads/a\n^%\n^%\n",
            "@% refs/heads/a\n^% x\n",
            "@% refs/heads/a\n^x\n",
            "@% refs/heads/a\n^%",
            "@x\n^%\n",
            "@%\0 refs/heads/a\n",
            "@x\0y z\n",
            "# pack-refs with: sorted\n% refs/heads/b\n^%\n% refs/heads/a\n^%\n",
            "# pack-refs with:  xsorted sorted\n% refs/heads/b\n% refs/heads/a\n",
            "# pack-refs with: sortedx\n% refs/heads/b\n% refs/heads/a\n",
            "@% refs/heads/b\n% refs/heads/a b\n",
            "@% refs/heads/b\n% refs/heads/a\nx",
        ] {
            let content = content.replace('@', HEADER).replace('%', &oid);
            write(&repo, "packed-refs", content.replace('0', &null[..1]));
            both_ways(&repo);
            both(repo.path(), &["fsck.badRefName=warn"], &[]);
            both(repo.path(), &["fsck.badRefName=ignore"], &["--strict"]);
        }
        // Two errors on one line; where the second is none, Git forgets the first.
        let content = format!("{HEADER}{oid} x\0\n");
        write(&repo, "packed-refs", content);
        assert_eq!(both_ways(&repo).stderr.lines().count(), 2);
        let packed = repo.git_dir().join("packed-refs");
        fs::remove_file(&packed).expect("it is there");
        symlink("elsewhere", &packed).expect("a link");
        both_ways(&repo);
        fs::remove_file(&packed).expect("it is there");
        fs::create_dir(&packed).expect("a folder");
        assert_eq!(both_ways(&repo).code, 255);
    });
}

for_every_format! {
    fn settings(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let target = ["symbolic-ref", "refs/heads/s", "odd/target"];
        repo.git(target).run().ok();
        repo.git(["symbolic-ref", "HEAD", "refs/tags/x"]).run().ok();
        if format.refs == RefFormat::Files {
            write(&repo, "refs/heads/y", commit);
        }
        write(&repo, "list", format!("# ids\n{commit} # one\n\n"));
        write(&repo, "bad-list", "x\n");
        let list = format!("fsck.skipList={}", repo.git_dir().join("list").display());
        let bad_list = format!("fsck.skipList={}", repo.git_dir().join("bad-list").display());
        for setting in [
            "fsck.refMissingNewline=error", "fsck.badHeadTarget=warn", "fsck.badHeadTarget=ignore",
            "fsck.symrefTargetIsNotARef=error", "fsck.badRefOid=info", "fsck.badRefOid=ERROR",
            "fsck.badRefOid", "fsck.foo=bar", "fsck.foo", "fsck.bad-ref-oid=warn",
            "fsck.badRefOid=", "fsck.nulInHeader=warn", "fsck.nulInHeader=error", "fsck.x.y=z",
            "fsck.badDate=ignore", "fetch.fsck.foo=bar", "fsck.largePathname=error:x",
            "fsck.largePathname=error:10", "fsck.badRefOid=error:10", "fsck.skipList",
            "fsck.skipList=/no/such/list", "fsck.skipList=:(optional)/no/such/list",
            "fsck.skipList=:(optional)", &list, &bad_list,
        ] {
            for options in [&[][..], &["--strict"]] {
                both(repo.path(), &[setting], options);
            }
        }
        repo.config("fsck.badHeadTarget", "ignore");
        assert_eq!(both(repo.path(), &[], &[]).code, 0);
        let config = repo.git_dir().join("config");
        let mut text = fs::read_to_string(&config).expect("the configuration");
        text.push_str("[fsck]\n\n\tskipList\n");
        fs::write(&config, text).expect("the configuration");
        both(repo.path(), &[], &[]);
    }

    fn worktrees(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let made: Vec<_> = ["w1", "w2", "w3"].map(|name| repo.worktree(name)).into();
        made[0].git(["symbolic-ref", "HEAD", "refs/tags/y"]).run().ok();
        made[1].git(["update-ref", "refs/bisect/x", &commit]).run().ok();
        made[2].git(["symbolic-ref", "refs/worktree/s", "odd"]).run();
        if format.refs == RefFormat::Files {
            write(&repo, "worktrees/w1/refs/bisect/bad", "x");
            write(&repo, "worktrees/w2/refs/heads/hidden", "x");
            symlink("bisect/x", made[1].git_dir.join("refs/s")).expect("a link");
            fs::remove_dir_all(made[2].git_dir.join("refs")).expect("it is there");
        }
        assert_eq!(both_ways(&repo).code, 255);
        for worktree in &made {
            both(&worktree.path, &[], &["--verbose"]);
        }
        fs::remove_file(made[0].git_dir.join("gitdir")).expect("it is there");
        both_ways(&repo);
    }

    fn calls(format) {
        let repo = Repo::init_bare(format);
        assert_eq!(both(repo.path(), &[], &["--verbose"]).code, 0);
        let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
        let ours = ours.args(["refs", "verify", "x"]).run();
        assert_eq!(ours.code(), 129);
        assert_eq!(ours.stderr.as_bstr(), "usage: 'refdb refs verify' takes no arguments\n");
        both(repo.path(), &[], &["--no-strict"]);
    }

    fn a_head_that_leads_to_no_branch(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/tags/v1 {commit}\n"));
        repo.git(["symbolic-ref", "HEAD", "refs/tags/v1"]).run().ok();
        assert_eq!(both(repo.path(), &[], &[]).code, 255);
        let deep = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
        let deep = deep.args(["refs", "verify", "--deep"]).run();
        assert_eq!(deep.code(), 2, "{}", deep.stdout.as_bstr());
        let said = "HEAD leads to 'refs/tags/v1', no branch";
        assert!(deep.stdout.contains_str(said), "{}", deep.stdout.as_bstr());
    }
}

#[test]
fn names_of_tables() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let dir = repo.git_dir().join("reftable");
        let list = fs::read_to_string(dir.join("tables.list")).expect("a list");
        let mut name = list.lines().last().expect("a table").to_owned();
        for other in [
            "foo.ref",
            "0x1-0x2-0x3.ref",
            "1-2-3.log",
            "1-2-3.REF",
            "--.ref",
            "g-1-2.ref",
            "1-2.ref",
            "1-2-3-4.ref",
            "0x000000000001-0x000000000001-00000000.ref",
        ] {
            fs::rename(dir.join(&name), dir.join(other)).expect("it is there");
            let list = fs::read_to_string(dir.join("tables.list")).expect("a list");
            write(&repo, "reftable/tables.list", list.replace(&name, other));
            other.clone_into(&mut name);
            both_ways(&repo);
        }
    }
}

/// Runs the deep check; returns its exit code and what it found.
fn deep(repo: &Repo, config: &[&str]) -> (i32, String) {
    let config = config.iter().flat_map(|value| ["-c", value]);
    let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(config);
    let out = run.args(["refs", "verify", "--deep"]).run();
    (
        out.code(),
        String::from_utf8_lossy(&out.stdout).into_owned(),
    )
}

/// What Git's check warns of in symrefs, the deep one does not pass over.
#[test]
fn a_deep_check_warns_of_symrefs_as_the_other_one_does() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        assert_eq!(deep(&repo, &[]), (0, String::new()), "{format}");
        write(&repo, "refs/heads/far", "ref: logs/somewhere\n");
        symlink("main", repo.git_dir().join("refs/heads/link")).expect("a link");
        symlink("../../packed", repo.git_dir().join("refs/heads/file")).expect("a link");
        write(&repo, "packed", format!("{commit}\n"));
        let told = both_ways(&repo);
        assert_eq!(told.stderr.find_iter("symlinkRef").count(), 2, "{told:?}");
        assert!(
            told.stderr.contains_str("symrefTargetIsNotARef"),
            "{told:?}"
        );

        // As Git writes one, which its own check cannot follow.
        let link = repo.git_dir().join("refs/heads/link");
        fs::remove_file(&link).expect("it is there");
        symlink("refs/heads/main", &link).expect("a link");
        let (code, found) = deep(&repo, &[]);
        assert_eq!(code, 1, "{format}: {found}");
        for part in [
            "refs/heads/far: the symref points to 'logs/somewhere', which is not below refs/",
            "refs/heads/link: a symbolic link",
            "'refdb symbolic-ref refs/heads/link refs/heads/main'",
            "refs/heads/file: a symbolic link",
        ] {
            assert!(found.contains(part), "{format}: {part}: {found}");
        }
        assert_eq!(found.lines().count(), 3, "{format}: {found}");
        let ignored = [
            "fsck.symlinkRef=ignore",
            "fsck.symrefTargetIsNotARef=ignore",
        ];
        assert_eq!(deep(&repo, &ignored), (0, String::new()), "{format}");
        let (code, found) = deep(&repo, &["fsck.symlinkRef=error"]);
        assert_eq!(code, 2, "{format}: {found}");
    }
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        repo.git(["symbolic-ref", "refs/heads/far", "logs/somewhere"])
            .run();
        let told = both_ways(&repo);
        assert!(
            told.stderr.contains_str("symrefTargetIsNotARef"),
            "{told:?}"
        );
        let (code, found) = deep(&repo, &[]);
        assert_eq!(code, 1, "{format}: {found}");
        assert!(
            found.contains("which is not below refs/"),
            "{format}: {found}"
        );
    }
}
