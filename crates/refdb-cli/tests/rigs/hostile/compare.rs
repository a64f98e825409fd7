//! What two programs change alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use refdb_testkit::hostile::Change;

/// What Git changed.
#[derive(Default)]
pub(crate) struct Theirs {
    changes: BTreeMap<PathBuf, Change>,
}

impl Theirs {
    pub(crate) fn new(changes: Vec<Change>) -> Theirs {
        let changes = changes.into_iter();
        Theirs {
            changes: changes
                .map(|change| (change.path.clone(), change))
                .collect(),
        }
    }

    /// Returns whether Git did what `ours` is as well.
    pub(crate) fn have(&self, ours: &Change) -> bool {
        let at = |path: &Path| self.changes.get(path);
        let is_table = ours.path.extension().is_some_and(|end| end == "ref");
        if is_table || ours.path.ends_with("tables.list") {
            // Tables have names by chance, and are made into one at other times.
            return at(&ours.path.with_file_name("tables.list")).is_some();
        }
        match at(&ours.path) {
            Some(theirs) if ours.what == "time" => theirs.is_dir == ours.is_dir,
            Some(theirs) => theirs.what == ours.what,
            None => false,
        }
    }
}
