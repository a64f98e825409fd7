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
use crate::oid::ObjectId;
use crate::options::Options;
use crate::reflog::normalize_message;
use crate::resolve::{End, follow};
use crate::system::System;
use crate::target::Target;

use super::Outcome;
use super::log::publish;
use super::plan::{committer, is_logged_by_default};

/// Which ref is to get which name.
#[derive(Clone, Copy)]
pub(crate) struct Rename<'a> {
    pub(crate) from: RefName<'a>,
    pub(crate) to: RefName<'a>,
    /// The reason that reflogs record.
    pub(crate) message: &'a [u8],
    /// Whether the old ref stays.
    pub(crate) copies: bool,
    /// Whether another ref may have the new name, and is replaced.
    pub(crate) replaces: bool,
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
    let mut session = backend.begin()?;
    let (old, via_head) = rename.lock(backend, session.as_mut())?;
    let Target::Direct(oid) = old.target else {
        // The words are Git's, which has the same ones for both in `reftable`.
        let doing = match (rename.copies, backend.format()) {
            (false, RefFormat::Files) => "renaming",
            _ => "copying",
        };
        return Err(Error::new(
            ErrorKind::Misuse,
            format!("refname {from} is a symbolic ref, {doing} it is not supported"),
        ));
    };
    rename.check_name(backend, session.as_mut())?;
    let value = NewValue::Direct {
        oid: &oid,
        peeled: old.peeled.as_ref(),
    };
    let mut writes = vec![Write { name: to, value }];
    let change = if rename.copies {
        LogChange::Copy { from, to }
    } else {
        let value = NewValue::Deleted;
        writes.push(Write { name: from, value });
        writes.sort_by(|low, high| low.name.cmp(&high.name));
        LogChange::Move { from, to }
    };
    let message = normalize_message(rename.message);
    let entries = rename.entries(backend.format(), options, oid, via_head, &message);
    let mut plan = Plan::of(writes, entries, || committer(options, system));
    plan.log_changes = vec![change];
    plan.renames = !rename.copies;
    let hook = hook::present(options.hook.as_deref())?;
    let lines = rename.lines(oid);
    let Some(hook) = hook else {
        session.prepare(plan)?;
        return publish(session);
    };
    hook::ask_or_abort(hook, Step::Preparing, &lines)?;
    if let Err(error) = session.prepare(plan) {
        hook::tell(hook, Step::Aborted, &lines)?;
        return Err(error);
    }
    hook::ask_or_abort(hook, Step::Prepared, &lines)?;
    let outcome = publish(session);
    let end = match outcome {
        Ok(_) => Step::Committed,
        Err(_) => Step::Aborted,
    };
    hook::tell(hook, end, &lines)?;
    outcome
}

impl Rename<'_> {
    /// Returns what the hook is told: that the new ref comes, and that the old one goes.
    fn lines(&self, oid: ObjectId) -> Vec<u8> {
        let null = ObjectId::null(oid.format());
        let mut changes = vec![(self.to, null, oid)];
        if !self.copies {
            changes.push((self.from, oid, null));
        }
        changes.sort_by(|low, high| low.0.cmp(&high.0));
        let mut lines = Vec::new();
        for (name, old, new) in changes {
            hook::push_line(&mut lines, old, new, name);
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
        let is_concerned = |target: &Target| !self.copies && target.symbolic() == Some(self.from);
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
            _ if self.replaces => true,
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
        let goes = |name: RefName<'_>| !self.copies && name == self.from;
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
                if !self.copies {
                    entries.push(entry(self.to, oid, null, true));
                }
                entries.push(entry(self.to, null, oid, true));
            }
        }
        entries
    }
}
