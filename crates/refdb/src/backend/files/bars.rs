//! Locking directories that are not there, in place of the many refs in them.
//!
//! A lock is a file beside the loose ref, so that whoever writes a ref has to make its directory. Where
//! there is none, a link that leads nowhere in its place (a barrier, as in `freeze`) locks all the refs
//! that could be in it at the cost of one. Readers find nothing behind it, and look into packed-refs.
//! But it keeps others from new names there as well, and Git does not wait for it: only large writes
//! lock that way, which would hold the locks of their refs for longer than Git waits anyway.
//!
//! Invariants:
//! 1. A directory `d` is barred only under `d.lock`, so that nobody puts the ref `d` there.
//! 2. Nobody has a lock below a barrier: a barrier is made where nothing is, and nothing is made below.
//! 3. What is written below a barrier goes into packed-refs.
//! 4. Directories are locked without waiting, and given up before an earlier name is waited for.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::RefName;
use refdb_names::internals::name_from_disk;
use refdb_names::name::is_per_worktree;

use super::Files;
use super::packed::Snapshot;
use super::publish::BATCH_MIN;
use super::session::{FilesSession, Held};
use crate::commit::{LockFile, is_barrier};
use crate::options::LockTimeout;
use crate::system::{FileKind, bytes_to_path};

/// A directory is locked for the sake of so many names in it.
const NAMES_MIN: usize = 8;

/// How long names, and their parts, may be in a directory that is locked as a whole, in bytes. What is in
/// there gets no lock of its own, by which the file system would say that it cannot have such a file. Every
/// one can have these, eCryptfs included, which has the shortest names (143 with `.lock`).
const NAME_MAX: usize = 1024;
const PART_MAX: usize = 138;

/// Returns whether every file system can have a file of that name.
pub(super) fn fits(name: RefName<'_>) -> bool {
    let mut parts = name.as_bytes().split(|&byte| byte == b'/');
    name.as_bytes().len() <= NAME_MAX && parts.all(|part| part.len() <= PART_MAX)
}

/// Which directories are locked as a whole.
struct Wanted {
    /// Those of so many names.
    names_min: usize,
    /// Those that are new altogether: there is none of their names in here either.
    new_beside: Option<Arc<Snapshot>>,
}

impl Wanted {
    fn may_be(&self, dir: &[u8]) -> bool {
        let packed = self.new_beside.as_ref();
        packed.is_none_or(|packed| matches!(packed.first_in(dir), Ok(None)))
    }
}

/// The directories that a session has locked.
#[derive(Default)]
pub(super) struct Bars {
    is_allowed: bool,
    // In the order of their names; none is below another one.
    bars: Vec<Bar>,
}

/// A directory that is locked.
struct Bar {
    /// Its name, with a slash at the end.
    dir: Vec<u8>,
    lock: LockFile,
}

impl Bars {
    /// Allows directories to be locked.
    pub(super) fn allow(&mut self) {
        self.is_allowed = true;
    }

    /// Gives every directory free, and allows none to be locked any more.
    pub(super) fn give_up(&mut self) {
        self.bars.clear();
        self.is_allowed = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    /// Returns the names of the directories, without a slash at the end.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.bars.iter().map(|bar| bar.dir.as_slice());
        names.map(|dir| dir.strip_suffix(b"/").unwrap_or(dir))
    }

    /// Returns the locks.
    pub(super) fn locks(&self) -> impl Iterator<Item = &LockFile> {
        self.bars.iter().map(|bar| &bar.lock)
    }

    /// Returns the locked directory that `name` is in, or is the name of.
    pub(super) fn find(&self, name: &[u8]) -> Option<u32> {
        if self.bars.is_empty() {
            return None;
        }
        let name = [name, b"/"].concat();
        let after = self.bars.partition_point(|bar| bar.dir <= name);
        let at = after.checked_sub(1)?;
        let bar = self.bars.get(at)?;
        let is_below = name.starts_with(&bar.dir);
        is_below.then(|| u32::try_from(at).ok())?
    }

    /// Returns which of `names`, which are sorted, are in one of the directories.
    fn range(&self, bar: usize, names: &[RefName<'_>]) -> Range<usize> {
        let dir = self.bars.get(bar).map_or(&[][..], |bar| &bar.dir);
        let start = names.partition_point(|name| name.as_bytes() < dir);
        let rest = names.get(start..).unwrap_or_default();
        let count = rest.partition_point(|name| name.as_bytes().starts_with(dir));
        start..start + count
    }

    /// Returns the parts of `names`, which are sorted, that are in none of the directories, and the first
    /// name in each directory as far as its directory goes.
    pub(super) fn outside<'a, 'n>(
        &self,
        names: &'a [RefName<'n>],
    ) -> (Vec<&'a [RefName<'n>]>, Vec<RefName<'n>>) {
        let mut parts = Vec::with_capacity(self.bars.len() + 1);
        let mut dirs = Vec::with_capacity(self.bars.len());
        let mut done = 0;
        for (bar, Bar { dir, .. }) in self.bars.iter().enumerate() {
            let range = self.range(bar, names);
            parts.extend(names.get(done..range.start));
            let inner = names.get(range.start).map(|name| name.as_bytes());
            let len = dir.len().saturating_sub(1);
            dirs.extend(inner.and_then(|name| name.get(..len)).map(name_from_disk));
            done = range.end;
        }
        parts.extend(names.get(done..));
        (parts, dirs)
    }

    /// Returns whether every barrier is where it was put.
    pub(super) fn are_held(&self) -> bool {
        self.locks().all(LockFile::is_barred)
    }

    /// Gives every directory free; tells `released` their names.
    pub(super) fn release(&mut self, mut released: impl FnMut(&[u8])) {
        for Bar { dir, lock } in self.bars.drain(..) {
            drop(lock);
            released(dir.strip_suffix(b"/").unwrap_or(&dir));
        }
    }

    /// Leaves every lock to whoever comes when this process has ended.
    pub(super) fn leave(&mut self) {
        self.bars.drain(..).for_each(|bar| bar.lock.leave());
    }
}

impl FilesSession {
    /// Locks directories as a whole in which there would be many of these names, which are sorted.
    pub(super) fn bar_directories(&mut self, names: &[RefName<'_>]) {
        let options = &self.files.options;
        let min = options.directory_lock_min;
        let may_bar = self.bars.is_allowed && self.bars.is_empty() && !options.ignore_case;
        if !may_bar || min == 0 {
            return;
        }
        let wanted = if names.len() >= min {
            Some(Wanted {
                names_min: NAMES_MIN.min(min),
                new_beside: None,
            })
        } else {
            self.wants_new(names.len())
        };
        if let Some(wanted) = wanted {
            self.bar_in(b"refs/", names, &wanted);
        }
    }

    /// Returns which directories are locked for the sake of so many names that are not very many: new
    /// ones of which nobody else knows yet, most likely. `None` if there are none, or if it could not be
    /// found out, which whoever reads packed-refs next tells.
    fn wants_new(&self, count: usize) -> Option<Wanted> {
        let is_worth_it = self.is_worth_packing(count).ok()?;
        let packed = self.files.packed.snapshot().ok()?;
        is_worth_it.then_some(Wanted {
            names_min: BATCH_MIN,
            new_beside: Some(packed),
        })
    }

    /// Locks names, those in locked directories with these, others each half in a thread of its own, as
    /// far as nobody is in the way; returns how many of the first ones are locked then. `None` after
    /// the directories were given back, since somebody is in the way.
    pub(super) fn take_together(&mut self, names: &[RefName<'_>]) -> Option<usize> {
        if self.bars.is_empty() || !names.is_sorted() {
            return Some(self.take_by_halves(names));
        }
        let first = self.held.len();
        let mut done = 0;
        for bar in 0..self.bars.bars.len() {
            let range = self.bars.range(bar, names);
            done += self.take_by_halves(names.get(done..range.start).unwrap_or_default());
            if done < range.start {
                if first > 0 {
                    return Some(done);
                }
                // Whoever is in the way is waited for, and meanwhile no later name is held: all is
                // given back, and locked one by one.
                self.give_back();
                return None;
            }
            let barred = names.get(range.clone()).unwrap_or_default().iter();
            let number = u32::try_from(bar).unwrap_or(u32::MAX);
            let fitting = barred.take_while(|name| fits(**name));
            self.held
                .extend(fitting.map(|&name| Held::barred(name, number)));
            done = self.held.len() - first;
            if done < range.end {
                // What does not fit is refused when it is taken alone.
                return Some(done);
            }
        }
        Some(done + self.take_by_halves(names.get(done..).unwrap_or_default()))
    }

    /// Locks the directories below `dir`, one that is there, which are missing and of which there are
    /// many names.
    fn bar_in(&mut self, dir: &[u8], names: &[RefName<'_>], wanted: &Wanted) {
        let mut all = names;
        while let Some(name) = all.first().map(|name| name.as_bytes()) {
            let rest = name.strip_prefix(dir).unwrap_or_default();
            let Some(slash) = rest.iter().position(|&byte| byte == b'/') else {
                all = all.get(1..).unwrap_or_default();
                continue;
            };
            let child = name.get(..dir.len() + slash + 1).unwrap_or_default();
            let count = all.partition_point(|name| name.as_bytes().starts_with(child));
            let (inner, after) = all.split_at(count);
            all = after;
            if count < wanted.names_min || is_per_worktree(name) {
                continue;
            }
            let child_name = name_from_disk(child.strip_suffix(b"/").unwrap_or(child));
            let Ok((_, path)) = self.files.path(child_name) else {
                // What is wrong with the name is told when a lock is taken of it.
                continue;
            };
            // Its own ref, if that is written as well, needs the lock for itself.
            let is_wanted = || {
                let is_written = names.binary_search(&child_name).is_ok();
                !is_written && wanted.may_be(child) && inner.iter().all(|name| fits(*name))
            };
            let is_gone = match self.files.system.lstat(&path).map(|stat| stat.kind) {
                Ok(FileKind::Directory) if is_wanted() && self.removes_empty(child, &path) => true,
                Ok(FileKind::Directory) => {
                    self.bar_in(child, inner, wanted);
                    false
                }
                Err(error) => error.kind() == io::ErrorKind::NotFound && is_wanted(),
                // A ref, or somebody else's barrier.
                Ok(_) => false,
            };
            if is_gone && let Some(lock) = self.bar(&path) {
                let dir = child.to_vec();
                self.bars.bars.push(Bar { dir, lock });
            }
        }
    }

    /// Removes a directory with nothing in it, which Git leaves below `refs/` when all in it is deleted: then it is
    /// barred as one that is missing. Creating 10,000 refs after Git deleted them, a quarter of them in folders of their
    /// own, takes a fifth of the processor's time, on ext4 a thirtieth.
    fn removes_empty(&self, dir: &[u8], path: &Path) -> bool {
        // Git makes these two with the repository.
        let is_kept = [b"refs/heads/".as_slice(), b"refs/tags/"].contains(&dir);
        !is_kept && self.files.system.remove_dir(path).is_ok()
    }

    /// Locks a directory that is missing, if nobody is in the way.
    fn bar(&self, path: &Path) -> Option<LockFile> {
        let at_once = LockTimeout::from_millis(0);
        let options = self.files.lock_options().within(at_once);
        let mut lock = LockFile::acquire(&self.holder, path, options).ok()?;
        lock.bar(None).is_ok().then_some(lock)
    }
}

impl Files {
    /// Returns the barrier that keeps the directory of `name` from being made, if it is one of a
    /// transaction.
    pub(super) fn barrier_above(&self, name: RefName<'_>) -> Option<PathBuf> {
        self.find_above(name, |path| is_barrier(self.system.as_ref(), path))
    }

    /// Returns the first directory that a name is in of which something is so.
    pub(super) fn find_above(
        &self,
        name: RefName<'_>,
        is_so: impl Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let (place, bare) = self.layout.locate(name);
        let base = self.layout.dir(&place);
        let bare = bare.as_bytes();
        let slashes = bare.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| base.join(bytes_to_path(&bare[..at])));
        above.find(|path| is_so(path))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::backend::files::FilesBackend;
    use crate::backend::{Backend, Locked, NewValue, Plan, Published, Refusal, Session, Write};
    use crate::error::Reason;
    use crate::layout::Layout;
    use crate::options::Options;
    use crate::reflog::Signature;
    use crate::system::System;
    use refdb_names::oid::{ObjectFormat, ObjectId};
    use refdb_simulation::SimSystem;

    const PULLS: [&str; 3] = ["refs/pull/1/head", "refs/pull/1/merge", "refs/pull/2/head"];

    /// A repository with one loose ref, `refs/heads/dir/loose`.
    fn repository() -> SimSystem {
        let system = SimSystem::new(1);
        for dir in ["/r/refs/heads/dir", "/r/refs/tags"] {
            system.create_dir_all(Path::new(dir)).unwrap();
        }
        let mut loose = system
            .create_new(Path::new("/r/refs/heads/dir/loose"), 0o666)
            .unwrap();
        loose.write_all(&[b'1'; 40]).unwrap();
        system.sync_all();
        system
    }

    /// What a process sees of it, which locks directories and waits for so long.
    fn backend(process: &SimSystem, timeout: u64) -> FilesBackend {
        let mut options = Options::simulated(ObjectFormat::Sha1);
        options.directory_lock_min = 2;
        options.files_ref_lock_timeout = LockTimeout::from_millis(timeout);
        let layout = Layout::main(Path::new("/r"));
        FilesBackend::new(Arc::new(process.clone()), layout, Arc::new(options))
    }

    fn name(text: &str) -> RefName<'_> {
        name_from_disk(text.as_bytes())
    }

    /// Locks names, sorted, and gives why some are refused.
    fn lock(session: &mut dyn Session, names: &[&str]) -> Vec<Refusal> {
        let names: Vec<_> = names.iter().map(|text| name(text)).collect();
        let mut refused = Vec::new();
        let answer = &mut |_, locked| {
            if let Locked::Refused(refusal) = locked {
                refused.push(refusal);
            }
        };
        session.lock(&names, false, answer).unwrap();
        refused
    }

    fn locked<'b>(backend: &'b FilesBackend, names: &[&str]) -> Box<dyn Session + 'b> {
        let mut session = backend.begin().unwrap();
        session.lock_directories();
        let refused = lock(session.as_mut(), names);
        assert!(refused.is_empty(), "{refused:?}");
        session
    }

    /// Returns the locks and barriers below `refs/`.
    fn links(system: &SimSystem) -> Vec<String> {
        fn below(system: &SimSystem, dir: &str, found: &mut Vec<String>) {
            for entry in system.read_dir(Path::new(dir)).unwrap() {
                let path = format!("{dir}/{}", String::from_utf8(entry.name).unwrap());
                match entry.kind {
                    FileKind::Directory => below(system, &path, found),
                    FileKind::Symlink => found.push(path),
                    FileKind::File if path.ends_with(".lock") => found.push(path),
                    _ => {}
                }
            }
        }
        let mut found = Vec::new();
        below(system, "/r/refs", &mut found);
        found.sort();
        found
    }

    /// Returns the barriers that stand while names are locked.
    fn barriers(system: &SimSystem, backend: &FilesBackend, names: &[&str]) -> Vec<String> {
        let session = locked(backend, names);
        let mut links = links(system);
        drop(session);
        links.retain(|link| !link.ends_with(".lock"));
        links
    }

    fn publish(mut session: Box<dyn Session + '_>, names: &[&str]) {
        let oid = ObjectId::from_hex(&[b'2'; 40]).unwrap();
        let write = |text| Write {
            name: name(text),
            value: NewValue::Direct {
                oid: &oid,
                peeled: None,
            },
        };
        let writes = names.iter().map(|text| write(*text)).collect();
        let nobody = || Ok(Signature::default());
        session
            .prepare(Plan::of(writes, Vec::new(), nobody))
            .unwrap();
        let published = session.publish().unwrap();
        assert!(matches!(published, Published::Done { afterwards } if afterwards.is_empty()));
    }

    #[test]
    fn a_missing_directory_is_locked_with_all_refs_in_it() {
        let system = repository();
        let (ours, other) = (
            backend(&system.process(1), 0),
            backend(&system.process(2), 0),
        );
        let names = [
            "refs/heads/dir/loose",
            "refs/heads/dir/new",
            PULLS[0],
            PULLS[1],
            PULLS[2],
        ];
        let session = locked(&ours, &names);
        assert_eq!(
            links(&system),
            [
                "/r/refs/heads/dir/loose.lock",
                "/r/refs/heads/dir/new.lock",
                "/r/refs/pull",
                "/r/refs/pull.lock"
            ]
        );
        for text in ["refs/pull", "refs/pull/1/head", "refs/pull/9/deep/er"] {
            let mut session = other.begin().unwrap();
            let refused = lock(session.as_mut(), &[text]);
            assert_eq!(
                refused[0].reason,
                Reason::CreateExists,
                "{text}: {refused:?}"
            );
        }
        let mut waiting = other.begin().unwrap();
        let message = &lock(waiting.as_mut(), &["refs/pull/9/head"])[0].message;
        let parts = [
            "Unable to create '/r/refs/pull/9/head.lock': File exists.",
            "The directory '/r/refs/pull' is locked as a whole. It is held by the refdb process 1",
        ];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(other.read(name("refs/pull/1/head")).unwrap(), None);
        publish(session, &names);
        assert_eq!(links(&system), [""; 0]);
        let found = other.read(name("refs/pull/1/head")).unwrap().unwrap();
        assert!(found.packed);
        assert_eq!(lock(waiting.as_mut(), &["refs/pull/8/head"]).len(), 0);
    }

    #[test]
    fn a_directory_with_nothing_in_it_is_locked_as_a_missing_one() {
        let barriers_with = |dir: &str| {
            let system = repository();
            system.create_dir_all(Path::new(dir)).unwrap();
            barriers(&system, &backend(&system.process(1), 0), &PULLS)
        };
        assert_eq!(barriers_with("/r/refs/pull"), ["/r/refs/pull"]);
        assert_eq!(barriers_with("/r/refs/pull/1"), ["/r/refs/pull/1"]);
        assert_eq!(barriers_with("/r/refs/pull/1/new"), [""; 0]);
        // Git makes this one with the repository, and expects it.
        let system = repository();
        let tags = ["refs/tags/1", "refs/tags/2"];
        let barriers = barriers(&system, &backend(&system.process(1), 0), &tags);
        assert_eq!(barriers, [""; 0]);
        assert!(system.stat(Path::new("/r/refs/tags")).is_ok());
    }

    #[test]
    fn a_barrier_leads_nowhere_whatever_refs_there_are() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        let session = locked(&ours, &PULLS);
        let text = system.read_link(Path::new("/r/refs/pull")).unwrap();
        drop(session);
        // A remote can send refs of any name, but nobody knows that of the next barrier.
        for dir in ["refdb-locked", text.to_str().unwrap()] {
            let dir = Path::new("/r/refs").join(dir).join("1");
            system.create_dir_all(&dir).unwrap();
            let mut loose = system.create_new(&dir.join("head"), 0o666).unwrap();
            loose.write_all(&[b'1'; 40]).unwrap();
        }
        let other = backend(&system.process(2), 0);
        let session = locked(&ours, &PULLS);
        assert_eq!(other.read(name("refs/pull/1/head")).unwrap(), None);
        drop(session);
    }

    #[test]
    fn what_is_not_written_leaves_nothing() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        drop(locked(&ours, &PULLS));
        assert_eq!(links(&system), [""; 0]);
        assert!(system.lstat(Path::new("/r/refs/pull")).is_err());
    }

    #[test]
    fn most_refs_are_locked_one_by_one() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        let bars = |names: &[&str]| barriers(&system, &ours, names);
        // One ref alone, and refs that each worktree has for itself.
        assert_eq!(bars(&["refs/heads/a/b", "refs/notes/a"]), [""; 0]);
        assert_eq!(bars(&["refs/bisect/a/1", "refs/bisect/a/2"]), [""; 0]);
        assert_eq!(bars(&["refs/pull/1/head", "refs/pull/2/head"]).len(), 1);
        // The ref that has the name of the directory needs its lock for itself.
        assert_eq!(
            bars(&["refs/a", "refs/a-b", "refs/a/b", "refs/a/c"]),
            [""; 0]
        );
        // Who does not publish at once keeps nobody from other names.
        let mut session = ours.begin().unwrap();
        assert_eq!(lock(session.as_mut(), &PULLS).len(), 0);
        assert_eq!(links(&system).len(), 3);
    }

    #[test]
    fn a_new_directory_of_many_is_locked_before_anybody_knows_it() {
        let system = repository();
        let options = Options::simulated(ObjectFormat::Sha1);
        let layout = Layout::main(Path::new("/r"));
        let ours = FilesBackend::new(Arc::new(system.process(1)), layout, Arc::new(options));
        let many = |dir: char| (0..BATCH_MIN).map(move |at| format!("refs/heads/{dir}/{at:02}"));
        let names: Vec<String> = many('a').chain(many('b')).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let barriers = || {
            let mut links = links(&system);
            links.retain(|link| !link.ends_with(".lock"));
            links
        };
        let session = locked(&ours, &names);
        assert_eq!(barriers(), ["/r/refs/heads/a", "/r/refs/heads/b"]);
        publish(session, &names);
        assert_eq!(links(&system), [""; 0]);
        // Whoever knows a name may be about to write it, and Git does not wait for a barrier.
        let session = locked(&ours, &["refs/heads/a/new", names[BATCH_MIN]]);
        assert_eq!(barriers(), [""; 0]);
        drop(session);
        // Nor is it done for a few.
        let known = many('a').map(|name| name + "-more");
        let names: Vec<String> = known.chain(many('c')).chain(many('d').skip(1)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let session = locked(&ours, &names);
        let barred = barriers();
        let whole = |dir: &str| barred.contains(&format!("/r/refs/heads/{dir}"));
        assert_eq!(["a", "c", "d"].map(whole), [false, true, false]);
        assert_eq!(barred.len(), 2 * BATCH_MIN);
        publish(session, &names);
        assert_eq!(links(&system), [""; 0]);
    }

    /// Such names can be in packed-refs, but nobody could write them any more.
    #[test]
    fn names_that_no_file_can_have_are_refused_in_a_new_directory_too() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        let at_most = format!("refs/pull/1/{}", "x".repeat(PART_MAX));
        let parts = ["refs/pull/1/head", &at_most, &format!("{at_most}x")];
        let bars = |names: &[&str]| barriers(&system, &ours, names);
        assert_eq!(bars(&parts[..2]), ["/r/refs/pull"]);
        assert_eq!(bars(&parts), [""; 0]);
        let mut session = locked(&ours, &parts[..2]);
        let refused = lock(session.as_mut(), &parts[2..]);
        assert!(refused[0].message.to_string().contains("too long"));
    }

    #[test]
    fn a_name_that_comes_later_is_locked_already() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        let mut session = locked(&ours, &PULLS);
        let later = ["refs/pull/3/head", "refs/pull"];
        for text in later {
            assert_eq!(lock(session.as_mut(), &[text]).len(), 0, "{text}");
        }
        assert_eq!(links(&system), ["/r/refs/pull", "/r/refs/pull.lock"]);
        publish(session, &["refs/pull/1/head", "refs/pull/3/head"]);
        let found = ours.read(name("refs/pull/3/head")).unwrap();
        assert!(found.is_some_and(|found| found.packed));
    }

    #[test]
    fn whoever_waits_for_a_name_holds_no_directory_behind_it() {
        let system = repository();
        let (ours, other) = (
            backend(&system.process(1), 0),
            backend(&system.process(2), 0),
        );
        let mut kept = other.begin().unwrap();
        assert_eq!(lock(kept.as_mut(), &["refs/heads/dir/loose"]).len(), 0);
        let mut session = ours.begin().unwrap();
        session.lock_directories();
        let before = ["refs/a/1", "refs/a/2", "refs/heads/dir/loose"];
        assert_eq!(
            lock(session.as_mut(), &[&before[..], &PULLS].concat()).len(),
            1
        );
        // All were locked one by one, those behind it after the wait.
        let mut links = links(&system);
        links.retain(|link| !link.ends_with(".lock"));
        assert_eq!(links, [""; 0]);
    }

    #[test]
    fn a_directory_that_somebody_locked_is_waited_for() {
        let system = repository();
        let ours = backend(&system.process(1), 0);
        let other = backend(&system.process(2), 300);
        let session = locked(&ours, &PULLS);
        let began = system.now();
        let mut waiting = other.begin().unwrap();
        assert_eq!(lock(waiting.as_mut(), &["refs/pull/9/head"]).len(), 1);
        assert!(system.now() - began >= Duration::from_millis(300));
        drop(session);
    }

    #[test]
    fn a_ref_above_one_of_a_batch_is_in_its_way_and_not_waited_for() {
        let system = repository();
        let ours = backend(&system.process(1), 60_000);
        let mut names: Vec<String> = (0..BATCH_MIN).map(|at| format!("refs/foo/{at}")).collect();
        names.push("refs/heads/dir/loose/two/below".to_owned());
        names.sort();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let began = system.now();
        let mut session = ours.begin().unwrap();
        let refused = lock(session.as_mut(), &names);
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].reason, Reason::NameConflict, "{refused:?}");
        assert!(system.now() - began < Duration::from_millis(60_000));
    }

    /// A process ends while it has locked `refs/pull`, and perhaps power fails.
    fn died(lost: &[&str]) -> SimSystem {
        let system = repository();
        let process = system.process(1);
        let ours = backend(&process, 0);
        std::mem::forget(locked(&ours, &PULLS));
        process.end();
        for path in lost {
            system.remove_file(Path::new(path)).unwrap();
        }
        system
    }

    #[test]
    fn what_the_dead_locked_is_taken_over() {
        for lost in [&[][..], &["/r/refs/pull.lock"], &["/r/refs/pull"]] {
            for next in ["refs/pull/9/head", "refs/pull/1", "refs/pull"] {
                let system = died(lost);
                let other = backend(&system.process(2), 0);
                let mut session = other.begin().unwrap();
                let refused = lock(session.as_mut(), &[next]);
                assert!(refused.is_empty(), "{lost:?}, {next}: {refused:?}");
                publish(session, &[next]);
                let found = other.read(name(next)).unwrap();
                assert!(found.is_some_and(|found| !found.packed), "{lost:?}, {next}");
                let mut left = links(&system);
                // Nobody wants this lock, and what led to it is gone.
                left.retain(|link| lost != ["/r/refs/pull"] || link != "/r/refs/pull.lock");
                assert_eq!(left, [""; 0], "{lost:?}, {next}");
            }
        }
    }

    #[test]
    fn a_barrier_without_its_lock_goes_only_with_the_lock_free() {
        let system = died(&["/r/refs/pull.lock"]);
        // Git is about to write the ref.
        system
            .create_new(Path::new("/r/refs/pull.lock"), 0o666)
            .unwrap();
        let other = backend(&system.process(2), 0);
        let mut session = other.begin().unwrap();
        assert_eq!(lock(session.as_mut(), &["refs/pull/1/head"]).len(), 1);
        assert_eq!(links(&system), ["/r/refs/pull", "/r/refs/pull.lock"]);
        system.remove_file(Path::new("/r/refs/pull.lock")).unwrap();
        assert_eq!(lock(session.as_mut(), &["refs/pull/2/head"]).len(), 0);
    }

    #[test]
    fn a_freeze_waits_for_the_living_and_passes_the_dead() {
        use crate::backend::maintained::Maintained;

        let system = repository();
        let ours = backend(&system.process(1), 0);
        let session = locked(&ours, &PULLS);
        let other = backend(&system.process(2), 0);
        assert!(other.freeze().is_err());
        assert_eq!(links(&system), ["/r/refs/pull", "/r/refs/pull.lock"]);
        drop(session);
        drop(other.freeze().unwrap());
        drop(backend(&died(&[]).process(2), 0).freeze().unwrap());
    }
}
