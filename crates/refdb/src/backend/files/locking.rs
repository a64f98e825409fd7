//! Locking the names that a write asks for, in the one order of all locks.
//!
//! Invariants:
//! 1. Nobody else has a name above new ones that go into packed-refs, when these are locked.
//! 2. What is answered of a name was read under its lock: first its loose ref, then packed-refs.

use std::collections::HashSet;
use std::io;

use refdb_names::{RefName, RefNameBuf};

use super::acquire::NotTaken;
use super::apart::{is_shared, names_above};
use super::current::Current;
use super::packed::Forwards;
use super::publish::BATCH_MIN;
use super::session::FilesSession;
use crate::backend::{Locked, Refusal};
use crate::commit::lock_path;
use crate::error::Result;
use crate::options::LockTimeout;
use crate::system::beside::{HALVES_MIN, both};
use crate::system::dirs::KnownDirs;

/// Names above others that somebody has locked for too long, and what is said of that.
type Blocked = Vec<(RefNameBuf, Refusal)>;

impl FilesSession {
    /// Locks names that are in the order of locks, when nobody has those above them that need it.
    pub(super) fn lock_in_order(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        if names.len() > 1 && names.is_sorted() {
            self.bar_directories(names);
        }
        let mut blocked = Blocked::new();
        loop {
            let above = self.names_above(names)?;
            let above = above.as_deref();
            if self.lock_all(names, stop_at_refusal, above, &mut blocked, answer)? {
                return Ok(());
            }
        }
    }

    /// Returns the names above others, if these may be written into packed-refs; `None` if not.
    fn names_above<'n>(&mut self, names: &[RefName<'n>]) -> Result<Option<Vec<RefName<'n>>>> {
        if names.len() < BATCH_MIN || !self.held.is_empty() || self.files.options.ignore_case {
            return Ok(None);
        }
        let count = names.iter().filter(|name| is_shared(**name)).count();
        let is_one_order = count == names.len() || !self.files.layout.is_linked();
        if count < BATCH_MIN || !is_one_order || !names.is_sorted() {
            return Ok(None);
        }
        if !self.is_worth_packing(count)? {
            return Ok(None);
        }
        // Nobody gets below a locked directory, so that nothing in it is above anything.
        let (parts, dirs) = self.bars.outside(names);
        let mut above: Vec<RefName<'n>> = parts.into_iter().flat_map(names_above).collect();
        above.extend(dirs.chunks(1).flat_map(names_above));
        // One that is written itself is locked for that.
        above.retain(|name| names.binary_search(name).is_err());
        Ok(Some(above))
    }

    /// Returns whether nobody else has the lock of one of these names, which are above others that are
    /// locked. Nobody can make a ref there any more who comes later: the lock below keeps its directory.
    /// Else no lock is held, when the holder is gone or has been waited for in vain.
    fn is_free_above(&mut self, above: &[RefName<'_>], blocked: &mut Blocked) -> bool {
        let files = &self.files;
        let known: Vec<RefName<'_>> = blocked.iter().map(|(known, _)| known.as_name()).collect();
        let is_locked = |name: &RefName<'_>| files.may_be_locked(*name) && !known.contains(name);
        let find = |names: &[RefName<'_>]| names.iter().position(is_locked);
        let found = match above.len() {
            0..HALVES_MIN => find(above),
            count => {
                let (low, high) = above.split_at(count / 2);
                let (first, second) = both(|| find(low), || find(high));
                first.or(second.map(|at| low.len() + at))
            }
        };
        let Some(&name) = found.and_then(|at| above.get(at)) else {
            return true;
        };
        self.give_back();
        let waited = match self.may_turn_back() {
            true => self.wait_for_lock(name),
            false => Err(rustix::io::Errno::EXIST.into()),
        };
        if let Err(error) = waited {
            // A batch goes on without the refs below. It must not take as many waits as there are locks.
            self.timeout = LockTimeout::from_millis(0);
            blocked.push((name.to_owned(), self.refuse(name, &error)));
        }
        false
    }

    /// Waits until nobody has the lock of a name.
    pub(super) fn wait_for_lock(&self, name: RefName<'_>) -> io::Result<()> {
        let (_, path) = self.files.path(name).map_err(io::Error::other)?;
        let is_locked = || self.files.may_be_locked(name);
        let lock = lock_path(&path);
        self.waiter.wait_while(&lock, self.timeout, is_locked)
    }

    /// Gives all locks back, to take them anew.
    pub(super) fn give_back(&mut self) {
        self.held.clear();
        self.bars.give_up();
        self.order.nothing_is_held();
        self.pattern = None;
        self.created_last = false;
    }

    /// Locks names that are in the order of locks. If `above` says which names are above them, new ones
    /// may be packed: nobody else may have a name above, and their places are barred. Returns `false`,
    /// and no lock is held, if all are to be locked anew.
    #[allow(
        clippy::too_many_lines,
        reason = "what is locked, read and barred stands in one order"
    )]
    fn lock_all(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        above: Option<&[RefName<'_>]>,
        blocked: &mut Blocked,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<bool> {
        let is_batch = above.is_some();
        let first = self.held.len();
        self.log_dirs = KnownDirs::default();
        self.held.reserve(names.len());
        self.is_alone = names.len() == 1;
        let Some(unopposed) = self.take_together(names) else {
            return Ok(false);
        };
        let mut taken = Vec::with_capacity(names.len());
        taken.resize_with(unopposed, || Ok(()));
        for &name in names.get(unopposed..).unwrap_or_default() {
            match self.take(name) {
                Ok(()) => taken.push(Ok(())),
                Err(NotTaken::Behind) => {
                    answer(taken.len(), Locked::Behind);
                    return Ok(true);
                }
                Err(NotTaken::Refused(refusal)) => {
                    taken.push(Err(refusal));
                    if stop_at_refusal {
                        break;
                    }
                }
            }
        }
        if above.is_some_and(|above| !self.is_free_above(above, blocked)) {
            return Ok(false);
        }
        // Loose refs first, packed-refs afterwards: this is the order that misses none.
        let before = is_batch.then(|| self.files.packed.snapshot()).transpose()?;
        let loose = self.read_loose(first, before.as_deref());
        // Where all are loose, nobody asks what is packed; who does later looks for himself.
        let is_asked = loose.len() < self.held.len() - first
            || loose.iter().any(|it| matches!(it, Current::NotLoose));
        self.packed = match is_batch || is_asked {
            true => Some(self.files.packed.snapshot()?),
            false => None,
        };
        let packed = self.packed.clone();
        let mut packed = packed.as_deref().map(Forwards::over);
        let mut loose = loose.into_iter();
        // Which of the locks are of new names, and where these are among those that were asked for.
        let mut missing: Vec<usize> = Vec::new();
        let mut missing_at: Vec<usize> = Vec::new();
        let mut of_new = None;
        let mut index = first;
        for (at, taken) in taken.into_iter().enumerate() {
            let this = index;
            index += usize::from(taken.is_ok());
            let current = match taken {
                Ok(()) => loose.next(),
                Err(refusal) => {
                    answer(at, Locked::Refused(*refusal));
                    continue;
                }
            };
            let mut locked = self.judge(this, current, packed.as_mut())?;
            if matches!(locked, Locked::Missing) {
                locked = match &of_new {
                    Some(locked) => Locked::clone(locked),
                    None => of_new.insert(self.look_for_migration()?).clone(),
                };
            }
            if matches!(locked, Locked::Missing)
                && let Some(name) = names.get(at)
                && let Some((_, why)) = blocked
                    .iter()
                    .find(|(above, _)| name.is_below(above.as_name()))
            {
                locked = Locked::Refused(Refusal::clone(why));
            }
            if let Some(held) = self.held.get_mut(this) {
                match locked {
                    Locked::Found(_) => held.exists = true,
                    Locked::Refused(_) => held.lock = None,
                    // The lock of its directory bars the place of another.
                    Locked::Missing if is_batch && held.bar.is_none() => {
                        missing.push(this);
                        missing_at.push(at);
                        continue;
                    }
                    Locked::Missing | Locked::Behind | Locked::Alone => {}
                }
            }
            answer(at, locked);
        }
        let mut refused = HashSet::new();
        self.bar_new(&missing, &mut |index, locked| {
            if let Ok(found) = missing.binary_search(&index) {
                answer(missing_at[found], locked);
                refused.insert(index);
            }
        })?;
        for (index, at) in missing.into_iter().zip(missing_at) {
            if refused.contains(&index) {
                self.held[index].lock = None;
            } else {
                answer(at, Locked::Missing);
            }
        }
        Ok(true)
    }
}
