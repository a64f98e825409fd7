//! What the hook is told of a migration.
//!
//! To Git a migration is an initial transaction of the new store, which brings every ref into being;
//! in `files` the store consists of two, one for packed-refs and one for what has to be loose. The
//! hook hears what it hears from Git, in the same order: the new store is asked about, but only the
//! loose refs are ever told to be committed.
//!
//! Invariant: nobody holds a lock while the hook runs, and the old refs still stand.

use refdb::hook::{Hook, Step};
use refdb::internals::{ask_or_abort, present, tell};
use refdb::{ObjectId, RefFormat, Result, TargetRef};

use super::copy::Copied;

/// The lines that a hook is to read.
#[derive(Default)]
struct Lines {
    all: Vec<u8>,
    packed: Vec<u8>,
    loose: Vec<u8>,
}

/// Asks the hook about the refs that were copied.
///
/// # Errors
/// `Hook` when it refuses; what a store says when its refs cannot be read.
pub(super) fn announce(hook: Option<&dyn Hook>, copied: &Copied, to: RefFormat) -> Result<()> {
    let Some(hook) = present(hook)? else {
        return Ok(());
    };
    let lines = Lines::of(copied)?;
    for step in [Step::Preparing, Step::Prepared] {
        ask_or_abort(hook, step, &lines.all)?;
    }
    if to == RefFormat::Reftable {
        return Ok(());
    }
    for lines in [&lines.packed, &lines.loose] {
        for step in [Step::Preparing, Step::Prepared] {
            if !lines.is_empty() {
                ask_or_abort(hook, step, lines)?;
            }
        }
    }
    match lines.loose.is_empty() {
        true => Ok(()),
        false => tell(hook, Step::Committed, &lines.loose),
    }
}

impl Lines {
    fn of(copied: &Copied) -> Result<Lines> {
        let mut lines = Lines::default();
        for one in &copied.places {
            let none = ObjectId::null(one.source.options().object_format);
            let mut refs = one.source.refs()?;
            while let Some(record) = refs.next()? {
                let name = record.name.as_bytes();
                if !one.place.keeps(name) || one.left.contains(name) {
                    continue;
                }
                let mut line = Vec::new();
                none.push_hex(&mut line);
                match record.target {
                    TargetRef::Direct(oid) => {
                        line.push(b' ');
                        oid.push_hex(&mut line);
                    }
                    TargetRef::Symbolic(target) => {
                        line.extend_from_slice(b" ref:");
                        line.extend_from_slice(target.as_bytes());
                    }
                }
                line.push(b' ');
                line.extend_from_slice(one.place.prefix.as_bytes());
                line.extend_from_slice(name);
                line.push(b'\n');
                let is_direct = matches!(record.target, TargetRef::Direct(_));
                lines.add(&line, is_direct && name.starts_with(b"refs/"));
            }
        }
        Ok(lines)
    }

    fn add(&mut self, line: &[u8], is_packed: bool) {
        self.all.extend_from_slice(line);
        let part = match is_packed {
            true => &mut self.packed,
            false => &mut self.loose,
        };
        part.extend_from_slice(line);
    }
}
