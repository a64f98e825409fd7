//! What the crates `refdb-git` and `refdb-maintenance` stand on, and nobody else: any of it changes
//! without notice.

use std::sync::Arc;

use crate::backend::cursor::RefRecord;
use crate::error::Result;
use crate::objects::Objects;
use crate::options::{InvalidSettings, Options, StillThere};
use crate::reflog;
use crate::refs::Refs;
use crate::store::Store;
use crate::transaction::Group;

pub use crate::backend::NewValue;
pub use crate::backend::bulk::{Bulk, BulkOptions, Frozen, LogMark, Mark, NewLog};
pub use crate::backend::files::{
    LOG_LINE_MAX, PACKED_HEADER, TOO_MANY_LINKED, are_tables, are_too_many_linked, parse_log_line,
    parse_loose, read_loose_link,
};
pub use crate::backend::maintained::Maintained;
pub use crate::backend::migration::{MIGRATION, MIGRATION_JOURNAL, first_line};
pub use crate::backend::reftable::{
    LIST_LEN_MAX, is_table_name, is_unfinished, may_be_listed, new_table_name, short_random,
    what_is_lost,
};
pub use crate::commit::entries::{FREEZE, is_frozen};
pub use crate::commit::owner::is_left;
pub use crate::commit::{
    Entry, Holder, Home, LockFile, LockOptions, Says, finish_left, is_barrier, lock_path, refused,
    remove_if_there, suffixed, sweep_all, take_over, take_over_any, target_beside,
};
pub use crate::hook::call::{ask_or_abort, present, tell};
pub use crate::shared::memory::part;
pub use refdb_names::internals::name_from_disk;
pub use refdb_system::{Leaf, Tree, bytes_to_path, is_absent, list, remove_empty_tree};

/// Says why nothing may be written in either format, if that is so.
///
/// # Errors
/// `Misuse` in a quarantine; `Config` for a setting that is needed to write and means nothing.
pub fn may_write(options: &Options) -> Result<()> {
    crate::transaction::may_write(options)?;
    InvalidSettings::check(options.invalid.tables.as_ref())
}

/// Returns whether Git takes `byte` for white space.
pub fn is_space(byte: u8) -> bool {
    reflog::is_space(byte)
}

/// Reads the seconds since 1970 at the start of a text, as Git does; returns what follows them as well.
pub fn timestamp(text: &[u8]) -> Option<(u64, &[u8])> {
    reflog::timestamp(text)
}

/// Calls `each` as [`Refs::each`] does, in a loop of this crate, which is compiled to be fast: that of a
/// crate that is compiled to be small takes 5% of moving all refs.
pub fn each_ref(
    refs: &mut Refs,
    each: &mut dyn FnMut(RefRecord<'_>) -> Result<bool>,
) -> Result<bool> {
    refs.each(each)
}

/// Returns what only maintenance asks of a store.
pub fn maintained(store: &Store) -> &dyn Maintained {
    store.maintained()
}

/// Returns the same refs beside other objects.
pub fn with_objects(store: &Store, objects: Arc<dyn Objects>) -> Store {
    store.with_objects(objects)
}

/// Begins a group of transactions on a place that many machines share, too: if committing it fails with
/// `Overtaken`, all of it is to be done again. `None` where a hook wants to be told of each.
pub fn group_to_try(store: &Store) -> Result<Option<Group<'_>>> {
    store.transaction().begin_group()
}

/// Sets what a reader calls that missed something or came to its end, to know whether the refs are
/// still kept where it reads them; `true` says that it found nothing at all. An error ends its work.
pub fn set_still_there(
    options: &mut Options,
    ask: Option<Arc<dyn Fn(bool) -> Result<()> + Send + Sync>>,
) {
    options.still_there = ask.map(StillThere);
}

/// Looks whether the refs are still kept in the format in which they are read.
///
/// # Errors
/// `Moved` if they are not.
pub fn still_there(options: &Options) -> Result<()> {
    options.still_there()
}

/// Returns what is wrong with settings that whoever takes a lock needs, should there be anything.
pub fn invalid_locking(options: &mut Options) -> &mut Option<crate::error::Error> {
    &mut options.invalid.locking
}

/// Returns the same for whoever locks packed-refs.
pub fn invalid_packing(options: &mut Options) -> &mut Option<crate::error::Error> {
    &mut options.invalid.packing
}

/// Returns what is wrong with the settings that whoever writes tables asks for.
pub fn invalid_tables(options: &mut Options) -> &mut Option<crate::error::Error> {
    &mut options.invalid.tables
}
