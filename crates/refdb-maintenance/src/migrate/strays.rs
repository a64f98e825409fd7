//! What a store holds that no copy of it has, and nobody is told of: files below `refs` and `logs` whose names no ref
//! can have, links that lead nowhere, reflogs of nobody, and reflogs that were not to be copied.

use std::path::Path;

use refdb::internals::{Entry, Leaf, Tree, is_absent, is_frozen, maintained, read_loose_link};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::system::{FileKind, System};
use refdb::{Error, RefFormat, Result};

use super::copy::CopiedPlace;

/// Returns whether there is such a thing in a store that nobody writes to.
pub(super) fn has_any(system: &dyn System, one: &CopiedPlace, logs: bool) -> Result<bool> {
    if one.source.format() == RefFormat::Reftable {
        return Ok(!logs && !maintained(&one.source).log_marks()?.is_empty());
    }
    let is_copied = |leaf: &Leaf| {
        let mark = one
            .marks
            .binary_search_by(|mark| mark.name.as_bytes().cmp(&leaf.name));
        mark.is_ok()
    };
    let is_ref = |leaf: &Leaf| {
        // The locks are of this migration.
        Entry::of_leaf(system, leaf) != Entry::Ref
            || is_frozen(system, &leaf.path)
            || (one.place.keeps(&leaf.name)
                && is_well_formed(&leaf.name, FormatOptions::FULL)
                && !leads_nowhere(system, leaf))
    };
    let dir = &one.place.dir;
    Ok(any_but(system, &dir.join("refs"), b"refs/", &is_ref)?
        || any_but(system, &dir.join("logs"), b"", &is_copied)?)
}

/// Returns whether there is a file below a directory that is none of these.
fn any_but(
    system: &dyn System,
    dir: &Path,
    name: &[u8],
    is_one: &dyn Fn(&Leaf) -> bool,
) -> Result<bool> {
    for leaf in Tree::new(system, dir, name) {
        let leaf = leaf.map_err(|(dir, error)| Error::io("unable to list", &dir, error))?;
        if !is_one(&leaf) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a link is no symref, and leads to nothing.
fn leads_nowhere(system: &dyn System, leaf: &Leaf) -> bool {
    leaf.kind == FileKind::Symlink
        && !matches!(read_loose_link(system, &leaf.path), Ok(Some(_)))
        && system
            .stat(&leaf.path)
            .is_err_and(|error| is_absent(&error))
}
