//! A transaction that was killed in the midst of its steps, in a copy of the repository without its dates: what is
//! read there is what is left there by whoever finishes it, all of it.

use std::time::{Duration, SystemTime};

use super::*;

const FILES: [Format; 2] = [Format::FILES_SHA1, Format::FILES_SHA256];

/// The workloads that take several steps.
const WORKS: [&str; 4] = [
    "several at once",
    "delete several",
    "bulk",
    "delete what is loose and packed",
];

/// The calls that make something visible.
const CALLS: [&str; 7] = [
    "link",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
];

/// Copies a repository as `cp -r` does, which dates every file anew.
fn copy(repo: &Repo, to: &Path) {
    let args = ["-r".as_ref(), repo.path().as_os_str(), to.as_os_str()];
    let copied = Command::new("/bin/cp").args(args).status();
    assert!(copied.is_ok_and(|status| status.success()));
    // In the same second it could have the old date by chance.
    for entry in fs::read_dir(to.join(".git")).expect("a folder").flatten() {
        let file = fs::File::open(entry.path()).expect("it can be read");
        let dated = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(dated).expect("a file of ours");
    }
}

#[test]
fn a_copy_without_dates_is_finished_as_it_was_read() {
    if !can_kill(WHAT, 0) {
        return;
    }
    for format in FILES {
        let mut in_the_midst = 0;
        // Which hash names the objects makes no difference to the steps.
        let works = match format.objects {
            ObjectFormat::Sha1 => &WORKS[..],
            ObjectFormat::Sha256 => &WORKS[..1],
        };
        for &name in works {
            let base = base(format);
            let mut works = workloads(&base).into_iter();
            let work = works.find(|work| work.0 == name).expect("a workload");
            let case = Case::new(base, work);
            let calls = case.calls.iter().rev();
            for at in calls.filter(|(call, _)| CALLS.contains(&call.as_str())) {
                let repo = case.base.duplicate();
                let log = repo.path().join("strace");
                traced(repo.path(), case.work.1, &case.work.2, &log, Some(at));
                if !repo.git_dir().join("refdb.journal").exists() {
                    continue;
                }
                in_the_midst += 1;
                let context = format!("{name} in {format}, killed at {at:?}");
                let folder = tempfile::tempdir().expect("a folder");
                let dir = folder.path().join("copy");
                copy(&repo, &dir);
                assert_eq!(listed_by_refdb(&dir), case.new, "{context}: read");
                let out = refdb(
                    &dir,
                    &["refs", "repair", "--remove-locks", "--no-dry-run"],
                    "",
                );
                assert!(out.status.success(), "{context}: {out:?}");
                assert_eq!(listed_by_refdb(&dir), case.new, "{context}: {out:?}");
                assert_eq!(listed_by_git(&dir), case.new, "{context}: {out:?}");
                assert_eq!(logs(&dir), case.new_logs, "{context}: {out:?}");
                assert!(!out.stderr.contains_str("in part"), "{context}: {out:?}");
            }
        }
        assert!(in_the_midst >= 5, "{in_the_midst}");
    }
}
