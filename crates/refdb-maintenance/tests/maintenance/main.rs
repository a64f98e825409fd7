//! Checking, mending and migrating whole stores.

mod another_moment;
mod corpus;
mod exchanged;
mod interrupted;
mod migrate_deleted;
mod migrate_faults;
mod migrate_kept;
mod stack_repair;
mod store_repair;
