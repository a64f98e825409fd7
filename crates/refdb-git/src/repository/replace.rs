//! Replaced objects: refs below `refs/replace/` name objects that are read instead of others.
//!
//! They are read when the first object is, since most commands read none.

use std::collections::HashMap;

use refdb::{Error, ErrorKind, ObjectId, Result, Store, TargetRef};

use super::Environment;
use super::config::Config;
use crate::objects::Replacements;

/// Where replacements are, unless `GIT_REPLACE_REF_BASE` says so.
const BASE: &[u8] = b"refs/replace/";

/// Returns the prefix of the refs that name replacements; `None` where none are to be used.
pub(super) fn base(environment: &Environment, config: &Config) -> Result<Option<Vec<u8>>> {
    if environment.get("GIT_NO_REPLACE_OBJECTS").is_some()
        || config.boolean("core.usereplacerefs")? == Some(false)
    {
        return Ok(None);
    }
    let base = environment.bytes("GIT_REPLACE_REF_BASE");
    Ok(Some(base.map_or_else(|| BASE.to_vec(), Into::into)))
}

/// Reads the replacements of the refs below `base`. A ref that is named after no object is not
/// looked at, and the object of one that leads nowhere counts as missing, as in Git. What follows an id in the name
/// is nothing to Git.
///
/// # Errors
/// `Corrupt` for two refs that are named after one object; as for [`Store::refs`].
pub(super) fn read(store: &Store, base: &[u8]) -> Result<Replacements> {
    let mut replacements = HashMap::new();
    let mut refs = store.refs()?;
    refs.seek_prefix(base)?;
    while let Some(record) = refs.next()? {
        let name = record.name.as_bytes();
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        let hex = last.get(..store.options().object_format.hex_len());
        let Some(replaced) = hex.and_then(ObjectId::from_hex) else {
            continue;
        };
        let by = match record.target {
            TargetRef::Direct(oid) => oid,
            TargetRef::Symbolic(_) => match store.resolve(record.name)? {
                Some(end) => end.oid,
                None => ObjectId::null(replaced.format()),
            },
        };
        if replacements.insert(replaced, by).is_some() {
            let name = record.name;
            let text = format!("duplicate replace ref: {name}; delete one of them");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
    }
    Ok(replacements)
}
