//! The formats that a repository can have, as Git names them.
//!
//! ```
//! use refdb_testkit::{Format, RefFormat};
//!
//! assert_eq!(Format::REFTABLE_SHA256.refs, RefFormat::Reftable);
//! assert_eq!(Format::REFTABLE_SHA256.objects.hex_len(), 64);
//! assert_eq!(Format::REFTABLE_SHA256.to_string(), "reftable-sha256");
//! ```

use std::fmt;

pub use reftable::ObjectFormat;

/// How a repository stores its refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefFormat {
    /// Loose refs and `packed-refs`.
    Files,
    /// A stack of tables.
    Reftable,
}

/// A ref format together with an object format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format {
    /// How refs are stored.
    pub refs: RefFormat,
    /// How objects are named.
    pub objects: ObjectFormat,
}

impl RefFormat {
    /// Returns the name that `git init --ref-format` takes.
    pub fn name(self) -> &'static str {
        match self {
            RefFormat::Files => "files",
            RefFormat::Reftable => "reftable",
        }
    }
}

impl Format {
    /// `files` with SHA-1.
    pub const FILES_SHA1: Format = Format::new(RefFormat::Files, ObjectFormat::Sha1);
    /// `files` with SHA-256.
    pub const FILES_SHA256: Format = Format::new(RefFormat::Files, ObjectFormat::Sha256);
    /// `reftable` with SHA-1.
    pub const REFTABLE_SHA1: Format = Format::new(RefFormat::Reftable, ObjectFormat::Sha1);
    /// `reftable` with SHA-256.
    pub const REFTABLE_SHA256: Format = Format::new(RefFormat::Reftable, ObjectFormat::Sha256);

    /// All four.
    pub const ALL: [Format; 4] = [
        Format::FILES_SHA1,
        Format::FILES_SHA256,
        Format::REFTABLE_SHA1,
        Format::REFTABLE_SHA256,
    ];

    /// Puts the two parts together.
    pub const fn new(refs: RefFormat, objects: ObjectFormat) -> Format {
        Format { refs, objects }
    }

    /// Returns the format of refs as the library names it.
    pub const fn ours(self) -> refdb::RefFormat {
        match self.refs {
            RefFormat::Files => refdb::RefFormat::Files,
            RefFormat::Reftable => refdb::RefFormat::Reftable,
        }
    }

    /// Returns the all-zero object id, with which Git says "no such ref".
    pub fn zero(self) -> String {
        "0".repeat(self.objects.hex_len())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.refs.name(), self.objects.name())
    }
}
