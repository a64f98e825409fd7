//! The second half of a transaction: the verdict, and the changes to refs and reflogs.

use bstr::{BStr, BString, ByteSlice};

use super::edit::{Transaction, Verb};
use super::prepare::{New, Plan, Step};
use super::{LogAllRefUpdates, Model, Reason, Rejection, Verdict, committer};
use crate::format::RefFormat;
use crate::oracle::{TIME, ZONE};
use crate::state::{LogEntry, Target};

/// What all entries of a transaction have in common.
struct Stamp {
    time: u64,
    zone: String,
    message: BString,
    create_reflog: bool,
}

impl Model {
    /// Carries out a transaction at a given time, in seconds since 1970, and zone.
    pub fn apply_at(&mut self, transaction: &Transaction, time: u64, zone: &str) -> Verdict {
        let plan = self.prepare(transaction);
        let refused = plan.refused.values().chain(plan.refused_edits.values());
        let mut reasons: Vec<_> = plan.fatal.iter().chain(refused).copied().collect();
        reasons.sort_unstable();
        reasons.dedup();
        if !(plan.fatal.is_empty() && (transaction.batch || reasons.is_empty())) {
            return Verdict::Refused { reasons };
        }
        let words: Vec<&[u8]> = transaction.message.fields().collect();
        let mut stamp = Stamp {
            time,
            zone: zone.to_owned(),
            message: bstr::join(" ", words).into(),
            create_reflog: transaction.create_reflog,
        };
        let before = self.clone();
        // Deletions come last: until then a symref that is set can still lead to what is deleted.
        let deletes = |step: &&Step| step.new == Some(New::Nothing) && !step.log_only;
        let (last, first): (Vec<&Step>, Vec<&Step>) = plan.steps.iter().partition(deletes);
        for step in first.into_iter().chain(last) {
            if !plan.rejects(step.edit) {
                let verb = transaction.edits.get(step.edit).map(|edit| &edit.verb);
                let is_delete =
                    matches!(verb, Some(Verb::Delete { .. } | Verb::SymrefDelete { .. }));
                // Deleting makes no reflog, whatever the options say.
                stamp.create_reflog = transaction.create_reflog && !is_delete;
                self.carry_out(step, &stamp, &before);
            }
        }
        Verdict::Done {
            rejections: rejections(&plan, transaction),
        }
    }

    /// Adds an entry to a reflog, which is made if there is none, and changes no ref: what
    /// `git reflog write` does. The new value must not be zero.
    ///
    /// # Errors
    ///
    /// [`Reason::Unresolvable`], in which case nothing is changed.
    pub fn write_log(
        &mut self,
        name: &BStr,
        old: &str,
        new: &str,
        message: &str,
    ) -> Result<(), Reason> {
        self.follow(name)?;
        let words: Vec<&str> = message.split_whitespace().collect();
        let entry = LogEntry {
            old: old.to_owned(),
            new: new.to_owned(),
            committer: committer(),
            time: TIME,
            zone: ZONE.to_owned(),
            message: words.join(" ").into(),
        };
        self.state
            .logs
            .entry(name.to_owned())
            .or_default()
            .push(entry);
        Ok(())
    }

    fn carry_out(&mut self, step: &Step, stamp: &Stamp, before: &Model) {
        let zero = self.zero();
        let Some(new) = &step.new else {
            return;
        };
        let new_id = match new {
            New::Id(id) => Some(id.clone()),
            // Git does not look where HEAD leads now that its branch is a symref.
            New::Target(_) if step.mirrors => Some(zero.clone()),
            New::Target(target) => {
                // A stack is read as it was; files are found as the steps before have left them.
                let stack = self.rules.format.refs == RefFormat::Reftable;
                let model = if stack { before } else { &*self };
                model.resolve(target.as_bstr()).map(str::to_owned)
            }
            New::Nothing => Some(zero.clone()),
        };
        let same = !step.log_only
            && matches!((new, self.state.refs.get(step.name.as_bstr())),
                (New::Id(id), Some(Target::Direct(current))) if id == current);
        let deleted = *new == New::Nothing && !step.log_only;
        if let (Some(new), false) = (new_id, same || deleted) {
            let old = step.found.clone().unwrap_or(zero);
            self.log(&step.name, old, new, stamp);
        }
        if step.log_only {
            return;
        }
        let name = step.name.clone();
        match new {
            New::Id(id) => {
                self.state.refs.insert(name, Target::Direct(id.clone()));
            }
            New::Target(target) => {
                self.state
                    .refs
                    .insert(name, Target::Symbolic(target.clone()));
            }
            New::Nothing => {
                // A stack has nothing to do for a ref that is not there, not even for its reflog.
                let existed = self.state.refs.remove(name.as_bstr()).is_some();
                if existed || self.rules.format.refs == RefFormat::Files {
                    self.state.logs.remove(name.as_bstr());
                }
            }
        }
    }

    fn log(&mut self, name: &BString, old: String, new: String, stamp: &Stamp) {
        let entry = LogEntry {
            old,
            new,
            committer: committer(),
            time: stamp.time,
            zone: stamp.zone.clone(),
            message: stamp.message.clone(),
        };
        // A stack marks the existence of an empty reflog with such an entry, and never shows one.
        let shown = self.rules.format.refs == RefFormat::Files
            || [&entry.old, &entry.new]
                .into_iter()
                .any(|id| *id != self.zero());
        if stamp.create_reflog || self.begins_reflog(name) {
            self.state.logs.entry(name.clone()).or_default();
        }
        if let (Some(entries), true) = (self.state.logs.get_mut(name.as_bstr()), shown) {
            entries.push(entry);
        }
    }

    fn begins_reflog(&self, name: &BString) -> bool {
        match self.rules.log_all_ref_updates {
            LogAllRefUpdates::False => false,
            LogAllRefUpdates::Always => true,
            LogAllRefUpdates::True => {
                let folders: [&[u8]; 3] = [b"refs/heads/", b"refs/remotes/", b"refs/notes/"];
                name == "HEAD" || folders.iter().any(|folder| name.starts_with(folder))
            }
        }
    }
}

fn rejections(plan: &Plan, transaction: &Transaction) -> Vec<Rejection> {
    let of_steps = plan.refused.iter().map(|(at, reason)| {
        let step = &plan.steps[*at];
        Rejection {
            index: step.edit,
            name: step.name.clone(),
            reason: *reason,
        }
    });
    let of_edits = plan.refused_edits.iter().map(|(index, reason)| {
        let name = transaction.edits[*index].name.clone();
        Rejection {
            index: *index,
            name,
            reason: *reason,
        }
    });
    let mut rejections: Vec<Rejection> = of_steps.chain(of_edits).collect();
    rejections.sort_unstable();
    rejections
}
