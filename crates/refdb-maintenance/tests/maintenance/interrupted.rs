//! A migration that did not come to its end, as whoever opens the repository is told of it.

use refdb_maintenance::migrate::finish_interrupted;
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
}
