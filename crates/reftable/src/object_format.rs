//! The object formats: which hash names the objects, and what a table says of it.

/// The object format of a repository: which hash names its objects.
///
/// ```
/// use reftable::ObjectFormat;
/// assert_eq!(ObjectFormat::Sha1.raw_len(), 20);
/// assert_eq!(ObjectFormat::Sha256.table_version(), 2);
/// assert_eq!(ObjectFormat::from_name("sha256"), Some(ObjectFormat::Sha256));
/// ```
// As wide as it is in an id of refdb's, where it stands beside words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u64)]
pub enum ObjectFormat {
    /// SHA-1: ids of 20 bytes.
    Sha1,
    /// SHA-256: ids of 32 bytes.
    Sha256,
}

impl ObjectFormat {
    /// Both.
    const ALL: [Self; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

    /// Returns the length of an id in bytes.
    #[must_use]
    pub const fn raw_len(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        }
    }

    /// Returns the length of an id in hexadecimal digits.
    #[must_use]
    pub const fn hex_len(self) -> usize {
        self.raw_len() * 2
    }

    /// Returns the name that Git's configuration uses (`extensions.objectFormat`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }

    /// Returns the format of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns the version of the format in which Git writes tables with these ids.
    #[must_use]
    pub const fn table_version(self) -> u8 {
        match self {
            ObjectFormat::Sha1 => 1,
            ObjectFormat::Sha256 => 2,
        }
    }

    /// The four bytes that name the object format in a header of version 2.
    pub(crate) const fn format_id(self) -> [u8; 4] {
        match self {
            ObjectFormat::Sha1 => *b"sha1",
            ObjectFormat::Sha256 => *b"s256",
        }
    }

    pub(crate) fn from_format_id(id: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.format_id() == id)
    }
}
