//! Somebody who may write in a shared repository exchanges folders for links that lead out of it while
//! refs are migrated.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use refdb::RefFormat;
use refdb::system::{OsSystem, System};
use refdb_maintenance::migrate::Migration;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format, ours, trust};

/// How often that is tried: each time somebody comes at other moments.
const ROUNDS: usize = 6;

/// What is exchanged, all at once.
const FOLDERS: [&str; 7] = [
    "refs",
    "refs/heads",
    "logs",
    "logs/refs",
    "reftable",
    "refdb-migration",
    "refdb-migration/new",
];

for_every_format! {
    fn nothing_is_led_out_of_the_repository(format) {
        let base = repository(format);
        let to = match format.refs {
            refdb_testkit::RefFormat::Files => RefFormat::Reftable,
            refdb_testkit::RefFormat::Reftable => RefFormat::Files,
        };
        let mut tally = trust::Tally::begin("migrations beside exchanged folders", 0);
        let mut exchanged = 0;
        for _ in 0..ROUNDS {
            for folder in FOLDERS {
                let repo = base.duplicate();
                let git_dir = repo.git_dir();
                let out = outside(&git_dir);
                let before = tree(&out);
                exchanged += while_exchanged(&git_dir.join(folder), &out, || {
                    // Whether it comes to its end is not what is asked.
                    let opened = ours::options().open(&git_dir);
                    let _ = opened.and_then(|it| Migration::of(&it).to(to).run());
                });
                assert_eq!(tree(&out), before, "{folder}");
                tally.add(1);
            }
        }
        assert!(exchanged > ROUNDS, "nobody exchanged anything");
    }

    fn a_copy_of_the_copies_is_not_switched_to(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        // So many that progress is told of before all are copied.
        let create = |at: usize| format!("create refs/heads/branch-{at:04} {commit}\n");
        repo.update_refs((0..5000).map(create).collect::<String>());
        let before = repo.refs();
        let to = match format.refs {
            refdb_testkit::RefFormat::Files => RefFormat::Reftable,
            refdb_testkit::RefFormat::Reftable => RefFormat::Files,
        };
        let new = repo.git_dir().join("refdb-migration/new");
        let is_done = Cell::new(false);
        let exchange = |_| {
            if is_done.replace(true) {
                return;
            }
            let moved = new.with_extension("moved");
            std::fs::rename(&new, &moved).expect("it is there");
            let copied = std::process::Command::new("cp").arg("-a").args([&moved, &new]).status();
            assert!(copied.expect("it runs").success());
        };
        let opened = ours::open(&repo.git_dir());
        let migrated = Migration::of(&opened).to(to).progress(&exchange).run();
        assert!(is_done.get() && migrated.is_err(), "{migrated:?}");
        assert_eq!(repo.refs(), before);
        repo.assert_sound();
    }
}

/// A repository with refs and reflogs in several folders.
fn repository(format: Format) -> Repo {
    let repo = Repo::init(format);
    repo.config("core.logAllRefUpdates", "always");
    let commit = &repo.objects().commits[0];
    let create = |at: usize| {
        let dir = ["heads", "heads/dir", "tags", "other/deep"][at % 4];
        format!("create refs/{dir}/{at} {commit}\n")
    };
    repo.update_refs((0..40).map(create).collect::<String>());
    repo
}

/// Makes a folder beside the repository which looks like the one that is exchanged for it.
fn outside(git_dir: &Path) -> PathBuf {
    let out = git_dir.with_extension("out");
    for dir in [
        "heads/dir",
        "tags",
        "other/deep",
        "refs/heads",
        "new",
        "old",
        "reftable",
    ] {
        std::fs::create_dir_all(out.join(dir)).expect("made");
    }
    for file in [
        "heads/main",
        "heads/1",
        "heads/dir/1",
        "tables.list",
        "packed-refs",
        "config",
        "new/HEAD",
    ] {
        std::fs::write(out.join(file), "somebody's\n").expect("written");
    }
    out
}

/// Exchanges `folder` for a link to `out`, and back, over and over while `act` runs; returns how often.
fn while_exchanged(folder: &Path, out: &Path, act: impl FnOnce()) -> usize {
    let system = OsSystem::new();
    let link = out.with_extension("link");
    system.symlink(out, &link).expect("made");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let exchanging = scope.spawn(|| {
            let mut count = 0;
            while !is_done.load(Ordering::Relaxed) {
                // It is not always there.
                if system.exchange(folder, &link).is_ok() {
                    count += 1;
                    std::thread::yield_now();
                    let _ = system.exchange(folder, &link);
                }
            }
            count
        });
        act();
        is_done.store(true, Ordering::Relaxed);
        exchanging.join().expect("no panic")
    })
}

/// Returns everything below a folder: paths, and what is in the files.
fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = std::fs::read_dir(dir).expect("listed").collect();
    while let Some(entry) = entries.pop() {
        let path = entry.expect("listed").path();
        let is_dir = std::fs::symlink_metadata(&path).expect("there").is_dir();
        if is_dir {
            entries.extend(std::fs::read_dir(&path).expect("listed"));
        }
        found.push((
            path.clone(),
            (!is_dir).then(|| std::fs::read(&path).expect("read")),
        ));
    }
    found.sort();
    found
}
