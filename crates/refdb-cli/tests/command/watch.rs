//! What changes in refs that are kept in the repository itself: told once, in both formats, whatever was done to
//! them, and by whom.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use refdb_testkit::for_every_format;
use refdb_testkit::format::RefFormat;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run()
}

/// What is known of the refs by nothing but what was told.
#[derive(Debug, Default)]
struct Told {
    refs: BTreeMap<String, String>,
    moment: Option<String>,
    resyncs: usize,
}

impl Told {
    /// Takes one line in.
    fn take(&mut self, line: &str) {
        if line == "resync" {
            self.refs.clear();
            self.resyncs += 1;
        } else if let Some(moment) = line.strip_prefix("until ") {
            self.moment = Some(moment.to_owned());
        } else {
            let words: Vec<&str> = line.split(' ').collect();
            let [_index, value, name] = words.as_slice() else {
                panic!("{line}");
            };
            match *value {
                "deleted" => drop(self.refs.remove(*name)),
                value => drop(self.refs.insert((*name).to_owned(), value.to_owned())),
            }
        }
    }

    /// Asks once, from where it was left; returns what was told, without numbers and moment.
    fn ask(&mut self, repo: &Repo) -> Vec<String> {
        let since = self.moment.as_ref().map(|it| format!("--since={it}"));
        let args: Vec<&str> = ["watch"].into_iter().chain(since.as_deref()).collect();
        let text = refdb(repo, &args).text();
        text.lines().for_each(|line| self.take(line));
        let news = text.lines().filter(|line| !line.starts_with("until "));
        let plain = |line: &str| match line.split_once(' ') {
            Some((_, rest)) => rest.to_owned(),
            None => line.to_owned(),
        };
        news.map(plain).collect()
    }

    /// Fails unless it is what Git says.
    fn agrees(&self, repo: &Repo) {
        let format = "--format=%(refname) %(objectname) %(symref)";
        let text = refdb(repo, &["for-each-ref", "--include-root-refs", format]).text();
        let mut there: BTreeMap<String, String> = text
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let value = match words[2] {
                    "" => words[1].to_owned(),
                    target => format!("ref:{target}"),
                };
                (words[0].to_owned(), value)
            })
            .collect();
        // Git lists no HEAD of a branch that is not there.
        let head = repo.git(["symbolic-ref", "HEAD"]).run().text();
        there.insert("HEAD".to_owned(), format!("ref:{}", head.trim()));
        assert_eq!(self.refs, there);
    }
}

fn set(repo: &Repo, name: &str, at: usize) {
    let commits = &repo.objects().commits;
    repo.git(["update-ref", name, &commits[at % commits.len()]])
        .run()
        .ok();
}

fn delete(repo: &Repo, name: &str) {
    repo.git(["update-ref", "-d", name]).run().ok();
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(done.expect("it runs").success());
}

/// Returns what lies below a directory and is not for the group to write.
fn not_shared(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let stat = fs::symlink_metadata(&path).expect("it is there");
        let wanted = if stat.is_dir() { 0o2070 } else { 0o060 };
        if stat.mode() & wanted != wanted {
            found.push(format!("{} {:o}", path.display(), stat.mode()));
        }
        if stat.is_dir() {
            found.append(&mut not_shared(&path));
        }
    }
    found
}

for_every_format! {
    /// Whoever may write the refs of a shared repository may ask, whoever asked first.
    fn what_is_kept_is_shared_as_the_repository_is(format) {
        let repo = Repo::init(format);
        repo.git(["config", "core.sharedRepository", "group"]).run();
        let id = repo.objects().commits[0].clone();
        repo.update_refs(format!("create refs/heads/main {id}\n"));
        for (at, umask) in ["077", "022"].into_iter().enumerate() {
            repo.update_refs(format!("create refs/heads/new-{at} {id}\n"));
            let call = format!("umask {umask}; exec '{}' watch", env!("CARGO_BIN_EXE_refdb"));
            let output = Command::new("sh").args(["-c", &call]).current_dir(repo.path()).output();
            let output = output.expect("it runs");
            assert!(output.status.success(), "{output:?}");
            assert_eq!(not_shared(&repo.git_dir().join("refdb-watch")), Vec::<String>::new());
        }
    }

    fn local_changes_are_told_once(format) {
        let repo = Repo::init(format);
        for at in 0..4 {
            set(&repo, &format!("refs/heads/b{at}"), at);
        }
        let mut told = Told::default();
        let all = told.ask(&repo);
        assert_eq!((all[0].as_str(), all.len()), ("resync", 6));
        told.agrees(&repo);
        assert!(told.ask(&repo).is_empty());
        let commits = &repo.objects().commits;
        set(&repo, "refs/heads/z", 7);
        refdb(&repo, &["update-ref", "-d", "refs/heads/b3"]).ok();
        repo.git(["symbolic-ref", "refs/heads/s", "refs/heads/z"]).run().ok();
        let mut news = told.ask(&repo);
        let made = format!("{} refs/heads/z", commits[7]);
        let mut expected = vec!["deleted refs/heads/b3".to_owned(), made, "ref:refs/heads/z refs/heads/s".to_owned()];
        news.sort();
        expected.sort();
        assert_eq!(news, expected);
        told.agrees(&repo);
        // What only moves records is no news.
        repo.git(["pack-refs", "--all"]).run().ok();
        refdb(&repo, &["refs", "optimize"]).ok();
        assert!(told.ask(&repo).is_empty());
        // Gone and there again with its value; gone and there again with another; gone, and merged away.
        delete(&repo, "refs/heads/b0");
        set(&repo, "refs/heads/b0", 0);
        delete(&repo, "refs/heads/b1");
        set(&repo, "refs/heads/b1", 5);
        delete(&repo, "refs/heads/b2");
        repo.git(["pack-refs", "--all"]).run().ok();
        let mut news = told.ask(&repo);
        news.sort();
        assert_eq!(news, [format!("{} refs/heads/b1", commits[5]), "deleted refs/heads/b2".to_owned()]);
        told.agrees(&repo);
        assert_eq!(told.resyncs, 1);
    }

    fn names_are_told_as_they_are(format) {
        let repo = Repo::init(format);
        let name = OsStr::from_bytes(b"refs/heads/\xff\xe4");
        let args = ["update-ref".as_ref(), name, repo.objects().commits[0].as_ref()];
        oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(args).run().ok();
        let told = refdb(&repo, &["watch"]).stdout;
        assert!(told.split(|&byte| byte == b'\n').any(|line| line.ends_with(name.as_bytes())), "{told:?}");
        // What a symref leads to as well.
        repo.git(["symbolic-ref".as_ref(), OsStr::new("refs/heads/s"), name]).run().ok();
        let told = refdb(&repo, &["watch"]).stdout;
        let line = [b" ref:", name.as_bytes(), b" refs/heads/s"].concat();
        assert!(told.split(|&byte| byte == b'\n').any(|it| it.ends_with(&line)), "{told:?}");
    }

    fn changes_are_told_in_their_order_by_tables(format) {
        let repo = Repo::init(format);
        set(&repo, "refs/heads/first", 0);
        let mut told = Told::default();
        told.ask(&repo);
        for (at, name) in ["m", "z", "a", "k"].iter().enumerate() {
            set(&repo, &format!("refs/heads/{name}"), at);
        }
        let news = told.ask(&repo);
        let names: Vec<&str> = news.iter().filter_map(|line| line.rsplit('/').next()).collect();
        match format.refs {
            RefFormat::Reftable => assert_eq!(names, ["m", "z", "a", "k"]),
            // There is no order on disk.
            RefFormat::Files => assert_eq!(names, ["a", "k", "m", "z"]),
        }
    }

    fn a_backup_that_is_put_back_hides_nothing(format) {
        let repo = Repo::init(format);
        for at in 0..3 {
            set(&repo, &format!("refs/heads/b{at}"), at);
        }
        let mut told = Told::default();
        told.ask(&repo);
        let temp = tempfile::tempdir().expect("a folder");
        let (git_dir, backup) = (repo.git_dir().to_owned(), temp.path().join("backup"));
        copy(&git_dir, &backup);
        set(&repo, "refs/heads/lost", 4);
        set(&repo, "refs/heads/b0", 5);
        told.ask(&repo);
        // All of it, with what was told: as many changes follow as there were, and are others.
        copy(&backup, &git_dir);
        set(&repo, "refs/heads/other", 4);
        set(&repo, "refs/heads/b1", 6);
        let mut stranger = Told { moment: told.moment.clone(), ..Told::default() };
        refdb(&repo, &["watch"]).ok();
        assert_eq!(stranger.ask(&repo)[0], "resync");
        stranger.agrees(&repo);
        told.ask(&repo);
        assert_eq!(told.resyncs, 2);
        told.agrees(&repo);
        // The refs alone: the difference is told, and what it is.
        set(&repo, "refs/heads/again", 3);
        told.ask(&repo);
        let kept = temp.path().join("kept");
        copy(&git_dir.join("refdb-watch"), &kept);
        copy(&backup, &git_dir);
        copy(&kept, &git_dir.join("refdb-watch"));
        let mut news = told.ask(&repo);
        news.sort();
        let old = format!("{} refs/heads/b1", repo.objects().commits[1]);
        assert_eq!(news, [old.as_str(), "deleted refs/heads/again", "deleted refs/heads/other"]);
        assert_eq!(told.resyncs, 2);
        told.agrees(&repo);
        // What was told is gone, or that of another repository.
        fs::remove_dir_all(git_dir.join("refdb-watch")).expect("it was there");
        set(&repo, "refs/heads/b1", 7);
        told.ask(&repo);
        assert_eq!(told.resyncs, 3);
        told.agrees(&repo);
    }

    fn a_migration_is_no_news(format) {
        let repo = Repo::init(format);
        set(&repo, "refs/heads/a", 0);
        let mut told = Told::default();
        told.ask(&repo);
        let there = match format.refs {
            RefFormat::Files => ["--ref-format=reftable", "--ref-format=files"],
            RefFormat::Reftable => ["--ref-format=files", "--ref-format=reftable"],
        };
        for (at, to) in there.iter().enumerate() {
            refdb(&repo, &["refs", "migrate", to]).ok();
            assert!(told.ask(&repo).is_empty());
            set(&repo, "refs/heads/a", at + 1);
            set(&repo, &format!("refs/heads/n{at}"), at);
            assert_eq!(told.ask(&repo).len(), 2);
            told.agrees(&repo);
        }
        assert_eq!(told.resyncs, 1);
    }

    fn each_worktree_has_its_own_changes(format) {
        let repo = Repo::init(format);
        set(&repo, "refs/heads/a", 0);
        let linked = tempfile::tempdir().expect("a folder");
        let path = linked.path().join("linked");
        let name = path.to_str().expect("UTF-8");
        repo.git(["worktree", "add", "-q", "--no-checkout", "-b", "there", name, "refs/heads/a"]).run().ok();
        let here = |args: &[&str]| oracle::run_of(env!("CARGO_BIN_EXE_refdb"), &path).args(args).run().text();
        let first = here(&["watch"]);
        assert!(first.contains(" ref:refs/heads/there HEAD\n"), "{first}");
        let moment = first.rsplit(' ').next().expect("a moment").trim().to_owned();
        repo.git(["symbolic-ref", "HEAD", "refs/heads/a"]).run().ok();
        set(&repo, "refs/heads/b", 1);
        let news = here(&["watch", &format!("--since={moment}")]);
        let lines: Vec<&str> = news.lines().collect();
        assert!(lines.len() == 2 && lines[0].ends_with(" refs/heads/b"), "{news}");
        // The moment of one worktree says nothing in another.
        let main = refdb(&repo, &["watch", &format!("--since={moment}")]).text();
        assert!(main.starts_with("resync\n") && main.contains(" ref:refs/heads/a HEAD\n"), "{main}");
    }

    /// Whoever follows is killed again and again, while refs come and go, are packed, and are moved into the
    /// other format and back.
    fn who_goes_on_after_a_kill_misses_nothing(format) {
        let repo = Repo::init(format);
        set(&repo, "refs/heads/start", 0);
        let mut told = Told::default();
        told.ask(&repo);
        for round in 0..6_usize {
            let mut watch = Command::new(env!("CARGO_BIN_EXE_refdb"));
            let moment = told.moment.clone().expect("a moment");
            watch.args(["watch", "--follow", "--since", &moment]).current_dir(repo.path());
            let mut child = watch.stdout(Stdio::piped()).spawn().expect("it runs");
            for at in 0..6 {
                let name = format!("refs/heads/r{}", (round * 5 + at * 3) % 7);
                match (round + at) % 3 {
                    0 => drop(repo.git(["update-ref", "-d", &name]).run()),
                    _ => set(&repo, &name, round + at),
                }
            }
            match round {
                1 | 4 => drop(repo.git(["pack-refs", "--all"]).run().ok()),
                2 => {
                    let to = match format.refs {
                        RefFormat::Files => "--ref-format=reftable",
                        RefFormat::Reftable => "--ref-format=files",
                    };
                    refdb(&repo, &["refs", "migrate", to]).ok();
                    set(&repo, "refs/heads/moved", 3);
                }
                _ => {}
            }
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            // At least one moment, and whatever comes before the kill arrives. What is cut off is not taken.
            let mut seen = Vec::new();
            for line in lines.by_ref() {
                let line = line.expect("text");
                seen.push(line);
                if seen.last().is_some_and(|line| line.starts_with("until ")) {
                    seen.drain(..).for_each(|line| told.take(&line));
                    child.kill().expect("it runs");
                }
            }
            let status = child.wait().expect("it ran");
            assert!(!status.success(), "it went on until it was killed");
        }
        told.ask(&repo);
        told.agrees(&repo);
        assert_eq!(told.resyncs, 1);
    }

    fn a_link_in_the_place_of_what_was_told_is_not_followed(format) {
        let repo = Repo::init(format);
        let temp = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(temp.path(), repo.git_dir().join("refdb-watch")).expect("a link");
        let output = refdb(&repo, &["watch"]);
        assert_eq!(output.code(), 128);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("something else has the place"), "{said}");
        assert_eq!(fs::read_dir(temp.path()).expect("a folder").count(), 0);
    }
}
