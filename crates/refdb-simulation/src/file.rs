//! Open files of the simulated system, and the way to them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::SimSystem;
use super::disk::{Disk, Ino, Node};
use refdb_system::beneath::{Below, Narrow};
use refdb_system::{GUARDED_MODE, Guard, GuardedFile, ReadFile, Stat, System, WriteFile};

impl Narrow for SimSystem {
    type Root = PathBuf;

    fn root(&self, path: &Path) -> io::Result<PathBuf> {
        self.reading("beneath", path)?.existing(path, true)?;
        Ok(path.to_owned())
    }

    fn narrow(
        &self,
        root: &PathBuf,
        paths: &[Below<'_>],
        no_link: bool,
    ) -> io::Result<Arc<dyn System>> {
        let disk = self.disk();
        for below in paths {
            let mut path = root.clone();
            for part in below.rest.components() {
                path.push(part);
                let found = disk.find(&path, false)?;
                let node = found.ino.map(|ino| disk.inode(ino)).transpose()?;
                let is_link = node.is_some_and(|inode| matches!(inode.node, Node::Symlink(_)));
                if is_link && (no_link || path != below.whole) {
                    return Err(Errno::LOOP.into());
                }
            }
        }
        drop(disk);
        Ok(Arc::new(self.clone()))
    }
}

pub(super) struct SimFile {
    pub(super) system: SimSystem,
    pub(super) path: PathBuf,
    pub(super) ino: Ino,
    /// There while this process has the file for itself.
    pub(super) _guard: Option<SimGuard>,
}

/// A directory or file that a process has for itself.
pub(super) struct SimGuard {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) ino: Ino,
    pub(super) process: (u32, u64),
}

pub(super) fn boxed(guard: Option<SimGuard>) -> Option<Guard> {
    guard.map(|guard| Box::new(guard) as Guard)
}

impl Drop for SimGuard {
    fn drop(&mut self) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.machine.unguard(self.ino, self.process);
    }
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut disk, limit) = self.system.begin("write", &self.path, true)?;
        let part = bytes.get(..limit).unwrap_or(bytes);
        disk.append(self.ino, part)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for SimFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.system.changing("sync", &self.path)?;
        if disk.lies {
            return Ok(());
        }
        disk.sync_content(self.ino)
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        let mut disk = self.system.changing("set_modified", &self.path)?;
        let clock = disk.clock;
        let inode = disk.inode_mut(self.ino)?;
        inode.mtime = at;
        inode.ctime = clock;
        Ok(())
    }
}

impl GuardedFile for SimFile {
    fn is_certain(&self) -> bool {
        !self.system.disk().is_shared
    }

    fn reveal(&mut self) -> io::Result<()> {
        // Who may read what is not simulated.
        Ok(())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.system.reading("fstat", &self.path)?.stat(self.ino)
    }

    fn unguard(&mut self) -> io::Result<()> {
        let mut disk = self.system.changing("unguard", &self.path)?;
        disk.inode_mut(self.ino)?.mode &= !GUARDED_MODE;
        Ok(())
    }
}

impl ReadFile for SimFile {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let disk = self.system.reading("read_at", &self.path)?;
        let content = disk.content(self.ino)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = content.get(offset..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn stat(&self) -> io::Result<Stat> {
        self.system.reading("fstat", &self.path)?.stat(self.ino)
    }
}
