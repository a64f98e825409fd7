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

/// How a repository stores its refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefFormat {
    /// Loose refs and `packed-refs`.
    Files,
    /// A stack of tables.
    Reftable,
}

/// The hash function that names a repository's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectFormat {
    /// 20 bytes, 40 hexadecimal digits.
    Sha1,
    /// 32 bytes, 64 hexadecimal digits.
    Sha256,
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

impl ObjectFormat {
    /// Returns the name that `git init --object-format` takes.
    pub fn name(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }

    /// Returns the number of hexadecimal digits in a full object id.
    pub fn hex_len(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 40,
            ObjectFormat::Sha256 => 64,
        }
    }

    /// Returns the all-zero object id, with which Git says "no such ref".
    pub fn zero(self) -> String {
        "0".repeat(self.hex_len())
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

    /// Returns the format of objects as the library names it.
    pub const fn our_objects(self) -> refdb::ObjectFormat {
        match self.objects {
            ObjectFormat::Sha1 => refdb::ObjectFormat::Sha1,
            ObjectFormat::Sha256 => refdb::ObjectFormat::Sha256,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.refs.name(), self.objects.name())
    }
}
