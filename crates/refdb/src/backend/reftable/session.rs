//! Writing to the stacks: one table for each stack that a transaction touches.
//!
//! The steps, with what a crash leaves behind:
//! 1. `tables.list.lock` of every stack concerned (a lock file and nothing else);
//! 2. the table is written whole under a temporary name, synced, named, its directory synced (a
//!    file that no list names);
//! 3. the new list is written into the lock, synced, renamed over the old one, the directory synced
//!    (the old list or the new one);
//! 4. acknowledged; then compaction, which is a publication of its own.
//!
//! Where the compaction would be a quick one, the table of step 2 is the merged one already, and the
//! tables that it stands for are removed after step 3.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use refdb_names::internals::owned_from_disk;
use refdb_names::name::is_per_worktree;
use refdb_names::{ObjectFormat, RefName, RefNameBuf};
use reftable::Table;

use super::cursor::StackCursor;
use super::encode::Encoder;
use super::log_write::LogChangeRecord;
use super::stack::{Added, Held, Pending, Publish, Stack};
use super::walk::{self, Few, Walk, whole_worktree};
use super::{ReftableBackend, find};
use crate::backend::cursor::{Cursor, OverCursor};
use crate::backend::{
    Backend, Judge, Locked, LogChange, Plan, Published, Session, Value, committed_in_part,
};
use crate::commit::{Carried, Change, LockFile};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Place;
use crate::options::LockTimeout;
use crate::reflog::LogEntry;
use crate::system::beside::by_turns;

/// From so many names on they are read in one pass and not one by one.
const ONE_PASS_MIN: usize = 8;

pub(super) struct ReftableSession<'b> {
    pub(super) backend: &'b ReftableBackend,
    /// In the order in which they were locked.
    pub(super) parts: Vec<Part>,
    /// How long each stack is waited for.
    timeout: LockTimeout,
    /// When all locks were to be given back for the first time.
    turned_back: Option<Duration>,
}

/// Which part all names belong to, if that is known.
type Together = Option<usize>;

/// The part of a session in one stack.
pub(super) struct Part {
    place: Place,
    pub(super) object_format: ObjectFormat,
    pub(super) stack: Arc<Stack>,
    pub(super) held: Held,
    /// Records of reflogs that are changed as a whole.
    pub(super) log_changes: Vec<LogChangeRecord>,
    /// Whether a name is another one within the stack, which can change their order.
    renamed: bool,
    /// The names of all refs in the stack, where they were found to be few.
    few: Few,
    pending: Option<Pending>,
    /// What was published to the stack, if anything was.
    added: Option<Added>,
}

impl<'b> ReftableSession<'b> {
    pub(super) fn new(backend: &'b ReftableBackend) -> Self {
        ReftableSession {
            backend,
            parts: Vec::new(),
            timeout: backend.options.reftable.lock_timeout,
            turned_back: None,
        }
    }

    /// Returns the part for a place, locking its stack the first time. It is not waited for while one
    /// is held that comes after it in the order of locks: whoever has it may be waiting for that one.
    pub(super) fn part(&mut self, place: &Place) -> Result<usize> {
        if let Some(at) = self.parts.iter().position(|part| part.place == *place) {
            return Ok(at);
        }
        let stack = self.backend.stack(place);
        let timeout = match self.is_behind(place) {
            true => LockTimeout::from_millis(0),
            false => self.timeout,
        };
        // All locks of a transaction have one holder.
        let mut locks = self
            .parts
            .iter()
            .filter_map(|part| part.held.hold.as_lock());
        let held = stack.hold_to_add(timeout, locks.next())?;
        self.parts.push(Part {
            place: place.clone(),
            object_format: self.backend.options.object_format,
            stack,
            held,
            log_changes: Vec::new(),
            renamed: false,
            few: None,
            pending: None,
            added: None,
        });
        Ok(self.parts.len() - 1)
    }

    /// Returns whether a stack is held that comes after that of a place.
    fn is_behind(&self, place: &Place) -> bool {
        let layout = &self.backend.layout;
        let rank = layout.rank(place);
        let mut held = self.parts.iter().map(|part| layout.rank(&part.place));
        held.any(|held| held > rank)
    }

    /// Returns whether there is time left to give all locks back and to take them anew.
    fn may_turn_back(&mut self) -> bool {
        let now = self.backend.system.elapsed();
        let since = *self.turned_back.get_or_insert(now);
        self.timeout.allows(now.saturating_sub(since))
    }

    /// Locks the stacks of these places in the order of locks. What is returned says why one could not
    /// be locked after those that are held.
    fn lock_places(&mut self, mut places: Vec<Place>) -> Result<Option<Error>> {
        let backend = self.backend;
        let layout = &backend.layout;
        places.sort_by(|low, high| layout.rank(low).cmp(&layout.rank(high)));
        for place in &places {
            match self.part(place) {
                Err(error) if error.kind() == ErrorKind::Locked && self.is_behind(place) => {
                    return Ok(Some(error));
                }
                part => part?,
            };
        }
        Ok(None)
    }

    /// Locks the stacks of names; `None` if one has to be locked before those that are held. Returns
    /// which part is that of all names, if it is known to be.
    fn lock_stacks(&mut self, names: &[RefName<'_>]) -> Result<Option<Together>> {
        let layout = &self.backend.layout;
        let is_together = !names.is_empty() && layout.keeps_together(names);
        // Each place, and whether a name is another one there.
        let mut places: Vec<(Place, bool)> = Vec::new();
        if is_together {
            places.push((Place::Common, false));
        } else {
            for name in names {
                let (place, bare) = layout.locate(*name);
                // It is the end of the name: the whole of it, if it is as long.
                let renamed = bare.as_bytes().len() != name.as_bytes().len();
                match places.iter_mut().find(|known| known.0 == place) {
                    Some(known) => known.1 |= renamed,
                    None => places.push((place, renamed)),
                }
            }
        }
        let needed = places.iter().map(|(place, _)| place.clone()).collect();
        if let Some(error) = self.lock_places(needed)? {
            return if self.may_turn_back() {
                Ok(None)
            } else {
                Err(error)
            };
        }
        let mut together = None;
        for (place, renamed) in places {
            let at = self.part(&place)?;
            self.parts[at].renamed |= renamed;
            together = is_together.then_some(at);
        }
        Ok(Some(together))
    }

    /// Returns a cursor over one stack, as it is locked or as it is now.
    fn stack_cursor(&self, place: &Place) -> Result<StackCursor> {
        match self.parts.iter().find(|part| part.place == *place) {
            Some(part) => Ok(StackCursor::new(
                &part.stack,
                Arc::clone(&part.held.snapshot),
            )),
            None => {
                let stack = self.backend.stack(place);
                Ok(StackCursor::new(&stack, stack.snapshot()?))
            }
        }
    }
}

impl Session for ReftableSession<'_> {
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        _stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        let layout = &self.backend.layout;
        layout.assert_own_folders(self.backend.system.as_ref(), names.iter().copied())?;
        let together = self.lock_stacks(names);
        // Else it would be told that somebody else is in the way.
        self.backend.options.interrupt.check()?;
        let Some(together) = together? else {
            answer(0, Locked::Behind);
            return Ok(());
        };
        if names.len() < ONE_PASS_MIN {
            for (at, name) in names.iter().enumerate() {
                let locked = match layout.locate(*name).1.as_bytes() {
                    b"" => whole_worktree(*name),
                    _ => self.read(*name)?.map_or(Locked::Missing, Locked::Found),
                };
                answer(at, locked);
            }
            return Ok(());
        }
        let held = self.parts.iter();
        let held = held.map(|it| (&it.place, &*it.stack, &*it.held.snapshot.tables));
        let stacks: Vec<(&Place, &Stack, &[Arc<Table>])> = held.collect();
        // Which refs there are at all is asked only where all of them may be merged at once.
        let keeps_few = together.is_some_and(|at| {
            let part = &self.parts[at];
            part.stack.may_fold_whole(&part.held.snapshot, names.len())
        });
        let walker = || {
            let mut walk = Walk::new(&stacks, layout, together, keeps_few);
            move |batch| walk.find(names, batch)
        };
        let mut few = Some(Vec::new());
        by_turns(names.len(), walker, |batch, found| {
            let (found, more) = found?;
            few = walk::join(few.take(), more);
            batch.zip(found).for_each(|(at, found)| answer(at, found));
            Ok::<_, Error>(())
        })?;
        if let Some(at) = together {
            self.parts[at].few = few;
        }
        Ok(())
    }

    fn wait_no_more(&mut self) {
        self.timeout = LockTimeout::from_millis(0);
    }

    fn begin_again(&mut self) {
        self.parts.clear();
    }

    fn release(&mut self, _names: &HashSet<&[u8]>) {
        // One lock covers every name of a stack.
    }

    fn names(&mut self) -> Result<Box<dyn Cursor + '_>> {
        let shared = self.stack_cursor(&Place::Common)?;
        if !self.backend.layout.is_linked() {
            return Ok(Box::new(shared));
        }
        let own = self.stack_cursor(&Place::Worktree)?;
        Ok(Box::new(OverCursor::new(
            Box::new(own),
            Box::new(shared),
            is_per_worktree,
        )))
    }

    fn has_apart(&mut self, name: RefName<'_>) -> Result<bool> {
        Ok(self.read(name)?.is_some())
    }

    fn first_below_apart(&mut self, name: RefName<'_>) -> Result<Option<RefNameBuf>> {
        let (place, bare) = self.backend.layout.locate(name);
        let Some(prefix) = name.as_bytes().strip_suffix(bare.as_bytes()) else {
            return Ok(None);
        };
        if prefix.is_empty() {
            return Ok(None);
        }
        let below = [bare.as_bytes(), b"/"].concat();
        let mut cursor = self.stack_cursor(&place)?;
        cursor.seek(&below, &below)?;
        if !cursor.advance()? {
            return Ok(None);
        }
        let found = [prefix, cursor.name().as_bytes()].concat();
        Ok(Some(owned_from_disk(found)))
    }

    fn read(&mut self, name: RefName<'_>) -> Result<Option<Value>> {
        let (place, bare) = self.backend.layout.locate(name);
        match self.parts.iter().find(|part| part.place == place) {
            Some(part) => find(&part.stack, &part.held.snapshot.tables, bare),
            None => {
                let stack = self.backend.stack(&place);
                find(&stack, &stack.snapshot()?.tables, bare)
            }
        }
    }

    fn any_packed(&self, _names: &[RefName<'_>]) -> Result<Option<bool>> {
        Ok(None)
    }

    fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>) {
        self.backend.layout.locate(name)
    }

    fn rewrite_log(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool> {
        let (place, bare) = self.backend.layout.locate(name);
        let at = self.part(&place)?;
        match self.parts.get_mut(at) {
            Some(part) => part.rewrite_log(bare, judge, then),
            None => Ok(false),
        }
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        let unlocked = plan.log_changes.iter().filter_map(LogChange::unlocked);
        let layout = &self.backend.layout;
        layout.assert_own_folders(self.backend.system.as_ref(), unlocked)?;
        let mut places = Vec::new();
        for change in &plan.log_changes {
            self.add_places(*change, &mut places);
        }
        if let Some(error) = self.lock_places(places)? {
            return Err(error);
        }
        for change in &plan.log_changes {
            self.change_log(*change)?;
        }
        // Every name was locked, so that its stack is among the parts.
        let layout = &self.backend.layout;
        let compact = self.backend.options.reftable.auto_compaction;
        let is_only_one = self.parts.len() == 1;
        for part in &mut self.parts {
            let is_as_it_is = is_only_one && !part.renamed;
            let within = |name| {
                if is_as_it_is {
                    return Some(name);
                }
                let (place, bare) = layout.locate(name);
                (place == part.place).then_some(bare)
            };
            let encoder = Encoder {
                stack: &part.stack,
                snapshot: &part.held.snapshot,
                plan: &plan,
                changes: &part.log_changes,
                within: &within,
                renamed: part.renamed,
                few: part.few.as_deref(),
            };
            part.pending = match is_only_one && compact {
                true => encoder.encode_whole(),
                false => None,
            };
            if part.pending.is_none() {
                part.pending = encoder.encode()?;
            }
        }
        Ok(())
    }

    fn publish(mut self: Box<Self>) -> Result<Published> {
        // A branch is there before the HEAD of a linked worktree that names it.
        self.parts.sort_by_key(|part| part.place != Place::Common);
        let compact = self.backend.options.reftable.auto_compaction;
        if compact || self.backend.register.is_some() {
            self.fold();
        }
        if self.is_overtaken()? {
            return Ok(Published::Moved);
        }
        let mut stored = VecDeque::new();
        let mut afterwards = Vec::new();
        let published = self
            .store(&mut stored)
            .and_then(|()| self.publish_stored(&mut stored, &mut afterwards));
        for Stored { at, name, .. } in stored {
            if let Some(part) = self.parts.get(at) {
                part.stack.discard([&name]);
            }
        }
        if let Publish::Moved = published? {
            return Ok(Published::Moved);
        }
        // All stacks are given back before one is locked again: a compaction may have to wait.
        let parts = std::mem::take(&mut self.parts).into_iter();
        let parts: Vec<_> = parts.map(|part| (part.stack, part.added)).collect();
        for (stack, added) in parts {
            if let Some(added) = added.filter(|_| compact) {
                let failure = stack.auto_compact(added).err();
                afterwards.extend(failure.filter(|error| error.kind() != ErrorKind::Locked));
            }
        }
        Ok(Published::Done { afterwards })
    }
}

/// A table that is stored and that no list names yet.
struct Stored {
    /// Which part it belongs to.
    at: usize,
    name: String,
    pending: Pending,
}

impl ReftableSession<'_> {
    /// Returns whether nothing is to be changed because of what was read, and others have changed that.
    /// Where something is, publishing it is what finds out.
    fn is_overtaken(&self) -> Result<bool> {
        let is_shared = self.backend.register.is_some() && !self.parts.is_empty();
        if !is_shared || self.parts.iter().any(|part| part.pending.is_some()) {
            return Ok(false);
        }
        let now = self.backend.generation(true)?;
        let is_behind = |part: &Part| part.stack.is_behind(&part.held.snapshot.stamp, now);
        Ok(self.parts.iter().any(is_behind))
    }

    /// Merges the new table with those on top of its stack, where the compaction after the commit
    /// would do no more than that. Tables of several stacks are published one by one as they are.
    fn fold(&mut self) {
        let mut parts = self.parts.iter_mut().filter(|part| part.pending.is_some());
        let (Some(part), None) = (parts.next(), parts.next()) else {
            return;
        };
        let Some(pending) = part.pending.as_ref().filter(|it| it.replaces == 0) else {
            return;
        };
        if let Some(folded) = part.stack.fold(&part.held, pending) {
            part.pending = Some(folded);
        }
    }

    /// Stores the tables: everything that can fail for want of space is done before anything is
    /// visible.
    fn store(&mut self, stored: &mut VecDeque<Stored>) -> Result<()> {
        for (at, part) in self.parts.iter_mut().enumerate() {
            if let Some(pending) = part.pending.take() {
                let name = part.stack.store(&pending.options, &pending.content)?;
                stored.push_back(Stored { at, name, pending });
            }
        }
        Ok(())
    }

    /// Publishes what is stored, and leaves in `stored` what it did not come to.
    fn publish_stored(
        &mut self,
        stored: &mut VecDeque<Stored>,
        afterwards: &mut Vec<Error>,
    ) -> Result<Publish> {
        if stored.len() < 2 {
            return self.publish_each(stored, afterwards);
        }
        match self.carry_out(stored)? {
            Carried::InPart(error) => {
                stored.clear();
                let parts = self.parts.iter_mut();
                parts.for_each(|part| part.held.hold.leave());
                Err(committed_in_part(error))
            }
            Carried::Whole { afterwards: failed } => {
                afterwards.extend(failed);
                // The lists are in place: what is left is to know them here.
                let known = self.publish_each(stored, afterwards);
                stored.clear();
                afterwards.extend(known.err());
                Ok(Publish::Done { unsynced: None })
            }
        }
    }

    /// Gives several stacks their new lists, each of which is a step of one change.
    fn carry_out(&mut self, stored: &VecDeque<Stored>) -> Result<Carried> {
        let mut change = Change::default();
        for Stored { at, name, .. } in stored {
            if let Some(part) = self.parts.get_mut(*at) {
                let held = &mut part.held;
                part.stack.stage_on_top(held, name, &mut change)?;
            }
        }
        let locks = || {
            let parts = self.parts.iter();
            parts.filter_map(|part| part.held.hold.as_lock())
        };
        locks().try_for_each(LockFile::check)?;
        let Some(lock) = locks().next() else {
            let message = "a transaction of several stacks holds no lock";
            return Err(Error::new(ErrorKind::Misuse, message));
        };
        let carried = change.carry_out(self.backend.means(lock))?;
        let parts = self.parts.iter_mut();
        parts.for_each(|part| part.held.staged = true);
        Ok(carried)
    }

    fn publish_each(
        &mut self,
        stored: &mut VecDeque<Stored>,
        afterwards: &mut Vec<Error>,
    ) -> Result<Publish> {
        let mut visible = false;
        while let Some(Stored { at, name, pending }) = stored.pop_front() {
            let Some(part) = self.parts.get_mut(at) else {
                continue;
            };
            let Pending {
                content, replaces, ..
            } = pending;
            let published = part
                .stack
                .publish_on_top(&mut part.held, name, content, replaces);
            match published {
                Ok(Publish::Done { unsynced }) => afterwards.extend(unsynced),
                Ok(Publish::Moved) if !visible => return Ok(Publish::Moved),
                Ok(Publish::Moved) => return Err(committed_in_part("another writer was faster")),
                Err(error) if visible => return Err(committed_in_part(error)),
                Err(error) => return Err(error),
            }
            visible = true;
            part.added = (replaces == 0).then_some(pending.added);
        }
        Ok(Publish::Done { unsynced: None })
    }
}
