//! A process is killed in the midst of a transaction of several refs, in one place; whoever comes
//! next is in another.

use refdb_testkit::for_every_format;
use refdb_testkit::mount::Mounted;

use super::*;

/// Kills the transaction in `dir`, a copy of the repository, and looks at it from another place.
/// Returns whether it was not acknowledged.
pub(super) fn kill(work: &Work, dir: &Path, at: &Call, there: &Place, here: &Place) -> bool {
    let context = format!(
        "{}, killed at {at:?} in {}, seen from {}",
        work.base.format(),
        there.name,
        here.name
    );
    let place = dir.join(WORKTREE);
    let list = |from: &Place| from.refdb(&place).args(LIST).run().text();
    let is_killed = !there.kill(&place, STDIN, &work.script, at).status.success();
    let found = list(here);
    work.assert_whole(&found, &context);
    let is_new = found == work.new.listed;
    assert!(is_killed || is_new, "{context}: it was acknowledged");
    assert_eq!(list(there), found, "{context}: from where it was killed");
    assert_eq!(
        listed_by_git(dir),
        found,
        "{context}: Git reads another thing"
    );
    work.assert_whole_logs(&Whole::read(dir), &context);
    let again = here.refdb(&place).args(STDIN).stdin(work.script.as_str());
    let again = again.run();
    assert!(again.status.success(), "{context}, again: {}", Told(&again));
    assert_eq!(list(here), work.new.listed, "{context}, again");
    assert_eq!(listed_by_git(dir), work.new.listed, "{context}, again");
    // Nobody is held up, wherever he is.
    let commit = &work.base.objects().commits[0];
    for name in ["refs/heads/main", "refs/heads/both", "refs/worktree/own"] {
        let update = ["update-ref", name, commit];
        let git = oracle::git(&place).args(update).run();
        assert!(git.status.success(), "{context}: {}", Told(&git));
        let ours = there.refdb(&place).args(update).run();
        assert!(ours.status.success(), "{context}: {}", Told(&ours));
    }
    here.refdb(&place).args(["pack-refs", "--all"]).run().ok();
    assert_eq!(locks(&dir.join(".git")), [], "{context}: locks are left");
    is_killed
}

/// Kills at points of the transaction, here and there.
fn kill_everywhere(format: Format, most: u64, pairs: &[(&Place, &Place)]) {
    let work = Work::new(format);
    for (there, here) in pairs {
        let copy = work.base.duplicate();
        let points = work.points(there, copy.path(), most);
        let killed = points.iter().filter(|at| {
            let copy = work.base.duplicate();
            kill(&work, copy.path(), at, there, here)
        });
        assert!(killed.count() > 0, "nothing was killed in {}", there.name);
    }
}

type Mount = fn(&Path, u64, &Path) -> Result<Mounted, String>;

/// Kills at points of the transaction on a file system of its own, and gives each to `look`.
fn kill_on(format: Format, mount: Mount, look: impl Fn(&Work, &Path, &Call)) {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let dir = folder.path().join("mounted");
    fs::create_dir(&dir).expect("a folder");
    let mounted = match mount(&image, 64, &dir) {
        Ok(mounted) => mounted,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let here = Place::here();
    if !here.is_there() {
        return;
    }
    let work = Work::new(format);
    let dir = mounted.path().join("repo");
    let renew = || {
        let _ = fs::remove_dir_all(&dir);
        copy(work.base.path(), &dir);
    };
    renew();
    for at in work.points(&here, &dir, 2 * POINTS) {
        renew();
        look(&work, &dir, &at);
    }
}

/// Kills the transaction where nobody can be sure that its process has ended: who is held up by a lock
/// is told so, and what to do. What is read is whole before that and after it.
fn follow_advice(work: &Work, dir: &Path, at: &Call) {
    const ADVICE: &str = "'refdb refs repair --remove-locks'";
    let (here, place) = (Place::here(), dir.join(WORKTREE));
    let context = format!("{}, killed at {at:?}", work.base.format());
    here.kill(&place, STDIN, &work.script, at);
    let run = |args: &[&str], input: &str| here.in_time(&place).args(args).stdin(input).run();
    let found = run(LIST, "").text();
    work.assert_whole(&found, &context);
    let again = run(STDIN, &work.script);
    if !again.status.success() {
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(said.contains(ADVICE), "{context}: it says: {said}");
        let repaired = run(&["refs", "repair", "--remove-locks"], "");
        assert!(repaired.status.success(), "{context}: {}", Told(&repaired));
        assert_eq!(run(LIST, "").text(), found, "{context}: after the repair");
        assert_eq!(listed_by_git(dir), found, "{context}: after the repair");
        work.assert_whole_logs(&Whole::read(dir), &context);
        let again = run(STDIN, &work.script);
        assert!(again.status.success(), "{context}: again: {}", Told(&again));
    }
    assert_eq!(
        run(LIST, "").text(),
        work.new.listed,
        "{context}: at the end"
    );
    assert_eq!(listed_by_git(dir), work.new.listed, "{context}: at the end");
}

for_every_format! {
    fn a_transaction_killed_elsewhere_is_seen_whole_from_here(format) {
        let here = Place::here();
        for place in &Place::elsewhere() {
            kill_everywhere(format, POINTS, &[(place, &here)]);
        }
    }

    fn a_transaction_killed_here_is_seen_whole_from_elsewhere(format) {
        let here = Place::here();
        for place in &Place::elsewhere() {
            kill_everywhere(format, POINTS, &[(&here, place)]);
        }
    }

    fn a_transaction_killed_in_one_container_is_seen_whole_from_another(format) {
        // Each command has a namespace of its own.
        for place in Place::elsewhere().iter().filter(|place| place.is_container()) {
            kill_everywhere(format, POINTS, &[(place, place)]);
        }
    }

    fn a_transaction_killed_where_no_links_can_be_made_is_seen_whole(format) {
        let place = Place::without_links();
        if place.is_there() {
            kill_everywhere(format, 4 * POINTS, &[(&place, &place)]);
        }
    }

    fn a_transaction_killed_on_a_vfat_is_seen_whole(format) {
        let here = Place::here();
        kill_on(format, Mounted::vfat, |work, dir, at| {
            kill(work, dir, at, &here, &here);
        });
    }

    fn what_is_told_about_a_lock_makes_no_half_of_a_transaction(format) {
        kill_on(format, Mounted::exfat_by_fuse, follow_advice);
    }
}
