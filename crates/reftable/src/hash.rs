//! The object formats a table can hold, and what the file format says about each.

/// The hash function behind the object ids of a table.
///
/// ```
/// use reftable::HashId;
/// assert_eq!(HashId::Sha1.len(), 20);
/// assert_eq!(HashId::Sha256.version(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashId {
    /// SHA-1: 20 bytes.
    Sha1,
    /// SHA-256: 32 bytes.
    Sha256,
}

impl HashId {
    /// Returns the length of an object id in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an object id is never empty")]
    pub const fn len(self) -> usize {
        match self {
            HashId::Sha1 => 20,
            HashId::Sha256 => 32,
        }
    }

    /// Returns the format version in which Git writes tables with these object ids.
    #[must_use]
    pub const fn version(self) -> u8 {
        match self {
            HashId::Sha1 => 1,
            HashId::Sha256 => 2,
        }
    }

    /// The four bytes that name the hash in a version 2 header.
    pub(crate) const fn format_id(self) -> [u8; 4] {
        match self {
            HashId::Sha1 => *b"sha1",
            HashId::Sha256 => *b"s256",
        }
    }

    pub(crate) fn from_format_id(id: &[u8]) -> Option<Self> {
        [HashId::Sha1, HashId::Sha256]
            .into_iter()
            .find(|hash| hash.format_id() == id)
    }
}
