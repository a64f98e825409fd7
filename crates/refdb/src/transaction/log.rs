//! Rewriting a reflog: which entries stay is the caller's to say; what becomes of them, and of the
//! ref, is said here for both formats.

use refdb_names::name::is_pseudoref;
use refdb_names::{ObjectId, RefName, Target};

use crate::backend::{
    Backend, Fate, LogChange, LogOrder, LogWrite, NewValue, Plan, Published, Quirks, Session, Write,
};
use crate::error::{Error, ErrorKind, Result};
use crate::objects::{Objects, Peeled};
use crate::options::{InvalidSettings, Options};
use crate::reflog::{LogEntry, Signature, normalize_message};

use super::checks::check_signature;
use super::locked::LockedSession;
use super::{Outcome, may_write};

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
    /// No lock is waited for: for whoever has waited for another one in vain just now.
    pub at_once: bool,
}

/// Says of an entry whether it stays.
type Keep<'k> = &'k mut dyn FnMut(&LogEntry) -> Result<bool>;

/// What the entries that are kept come to.
struct Kept {
    join: bool,
    quirks: Quirks,
    /// The new value of the last entry that was kept.
    last: Option<ObjectId>,
}

impl Kept {
    fn new(how: LogRewrite, quirks: Quirks) -> Self {
        Kept {
            join: how.join,
            quirks,
            last: None,
        }
    }

    /// Returns what becomes of an entry.
    fn judge(&mut self, entry: &LogEntry, keep: Keep<'_>) -> Result<Fate> {
        let old = self.old(entry);
        let stays = match self.quirks.judges_joined && old != entry.old {
            true => {
                let mut joined = entry.clone();
                joined.old = old;
                keep(&joined)?
            }
            false => keep(entry)?,
        };
        if !stays {
            return Ok(Fate::Drop);
        }
        self.last = Some(entry.new);
        Ok(Fate::Keep { old })
    }

    /// Returns the old value that an entry has if it is kept.
    fn old(&self, entry: &LogEntry) -> ObjectId {
        match (self.last, self.quirks.judges_joined) {
            (Some(before), _) if self.join => before,
            (None, true) if self.join => ObjectId::null(entry.old.format()),
            _ => entry.old,
        }
    }
}

/// Rewrites the reflog of `name`: an entry stays if `keep` says so. Returns `None` if there is none.
pub(crate) fn rewrite(
    backend: &dyn Backend,
    options: &Options,
    objects: &dyn Objects,
    name: RefName<'_>,
    how: LogRewrite,
    keep: Keep<'_>,
) -> Result<Option<Outcome>> {
    InvalidSettings::check(options.invalid.locking.as_ref())?;
    let mut session = LockedSession::begin(backend)?;
    if how.at_once {
        session.wait_no_more();
    }
    let current = lock(&mut session, name)?;
    let mut kept = Kept::new(how, backend.quirks());
    if how.dry_run {
        let each = &mut |entry| kept.judge(&entry, keep).map(|_| true);
        let exists = backend.for_each_log_entry(name, LogOrder::OldestFirst, each)?;
        return Ok(exists.then(Outcome::default));
    }
    let exists = session.rewrite_log(name, &mut |entry| kept.judge(entry, keep), &[])?;
    if !exists {
        return Ok(None);
    }
    let mut writes = Vec::new();
    let found;
    if let (true, Some(Target::Direct(_)), Some(oid)) = (how.update_ref, current, &kept.last)
        && !oid.is_null()
    {
        found = objects.peel(*oid)?;
        let peeled = match &found {
            Peeled::To(peeled) => Some(peeled),
            Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
        };
        let value = NewValue::Direct { oid, peeled };
        writes.push(Write { name, value });
    }
    session.prepare(Plan::of(writes, Vec::new(), nobody))?;
    publish(session).map(Some)
}

/// Rewrites the reflogs of `names` in one transaction: an entry stays if `keep` says so of it and of the position of
/// its name.
pub(crate) fn rewrite_all(
    backend: &dyn Backend,
    options: &Options,
    names: &[RefName<'_>],
    how: LogRewrite,
    keep: &mut dyn FnMut(usize, &LogEntry) -> Result<bool>,
) -> Result<Outcome> {
    if how.update_ref || how.dry_run {
        let message =
            "reflogs whose refs follow, or that stay as they are, are not rewritten together";
        return Err(Error::new(ErrorKind::Misuse, message));
    }
    InvalidSettings::check(options.invalid.locking.as_ref())?;
    let mut session = LockedSession::begin(backend)?;
    if how.at_once {
        session.wait_no_more();
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if let Some((name, refusal)) = session.take(&sorted, None)? {
        return Err(refusal.into_error(name));
    }
    for (at, name) in names.iter().enumerate() {
        let mut kept = Kept::new(how, backend.quirks());
        let keep = &mut |entry: &LogEntry| keep(at, entry);
        session.rewrite_log(*name, &mut |entry| kept.judge(entry, keep), &[])?;
    }
    session.prepare(Plan::of(Vec::new(), Vec::new(), nobody))?;
    publish(session)
}

/// Replaces the reflog of `name`, or makes it, with these entries, the oldest first.
pub(crate) fn replace(
    backend: &dyn Backend,
    options: &Options,
    name: RefName<'_>,
    entries: &[LogEntry],
) -> Result<Outcome> {
    may_write(options)?;
    check_name(name, "replace")?;
    let format = options.object_format;
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        check_signature(&entry.who, &format_args!("an entry for '{name}'"))?;
        if entry.old.format() != format || entry.new.format() != format {
            let message = format!(
                "an entry for '{name}' is not of the object format {}",
                format.name()
            );
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        entry.message = normalize_message(&entry.message).into();
    }
    let mut session = LockedSession::begin(backend)?;
    lock(&mut session, name)?;
    let exists = session.rewrite_log(name, &mut |_| Ok(Fate::Drop), &entries)?;
    let added = entries.iter().filter(|_| !exists).map(|entry| LogWrite {
        name,
        old: entry.old,
        new: entry.new,
        message: &entry.message,
        who: Some(&entry.who),
        create: true,
    });
    let mut plan = Plan::of(Vec::new(), added.collect(), nobody);
    if !exists && entries.is_empty() {
        plan.log_changes.push(LogChange::Create(name));
    }
    session.prepare(plan)?;
    publish(session)
}

/// Fails for a name that has no reflog, or whose file might be another one's.
fn check_name(name: RefName<'_>, what: &str) -> Result<()> {
    if name.is_well_formed() && !is_pseudoref(name.as_bytes()) {
        return Ok(());
    }
    let message = format!("refusing to {what} the reflog of '{name}'");
    Err(Error::new(ErrorKind::InvalidName, message))
}

/// Makes, or removes, whole reflogs. No ref is locked, since none changes.
pub(crate) fn change(
    backend: &dyn Backend,
    options: &Options,
    changes: Vec<LogChange<'_>>,
) -> Result<Outcome> {
    may_write(options)?;
    for change in &changes {
        if let LogChange::Create(name) = change {
            check_name(*name, "make")?;
        }
    }
    let mut session = LockedSession::begin(backend)?;
    let mut plan = Plan::of(Vec::new(), Vec::new(), nobody);
    plan.log_changes = changes;
    session.prepare(plan)?;
    publish(session)
}

/// Nobody is named where no entry is added.
fn nobody() -> Result<Signature> {
    Ok(Signature::default())
}

/// Locks one name and returns what it holds.
fn lock(session: &mut LockedSession<'_>, name: RefName<'_>) -> Result<Option<Target>> {
    match session.take(&[name], None)? {
        Some((name, refusal)) => Err(refusal.into_error(name)),
        None => Ok(session.read(name)?.map(|found| found.target)),
    }
}

/// Publishes what is prepared.
fn publish(session: impl Session) -> Result<Outcome> {
    match Box::new(session).publish()? {
        Published::Done { afterwards } => Ok(Outcome {
            rejections: Vec::new(),
            afterwards,
        }),
        Published::Moved => Err(Error::overtaken()),
    }
}
