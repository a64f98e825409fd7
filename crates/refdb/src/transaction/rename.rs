//! Renaming and copying a ref together with its reflog.
//!
//! It is a transaction of two edits, one that makes the new ref and one that deletes the old one, and of the
//! move of a reflog. What is particular about it is which locks it needs before it knows its edits.
//!
//! Invariants:
//! 1. The new ref is there before the old one goes, also where one name lies below the other.
//! 2. HEAD and other symrefs to the old name stay as they are: who renames a branch moves them.

use refdb_names::{ObjectId, RefName, RefNameBuf, Target};

use crate::backend::{Backend, Quirks, in_the_way};
use crate::error::{Error, ErrorKind, Message, Reason, Rejection, Result};
use crate::reflog::{Signature, normalize_message};
use crate::refs::Ref;
use crate::resolve::{End, follow};

use super::checks::check_signature;
use super::edit::{Edit, Expected};
use super::locked::{LockedRefs, refused_lock};
use super::{Outcome, Transaction};

/// How a ref gets another name ([`Store::rename_as`](crate::Store::rename_as)).
///
/// ```
/// let how = refdb::Renaming { message: b"moved", symrefs: true, ..refdb::Renaming::default() };
/// assert!(!how.copies && !how.replaces);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renaming<'a> {
    /// The reason that reflogs record.
    pub message: &'a [u8],
    /// Who is named in reflog entries; the store's committer if `None`.
    pub who: Option<Signature>,
    /// The old ref stays.
    pub copies: bool,
    /// Another ref that has the new name is replaced.
    pub replaces: bool,
    /// A symref may be renamed, too, which Git refuses: it leads where it led.
    pub symrefs: bool,
}

/// The reflog that a transaction takes along.
#[derive(Clone)]
pub(super) struct LogMove {
    pub(super) from: RefNameBuf,
    pub(super) to: RefNameBuf,
    /// The old ref and its reflog stay.
    pub(super) copies: bool,
}

/// Which ref is to get which name, and how.
#[derive(Clone, Copy)]
pub(crate) struct Rename<'a> {
    pub(crate) from: RefName<'a>,
    pub(crate) to: RefName<'a>,
    pub(crate) how: &'a Renaming<'a>,
}

/// Carries a renaming out, as an empty transaction that gets its edits here.
pub(crate) fn rename(transaction: Transaction<'_>, rename: Rename<'_>) -> Result<Outcome> {
    let Rename { from, to, how } = rename;
    for name in [from, to] {
        if !name.is_well_formed() {
            let message = format!("refusing to rename a ref with bad name '{name}'");
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
    }
    if from == to {
        return Ok(Outcome::default());
    }
    if let Some(who) = &how.who {
        check_signature(who, &"a renaming")?;
    }
    let backend = transaction.backend;
    let mut locked = LockedRefs::begin(transaction)?;
    let old = rename.lock(backend, &mut locked)?;
    if !how.symrefs && old.target.symbolic().is_some() {
        let doing = match how.copies {
            false => backend.quirks().renaming,
            true => "copying",
        };
        let message = format!("refname {from} is a symbolic ref, {doing} it is not supported");
        return Err(Error::new(ErrorKind::Misuse, message));
    }
    rename.add_edits(backend, &mut locked, &old)?;
    locked.commit().map_err(|error| match error.rejection() {
        // The caller made one request, whatever edits it came to.
        Some(rejection) => Error::rejected(Rejection {
            index: 0,
            ..rejection.clone()
        }),
        None => error,
    })
}

fn refused(name: RefName<'_>, reason: Reason, message: impl Into<Message>) -> Error {
    Error::rejected(Rejection {
        index: 0,
        name: name.to_owned(),
        reason,
        message: message.into(),
    })
}

impl Rename<'_> {
    /// Takes the locks; returns the old ref.
    fn lock(&self, backend: &dyn Backend, locked: &mut LockedRefs<'_>) -> Result<Ref> {
        let Rename { from, to, how } = *self;
        let mut names = vec![from];
        let nested = (from.is_below(to) || to.is_below(from)).then_some(to);
        if nested.is_none() {
            names.push(to);
        }
        // HEAD loses its branch, which its reflog tells.
        let head = backend.read(RefName::HEAD)?;
        let is_on_it = head.is_some_and(|head| head.target.symbolic() == Some(from));
        if is_on_it && !how.copies && !names.contains(&RefName::HEAD) {
            names.push(RefName::HEAD);
        }
        names.sort();
        if let Some((name, refusal)) = locked.session.take(&names, nested)? {
            let is_held = refusal.reason == Reason::CreateExists;
            return Err(match (name == to, is_held) {
                (false, _) => refused_lock(name, refusal),
                (true, true) => Error::new(ErrorKind::Locked, refusal.message),
                (true, false) => refused(to, refusal.reason, refusal.message),
            });
        }
        if nested.is_some() {
            locked.session.hold_missing(to);
        }
        if let Some(found) = locked.read(to)?
            && !self.may_replace(backend, &found)?
        {
            let message = format!("reference already exists: '{to}'");
            return Err(refused(to, Reason::CreateExists, message));
        }
        // A null id is no ref yet.
        let old = locked.read(from)?;
        let old = old.filter(|old| old.target.oid().is_none_or(|oid| !oid.is_null()));
        let Some(old) = old else {
            let message = format!("refname {from} not found");
            return Err(refused(from, Reason::NonexistentRef, message));
        };
        if how.copies && nested.is_some() {
            let message = in_the_way(from.as_bytes(), to);
            return Err(refused(to, Reason::NameConflict, message));
        }
        Ok(old)
    }

    /// Returns whether the ref that has the new name may go: a symref that leads nowhere is none.
    fn may_replace(&self, backend: &dyn Backend, found: &Ref) -> Result<bool> {
        Ok(match found.target.symbolic() {
            _ if self.how.replaces => true,
            None => false,
            Some(target) => {
                let end = follow(target, |name| backend.read(name))?;
                !matches!(end, End::Object { .. })
            }
        })
    }

    /// Adds the edits that the renaming comes to, those that a hook is told in the order of their names.
    fn add_edits(
        &self,
        backend: &dyn Backend,
        locked: &mut LockedRefs<'_>,
        old: &Ref,
    ) -> Result<()> {
        let Rename { from, to, how } = *self;
        let (new, expected, end) = match &old.target {
            Target::Direct(oid) => (
                Edit::update(to, *oid).skip_object_check(),
                Expected::Oid(*oid),
                Some(*oid),
            ),
            Target::Symbolic(target) => (
                Edit::symbolic(to, target),
                Expected::Symbolic(target.into()),
                follow(target.as_name(), |name| backend.read(name))?.oid(),
            ),
        };
        let mut gone = Edit::delete(from).expecting(expected).no_deref();
        if end.is_none() {
            // A symref that leads nowhere brings no entries, as anywhere else.
            gone = gone.skip_log();
        }
        let queue = &mut locked.transaction.queue;
        queue.who = how.who.clone().map(Box::new);
        queue.message = normalize_message(how.message);
        let new = new.no_deref().skip_log();
        if !how.copies && from < to {
            locked.add(gone.clone())?;
        }
        locked.add(new)?;
        if let Some(peeled) = old.peeled {
            locked.transaction.queue.set_peeled(peeled);
        }
        if !how.copies && from > to {
            locked.add(gone)?;
        }
        for entry in end
            .into_iter()
            .flat_map(|oid| self.entries(backend.quirks(), oid))
        {
            locked.add(entry)?;
        }
        locked.transaction.queue.log_move = Some(Box::new(LogMove {
            from: from.to_owned(),
            to: to.to_owned(),
            copies: how.copies,
        }));
        Ok(())
    }

    /// Returns the entries that the reflog of the new name gets.
    fn entries(&self, quirks: Quirks, oid: ObjectId) -> Vec<Edit<'_>> {
        let null = ObjectId::null(oid.format());
        if quirks.renames_in_one_entry {
            return vec![Edit {
                create_log: false,
                ..Edit::log(self.to, oid, oid)
            }];
        }
        let ends = (!self.how.copies).then(|| Edit::log(self.to, oid, null));
        ends.into_iter()
            .chain([Edit::log(self.to, null, oid)])
            .collect()
    }
}
