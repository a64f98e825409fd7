//! Renaming and copying a ref together with its reflog.
//!
//! 1. The new ref is there before the old one goes, also where one name lies below the other.
//! 2. The hook is asked as for any other transaction, and no ref is renamed in quarantine.
//! 3. HEAD and other symrefs to the old name stay as they are: who renames a branch moves them.

use crate::backend::{
    Backend, Locked, LogChange, LogWrite, NewValue, Plan, RefFormat, Session, Value, Write,
};
use crate::error::{Error, ErrorKind, Result};
use crate::hook::{self, Step};
use crate::name::RefName;
use crate::oid::{ObjectFormat, ObjectId};
use crate::options::Options;
use crate::reflog::{Signature, normalize_message};
use crate::resolve::{End, follow};
use crate::system::System;
use crate::target::Target;

use super::Outcome;
use super::checks::check_signature;
use super::log::publish;
use super::plan::{committer, is_logged_by_default};

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

/// Which ref is to get which name, and how.
#[derive(Clone, Copy)]
pub(crate) struct Rename<'a> {
    pub(crate) from: RefName<'a>,
    pub(crate) to: RefName<'a>,
    pub(crate) how: &'a Renaming<'a>,
}

/// Carries a renaming out.
pub(crate) fn rename(
    backend: &dyn Backend,
    options: &Options,
    system: &dyn System,
    rename: Rename<'_>,
) -> Result<Outcome> {
    let Rename { from, to, .. } = rename;
    for name in [from, to] {
        if !name.is_well_formed() {
            let message = format!("refusing to rename a ref with bad name '{name}'");
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
    }
    if from == to {
        return Ok(Outcome::default());
    }
    super::may_write(options)?;
    let Renaming { who, copies, .. } = rename.how;
    if let Some(who) = who {
        check_signature(who, "a renaming")?;
    }
    let mut session = backend.begin()?;
    let (old, via_head) = rename.lock(backend, session.as_mut())?;
    if !rename.how.symrefs && old.target.symbolic().is_some() {
        // The words are Git's, which has the same ones for both in `reftable`.
        let doing = match (*copies, backend.format()) {
            (false, RefFormat::Files) => "renaming",
            _ => "copying",
        };
        return Err(Error::new(
            ErrorKind::Misuse,
            format!("refname {from} is a symbolic ref, {doing} it is not supported"),
        ));
    }
    // A symref that leads nowhere brings no entries, as anywhere else.
    let end = match &old.target {
        Target::Direct(oid) => Some(*oid),
        Target::Symbolic(target) => follow(target.as_name(), |name| backend.read(name))?.oid(),
    };
    rename.check_name(backend, session.as_mut())?;
    let value = match &old.target {
        Target::Direct(oid) => NewValue::Direct {
            oid,
            peeled: old.peeled.as_ref(),
        },
        Target::Symbolic(target) => NewValue::Symbolic(target.as_name()),
    };
    let mut writes = vec![Write { name: to, value }];
    let change = if *copies {
        LogChange::Copy { from, to }
    } else {
        let value = NewValue::Deleted;
        writes.push(Write { name: from, value });
        writes.sort_by(|low, high| low.name.cmp(&high.name));
        LogChange::Move { from, to }
    };
    let message = normalize_message(rename.how.message);
    let entries = end.map(|oid| rename.entries(backend.format(), options, oid, via_head, &message));
    let entries = entries.unwrap_or_default();
    let mut plan = Plan::of(writes, entries, || match who {
        Some(who) => Ok(who.clone()),
        None => committer(options, system),
    });
    plan.log_changes = vec![change];
    plan.renames = !copies;
    let lines = rename.lines(&old.target, options.object_format);
    carry_out(session, plan, options, &lines)
}

/// Prepares and publishes, and calls the hook.
fn carry_out(
    mut session: Box<dyn Session + '_>,
    plan: Plan<'_>,
    options: &Options,
    lines: &[u8],
) -> Result<Outcome> {
    let Some(hook) = hook::present(options.hook.as_deref())? else {
        session.prepare(plan)?;
        return publish(session);
    };
    hook::ask_or_abort(hook, Step::Preparing, lines)?;
    if let Err(error) = session.prepare(plan) {
        hook::tell(hook, Step::Aborted, lines)?;
        return Err(error);
    }
    hook::ask_or_abort(hook, Step::Prepared, lines)?;
    let outcome = publish(session);
    let end = match outcome {
        Ok(_) => Step::Committed,
        Err(_) => Step::Aborted,
    };
    hook::tell(hook, end, lines)?;
    outcome
}

fn hex(oid: ObjectId) -> Vec<u8> {
    let mut hex = Vec::new();
    oid.push_hex(&mut hex);
    hex
}

impl Rename<'_> {
    /// Returns what the hook is told: that the new ref comes, and that the old one goes.
    fn lines(&self, target: &Target, format: ObjectFormat) -> Vec<u8> {
        let value = match target {
            Target::Direct(oid) => hex(*oid),
            Target::Symbolic(name) => [b"ref:", name.as_bytes()].concat(),
        };
        let null = hex(ObjectId::null(format));
        let mut changes = vec![(self.to, &null, &value)];
        if !self.how.copies {
            changes.push((self.from, &value, &null));
        }
        changes.sort_by(|low, high| low.0.cmp(&high.0));
        let mut lines = Vec::new();
        for (name, old, new) in changes {
            lines.extend([old, &b" "[..], new, b" ", name.as_bytes(), b"\n"].concat());
        }
        lines
    }

    /// Takes the locks; returns the old ref, and whether HEAD points to it and loses it.
    fn lock(&self, backend: &dyn Backend, session: &mut dyn Session) -> Result<(Value, bool)> {
        let head = RefName::HEAD;
        let mut names = vec![self.from];
        // A lock of a new name below the old one can have no place. It needs none: there can be no such
        // ref as long as the old one is there.
        let gives_way = self.from.is_below(self.to);
        if !gives_way && !self.to.is_below(self.from) {
            names.push(self.to);
        }
        let is_concerned =
            |target: &Target| !self.how.copies && target.symbolic() == Some(self.from);
        let known = backend.read(head)?.map(|head| head.target);
        if known.as_ref().is_some_and(is_concerned) && !names.contains(&head) {
            names.push(head);
        }
        names.sort();
        let before = match gives_way {
            true => Some(names.partition_point(|name| *name < self.to)),
            false => None,
        };
        let answers = loop {
            match self.take(session, &names, before)? {
                Some(answers) => break answers,
                None => session.begin_again(),
            }
        };
        let mut old = None;
        let mut via_head = false;
        for (at, locked) in answers {
            let Some(name) = names.get(at) else { continue };
            match locked {
                Locked::Refused(refusal) if *name == self.to => {
                    return Err(Error::new(ErrorKind::Locked, refusal.message));
                }
                Locked::Refused(refusal) => {
                    let error = Error::new(ErrorKind::Locked, refusal.message);
                    return Err(error.context(format_args!("cannot lock ref '{name}'")));
                }
                Locked::Found(found)
                    if *name == self.to && !self.may_replace(backend, &found)? =>
                {
                    let message = format!("reference already exists: '{}'", self.to);
                    return Err(Error::new(ErrorKind::Misuse, message));
                }
                Locked::Found(found) if *name == self.from => old = Some(found),
                Locked::Found(found) if *name == head && is_concerned(&found.target) => {
                    via_head = true;
                }
                Locked::Found(_) | Locked::Missing | Locked::Alone | Locked::Behind => {}
            }
        }
        let old = old.ok_or_else(|| {
            Error::new(
                ErrorKind::Misuse,
                format!("refname {} not found", self.from),
            )
        })?;
        Ok((old, via_head))
    }

    /// Locks names, and the new one before the name at `above`, if that says which; returns what is
    /// answered of them, with their positions. `None` if all locks are to be given back, and taken again.
    fn take(
        &self,
        session: &mut dyn Session,
        names: &[RefName<'_>],
        above: Option<usize>,
    ) -> Result<Option<Vec<(usize, Locked)>>> {
        let mut answers = Vec::new();
        let before = above.unwrap_or(0);
        let (first, rest) = names.split_at(before);
        if !first.is_empty() {
            session.lock(first, true, &mut |at, locked| answers.push((at, locked)))?;
        }
        if above.is_some() && !session.lock_above(self.to)? {
            return Ok(None);
        }
        session.lock(rest, true, &mut |at, locked| {
            answers.push((before + at, locked))
        })?;
        let is_behind = |(_, locked): &(usize, Locked)| matches!(locked, Locked::Behind);
        Ok(match answers.iter().any(is_behind) {
            true => None,
            false => Some(answers),
        })
    }

    /// Returns whether the ref that has the new name may go: a symref that leads nowhere is none.
    fn may_replace(&self, backend: &dyn Backend, found: &Value) -> Result<bool> {
        Ok(match found.target.symbolic() {
            _ if self.how.replaces => true,
            None => false,
            Some(target) => {
                let end = follow(target, |name| backend.read(name))?;
                !matches!(end, End::Object { .. })
            }
        })
    }

    /// Refuses a new name that cannot be beside another ref.
    fn check_name(&self, backend: &dyn Backend, session: &mut dyn Session) -> Result<()> {
        let to = self.to.as_bytes();
        let conflict = |existing: RefName<'_>| {
            let message = format!("'{existing}' exists; cannot create '{}'", self.to);
            Err(Error::new(ErrorKind::Misuse, message))
        };
        let goes = |name: RefName<'_>| !self.how.copies && name == self.from;
        let slashes = to.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        for (at, _) in slashes {
            let parent = RefName::from_disk(to.get(..at).unwrap_or_default());
            if !goes(parent) && session.read(parent)?.is_some() {
                return conflict(parent);
            }
        }
        let below = [to, b"/"].concat();
        let mut refs = backend.cursor()?;
        refs.seek(&below, &below)?;
        while refs.advance()? {
            let name = refs.record().name;
            if !goes(name) {
                return conflict(name);
            }
        }
        Ok(())
    }

    /// Returns the entries that reflogs get, that of HEAD if it points to the old name.
    fn entries<'e>(
        &'e self,
        format: RefFormat,
        options: &Options,
        oid: ObjectId,
        via_head: bool,
        message: &'e [u8],
    ) -> Vec<LogWrite<'e>> {
        let null = ObjectId::null(oid.format());
        let entry = |name, old, new, create| LogWrite {
            name,
            old,
            new,
            message,
            who: None,
            create,
        };
        let head_name = RefName::HEAD;
        let log_head = is_logged_by_default(head_name, options.log_refs);
        let mut entries = Vec::new();
        if via_head {
            entries.push(entry(head_name, oid, null, log_head));
        }
        match format {
            RefFormat::Files => {
                let create = is_logged_by_default(self.to, options.log_refs);
                entries.push(entry(self.to, oid, oid, create));
            }
            RefFormat::Reftable => {
                if !self.how.copies {
                    entries.push(entry(self.to, oid, null, true));
                }
                entries.push(entry(self.to, null, oid, true));
            }
        }
        entries
    }
}
