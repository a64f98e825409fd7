//! What the crate `refdb` stands on, and nobody else: any of it changes without notice.

use crate::name::{RefName, RefNameBuf};

pub use crate::name::rules::goes_on_well;
pub use crate::oid::first_byte;

/// Takes a name that was read from a disk, or that is known to be well-formed, without a check.
#[inline]
pub const fn name_from_disk(name: &[u8]) -> RefName<'_> {
    RefName::from_disk(name)
}

/// Takes such a name, and keeps it.
pub fn owned_from_disk(name: impl Into<Vec<u8>>) -> RefNameBuf {
    RefNameBuf::from_disk(name)
}
