//! The kinds of many objects: what packs say of them, without a look at their content or their size.

use gix_pack::data::entry::Header;
use refdb::ObjectId;
use refdb::system::System;

use super::ObjectKind;
use super::odb::to_gix;
use super::packs::{Index, Pack, Slot};

/// How many objects one may be a difference from that is the difference from another, to be told at once.
const BASES_MAX: usize = 4096;

/// Tells kinds from the packs that were there when somebody looked.
pub(super) struct Kinds<'d, S> {
    system: &'d S,
    slots: Vec<std::sync::Arc<Slot>>,
    /// The index in which something was found last.
    last: usize,
}

impl<'d, S: System> Kinds<'d, S> {
    pub(super) fn new(system: &'d S, slots: Vec<std::sync::Arc<Slot>>) -> Self {
        Kinds {
            system,
            slots,
            last: 0,
        }
    }

    /// Returns the kind of an object; `None` if the database has to be asked, which also says what is wrong.
    pub(super) fn at_once(&mut self, oid: &ObjectId) -> Option<ObjectKind> {
        let id = to_gix(oid);
        let others = (0..self.slots.len()).filter(|at| *at != self.last);
        for at in std::iter::once(self.last).chain(others) {
            let index = self.slots.get(at)?.index(self.system).ok()?;
            if let Some((pack, offset)) = index.find(id) {
                self.last = at;
                index.check(self.system, pack).ok()?;
                return kind_at(self.system, index, pack, offset);
            }
        }
        None
    }
}

/// Returns the kind of the object at an offset, which is that of the object it is a difference from.
fn kind_at(system: &dyn System, index: &Index, pack: &Pack, offset: u64) -> Option<ObjectKind> {
    let mut offset = offset;
    for _ in 0..BASES_MAX {
        offset = match pack.entry(system, offset)?.header {
            Header::Commit => return Some(ObjectKind::Commit),
            Header::Tree => return Some(ObjectKind::Tree),
            Header::Blob => return Some(ObjectKind::Blob),
            Header::Tag => return Some(ObjectKind::Tag),
            Header::OfsDelta { base_distance } => offset.checked_sub(base_distance)?,
            Header::RefDelta { base_id } => index.offset_in(system, pack, &base_id).ok()??,
        };
    }
    None
}
