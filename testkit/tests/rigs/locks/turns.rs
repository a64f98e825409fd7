//! Processes that take turns, operation by operation, in an order that comes from a seed; what each
//! holds, and what it waits for.
//!
//! A process is a thread, and only one of them runs at any moment: a seed gives the same course of
//! events everywhere. Who sleeps hands on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use refdb::system::{
    Bytes, Guard, GuardedFile, Machine, ProcessState, ReadFile, Scan, Stat, System, WriteFile,
};
use refdb_simulation::SimSystem;
use refdb_testkit::rng::Rng;

/// In so many of 100 cases another process goes on.
const SWITCH_PERCENT: usize = 20;

/// The processes of one search.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    running: usize,
    alive: Vec<bool>,
    /// Who holds each lock.
    holders: BTreeMap<PathBuf, usize>,
    /// The lock that each process was refused last.
    refused: Vec<Option<PathBuf>>,
    /// The lock that each process waits for.
    awaited: Vec<Option<PathBuf>>,
    found: Found,
}

/// What was seen of locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// How many locks were taken.
    pub(super) taken: u64,
    /// How often a process slept for a lock.
    pub(super) waits: u64,
    /// Which locks were waited for while one was held.
    behind: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// Processes that waited for each other.
    deadlocks: Vec<String>,
}

impl Found {
    /// Says what is wrong: processes that waited for each other, or that could have, by the order in
    /// which they waited.
    pub(super) fn fault(&self) -> Option<String> {
        self.deadlocks.first().cloned().or_else(|| self.circle())
    }

    /// Returns how many pairs there are of a lock that was held and one that was waited for.
    pub(super) fn pairs(&self) -> usize {
        self.behind.values().map(BTreeSet::len).sum()
    }

    /// Returns locks each of which was held while the next one was waited for, round in a circle.
    fn circle(&self) -> Option<String> {
        let mut done = BTreeSet::new();
        self.behind.keys().find_map(|start| {
            let mut way = Vec::new();
            self.circle_from(start, &mut way, &mut done)
        })
    }

    fn circle_from<'f>(
        &'f self,
        lock: &'f Path,
        way: &mut Vec<&'f Path>,
        done: &mut BTreeSet<&'f Path>,
    ) -> Option<String> {
        if let Some(start) = way.iter().position(|&other| other == lock) {
            let circle: Vec<String> = way[start..]
                .iter()
                .chain([&lock])
                .map(|lock| lock.display().to_string())
                .collect();
            return Some(format!(
                "waited for in a circle: {}",
                circle.join(", then ")
            ));
        }
        if !done.insert(lock) {
            return None;
        }
        way.push(lock);
        let mut next = self.behind.get(lock).into_iter().flatten();
        let circle = next.find_map(|next| self.circle_from(next, way, done));
        way.pop();
        circle
    }
}

impl Turns {
    /// Makes so many processes, which take turns as the seed says, and run on the same disk as
    /// `system`. Those that are `patient` have a bug: whatever they hold, they wait for a lock.
    pub(super) fn begin(
        system: &SimSystem,
        count: usize,
        seed: u64,
        patient: bool,
    ) -> (Arc<Turns>, Vec<Process>) {
        let turns = Arc::new(Turns {
            state: Mutex::new(State {
                rng: Rng::new(seed),
                running: 0,
                alive: vec![true; count],
                holders: BTreeMap::new(),
                refused: vec![None; count],
                awaited: vec![None; count],
                found: Found::default(),
            }),
            changed: Condvar::new(),
        });
        let process = |(number, pid)| Process {
            inner: system.process(pid),
            turns: Arc::clone(&turns),
            number,
            patient,
        };
        let processes = (2000..)
            .enumerate()
            .take_while(|(number, _)| *number < count);
        let processes = processes
            .map(|(number, pid)| process((number, pid)))
            .collect();
        (turns, processes)
    }

    pub(super) fn found(&self) -> Found {
        self.state().found.clone()
    }

    /// Returns the locks that are held.
    pub(super) fn held(&self) -> Vec<PathBuf> {
        self.state().holders.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>, process: usize) {
        self.changed.notify_all();
        while state.running != process {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// Lets another process go on, if there is one.
    fn switch(&mut self) {
        let others: Vec<usize> = (0..self.alive.len())
            .filter(|&other| self.alive[other] && other != self.running)
            .collect();
        if !others.is_empty() {
            self.running = *self.rng.pick(&others);
        }
    }

    /// Looks whom a process that waits is waiting for in the end.
    fn look_for_deadlock(&mut self, process: usize) {
        let mut told = Vec::new();
        let mut waits = process;
        while let Some(lock) = self.awaited[waits].clone()
            && let Some(&holder) = self.holders.get(&lock)
            && told.len() < self.alive.len()
        {
            told.push(format!("{waits} for {} of {holder}", lock.display()));
            if holder == process {
                let told = format!("processes wait for each other: {}", told.join(", "));
                self.found.deadlocks.push(told);
                return;
            }
            waits = holder;
        }
    }
}

/// One process, which does nothing before it is its turn.
#[derive(Debug)]
pub(super) struct Process {
    inner: SimSystem,
    turns: Arc<Turns>,
    number: usize,
    patient: bool,
}

/// The presence of a process, from its first turn to its last.
pub(super) struct Present {
    turns: Arc<Turns>,
    number: usize,
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.alive[self.number] = false;
        state.awaited[self.number] = None;
        state.switch();
        self.turns.changed.notify_all();
    }
}

impl Process {
    /// Waits for the first turn of this process.
    pub(super) fn begin(&self) -> Present {
        self.turns.wait_for_turn(self.turns.state(), self.number);
        Present {
            turns: Arc::clone(&self.turns),
            number: self.number,
        }
    }

    /// Comes before every operation.
    fn step(&self) {
        let mut state = self.turns.state();
        if state.rng.percent(SWITCH_PERCENT) {
            state.switch();
            self.turns.wait_for_turn(state, self.number);
        }
    }

    /// Comes before what nobody does who is only trying to get a lock.
    fn step_on(&self) {
        self.step();
        let number = self.number;
        let mut state = self.turns.state();
        (state.refused[number], state.awaited[number]) = (None, None);
    }

    /// Takes down what became of the attempt to make a file.
    fn made(&self, path: &Path, error: Option<&io::Error>) {
        let number = self.number;
        let mut state = self.turns.state();
        match error {
            None => {
                state.holders.insert(path.to_owned(), number);
                state.found.taken += 1;
                (state.refused[number], state.awaited[number]) = (None, None);
            }
            Some(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // The journal is one that does not have the name of one.
                if is_lock(path) || state.holders.contains_key(path) {
                    state.refused[number] = Some(path.to_owned());
                }
            }
            Some(_) => {}
        }
    }

    fn gone(&self, path: &Path) {
        let mut state = self.turns.state();
        state.holders.remove(path);
        state.awaited[self.number] = None;
    }

    /// Makes a lock, or what may be one.
    fn lock<T>(&self, path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        // Who is refused and tries again waits already.
        let is_first = self.turns.state().refused[self.number].as_deref() != Some(path);
        let is_patient = self.patient && is_first && is_of_refs(path);
        let mut waited = Duration::ZERO;
        loop {
            self.step();
            let made = make();
            if is_lock(path) || made.is_err() {
                self.made(path, made.as_ref().err());
            }
            let is_refused =
                matches!(&made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
            if !(is_refused && is_patient && waited < Duration::from_secs(3)) {
                return made;
            }
            let pause = Duration::from_millis(2);
            self.sleep(pause);
            waited += pause;
        }
    }
}

/// Returns whether a new file is a lock: what is written under one is `<file>~<number>.lock`.
fn is_lock(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let stem = name.strip_suffix(b".lock");
    stem.is_some_and(|stem| !stem.ends_with(b".lock") && !stem.contains(&b'~'))
}

/// Returns whether a new link is a barrier: the lock of all that would be below it.
fn is_barrier(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    !name.ends_with(b".lock")
}

/// Returns whether a file is the lock of a ref, or of a stack.
fn is_of_refs(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let is_of_a_ref = path.ends_with("HEAD.lock") || path.contains("/refs/");
    is_lock(path.as_ref().as_ref())
        && (is_of_a_ref && !path.contains("/logs/") || path.ends_with("tables.list.lock"))
}

impl System for Process {
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        // What the dead left is put right there, and nobody dies here.
        self.inner.beneath(root)
    }

    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.step_on();
        self.inner.read_at_most(path, limit)
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        self.step_on();
        self.inner.map(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        self.step_on();
        self.inner.open(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.step();
        self.inner.stat(path)
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        self.step();
        self.inner.lstat(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.step();
        let text = self.inner.read_link(path)?;
        let mut state = self.turns.state();
        if !is_lock(path) && state.holders.contains_key(path) {
            // Whoever looks at a barrier waits until it is gone.
            state.refused[self.number] = Some(path.to_owned());
        }
        Ok(text)
    }

    fn scan_dir(&self, path: &Path) -> io::Result<Scan> {
        self.step_on();
        self.inner.scan_dir(path)
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        self.lock(path, || self.inner.create_new(path, mode))
    }

    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>> {
        self.lock(path, || self.inner.create_guarded(path, mode))
    }

    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>> {
        self.step();
        let guard = self.inner.guard_file(path)?;
        let mut state = self.turns.state();
        if guard.is_none() && !is_lock(path) && state.holders.contains_key(path) {
            // Whoever looks at a journal waits until its maker is done, and for no lock that he was refused before.
            state.refused[self.number] = Some(path.to_owned());
        }
        Ok(guard)
    }

    fn is_taken(&self, path: &Path) -> bool {
        self.step();
        self.inner.is_taken(path)
    }

    fn guard_owner(&self, path: &Path) -> Option<u32> {
        self.inner.guard_owner(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.step_on();
        self.inner.append(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step_on();
        self.inner.rename(from, to)?;
        if is_lock(from) {
            self.gone(from);
        }
        // A new ref takes the place of the barrier that kept it free.
        if !is_lock(to) {
            self.gone(to);
        }
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.step_on();
        self.inner.exchange(one, other)?;
        // The barrier has the name of the lock now, which is held until it goes.
        if !is_lock(other) {
            self.gone(other);
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lock(to, || self.inner.hard_link(from, to))?;
        if is_barrier(to) {
            self.made(to, None);
        }
        Ok(())
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        self.lock(path, || self.inner.symlink(text, path))?;
        if is_barrier(path) {
            self.made(path, None);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step_on();
        self.inner.remove_file(path)?;
        self.gone(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step();
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step();
        self.inner.remove_dir(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.step();
        self.inner.set_mode(path, mode)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step_on();
        self.inner.sync_dir(path)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.step_on();
        self.inner.sync_file_system(path)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn elapsed(&self) -> Duration {
        self.inner.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
        let mut state = self.turns.state();
        if let Some(lock) = state.refused[self.number].clone() {
            let held = state.holders.iter();
            let held = held.filter(|&(_, &holder)| holder == self.number);
            let held: Vec<PathBuf> = held.map(|(held, _)| held.clone()).collect();
            for held in held {
                let behind = state.found.behind.entry(held).or_default();
                behind.insert(lock.clone());
            }
            state.found.waits += 1;
            state.awaited[self.number] = Some(lock);
            state.look_for_deadlock(self.number);
        }
        state.switch();
        self.turns.wait_for_turn(state, self.number);
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn user_id(&self) -> u32 {
        self.inner.user_id()
    }

    fn process_id(&self) -> u32 {
        self.inner.process_id()
    }

    fn machine(&self) -> Machine {
        self.inner.machine()
    }

    fn process_state(&self, pid: u32) -> ProcessState {
        self.inner.process_state(pid)
    }

    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>> {
        self.step();
        self.inner.guard_dir(path)
    }
}
