//! `refdb refs migrate` of refs that are kept in a directory which `extensions.refStorage` names: in place,
//! beside what Git leaves.

use std::fs;
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice};
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::{Format, RefFormat, for_every_format};

fn other(format: RefFormat) -> RefFormat {
    match format {
        RefFormat::Files => RefFormat::Reftable,
        RefFormat::Reftable => RefFormat::Files,
    }
}

/// A repository with its refs beside it.
struct Elsewhere {
    folder: tempfile::TempDir,
    /// As the configuration names it.
    named: String,
}

impl Elsewhere {
    /// Makes one with refs of every kind in `place`, which is named as it is or by its whole path.
    fn new(format: Format, place: &str, is_absolute: bool) -> Elsewhere {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(place)).expect("a folder");
        let named = match is_absolute {
            true => folder.path().join(place).display().to_string(),
            false => format!("../../{place}"),
        };
        let made = Elsewhere { folder, named };
        let value = made.value(format.refs);
        let objects = format!("--object-format={}", format.objects.name());
        let init = oracle::git(made.folder.path()).env("GIT_REFERENCE_BACKEND", &value);
        init.args(["init", "-q", "-b", "main", &objects, "repo"])
            .run()
            .ok();
        for args in [
            &["commit", "-q", "--allow-empty", "-m", "one"][..],
            &["tag", "v1"],
            &["pack-refs", "--all"],
            &["branch", "a/b"],
            &["update-ref", "--create-reflog", "refs/notes/n", "HEAD"],
            &["symbolic-ref", "refs/heads/s", "refs/heads/main"],
            &["update-ref", "ORIG_HEAD", "HEAD"],
        ] {
            made.git(args).run().ok();
        }
        made
    }

    fn value(&self, format: RefFormat) -> String {
        format!("{}://{}", format.name(), self.named)
    }

    fn repo(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    fn git(&self, args: &[&str]) -> GitRun {
        oracle::git(self.repo()).args(args)
    }

    fn refdb(&self, args: &[&str]) -> GitRun {
        oracle::run_of(env!("CARGO_BIN_EXE_refdb"), self.repo()).args(args)
    }

    fn migrate(&self, to: RefFormat) -> GitRun {
        self.refdb(&["refs", "migrate", &format!("--ref-format={}", to.name())])
    }

    fn config(&self) -> String {
        fs::read_to_string(self.repo().join(".git/config")).expect("a configuration")
    }

    /// Every ref and every entry of every reflog, as Git reads them.
    fn state(&self) -> BString {
        let mut all = self
            .git(&["for-each-ref", "--include-root-refs"])
            .run()
            .ok();
        for name in self.git(&["reflog", "list"]).run().text().lines() {
            let show = ["log", "-g", "--format=%H %gd %gn %ge %gs", name];
            all.extend(self.git(&show).run().ok());
        }
        all.into()
    }

    /// Every file but objects; tables have names of their own, and their content is refs.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.folder.path(), "", &mut found);
        found.sort();
        found
    }
}

fn walk(dir: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let name = format!("{below}{}", entry.file_name().display());
        if name == "repo/.git/objects" {
            continue;
        }
        if entry.path().is_dir() {
            found.push(format!("{name}/"));
            walk(&entry.path(), &format!("{name}/"), found);
        } else if name.ends_with(".ref") {
            found.push(format!("{below}a table"));
        } else if name.ends_with("tables.list") {
            found.push(name);
        } else {
            let content = fs::read(entry.path()).expect("a file");
            found.push(format!("{name} {}", content.as_bstr()));
        }
    }
}

for_every_format! {
    fn refs_are_migrated_where_they_are(format) {
        for (place, is_absolute) in [("alt", true), ("alt", false), (" #odd;\"name\\ ", false)] {
            let (ours, theirs) = (Elsewhere::new(format, place, is_absolute), Elsewhere::new(format, place, is_absolute));
            let before = ours.state();
            for to in [other(format.refs), format.refs, other(format.refs)] {
                let said = ours.migrate(to).run();
                assert!(said.status.success() && said.stderr.is_empty(), "{}", said.stderr.as_bstr());
                assert_eq!(ours.state(), before, "{place} to {}", to.name());
                let to = format!("--ref-format={}", to.name());
                theirs.git(&["refs", "migrate", &to]).run().ok();
                let root = |it: &Elsewhere, text: &str| text.replace(&it.folder.path().display().to_string(), "");
                let files = |it: &Elsewhere| it.files().iter().map(|text| root(it, text)).collect::<Vec<_>>();
                // Folders in which there were refs stay with Git where they are empty.
                let kept = |files: Vec<String>| files.into_iter().filter(|file| !file.ends_with('/')).collect::<Vec<_>>();
                assert_eq!(kept(files(&ours)), kept(files(&theirs)), "{place} {to}");
            }
            ours.git(&["refs", "verify"]).run().ok();
            ours.git(&["commit", "-q", "--allow-empty", "-m", "go on"]).run().ok();
        }
    }

    fn worktrees_go_along(format) {
        let it = Elsewhere::new(format, "alt", true);
        it.git(&["worktree", "add", "-q", "../w"]).run().ok();
        let own = || oracle::git(it.folder.path().join("w"));
        own().args(["update-ref", "--create-reflog", "refs/bisect/bad", "HEAD"]).run().ok();
        let seen = || {
            let own = own().args(["for-each-ref", "--include-root-refs"]).run().ok();
            (it.state(), BString::from(own))
        };
        let before = seen();
        for to in [other(format.refs), format.refs] {
            let said = it.migrate(to).run();
            assert!(said.status.success() && said.stderr.is_empty(), "{}", said.stderr.as_bstr());
            assert_eq!(seen(), before);
            assert!(it.config().contains(&format!("refstorage = {}\n", it.value(to))), "{}", it.config());
        }
        own().args(["commit", "-q", "--allow-empty", "-m", "go on"]).run().ok();
    }

    fn a_place_that_only_a_variable_names_is_left_alone(format) {
        let it = Elsewhere::new(format, "alt", true);
        let value = it.value(format.refs);
        let to = other(format.refs);
        // The configuration speaks of it as well: then it is told there.
        it.migrate(to).env("GIT_REFERENCE_BACKEND", &value).run().ok();
        assert!(it.config().contains(&it.value(to)), "{}", it.config());
        it.migrate(format.refs).run().ok();
        it.git(&["config", "unset", "extensions.refStorage"]).run();
        let before = (it.files(), it.config());
        let out = it.migrate(to).env("GIT_REFERENCE_BACKEND", &value).run();
        assert_eq!(out.code(), 255, "{}", out.stderr.as_bstr());
        let said = out.stderr.to_str_lossy();
        assert!(said.contains("extensions.refStorage") && said.contains("GIT_REFERENCE_BACKEND"), "{said}");
        assert_eq!((it.files(), it.config()), before);
    }

    fn a_dry_run_and_one_that_is_undone(format) {
        let it = Elsewhere::new(format, "alt", false);
        let (before, files) = (it.state(), it.files());
        let to = format!("--ref-format={}", other(format.refs).name());
        let said = it.refdb(&["refs", "migrate", "--dry-run", &to]).run().text();
        let folder = said.split('\'').nth(1).expect("a path");
        assert!(folder.contains("alt/ref_migration."), "{said}");
        fs::remove_dir_all(it.repo().join(folder)).expect("a folder");
        assert_eq!(it.files(), files);
        it.refdb(&["refs", "migrate", "--keep", &to]).run().ok();
        it.refdb(&["refs", "migrate", "--undo"]).run().ok();
        assert_eq!(it.state(), before);
        assert!(it.config().contains(&it.value(format.refs)));
        assert!(!it.files().iter().any(|file| file.contains("refdb-")), "{:?}", it.files());
    }

    fn a_deep_check_looks_where_the_refs_are(format) {
        let made = Elsewhere::new(format, "place", false);
        let output = made.refdb(&["refs", "verify", "--deep"]).run();
        assert_eq!(output.code(), 0, "{}", output.stdout.as_bstr());
        let (there, here) = (made.folder.path().join("place"), made.repo().join(".git"));
        let told = || made.refdb(&["refs", "verify", "--deep"]).run();
        for (dir, code) in [(here, 0), (there, 2)] {
            let journal = dir.join("refdb.journal");
            fs::write(&journal, "somebody's\n").expect("a folder of ours");
            let output = told();
            assert_eq!(output.code(), code, "{}", output.stdout.as_bstr());
            let is_told = output.stdout.contains_str("refdb.journal");
            assert_eq!(is_told, code == 2, "{}", output.stdout.as_bstr());
            fs::remove_file(&journal).expect("it stayed");
        }
    }

    fn another_repository_with_its_refs_there_is_told(format) {
        let it = Elsewhere::new(format, "alt", true);
        let second = it.folder.path().join("second");
        fs::create_dir(&second).expect("a folder");
        let copy = std::process::Command::new("cp").arg("-r").arg(it.repo().join(".git")).arg(second.join(".git")).status();
        assert!(copy.expect("it starts").success());
        it.migrate(other(format.refs)).run().ok();
        let commit = it.git(&["rev-parse", "HEAD"]).run().text();
        for args in [&["for-each-ref"][..], &["show-ref", "--verify", "refs/heads/main"], &["refs", "exists", "refs/heads/main"], &["update-ref", "refs/heads/new", &commit]] {
            let out = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), &second).args(args).run();
            assert!(!matches!(out.code(), 0 | 2), "{args:?}: {} {}", out.stdout.as_bstr(), out.stderr.as_bstr());
            assert!(out.stderr.contains_str("alt"), "{args:?}: {}", out.stderr.as_bstr());
        }
        assert!(!it.files().iter().any(|file| file.contains("heads/new")), "{:?}", it.files());
    }
}
