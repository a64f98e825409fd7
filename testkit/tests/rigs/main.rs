//! Searches on the simulated disk, and random transactions: the store fails, dies, loses power and
//! waits for locks in more ways than one can list.
//!
//! They take minutes, so that they are not among the tests of `refdb`. How much each of them does can be
//! said (docs/testing.md), and each writes what it did to the trust ledger.

mod faults;
mod locks;
mod random;
mod shared;
