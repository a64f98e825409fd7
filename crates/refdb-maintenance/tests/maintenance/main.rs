//! Checking, mending and migrating whole stores.

mod corpus;
mod interrupted;
mod migrate_faults;
