//! Reflogs in the way of a new one.
//!
//! A process that creates a ref and dies leaves a reflog whose ref never came to be. A ref above or
//! below it can be created, as there is no such ref; its reflog cannot be, as long as that file is
//! there. Git refuses then, for good.
//!
//! Invariants:
//! 1. What is in the way is found before a transaction is committed.
//! 2. Only what such a process leaves is removed: entries of creations and nothing else, of a ref
//!    that neither exists nor is locked by the living. Any other reflog may be all that is left of
//!    its ref.

use std::io;
use std::path::{Path, PathBuf};

use refdb_names::RefName;

use super::{Files, log};
use crate::commit::{Entry, suffixed, sweep, take_over};
use crate::error::{Error, ErrorKind, Message, Result, Role, io_text};
use crate::system::{FileKind, Tree, remove_empty_tree};

impl Files {
    /// Makes room for the reflog of `name`, which does not exist.
    ///
    /// # Errors
    /// `Io`, in Git's words, when another reflog has its place.
    pub(super) fn clear_log_way(&self, name: RefName<'_>) -> Result<()> {
        let (base, path) = (self.log_base(name), self.log_path(name)?);
        match self.system.lstat(&path) {
            Ok(stat) if stat.kind == FileKind::Directory => {
                if remove_empty_tree(self.system.as_ref(), &path) {
                    return Ok(());
                }
                self.clear_logs_below(&base, &path);
                if remove_empty_tree(self.system.as_ref(), &path) {
                    return Ok(());
                }
                Err(logs_below(name, &path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let inner = path.strip_prefix(&base).unwrap_or(&path);
                let mut above = inner.ancestors().skip(1).map(|inner| base.join(inner));
                let file = above.find(|above| self.is_file(above));
                if file.is_some_and(|file| self.clear_log(&base, &file)) {
                    return Ok(());
                }
                let message = format!(
                    "cannot update the ref '{name}': unable to append to '{}': {}",
                    path.display(),
                    io_text(&error)
                );
                let message = Message::from(message).of(&path, Role::Place);
                Err(Error::new(ErrorKind::Io, message).with_source(error))
            }
            // What else there is shows when it is written.
            _ => Ok(()),
        }
    }

    /// Makes room for the reflog of `name` where that of `from` gets it, which is above or below.
    ///
    /// # Errors
    /// As for [`Files::clear_log_way`].
    pub(super) fn clear_log_way_beside(&self, name: RefName<'_>, from: RefName<'_>) -> Result<()> {
        let (path, own) = (self.log_path(name)?, self.log_path(from)?);
        if !own.starts_with(&path) {
            return Ok(());
        }
        self.clear_logs_below(&self.log_base(name), &path);
        let mut leaves = Tree::new(self.system.as_ref(), &path, b"");
        match leaves.all(|leaf| leaf.is_ok_and(|leaf| leaf.path == own)) {
            true => Ok(()),
            false => Err(logs_below(name, &path)),
        }
    }

    fn is_file(&self, path: &Path) -> bool {
        let stat = self.system.lstat(path);
        stat.is_ok_and(|stat| stat.kind == FileKind::File)
    }

    /// Removes the reflogs below a directory that may be removed, and the locks that the dead left there.
    fn clear_logs_below(&self, base: &Path, dir: &Path) {
        // What cannot be taken over stays in the way, and is told as that.
        let _ = sweep(&self.home, dir, true);
        for leaf in Tree::new(self.system.as_ref(), dir, b"").flatten() {
            if leaf.kind == FileKind::File && Entry::of_name(leaf.last_name()) == Entry::Ref {
                self.clear_log(base, &leaf.path);
            }
        }
    }

    /// Removes a reflog whose ref never came to be; returns whether it is gone.
    fn clear_log(&self, base: &Path, path: &Path) -> bool {
        let inner = path.strip_prefix(base).unwrap_or(path);
        let ref_path = base.parent().unwrap_or(base).join(inner);
        let is_there = |path: &PathBuf| match self.system.lstat(path) {
            Ok(stat) => stat.kind != FileKind::Directory,
            Err(error) => !log::is_absent(&error),
        };
        let lock = suffixed(&ref_path, ".lock");
        // The process that left the reflog left its lock as well.
        let _ = take_over(&self.home, &lock);
        if is_there(&ref_path) || is_there(&lock) {
            return false;
        }
        let content = self.system.read(path);
        content.is_ok_and(|content| self.says_no_more_than_creations(&content))
            && self.system.remove_file(path).is_ok()
    }

    fn says_no_more_than_creations(&self, content: &[u8]) -> bool {
        let format = self.options.object_format;
        let mut lines = content.split(|&byte| byte == b'\n');
        // Behind the last line end: nothing, or an entry that was cut.
        let _ = lines.next_back();
        lines.all(|line| log::parse(line, format).is_some_and(|entry| entry.old.is_null()))
    }
}

fn logs_below(name: RefName<'_>, path: &Path) -> Error {
    let message = format!(
        "cannot update the ref '{name}': there are still logs under '{}'",
        path.display()
    );
    Error::new(ErrorKind::Io, Message::from(message).of(path, Role::Place))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::commit::{Holder, Home, LockFile, LockOptions};
    use crate::layout::Layout;
    use crate::objects::NoObjects;
    use crate::options::Options;
    use crate::store::Store;
    use crate::system::System;
    use crate::transaction::Edit;
    use crate::{LogOrder, RefFormat};
    use refdb_names::oid::{ObjectFormat, ObjectId};
    use refdb_simulation::SimSystem;

    fn oid(digit: char) -> ObjectId {
        ObjectId::from_hex(digit.to_string().repeat(40).as_bytes()).expect("an id")
    }

    /// A store with a reflog of a ref that does not exist.
    fn store(log: &str, entries: &[(char, char)]) -> (SimSystem, Store) {
        let system = SimSystem::new(1);
        let path = Path::new("/r/logs").join(log);
        system.create_dir_all(path.parent().unwrap()).unwrap();
        system.create_dir_all(Path::new("/r/refs/heads")).unwrap();
        let mut file = system.create_new(&path, 0o666).unwrap();
        for (old, new) in entries {
            let (old, new) = (oid(*old), oid(*new));
            let line = format!("{old} {new} A <a@b> 1700000000 +0000\tx\n");
            file.write_all(line.as_bytes()).unwrap();
        }
        file.write_all(b"01").unwrap();
        let store = Store::open(
            Arc::new(system.clone()),
            Layout::main("/r"),
            RefFormat::Files,
            Arc::new(NoObjects),
            Options::simulated(ObjectFormat::Sha1),
        );
        (system, store.unwrap())
    }

    fn create(store: &Store, names: &[&str]) -> Result<()> {
        let mut transaction = store.transaction();
        for name in names {
            transaction.add(Edit::update(RefName::new(name)?, oid('7')))?;
        }
        transaction.commit().map(drop)
    }

    #[test]
    fn a_reflog_of_a_ref_that_never_came_to_be_is_in_nobodys_way() {
        for (log, name) in [
            ("refs/heads/a/b", "refs/heads/a"),
            ("refs/heads/a", "refs/heads/a/b"),
        ] {
            for others in [&[][..], &["refs/heads/c"]] {
                let (_, store) = store(log, &[('0', '1'), ('0', '2')]);
                create(&store, &[&[name], others].concat()).unwrap();
                let name = RefName::new(name).unwrap();
                let log = store.log(name, LogOrder::OldestFirst).unwrap().unwrap();
                assert_eq!(log.len(), 1);
            }
        }
    }

    #[test]
    fn nor_is_one_whose_process_died_with_its_lock() {
        for (log, name) in [
            ("refs/heads/a/b", "refs/heads/a"),
            ("refs/heads/a", "refs/heads/a/b"),
        ] {
            for dead in [true, false] {
                let (system, store) = store(log, &[]);
                let process = system.process(7);
                let path = Path::new("/r").join(log);
                system.create_dir_all(path.parent().unwrap()).unwrap();
                let sha1 = Options::new(ObjectFormat::Sha1);
                let home = Home::new(&(Arc::new(process.clone()) as _), Path::new("/r"), &sha1);
                let holder = Holder::new(&home);
                let lock = LockFile::acquire(&holder, &path, LockOptions::AT_ONCE);
                lock.unwrap().leave();
                if dead {
                    process.end();
                }
                assert_eq!(create(&store, &[name]).is_ok(), dead, "{name}");
            }
        }
    }

    /// A process that has ended held the lock of a reflog, and perhaps that of its ref as well.
    fn dead_log_lock(system: &SimSystem, dir: &str, with_ref: bool) {
        let process = system.process(7);
        let sha1 = Options::new(ObjectFormat::Sha1);
        let home = Home::new(&(Arc::new(process.clone()) as _), Path::new("/r"), &sha1);
        let holder = Holder::new(&home);
        for dir in [dir.to_owned(), dir.replace("/r/", "/r/logs/")] {
            if with_ref || dir.starts_with("/r/logs") {
                system.create_dir_all(Path::new(&dir)).unwrap();
                let path = Path::new(&dir).join("b");
                let lock = LockFile::acquire(&holder, &path, LockOptions::AT_ONCE);
                let mut lock = lock.unwrap();
                lock.write_all(b"new content\n").unwrap();
                lock.leave();
            }
        }
        process.end();
    }

    #[test]
    fn a_lock_that_the_dead_left_of_a_reflog_is_in_nobodys_way() {
        let (system, store) = store("refs/heads/c", &[]);
        dead_log_lock(&system, "/r/refs/heads/a", false);
        create(&store, &["refs/heads/a"]).unwrap();
        let log = system.lstat(Path::new("/r/logs/refs/heads/a")).unwrap();
        assert_eq!(log.kind, FileKind::File);
    }

    #[test]
    fn it_goes_with_that_of_its_ref() {
        let (system, store) = store("refs/heads/c", &[]);
        for dir in ["/r/refs/heads/a", "/r/worktrees/w/refs/bisect"] {
            dead_log_lock(&system, dir, true);
        }
        create(&store, &["refs/heads/a/b", "worktrees/w/refs/bisect/b"]).unwrap();
        for dir in ["/r/logs/refs/heads/a", "/r/worktrees/w/logs/refs/bisect"] {
            let left = system.read_dir(Path::new(dir)).unwrap_or_default();
            assert!(left.iter().all(|entry| entry.name == b"b"), "{left:?}");
        }
    }

    #[test]
    fn one_of_another_program_stays_whatever_is_in_it() {
        for content in ["", "01"] {
            let (system, store) = store("refs/heads/a/b.lock", &[]);
            let lock = Path::new("/r/logs/refs/heads/a/b.lock");
            system.remove_file(lock).unwrap();
            let mut file = system.create_new(lock, 0o666).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            let error = create(&store, &["refs/heads/a"]).unwrap_err();
            assert!(error.to_string().contains("there are still logs under"));
            assert!(system.lstat(lock).is_ok());
        }
    }

    #[test]
    fn what_may_be_the_last_of_a_ref_stays_and_nothing_is_half_done() {
        for (log, name, told) in [
            (
                "refs/heads/a/b",
                "refs/heads/a",
                "there are still logs under",
            ),
            ("refs/heads/a", "refs/heads/a/b", "unable to append to"),
        ] {
            for others in [&[][..], &["refs/heads/c"]] {
                let (system, store) = store(log, &[('0', '1'), ('1', '2')]);
                let error = create(&store, &[&[name], others].concat()).unwrap_err();
                assert!(error.to_string().contains(told), "{error}");
                assert!(store.refs().unwrap().next().unwrap().is_none());
                assert!(system.lstat(&Path::new("/r/logs").join(log)).is_ok());
                // Neither a lock nor a journal is left.
                create(&store, &["refs/heads/c"]).unwrap();
            }
        }
    }
}
