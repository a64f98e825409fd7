//! From checked updates to the plan that a backend carries out.

use std::collections::HashMap;

use refdb_names::{RefName, Target};

use crate::backend::{LogChange, LogWrite, NewValue, Plan, Session, Value, Write, Writes};
use crate::error::{ErrorKind, Result};
use crate::options::{LogRefs, Options};
use crate::reflog::Signature;
use crate::resolve::{End, follow};
use crate::system::System;

use super::edit::ChangeOf;
use super::expand::{Current, Expansion};
use super::ids::Id;

/// The objects that new symrefs lead to, by update.
type Ends = HashMap<usize, Id>;

/// Finds out where new symrefs lead, for their reflogs.
pub(super) fn symref_ends(
    expansion: &mut Expansion<'_>,
    session: &mut dyn Session,
) -> Result<Ends> {
    let mut ends = Ends::new();
    if !expansion.queue.has_targets() {
        return Ok(ends);
    }
    for update in 0..expansion.updates.len() {
        let ChangeOf::Symbolic(target) = expansion.queue.change(expansion.edit(update)) else {
            continue;
        };
        // As in Git, the reflog of HEAD does not tell where its branch leads as a symref.
        let end = if expansion.updates[update].mirrors {
            Some(Id::NULL)
        } else if is_logged(expansion, update) {
            let end = follow(target, |name| match expansion.quirks.edits_in_turn {
                true => read_after(expansion, session, name, update),
                false => session.read(name),
            });
            let end = match end {
                // A symref may lead to a broken ref.
                Err(error) if error.kind() == ErrorKind::BrokenRef => End::Nowhere,
                end => end?,
            };
            end.oid().map(|oid| expansion.ids.number(oid))
        } else {
            None
        };
        ends.extend(end.map(|end| (update, end)));
    }
    Ok(ends)
}

/// Decides which values and which reflog entries are written.
pub(super) fn plan<'e>(
    expansion: &'e Expansion<'_>,
    ends: &'e Ends,
    options: &'e Options,
    system: &'e dyn System,
    initial: bool,
) -> Plan<'e> {
    let writes = move || -> Writes<'e> {
        Box::new(expansion.by_name().filter_map(move |update| {
            let (name, value) = (expansion.name(update), value(expansion, update)?);
            Some(Write { name, value })
        }))
    };
    let log = move |update| entry(expansion, ends, options, update);
    let committer = move || committer(options, system);
    let mut plan = Plan::new(writes, log, expansion.updates.len(), committer, initial);
    plan.creates_logs = expansion.creates_logs;
    if let Some(log_move) = &expansion.queue.log_move {
        let (from, to) = (log_move.from.as_name(), log_move.to.as_name());
        plan.renames = !log_move.copies;
        plan.log_changes.push(match log_move.copies {
            true => LogChange::Copy { from, to },
            false => LogChange::Move { from, to },
        });
    }
    if expansion.misses_any() {
        let ended = expansion.by_name().filter(|&update| {
            let state = &expansion.updates[update];
            let deletes = expansion.queue.deletes(expansion.edit(update));
            deletes && state.current == Current::Missing && !state.rejected && !state.log_only
        });
        plan.ended = ended.map(|update| expansion.name(update)).collect();
    }
    plan
}

/// Returns the value that an update gives to its ref, if it changes it.
fn value<'e>(expansion: &'e Expansion<'_>, update: usize) -> Option<NewValue<'e>> {
    let state = &expansion.updates[update];
    if state.rejected || state.log_only {
        return None;
    }
    let (queue, edit) = (expansion.queue, expansion.edit(update));
    if queue.deletes(edit) {
        return (state.current != Current::Missing).then_some(NewValue::Deleted);
    }
    match queue.change(edit) {
        ChangeOf::Update(id) if state.current == Current::Direct(id) => None,
        ChangeOf::Update(id) => Some(NewValue::Direct {
            oid: expansion.ids.get(id),
            peeled: queue.peeled(edit).map(|peeled| expansion.ids.get(peeled)),
        }),
        ChangeOf::Symbolic(target) => Some(NewValue::Symbolic(target)),
        ChangeOf::Delete | ChangeOf::Verify | ChangeOf::Log(_) => None,
    }
}

/// Returns whether an update may bring an entry for a reflog.
fn is_logged(expansion: &Expansion<'_>, update: usize) -> bool {
    let state = &expansion.updates[update];
    let edit = expansion.edit(update);
    if state.rejected || expansion.queue.flags(edit).skip_log() {
        return false;
    }
    state.log_only || !(expansion.queue.deletes(edit) || value(expansion, update).is_none())
}

/// Returns the reflog entry that an update brings, if any.
fn entry<'e>(
    expansion: &'e Expansion<'_>,
    ends: &Ends,
    options: &Options,
    update: usize,
) -> Option<LogWrite<'e>> {
    if !is_logged(expansion, update) {
        return None;
    }
    let (queue, edit) = (expansion.queue, expansion.edit(update));
    let name = expansion.name(update);
    let old = *expansion.ids.get(expansion.updates[update].old);
    let id = |id: Id| *expansion.ids.get(id);
    let (old, new, who) = match queue.change(edit) {
        ChangeOf::Log(entry) => (entry.old, entry.new, entry.who.as_ref()),
        ChangeOf::Verify => return None,
        ChangeOf::Delete => (old, id(Id::NULL), None),
        ChangeOf::Update(new) => (old, id(new), None),
        ChangeOf::Symbolic(_) => (old, id(*ends.get(&update)?), None),
    };
    Some(LogWrite {
        name,
        old,
        new,
        message: queue.message(edit),
        who: who.or(queue.who.as_deref()),
        create: queue.flags(edit).create_log() || is_logged_by_default(name, options.log_refs),
    })
}

/// Reads a ref as the updates before `update` leave it: in the `files` format each entry is
/// written when the values before it are in place already.
fn read_after(
    expansion: &Expansion<'_>,
    session: &mut dyn Session,
    name: RefName<'_>,
    update: usize,
) -> Result<Option<Value>> {
    let earlier = expansion
        .value_update(name.as_bytes())
        .filter(|earlier| *earlier < update);
    let target = match earlier.and_then(|earlier| value(expansion, earlier)) {
        // Values are written before anything is deleted.
        None | Some(NewValue::Deleted) => return session.read(name),
        Some(NewValue::Direct { oid, .. }) => Target::Direct(*oid),
        Some(NewValue::Symbolic(target)) => Target::Symbolic(target.to_owned()),
    };
    Ok(Some(Value {
        target,
        peeled: None,
        packed: false,
    }))
}

/// Returns whether a ref gets a reflog without having one yet.
pub(super) fn is_logged_by_default(name: RefName<'_>, log_refs: LogRefs) -> bool {
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
