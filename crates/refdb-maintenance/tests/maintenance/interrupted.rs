//! A migration that did not come to its end, as whoever opens the repository is told of it, and one that goes on
//! beside a check.

use std::os::unix::fs::symlink;

use refdb_maintenance::migrate::{Migration, finish_interrupted};
use refdb_maintenance::repair;
use refdb_maintenance::verify::{Severity, deep};
use refdb_testkit::RefFormat;
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, ours};

for_every_format! {
    fn an_interrupted_migration_is_told(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        assert!(!repository.is_migration_interrupted().expect("told"));
        std::fs::create_dir(repo.git_dir().join("refdb-migration")).expect("made");
        assert!(repository.is_migration_interrupted().expect("told"));
        finish_interrupted(&repository).expect("cleared up");
        assert!(!repository.is_migration_interrupted().expect("told"));
    }

    fn a_check_finds_no_damage_where_refs_were_moved(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        let lines = (0..50).map(|at| format!("create refs/heads/b{at} {}\n", commits[at % 4]));
        repo.update_refs(lines.collect::<String>());
        let repository = ours::open(&repo.git_dir());
        let other = match format.refs {
            RefFormat::Files => refdb::RefFormat::Reftable,
            RefFormat::Reftable => refdb::RefFormat::Files,
        };
        Migration::of(&repository).to(other).run().expect("migrated");
        let mut found = Vec::new();
        let error = deep(&repository, &mut |damage| found.push(damage.clone()));
        assert_eq!(error.expect_err("they are elsewhere").kind(), refdb::ErrorKind::Moved);
        assert_eq!(found, [], "nothing is damaged");
    }

    fn what_keeps_writers_out_for_a_migration_is_no_damage(format) {
        let repo = Repo::init(format);
        let bar = repo.git_dir().join("refs/remotes");
        symlink("refdb-frozen--the-refs-are-being-migrated", &bar).expect("a link");
        repo.worktree("side");
        if format.refs == RefFormat::Files {
            let stub = repo.git_dir().join("worktrees/side/refs/heads");
            std::fs::create_dir_all(stub.parent().expect("a folder")).expect("made");
            std::fs::write(stub, refdb::layout::HEADS_OF_TABLES).expect("a stub");
        }
        let repository = ours::open(&repo.git_dir());
        let mut found = Vec::new();
        deep(&repository, &mut |damage| found.push(damage.clone())).expect("checked");
        assert!(found.iter().all(|damage| damage.severity == Severity::Warning), "{found:?}");
        let plan = repair::plan(&repository, repair::Options::default()).expect("a plan");
        assert!(plan.is_empty(), "{plan:?}");
    }
}
