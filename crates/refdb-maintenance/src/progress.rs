//! How far something is that takes its time.
//!
//! ```
//! use refdb_maintenance::progress::Progress;
//!
//! let progress = Progress { what: "Checking objects", count: 5, total: Some(10) };
//! assert_eq!(progress.count, 5);
//! ```

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub what: &'static str,
    /// How many refs, reflogs or whatever else it is about are done.
    pub count: u64,
    /// How many there are, where that is known.
    pub total: Option<u64>,
}

/// Told now and then how far something is.
pub type Watch<'w> = dyn Fn(Progress) + 'w;

/// Nobody looks.
pub(crate) fn nobody(_: Progress) {}
