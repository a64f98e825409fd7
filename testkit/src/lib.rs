//! Test kit of refdb: real Git as the oracle, repositories to test on, a model of a ref store with
//! a generator of transactions, and damage.
//!
//! 1. What a test needs from outside is the oracle alone, and without it a test fails: it is never
//!    skipped in silence.
//! 2. Everything random comes from a seed ([`rng::Rng`]), so that every case can be run again.
//! 3. Git never sees the caller's environment or configuration ([`oracle`]).
//!
//! A behaviour test is written once and runs for both ref formats and both object formats:
//!
//! ```
//! use refdb_testkit::{for_every_format, repo::Repo};
//!
//! for_every_format! {
//!     fn a_new_repository_has_no_branch(format) {
//!         let repo = Repo::init(format);
//!         assert!(repo.refs().iter().all(|r| !r.name.starts_with(b"refs/heads/")));
//!     }
//! }
//! ```

pub mod answer;
pub mod clone_like;
pub mod damage;
pub mod dialogue;
pub mod fixture;
pub mod forge;
pub mod format;
pub mod generate;
pub mod history;
pub mod hostile;
pub mod jgit;
pub mod linear;
pub mod model;
pub mod mount;
pub mod objects;
pub mod oracle;
pub mod ours;
pub mod repo;
pub mod rng;
pub mod scripts;
pub mod shared;
pub mod state;
pub mod trust;

mod cache;
mod files;
mod stack;

pub use format::{Format, ObjectFormat, RefFormat};

/// Makes four tests of one body: `files` and `reftable`, each with SHA-1 and SHA-256.
///
/// The parameter is a [`Format`]. The tests are named `<body>::files_sha1` and so on.
#[macro_export]
macro_rules! for_every_format {
    ($($(#[$attribute:meta])* fn $name:ident($format:ident) $body:block)+) => {$(
        fn $name($format: $crate::Format) $body

        $(#[$attribute])*
        mod $name {
            #[test]
            fn files_sha1() {
                super::$name($crate::Format::FILES_SHA1);
            }

            #[test]
            fn files_sha256() {
                super::$name($crate::Format::FILES_SHA256);
            }

            #[test]
            fn reftable_sha1() {
                super::$name($crate::Format::REFTABLE_SHA1);
            }

            #[test]
            fn reftable_sha256() {
                super::$name($crate::Format::REFTABLE_SHA256);
            }
        }
    )+};
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
