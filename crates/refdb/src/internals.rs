//! What the crates `refdb-git` and `refdb-maintenance` stand on, and nobody else: any of it changes
//! without notice.

use std::sync::Arc;

use crate::objects::Objects;
use crate::options::Options;
use crate::store::Store;
use crate::transaction::Edit;

pub use crate::backend::NewValue;
pub use crate::backend::bulk::{BARRIER, Bulk, BulkOptions, Frozen, LogMark, Mark, NewLog};
pub use crate::backend::files::{
    LINKED_MAX, PACKED_HEADER, TOO_MANY_LINKED, parse_log_line, parse_loose, read_loose_link,
};
pub use crate::backend::maintained::Maintained;
pub use crate::backend::migration::{MIGRATION, MIGRATION_JOURNAL, first_line};
pub use crate::backend::reftable::{
    is_table_name, is_unfinished, may_be_listed, short_random, what_is_lost,
};
pub use crate::commit::owner::{is_left, is_of_migration};
pub use crate::commit::{
    Holder, Home, LockFile, LockOptions, NameKind, describe_refusal, finish_left, is_barrier,
    lock_path, name_kind, remove_if_there, suffixed, sweep_all, take_over,
};
pub use crate::hook::{ask_or_abort, present, tell};
pub use crate::layout::HEAD_OF_TABLES;
pub use crate::options::{InvalidSettings, StillThere};
pub use crate::reflog::is_space;
pub use crate::system::{bytes_to_path, is_absent, remove_empty_tree};

/// Returns what only maintenance asks of a store.
pub fn maintained(store: &Store) -> &dyn Maintained {
    store.maintained()
}

/// Returns the same refs beside other objects.
pub fn with_objects(store: &Store, objects: Arc<dyn Objects>) -> Store {
    store.with_objects(objects)
}

/// Says what a reader asks, if anything, who missed something, or came to its end.
pub fn set_still_there(options: &mut Options, still_there: Option<StillThere>) {
    options.still_there = still_there;
}

/// Returns what is wrong with settings that only writing asks for.
pub fn invalid(options: &mut Options) -> &mut InvalidSettings {
    &mut options.invalid
}

/// Says that an edit leaves the reflog as it is.
pub fn skip_log(edit: &mut Edit<'_>) {
    edit.skip_log = true;
}
