//! A process died in the midst of a transaction, and whoever reads cannot finish it. He reads
//! everything old or everything new, and waits for nobody.

use std::io::Write;

use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::for_every_format;
use refdb_testkit::mount::{Mounted, make_ext4};

use super::*;

/// So many points are tried of each format and way.
const SHARE: u64 = 12;

/// Lists what is there, in a time in which nobody waits for anything.
fn list_in_time(dir: &Path) -> String {
    let out = Place::here().in_time(&dir.join(WORKTREE)).args(LIST).run();
    assert!(out.status.success(), "it cannot be read: {}", Told(&out));
    out.text()
}

/// Fails unless what is read later is whole, and not older.
fn assert_not_back(work: &Work, before: &str, after: &str, context: &str) {
    work.assert_whole(after, context);
    assert!(
        before == work.old.listed || after == work.new.listed,
        "{context}: back from the new to the old"
    );
}

/// Reads while something keeps all from finishing what the dead began, and once more without it;
/// then works go on.
fn read<H>(
    work: &Work,
    dir: &Path,
    context: &str,
    hinder: impl FnOnce() -> H,
    free: impl FnOnce(H),
) {
    let hindrance = hinder();
    let out = Place::here().in_time(&dir.join(WORKTREE)).args(LIST).run();
    assert!(
        out.status.success(),
        "{context}: it cannot be read: {}",
        Told(&out)
    );
    let hindered = out.text();
    work.assert_whole(&hindered, context);
    let told = shown(|words| Place::here().in_time(&dir.join(WORKTREE)).args(words).run());
    work.assert_shown_as_listed(&told, &hindered, context);
    free(hindrance);
    let freed = list_in_time(dir);
    assert_not_back(work, &hindered, &freed, context);
    assert_eq!(listed_by_git(dir), freed, "{context}: Git, afterwards");
    work.assert_whole_logs(&Whole::read(dir), context);
    let again = Place::here().in_time(&dir.join(WORKTREE)).args(STDIN);
    let again = again.stdin(work.script.as_str()).run();
    assert!(again.status.success(), "{context}: again: {}", Told(&again));
    assert_eq!(listed_by_git(dir), work.new.listed, "{context}: again");
}

/// Kills at points of the transaction in `dir`, which `renew` makes a copy of the repository, and
/// gives each to `then`.
fn kill_at_points(work: &Work, dir: &Path, renew: impl Fn(), then: impl Fn(&str)) {
    let here = Place::here();
    renew();
    for at in work.points(&here, dir, SHARE) {
        renew();
        here.kill(&dir.join(WORKTREE), STDIN, &work.script, &at);
        then(&format!("{}, killed at {at:?}", work.base.format()));
    }
}

/// Takes `flock` on what a script tells, as anybody can who may open these files for reading. Of a
/// file with several names it has one.
struct Held(Option<Dialogue>);

impl Held {
    fn of(dir: &Path, find: &str) -> Held {
        let script = format!(
            "for file in $({find}); do exec {{fd}}<\"$file\" || exit; \
             /usr/bin/flock -x -n $fd; done; echo held; read -r line"
        );
        let mut holder = oracle::run_of("/bin/bash", dir)
            .args(["-c", &script])
            .begin();
        assert_eq!(holder.hear(), "held\n");
        Held(Some(holder))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(holder) = self.0.take() {
            holder.end();
        }
    }
}

/// Reads while somebody has `flock` on what `find` tells.
fn read_beside_a_holder(format: Format, find: &str) {
    if !Place::here().is_there() {
        return;
    }
    let work = Work::new(format);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("repo");
    let renew = || {
        let _ = fs::remove_dir_all(&dir);
        copy(work.base.path(), &dir);
    };
    kill_at_points(&work, &dir, renew, |context| {
        read(
            &work,
            &dir,
            context,
            || Held::of(&dir.join(".git"), find),
            drop,
        );
    });
}

/// Fills a file system: no byte more, and no file.
fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("filler")).expect("room");
    while file.write_all(&[7; 4096]).is_ok() {}
    while file.write_all(&[7; 1]).is_ok() {}
    let files = dir.join("files");
    let _ = fs::create_dir(&files);
    for number in 0.. {
        if fs::File::create(files.join(format!("{number}"))).is_err() {
            break;
        }
    }
}

fn empty(dir: &Path) {
    fs::remove_file(dir.join("filler")).expect("it is there");
    let _ = fs::remove_dir_all(dir.join("files"));
    // An ext4 gives blocks to others once its journal says that they are free.
    let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
    synced.expect("there is room again");
}

/// Reads on a file system that was filled after the crash.
fn read_when_full(format: Format, mounted: Result<Mounted, String>) {
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    if !Place::here().is_there() {
        return;
    }
    let work = Work::new(format);
    let dir = mounted.path().join("repo");
    let renew = || {
        let _ = fs::remove_dir_all(&dir);
        copy(work.base.path(), &dir);
    };
    kill_at_points(&work, &dir, renew, |context| {
        read(
            &work,
            &dir,
            context,
            || fill(mounted.path()),
            |()| empty(mounted.path()),
        );
    });
}

for_every_format! {
    fn while_others_have_the_directory_for_themselves(format) {
        read_beside_a_holder(format, "echo .");
    }

    fn while_others_have_everything_for_themselves(format) {
        read_beside_a_holder(format, "find . -path ./objects -prune -o \\( -type f -o -type d \\) -print");
    }

    fn while_the_disk_is_full(format) {
        let folder = tempfile::tempdir().expect("a folder");
        read_when_full(format, Mounted::tmpfs("16m,nr_inodes=4000", folder.path()));
    }

    fn while_the_disk_with_an_ext4_is_full(format) {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let dir = folder.path().join("mounted");
        fs::create_dir(&dir).expect("a folder");
        let mounted = make_ext4(&image, 16).and_then(|()| Mounted::ext4(&image, &dir));
        read_when_full(format, mounted);
    }

    /// What Git shows of reflogs, since it can do more, is what the dead committed.
    fn by_git_that_is_asked_for_more(format) {
        if !Place::here().is_there() {
            return;
        }
        let work = Work::new(format);
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("repo");
        let renew = || {
            let _ = fs::remove_dir_all(&dir);
            copy(work.base.path(), &dir);
        };
        kill_at_points(&work, &dir, renew, |context| {
            let show = |more: &[&str]| {
                let words = [&["reflog", "show", "--format=%H"], more, &["refs/heads/main"]];
                Place::here().in_time(&dir.join(WORKTREE)).args(words.concat()).run().text()
            };
            let (by_git, plain) = (show(&["--stat"]), show(&[]));
            let is_id = |line: &&str| line.len() == format.zero().len();
            let by_git: Vec<&str> = by_git.lines().filter(is_id).collect();
            assert_eq!(by_git, plain.lines().collect::<Vec<_>>(), "{context}");
        });
    }

    fn while_nobody_may_write(format) {
        if !Place::here().is_there() {
            return;
        }
        let work = Work::new(format);
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = match Mounted::tmpfs("16m", folder.path()) {
            Ok(mounted) => mounted,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let dir = mounted.path().join("repo");
        let renew = || {
            let _ = fs::remove_dir_all(&dir);
            copy(work.base.path(), &dir);
        };
        kill_at_points(&work, &dir, renew, |context| {
            let hinder = || mounted.make_read_only();
            read(&work, &dir, context, hinder, |()| mounted.make_writable());
        });
    }

    fn by_somebody_who_may_only_read(format) {
        let reader = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let folder = tempfile::tempdir().expect("a folder");
        let read_as_another = |dir: &Path| {
            let run = oracle::run_of("/usr/bin/setpriv", dir).args(reader);
            run.args(["/usr/bin/timeout", "-k", "1", "20", env!("CARGO_BIN_EXE_refdb")])
                .args(["-c", "safe.directory=*"])
        };
        let opened = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), opened).expect("a folder of the test");
        let out = read_as_another(folder.path()).arg("--version").run();
        if !out.status.success() {
            eprintln!("skipped: another user cannot run refdb here: {}", Told(&out));
            return;
        }
        if !Place::here().is_there() {
            return;
        }
        let work = Work::new(format);
        let dir = folder.path().join("repo");
        let renew = || {
            let _ = fs::remove_dir_all(&dir);
            copy(work.base.path(), &dir);
            let opened = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&dir, opened).expect("a folder of the test");
        };
        kill_at_points(&work, &dir, renew, |context| {
            let out = read_as_another(&dir.join(WORKTREE)).args(LIST).run();
            assert!(out.status.success(), "{context}: it cannot be read: {}", Told(&out));
            let found = out.text();
            work.assert_whole(&found, context);
            let told = shown(|words| read_as_another(&dir.join(WORKTREE)).args(words).run());
            work.assert_shown_as_listed(&told, &found, context);
            assert_not_back(&work, &found, &list_in_time(&dir), context);
        });
    }
}
