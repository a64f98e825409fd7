//! A shared place in a directory: `file://`.
//!
//! Invariants:
//! 1. No link is followed, and no name leads out of the directory.
//! 2. What is stored is durable, content and name, before anybody is told.
//! 3. What a slot has is its file with the greatest number. A name is given to one file only, so that of those who
//!    replace the same one does: no lock decides, which a person could remove, or a dead process leave.
//! 4. The greatest number is never removed: whoever slept meanwhile may take a number that is free again, and finds
//!    that there are greater ones.
//! 5. A number that nobody can have come to is none, and is in nobody's way. What has the greatest of the others and
//!    is no file is damage, and told: to go back to the head before it could lose what was acknowledged.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use refdb::internals::part;
use refdb::options::SharedRepository;
use refdb::shared::head::HEAD_LEN_MAX;
use refdb::shared::{Read, Shared, Swap, Version};
use refdb::system::{Bytes, DirEntry, Guard, System};
use refdb::{Error, ErrorKind, Result};

/// How long a writer waits for its turn: it is not needed, but those who wait write nothing in vain.
const TURN_MAX: Duration = Duration::from_secs(3);

/// So many of the files that a slot had before stay, for those who read one of them just now.
const EARLIER: u64 = 8;

/// How often a slot is read whose file went meanwhile, since others replaced it that often.
const READS_MAX: usize = 1000;

/// Greater numbers are none that a head came to: each replacement is the next one.
const NUMBER_MAX: u64 = 1 << 62;

const DIRS: [&str; 5] = ["aside", "head", "probe", "tables", "tmp"];

/// A place in a directory that the processes of one machine share.
#[derive(Debug)]
pub struct DirShared {
    system: Arc<dyn System>,
    root: PathBuf,
    /// Who may read and write what is made in it.
    permissions: SharedRepository,
}

/// Returns whether there is nothing of that name. A link, or a file in the place of a directory, is
/// something.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn create_dir(system: &dyn System, path: &Path, permissions: SharedRepository) -> io::Result<()> {
    match system.create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| permissions.adjust(system, path)),
    }
}

impl DirShared {
    /// Opens the place in a directory that is there. With `make`, a directory that is empty or missing
    /// becomes one.
    ///
    /// # Errors
    /// `Io` when it cannot be made or opened; `Misuse` for a relative path.
    pub fn open(system: &dyn System, root: &Path, make: bool) -> Result<DirShared> {
        DirShared::open_in(system, root, make, SharedRepository::Umask)
    }

    /// As [`DirShared::open`], with the permissions of the repository in which the place is.
    ///
    /// # Errors
    /// As there.
    pub fn open_in(
        system: &dyn System,
        root: &Path,
        make: bool,
        permissions: SharedRepository,
    ) -> Result<DirShared> {
        if !root.is_absolute() {
            let what = format!(
                "the path of a store is absolute, and '{}' is not",
                root.display()
            );
            return Err(Error::new(ErrorKind::Misuse, what));
        }
        if make {
            let made = create_dir(system, root, permissions);
            made.map_err(|error| Error::io("cannot create", root, error))?;
        }
        let below = system.beneath(root);
        let below = below.map_err(|error| Error::io("cannot open", root, error))?;
        let place = DirShared {
            system: below,
            root: root.to_owned(),
            permissions,
        };
        if make {
            let made = place.make_dirs();
            made.map_err(|error| Error::io("cannot make the directories in", root, error))?;
        }
        Ok(place)
    }

    /// Makes the directories that are missing: copies leave out empty ones.
    fn make_dirs(&self) -> io::Result<()> {
        for dir in DIRS {
            create_dir(self.system.as_ref(), &self.root.join(dir), self.permissions)?;
        }
        self.system.sync_dir(&self.root)
    }

    fn heads(&self) -> PathBuf {
        self.root.join("head")
    }

    fn slot_path(&self, slot: u32, number: u64) -> PathBuf {
        self.heads().join(format!("{slot}.{number}"))
    }

    /// Returns the numbers of the files that a slot has or had, in their order.
    fn numbers(&self, slot: u32) -> Result<Vec<u64>> {
        let dir = self.heads();
        let entries = match self.system.read_dir(&dir) {
            Err(error) if is_missing(&error) => Vec::new(),
            entries => entries.map_err(|error| Error::io("cannot read", &dir, error))?,
        };
        let number = |entry: DirEntry| {
            let name = String::from_utf8(entry.name).ok()?;
            let (of, number) = name.split_once('.')?;
            let number = number.parse().ok()?;
            let is_of_slot = of.parse() == Ok(slot) && name == format!("{slot}.{number}");
            (is_of_slot && number <= NUMBER_MAX).then_some(number)
        };
        let mut numbers: Vec<u64> = entries.into_iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the path of an object, the parts of whose name are plain.
    fn path(&self, key: &str) -> Result<PathBuf> {
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let has_dir = key.split_once('/').is_some_and(|(dir, name)| {
            matches!(dir, "aside" | "probe" | "tables") && is_plain(name)
        });
        match has_dir {
            true => Ok(self.root.join(key)),
            false => {
                let what = format!("{}: '{key}' is not the name of an object", self.name());
                Err(Error::new(ErrorKind::Misuse, what))
            }
        }
    }

    /// Waits until nobody else replaces a head, who would be in vain then; not for ever, as whoever may read the
    /// directory can keep others waiting.
    fn turn(&self) -> Option<Guard> {
        let begun = self.system.elapsed();
        while self.system.elapsed().saturating_sub(begun) < TURN_MAX {
            let guard = self.system.guard_dir(&self.heads()).ok()?;
            if guard.is_some() {
                return guard;
            }
            let spread = Duration::from_micros(self.system.random() % 500);
            self.system.sleep(Duration::from_micros(200) + spread);
        }
        None
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.system.remove_file(path) {
            Err(error) if !is_missing(&error) => Err(Error::io("cannot remove", path, error)),
            _ => Ok(()),
        }
    }

    /// Gives a new file a content, durably, and then what `name` gives it in place of this one.
    fn write(
        &self,
        content: &[u8],
        name: impl Fn(&dyn System, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let temporary = format!("{:016x}", self.system.random());
        let temporary = self.root.join("tmp").join(temporary);
        let write = || {
            // As long as it is open, whoever sweeps knows that its writer lives.
            let mut file = self.system.create_guarded(&temporary, 0o666)?;
            file.unguard()?;
            self.permissions.adjust(self.system.as_ref(), &temporary)?;
            file.write_all(content)?;
            file.sync()?;
            name(self.system.as_ref(), &temporary)
        };
        let mut done = write();
        if done.as_ref().is_err_and(is_missing) {
            let _ = self.system.remove_file(&temporary);
            done = self.make_dirs().and_then(|()| write());
        }
        let _ = self.system.remove_file(&temporary);
        done
    }

    fn read(&self, slot: u32) -> Result<Option<(u64, Bytes, Version)>> {
        let mut gone = None;
        for _ in 0..READS_MAX {
            let Some(number) = self.numbers(slot)?.pop() else {
                return Ok(None);
            };
            let path = self.slot_path(slot, number);
            match self.system.read_at_most(&path, HEAD_LEN_MAX + 1) {
                Ok(content) => {
                    let version = version_of(number, &content);
                    return Ok(Some((number, Bytes::from(content), version)));
                }
                // Others have replaced it since, so often that it went.
                Err(error) if is_missing(&error) => {
                    gone = Some(Error::io("cannot read", &path, error))
                }
                Err(error) => return Err(Error::io("cannot read", &path, error)),
            }
        }
        gone.map_or(Ok(None), Err)
    }
}

/// Returns whether a file below `tmp/` has such a name as those that are written there.
fn is_temporary(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns what tells a content from every other. Not by the checksum of heads: what ends with its checksum has the
/// same one as all that do.
fn version_of(number: u64, content: &[u8]) -> Version {
    let sum = sha1_smol::Sha1::from(content).digest();
    Version(format!("{number}-{sum}"))
}

impl Shared for DirShared {
    fn name(&self) -> String {
        format!("file://{}", self.root.display())
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        Ok(match self.read(slot)? {
            None => Read::Missing,
            Some((.., version)) if known == Some(&version) => Read::Same,
            Some((_, content, version)) => Read::Head(content, version),
        })
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        let _turn = self.turn();
        let found = self.read(slot)?;
        if found.as_ref().map(|(.., version)| version) != expected {
            return Ok(Swap::Moved);
        }
        let number = found.map_or(0, |(number, ..)| number) + 1;
        if number > NUMBER_MAX {
            let what = format!("{}: there are no numbers left for a head", self.name());
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let path = self.slot_path(slot, number);
        let named = self.write(new, |system, temporary| system.hard_link(temporary, &path));
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Swap::Moved),
            named => named.map_err(|error| Error::io("cannot make", &path, error))?,
        }
        // It is seen by others already, and may be gone after a power failure.
        if self.system.sync_dir(&self.heads()).is_err() {
            return Ok(Swap::Unknown);
        }
        // Whatever fails from here on, it is not known to have changed nothing.
        let Ok(numbers) = self.numbers(slot) else {
            return Ok(Swap::Unknown);
        };
        let (earlier, later) = numbers.split_at(numbers.partition_point(|found| *found <= number));
        for earlier in earlier
            .iter()
            .filter(|it| **it < number.saturating_sub(EARLIER))
        {
            // At worst it stays: the next one tries again.
            let _ = self.system.remove_file(&self.slot_path(slot, *earlier));
        }
        // Others have gone on from this one, or had long gone on, and its number was free again: the one that
        // is there now says which.
        Ok(match later {
            [] => Swap::Done(version_of(number, new)),
            _ => Swap::Unknown,
        })
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        match self.system.map(&path) {
            Ok(content) => Ok(Some(part(&content, range))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(Error::io("cannot read", &path, error)),
        }
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let path = self.path(key)?;
        let parent = path.parent().unwrap_or(&self.root);
        self.write(content, |system, temporary| system.rename(temporary, &path))
            .and_then(|()| self.system.sync_dir(parent))
            .map_err(|error| Error::io("cannot store", &path, error))
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            self.remove(&self.path(key)?)?;
        }
        Ok(())
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        for slot in slots {
            for number in self.numbers(slot)? {
                self.remove(&self.slot_path(slot, number))?;
            }
        }
        Ok(())
    }

    fn sweep(&self) -> Result<()> {
        let dir = self.root.join("tmp");
        let entries = match self.system.read_dir(&dir) {
            Err(error) if is_missing(&error) => return Ok(()),
            entries => entries.map_err(|error| Error::io("cannot read", &dir, error))?,
        };
        for entry in entries {
            let name = std::str::from_utf8(&entry.name).ok();
            let Some(name) = name.filter(|name| is_temporary(name)) else {
                continue;
            };
            let path = dir.join(name);
            // What cannot be told of is left alone. Were it somebody's all the same, where files cannot be taken, that
            // one would write it once more.
            if let Ok(Some(_nobodys)) = self.system.guard_file(&path) {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let (dir, rest) = prefix.split_once('/').unwrap_or((prefix, ""));
        let path = self.root.join(dir);
        let entries = match self.system.read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("cannot read", &path, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let Ok(name) = String::from_utf8(entry.name) else {
                continue;
            };
            if name.starts_with(rest) && self.path(&format!("{dir}/{name}")).is_ok() {
                let stat = self.system.lstat(&path.join(&name));
                found.push((format!("{dir}/{name}"), stat.map_or(0, |stat| stat.len)));
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::ObjectFormat;
    use refdb::shared::head::Head;
    use refdb::system::OsSystem;
    use refdb_simulation::{Fault, SimSystem};

    /// A head of one length, with its checksum behind it.
    fn head(id: u64) -> Vec<u8> {
        Head::first(1, ObjectFormat::Sha1, 1, id).encode()
    }

    fn done(swap: Result<Swap>) -> Version {
        match swap {
            Ok(Swap::Done(version)) => version,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heads_of_one_length_are_told_apart() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let place = DirShared::open(&OsSystem::new(), &root, true).unwrap();
        let first = done(place.swap(0, None, &head(1)));
        let second = done(place.swap(0, Some(&first), &head(2)));
        let late = place.swap(0, Some(&first), &head(3));
        assert!(matches!(late, Ok(Swap::Moved)), "{late:?}");
        let read = place.head(0, Some(&first)).unwrap();
        assert!(
            matches!(read, Read::Head(found, version) if found.as_ref() == head(2) && version == second)
        );
        assert!(matches!(place.head(0, Some(&second)).unwrap(), Read::Same));
    }

    /// Only who knows that nothing was changed may say so by an error: its writer answers for it.
    #[test]
    fn a_swap_that_fails_has_changed_nothing_wherever_it_fails() {
        let disk = SimSystem::new(1);
        let root = Path::new("/store");
        let place = DirShared::open(&disk, root, true).unwrap();
        let (mut version, mut told) = (done(place.swap(0, None, &head(0))), [0; 3]);
        for (id, at) in (1..).zip(0..200) {
            disk.set_fault(Some(Fault::once(
                disk.op_count() + at,
                io::ErrorKind::Other,
            )));
            let before = disk.op_count();
            let swapped = place.swap(0, Some(&version), &head(id));
            let count = disk.op_count() - before;
            disk.set_fault(None);
            let (_, content, now) = place.read(0).unwrap().expect("a head");
            let is_new = content.as_ref() == head(id);
            match swapped {
                Ok(Swap::Done(done)) => assert!(is_new && done == now, "{at}"),
                Ok(Swap::Unknown) => told[0] += 1,
                Ok(Swap::Moved) => panic!("{at}: nobody else is there"),
                Err(_) => {
                    assert!(!is_new, "{at}: it was changed all the same");
                    told[1] += 1;
                }
            }
            told[2] += u64::from(is_new);
            version = now;
            if count < at {
                break;
            }
        }
        assert!(told.iter().all(|&count| count > 0), "{told:?}");
    }

    #[test]
    fn what_a_writer_has_who_lives_is_not_swept() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let place = DirShared::open(&OsSystem::new(), &root, true).unwrap();
        let names = ["0123456789abcdef", "0123456789abcdee"];
        let [alive, dead] = names.map(|name| root.join("tmp").join(name));
        std::fs::write(&dead, "half").unwrap();
        let file = place.system.create_guarded(&alive, 0o666).unwrap();
        place.sweep().unwrap();
        assert!(alive.exists() && !dead.exists());
        drop(file);
        place.sweep().unwrap();
        assert!(!alive.exists());
        std::fs::remove_dir(root.join("tmp")).unwrap();
        place.sweep().unwrap();
    }

    /// In the middle of a write, others sweep again and again.
    #[test]
    fn a_sweep_takes_nothing_from_those_who_write() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let place = DirShared::open(&OsSystem::new(), &root, true).unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(order) {
                    place.sweep().unwrap();
                }
            });
            for at in 0..200 {
                place.put(&format!("tables/{at}"), b"content").unwrap();
            }
            is_done.store(true, order);
        });
        assert_eq!(place.list("tables/").unwrap().len(), 200);
    }

    #[test]
    fn what_is_no_head_is_in_nobodys_way() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let place = DirShared::open(&OsSystem::new(), &root, true).unwrap();
        let first = done(place.swap(0, None, &head(1)));
        for number in [u64::MAX, u64::MAX - 1, NUMBER_MAX + 1] {
            std::fs::write(place.slot_path(0, number), head(9)).unwrap();
        }
        for dir in ["tables", "tmp"] {
            std::fs::remove_dir(root.join(dir)).unwrap();
        }
        assert!(matches!(place.head(0, Some(&first)).unwrap(), Read::Same));
        let second = done(place.swap(0, Some(&first), &head(2)));
        place.put("tables/x", b"content").unwrap();
        assert!(matches!(place.head(0, Some(&second)).unwrap(), Read::Same));
        done(place.swap(0, Some(&second), &head(3)));
        assert_eq!(place.numbers(0).unwrap(), [1, 2, 3]);
        // What was the newest one says nothing any more: to go back would lose it.
        std::fs::remove_file(place.slot_path(0, 3)).unwrap();
        std::fs::create_dir(place.slot_path(0, 3)).unwrap();
        assert!(place.head(0, None).is_err());
    }

    #[test]
    fn whoever_slept_does_not_bring_back_what_was() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let place = DirShared::open(&OsSystem::new(), &root, true).unwrap();
        let mut version = done(place.swap(0, None, &head(0)));
        for id in 1..30 {
            version = done(place.swap(0, Some(&version), &head(id)));
        }
        let kept = place.numbers(0).unwrap();
        assert_eq!(kept, (30 - EARLIER..=30).collect::<Vec<_>>());
        // He has looked, and takes his number now.
        std::fs::write(place.slot_path(0, 2), head(99)).unwrap();
        let (number, content, found) = place.read(0).unwrap().expect("a head");
        assert_eq!(
            (number, content.as_ref(), found),
            (30, head(29).as_slice(), version.clone())
        );
        done(place.swap(0, Some(&version), &head(30)));
        assert!(!place.slot_path(0, 2).exists());
    }
}
