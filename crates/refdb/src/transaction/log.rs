//! Rewriting a reflog: which entries stay is the caller's to say; what becomes of them, and of the
//! ref, is said here for both formats.

use crate::backend::{
    Backend, Fate, Locked, LogChange, LogOrder, NewValue, Plan, Published, RefFormat, Session,
    Write,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::RefName;
use crate::objects::{Objects, Peeled};
use crate::oid::ObjectId;
use crate::reflog::{LogEntry, Signature};
use crate::target::Target;

/// How a reflog is rewritten.
///
/// ```
/// let how = refdb::LogRewrite { join: true, ..refdb::LogRewrite::default() };
/// assert!(!how.dry_run);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRewrite {
    /// Each entry gets the new value of the one that is now before it as its old value.
    pub join: bool,
    /// The ref gets the new value of the newest entry that is left; a symref is left alone.
    pub update_ref: bool,
    /// Nothing is written.
    pub dry_run: bool,
}

/// What the entries that are kept come to.
struct Kept {
    join: bool,
    format: RefFormat,
    /// The new value of the last entry that was kept.
    last: Option<ObjectId>,
}

impl Kept {
    /// Returns what becomes of an entry that is kept.
    fn keep(&mut self, entry: &LogEntry) -> Fate {
        let before = self.last.replace(entry.new);
        let old = match (before, self.format) {
            (Some(before), _) if self.join => before,
            // As in Git, the oldest entry tells nothing of what was before it.
            (None, RefFormat::Files) if self.join => ObjectId::null(entry.old.format()),
            _ => entry.old,
        };
        Fate::Keep { old }
    }
}

/// Rewrites the reflog of `name`: an entry stays if `keep` says so. Returns whether there is one.
pub(crate) fn rewrite(
    backend: &dyn Backend,
    objects: &dyn Objects,
    name: RefName<'_>,
    how: LogRewrite,
    keep: &mut dyn FnMut(&LogEntry) -> Result<bool>,
) -> Result<bool> {
    let mut session = backend.begin()?;
    let current = lock(session.as_mut(), name)?;
    if how.dry_run {
        return backend.for_each_log_entry(name, LogOrder::OldestFirst, &mut |entry| {
            keep(&entry).map(|_| true)
        });
    }
    let mut kept = Kept {
        join: how.join,
        format: backend.format(),
        last: None,
    };
    let exists = session.rewrite_log(name, &mut |entry| {
        Ok(match keep(entry)? {
            true => kept.keep(entry),
            false => Fate::Drop,
        })
    })?;
    if !exists {
        return Ok(false);
    }
    let mut writes = Vec::new();
    if let (true, Some(Target::Direct(_)), Some(oid)) = (how.update_ref, current, kept.last)
        && !oid.is_null()
    {
        let peeled = match objects.peel(oid)? {
            Peeled::To(peeled) => Some(peeled),
            Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
        };
        let value = NewValue::Direct { oid, peeled };
        writes.push(Write { name, value });
    }
    session.prepare(Plan::of(writes, Vec::new(), nobody))?;
    publish(session).map(|_| true)
}

/// Makes, or removes, whole reflogs. No ref is locked, since none changes.
pub(crate) fn change(backend: &dyn Backend, changes: Vec<LogChange<'_>>) -> Result<()> {
    let mut session = backend.begin()?;
    let mut plan = Plan::of(Vec::new(), Vec::new(), nobody);
    plan.log_changes = changes;
    session.prepare(plan)?;
    publish(session).map(|_| ())
}

/// Nobody is named where no entry is added.
fn nobody() -> Result<Signature> {
    Ok(Signature::default())
}

/// Locks one name and returns what it holds.
fn lock(session: &mut dyn Session, name: RefName<'_>) -> Result<Option<Target>> {
    let mut answer = None;
    session.lock(&[name], true, &mut |_, locked| answer = Some(locked))?;
    match answer {
        Some(Locked::Found(found)) => Ok(Some(found.target)),
        Some(Locked::Refused(refusal)) => Err(Error::new(
            ErrorKind::Locked,
            format!("cannot lock ref '{name}': {}", refusal.message),
        )),
        Some(Locked::Missing) | None => Ok(None),
    }
}

/// Publishes what is prepared; returns what went wrong afterwards.
pub(super) fn publish(session: Box<dyn Session + '_>) -> Result<Vec<Error>> {
    match session.publish()? {
        Published::Done { afterwards } => Ok(afterwards),
        Published::Moved => Err(Error::new(
            ErrorKind::Locked,
            "the refs were changed by another writer",
        )),
    }
}
