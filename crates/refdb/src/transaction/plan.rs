//! From checked updates to the plan that a backend carries out.

use crate::backend::{LogWrite, NewValue, Plan, Ref, RefFormat, Session, Write};
use crate::error::Result;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::options::{LogRefs, Options};
use crate::reflog::Signature;
use crate::resolve::follow;
use crate::system::System;
use crate::target::Target;

use super::edit::Change;
use super::expand::{Current, Expansion};

/// A plan by positions, before names are borrowed for it.
pub(super) struct Draft {
    /// The updates that change a value, in the order of their names.
    writes: Vec<usize>,
    logs: Vec<DraftLog>,
}

struct DraftLog {
    update: usize,
    old: ObjectId,
    new: ObjectId,
    create: bool,
}

/// Decides which values and which reflog entries are written.
pub(super) fn draft(
    expansion: &Expansion<'_, '_, '_>,
    session: &mut dyn Session,
    options: &Options,
    format: RefFormat,
) -> Result<Draft> {
    let writes = expansion.by_name(|update| value(expansion, update).is_some());
    let mut logs = Vec::new();
    for update in 0..expansion.updates.len() {
        if let Some((old, new)) = entry(expansion, session, update, format)? {
            let create = expansion.edit(update).create_log
                || is_logged_by_default(expansion.name(update), options.log_refs);
            logs.push(DraftLog {
                update,
                old,
                new,
                create,
            });
        }
    }
    Ok(Draft { writes, logs })
}

/// Returns the value that an update gives to its ref, if it changes it.
fn value<'e>(expansion: &'e Expansion<'_, '_, '_>, update: usize) -> Option<NewValue<'e>> {
    let state = &expansion.updates[update];
    if state.rejected || state.log_only {
        return None;
    }
    if expansion.deletes(update) {
        return (state.current != Current::Missing).then_some(NewValue::Deleted);
    }
    match &expansion.edit(update).change {
        Change::Update(oid) if state.current == Current::Direct(*oid) => None,
        Change::Update(oid) => Some(NewValue::Direct {
            oid: *oid,
            peeled: expansion.queue.peeled[state.edit],
        }),
        Change::Symbolic(target) => Some(NewValue::Symbolic(RefName::from_disk(target))),
        Change::Delete | Change::Verify | Change::Log(_) => None,
    }
}

/// Returns the old and the new value of the reflog entry that an update brings, if any.
fn entry(
    expansion: &Expansion<'_, '_, '_>,
    session: &mut dyn Session,
    update: usize,
    format: RefFormat,
) -> Result<Option<(ObjectId, ObjectId)>> {
    let state = &expansion.updates[update];
    let edit = expansion.edit(update);
    if state.rejected || edit.skip_log {
        return Ok(None);
    }
    if !state.log_only && (expansion.deletes(update) || value(expansion, update).is_none()) {
        return Ok(None);
    }
    let null = ObjectId::null(state.old.format());
    Ok(match &edit.change {
        Change::Log(entry) => Some((entry.old, entry.new)),
        Change::Verify => None,
        Change::Delete => Some((state.old, null)),
        Change::Update(new) => Some((state.old, *new)),
        // As in Git, the reflog of HEAD does not tell where its branch leads as a symref.
        Change::Symbolic(_) if state.mirrors => Some((state.old, null)),
        Change::Symbolic(target) => {
            let end = follow(RefName::from_disk(target), |name| match format {
                RefFormat::Files => read_after(expansion, session, name, update),
                RefFormat::Reftable => session.read(name),
            })?;
            end.oid().map(|new| (state.old, new))
        }
    })
}

/// Reads a ref as the updates before `update` leave it: in the `files` format each entry is
/// written when the values before it are in place already.
fn read_after(
    expansion: &Expansion<'_, '_, '_>,
    session: &mut dyn Session,
    name: RefName<'_>,
    update: usize,
) -> Result<Option<Ref>> {
    let earlier = expansion
        .value_update(name.as_bytes())
        .filter(|earlier| *earlier < update);
    let target = match earlier.and_then(|earlier| value(expansion, earlier)) {
        // Values are written before anything is deleted.
        None | Some(NewValue::Deleted) => return session.read(name),
        Some(NewValue::Direct { oid, .. }) => Target::Direct(oid),
        Some(NewValue::Symbolic(target)) => Target::Symbolic(target.to_owned()),
    };
    Ok(Some(Ref {
        target,
        peeled: None,
        packed: false,
    }))
}

/// Returns whether a ref gets a reflog without having one yet.
fn is_logged_by_default(name: RefName<'_>, log_refs: LogRefs) -> bool {
    match log_refs {
        LogRefs::None => false,
        LogRefs::Always => true,
        LogRefs::Normal => {
            name.is_head()
                || [&b"refs/heads/"[..], b"refs/remotes/", b"refs/notes/"]
                    .iter()
                    .any(|prefix| name.as_bytes().starts_with(prefix))
        }
    }
}

/// Returns who is named in the entries of this transaction, and when.
pub(super) fn committer(options: &Options, system: &dyn System) -> Result<Signature> {
    let identity = options.committer.get()?;
    let (time, zone) = identity
        .date
        .unwrap_or_else(|| (system.now().as_secs(), identity.zone));
    Ok(Signature {
        name: identity.name.clone(),
        email: identity.email.clone(),
        time,
        zone,
    })
}

impl Draft {
    /// Borrows names and values for the plan.
    pub(super) fn plan<'e>(
        &self,
        expansion: &'e Expansion<'_, '_, '_>,
        who: Signature,
        initial: bool,
    ) -> Plan<'e> {
        let write = |&update: &usize| {
            value(expansion, update).map(|value| Write {
                name: expansion.name(update),
                value,
            })
        };
        let log = |log: &DraftLog| {
            let edit = expansion.edit(log.update);
            LogWrite {
                name: expansion.name(log.update),
                old: log.old,
                new: log.new,
                message: &edit.message,
                who: match &edit.change {
                    Change::Log(entry) => entry.who.as_ref(),
                    _ => None,
                },
                create: log.create,
            }
        };
        Plan {
            writes: self.writes.iter().filter_map(write).collect(),
            logs: self.logs.iter().map(log).collect(),
            who: Some(who),
            initial,
        }
    }
}
