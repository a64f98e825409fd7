//! Which refs a listing has, as far as refs alone tell: the rules of `show-ref`, `for-each-ref` and
//! `refs list`, and of whatever else lists refs as Git does.

use refdb::objects::Objects;
use refdb::{ObjectId, RefRecord, Refs, Store, TargetRef};

use crate::context::{Context, Tell, resolve_listed};
use crate::failure::Result;

/// What is done with refs that are of no use (`GIT_REF_PARANOIA`).
#[derive(Clone, Copy)]
enum Paranoia<'a> {
    /// They are shown, or the command ends with them.
    On,
    /// They are left out, and those whose object is missing are told.
    Off(&'a dyn Objects),
}

/// What becomes of a ref whose value, or whose name, is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It is told, and left out.
    Told,
    /// It is listed, and whoever looks at its object finds none.
    Listed,
}

/// What a ref leads to, and what that peels to, where it is stored.
pub(super) type Leads = (ObjectId, Option<ObjectId>);

/// The rules, for the refs of a store.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) store: &'a Store,
    paranoia: Paranoia<'a>,
    broken: Broken,
}

impl<'a> Rules<'a> {
    pub(super) fn new(context: &'a Context, broken: Broken) -> Result<Self> {
        let store = context.store()?;
        let said = context
            .repository()?
            .environment()
            .boolean("GIT_REF_PARANOIA");
        let paranoia = match said? {
            Some(false) => Paranoia::Off(store.objects().as_ref()),
            _ => Paranoia::On,
        };
        Ok(Rules {
            store,
            paranoia,
            broken,
        })
    }

    /// Returns whether nothing but a broken ref, or a symref that leads nowhere, is left out.
    pub(super) fn are_plain(&self) -> bool {
        matches!(self.paranoia, Paranoia::On)
    }

    /// Returns where a ref leads; `None` if it is not listed.
    pub(super) fn leads(
        &self,
        record: &RefRecord<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Leads>> {
        let bad_name = record.has_bad_name();
        if bad_name || record.broken {
            if !self.are_plain() {
                return Ok(None);
            }
            if self.broken == Broken::Told {
                let what = if bad_name {
                    "ref with broken name"
                } else {
                    "broken ref"
                };
                tell("warning", format!("ignoring {what} {}", record.name));
                return Ok(None);
            }
        }
        let (oid, peeled) = match record.target {
            TargetRef::Direct(oid) => (oid, record.peeled),
            TargetRef::Symbolic(_) => match resolve_listed(self.store, record.name)? {
                Some(resolved) => (resolved.oid, resolved.peeled),
                None => return Ok(None),
            },
        };
        if let Paranoia::Off(objects) = self.paranoia
            && objects.kind(oid)?.is_none()
        {
            let text = format!("{} does not point to a valid object!", record.name);
            tell("error", text);
            return Ok(None);
        }
        Ok(Some((oid, peeled)))
    }
}

/// Calls `each` with a cursor before the first ref of every prefix, until it gives `false`.
pub(super) fn each_prefix<P: AsRef<[u8]>>(
    refs: &mut Refs,
    prefixes: &[P],
    mut each: impl FnMut(&mut Refs) -> Result<bool>,
) -> Result<()> {
    for prefix in prefixes {
        refs.seek_prefix(prefix.as_ref())?;
        if !each(refs)? {
            break;
        }
    }
    Ok(())
}
