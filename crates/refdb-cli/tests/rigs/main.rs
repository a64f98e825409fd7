//! Searches that take minutes: processes that die, machines that lose power, many writers at once,
//! hostile repositories, generated scripts.
//!
//! How much each of them does can be said (docs/testing.md), and each writes what it did to the trust
//! ledger.

mod concurrent;
mod ext4;
mod hostile;
mod kills;
mod linear;
mod races;
mod scripts;
mod throughput;
mod wherever;
