//! Following symrefs to their end, for readers and transactions alike.

use refdb_names::name::{FormatOptions, SYMREF_DEPTH_MAX, is_well_formed};
use refdb_names::{ObjectId, RefName, RefNameBuf, Target};

use crate::backend::Value;
use crate::error::Result;

/// Where a chain of symrefs ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At a ref that names an object.
    Object {
        name: RefNameBuf,
        oid: ObjectId,
        peeled: Option<ObjectId>,
    },
    /// At a ref that does not exist.
    Missing(RefNameBuf),
    /// Nowhere: the chain is longer than Git follows, or names what cannot be a ref.
    Nowhere,
}

impl End {
    /// Returns the object, if the chain ends at one.
    pub(crate) fn oid(&self) -> Option<ObjectId> {
        match self {
            End::Object { oid, .. } => Some(*oid),
            End::Missing(_) | End::Nowhere => None,
        }
    }
}

/// Follows `name`, reading each ref on the way with `read`.
pub(crate) fn follow(
    name: RefName<'_>,
    mut read: impl FnMut(RefName<'_>) -> Result<Option<Value>>,
) -> Result<End> {
    let mut name = name.to_owned();
    for _ in 0..SYMREF_DEPTH_MAX {
        match read(name.as_name())? {
            None => return Ok(End::Missing(name)),
            Some(Value {
                target: Target::Direct(oid),
                peeled,
                ..
            }) => {
                return Ok(End::Object { name, oid, peeled });
            }
            Some(Value {
                target: Target::Symbolic(target),
                ..
            }) => {
                if !is_well_formed(target.as_bytes(), FormatOptions::ONE_LEVEL) {
                    return Ok(End::Nowhere);
                }
                name = target;
            }
        }
    }
    Ok(End::Nowhere)
}

#[cfg(test)]
mod tests {
    use refdb_names::internals::{name_from_disk, owned_from_disk};

    use super::*;

    fn chain(links: usize) -> Result<End> {
        follow(name_from_disk(b"0"), |name| {
            let number: usize = String::from_utf8_lossy(name.as_bytes()).parse().unwrap();
            let target = if number < links {
                Target::Symbolic(owned_from_disk((number + 1).to_string()))
            } else {
                Target::Direct(ObjectId::from_hex(&[b'1'; 40]).unwrap())
            };
            Ok(Some(Value {
                target,
                peeled: None,
                packed: false,
            }))
        })
    }

    #[test]
    fn four_symrefs_and_no_more() {
        assert!(chain(4).unwrap().oid().is_some());
        assert_eq!(chain(5).unwrap(), End::Nowhere);
    }
}
