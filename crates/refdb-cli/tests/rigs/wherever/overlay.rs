//! A repository in an overlay: all of it in the lower layer, as in an image of a container, or in the
//! upper one. Directories of the lower layer cannot be renamed there.

use refdb_testkit::mount::Mounted;
use refdb_testkit::{RefFormat, for_every_format};

use super::*;

/// An overlay with a repository.
struct Overlay {
    _mounted: Mounted,
    _folder: tempfile::TempDir,
    dir: PathBuf,
}

impl Overlay {
    /// Puts a copy of a repository into the lower layer, or into the upper one.
    fn new(base: &Path, is_lower: bool) -> Option<Overlay> {
        let folder = tempfile::tempdir().expect("a folder");
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
            let dir = folder.path().join(name);
            fs::create_dir(&dir).expect("a folder");
            dir
        });
        if is_lower {
            copy(base, &lower.join("repo"));
        }
        let mounted = match Mounted::overlay(&lower, &upper, &work, &merged) {
            Ok(mounted) => mounted,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        if !is_lower {
            copy(base, &merged.join("repo"));
        }
        Some(Overlay {
            _mounted: mounted,
            _folder: folder,
            dir: merged.join("repo"),
        })
    }
}

fn migrate(to: RefFormat) -> [&'static str; 3] {
    let to = match to {
        RefFormat::Files => "--ref-format=files",
        RefFormat::Reftable => "--ref-format=reftable",
    };
    ["refs", "migrate", to]
}

/// The other format first, then that of the beginning.
fn there_and_back(format: Format) -> [RefFormat; 2] {
    match format.refs {
        RefFormat::Files => [RefFormat::Reftable, RefFormat::Files],
        RefFormat::Reftable => [RefFormat::Files, RefFormat::Reftable],
    }
}

/// Migrates there and back, twice: nothing is told, nothing is left, and Git reads the same.
#[track_caller]
fn migrate_there_and_back(dir: &Path, format: Format, context: &str) {
    let before = Whole::read(dir);
    for (number, to) in there_and_back(format).iter().cycle().take(4).enumerate() {
        let context = format!("{context}, migration {number} to {to:?}");
        let out = Place::here().refdb(dir).args(migrate(*to)).run();
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{context}: {}",
            Told(&out)
        );
        let after = Whole::read(dir);
        assert_eq!(after.listed, before.listed, "{context}");
        assert_eq!(after.logs, before.logs, "{context}");
        let listed = Place::here().refdb(&work_dir(dir)).args(LIST).run().text();
        assert_eq!(listed, before.listed, "{context}");
        assert_eq!(locks(&dir.join(".git")), [], "{context}: something is left");
        let format = oracle::git(dir)
            .args(["rev-parse", "--show-ref-format"])
            .run();
        assert_eq!(format.text(), to.name(), "{context}");
    }
}

for_every_format! {
    fn a_repository_in_the_lower_layer_is_migrated(format) {
        let base = repository(format);
        if let Some(overlay) = Overlay::new(base.path(), true) {
            migrate_there_and_back(&overlay.dir, format, "lower layer");
        }
    }

    fn a_repository_in_the_upper_layer_is_migrated(format) {
        let base = repository(format);
        if let Some(overlay) = Overlay::new(base.path(), false) {
            migrate_there_and_back(&overlay.dir, format, "upper layer");
        }
    }

    fn old_refs_of_the_lower_layer_are_kept(format) {
        let base = repository(format);
        let Some(overlay) = Overlay::new(base.path(), true) else {
            return;
        };
        let before = Whole::read(&overlay.dir);
        let [to, _] = there_and_back(format);
        let out = Place::here().refdb(&overlay.dir).args(migrate(to)).arg("--keep").run();
        assert!(out.status.success() && out.stderr.is_empty(), "{}", Told(&out));
        let kept = overlay.dir.join(".git/refdb-kept");
        let expected = match format.refs {
            RefFormat::Files => ["packed-refs", "refs/heads/loose"],
            RefFormat::Reftable => ["reftable/tables.list", "worktrees/w/reftable/tables.list"],
        };
        for name in expected {
            let (kept, old) = (kept.join(name), base.git_dir().join(name));
            assert_eq!(fs::read(kept).ok(), fs::read(old).ok(), "{name}");
        }
        let out = Place::here().refdb(&overlay.dir).args(["refs", "migrate", "--undo"]).run();
        assert!(out.status.success() && out.stderr.is_empty(), "{}", Told(&out));
        assert_eq!(Whole::read(&overlay.dir).listed, before.listed);
        assert_eq!(locks(&overlay.dir.join(".git")), []);
    }

    fn a_migration_killed_in_the_lower_layer_is_cleared_up(format) {
        let here = Place::here();
        let base = repository(format);
        let Some(overlay) = Overlay::new(base.path(), true).filter(|_| here.is_there()) else {
            return;
        };
        let whole = Whole::read(base.path());
        let [to, _] = there_and_back(format);
        let log = overlay.dir.join("strace");
        let run = here.traced(&overlay.dir, &log, None).args(migrate(to));
        run.run().ok();
        for at in &draw(&log, format, 4 * POINTS) {
            let context = format!("{format}, killed at {at:?}");
            let overlay = Overlay::new(base.path(), true).expect("it was possible before");
            here.kill(&overlay.dir, &migrate(to), "", at);
            let found = Whole::read(&overlay.dir);
            assert_eq!(found.listed, whole.listed, "{context}: Git");
            assert_eq!(found.logs, whole.logs, "{context}: Git");
            let listed = here.in_time(&work_dir(&overlay.dir)).args(LIST).run().text();
            assert_eq!(listed, whole.listed, "{context}");
            assert_eq!(locks(&overlay.dir.join(".git")), [], "{context}: something is left");
            let now = oracle::git(&overlay.dir).args(["rev-parse", "--show-ref-format"]).run();
            let now = match now.text().as_str() {
                "files" => RefFormat::Files,
                _ => RefFormat::Reftable,
            };
            let now = Format { refs: now, ..format };
            migrate_there_and_back(&overlay.dir, now, &context);
        }
    }

    fn a_migration_killed_on_disk_is_cleared_up_from_the_upper_layer(format) {
        let here = Place::here();
        if !here.is_there() {
            return;
        }
        let base = repository(format);
        let whole = Whole::read(base.path());
        let [to, _] = there_and_back(format);
        let copied = base.duplicate();
        let log = copied.path().join("strace");
        let run = here.traced(copied.path(), &log, None).args(migrate(to));
        run.run().ok();
        for at in &draw(&log, format, 4 * POINTS) {
            let context = format!("{format}, killed at {at:?} below");
            let copied = base.duplicate();
            here.kill(copied.path(), &migrate(to), "", at);
            let Some(overlay) = Overlay::new(copied.path(), true) else {
                return;
            };
            let listed = here.in_time(&work_dir(&overlay.dir)).args(LIST).run();
            assert!(listed.status.success(), "{context}: {}", Told(&listed));
            assert_eq!(listed.text(), whole.listed, "{context}");
            assert_eq!(locks(&overlay.dir.join(".git")), [], "{context}: something is left");
            assert_eq!(Whole::read(&overlay.dir).logs, whole.logs, "{context}");
        }
    }

    fn a_transaction_killed_in_the_lower_layer_is_seen_whole(format) {
        let here = Place::here();
        let work = Work::new(format);
        let Some(overlay) = Overlay::new(work.base.path(), true).filter(|_| here.is_there()) else {
            return;
        };
        let places = Place::elsewhere();
        for (number, at) in work.points(&here, &overlay.dir, 4 * POINTS).iter().enumerate() {
            let overlay = Overlay::new(work.base.path(), true).expect("it was possible before");
            let place = places.get(number % (places.len() + 1)).unwrap_or(&here);
            killed::kill(&work, &overlay.dir, at, &here, place);
        }
    }
}
