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
        for place in &Place::elsewhere() {
            kill_everywhere(format, POINTS, &[(place, place)]);
        }
    }

    fn a_transaction_killed_where_no_links_can_be_made_is_seen_whole(format) {
        let place = Place::without_links();
        if place.is_there() {
            kill_everywhere(format, 4 * POINTS, &[(&place, &place)]);
        }
    }

    fn a_transaction_killed_on_a_file_system_without_links_is_seen_whole(format) {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let dir = folder.path().join("mounted");
        fs::create_dir(&dir).expect("a folder");
        let mounted = match Mounted::without_links(&image, 64, &dir) {
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
            kill(&work, &dir, &at, &here, &here);
        }
    }
}
