//! How names come, go and change places.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::disk::{Disk, NameChange, Node};
use refdb_system::FileKind;

impl Disk {
    /// Renames as `rename(2)` does.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let from = self.find(from, false)?;
        let ino = from.ino.ok_or(Errno::NOENT)?;
        let to = self.find(to, false)?;
        if to.ino == Some(ino) {
            return Ok(());
        }
        let is_dir = self.inode(ino)?.node.kind() == FileKind::Directory;
        if self.lower.contains(&ino) {
            return Err(Errno::XDEV.into());
        }
        if let Some(replaced) = to.ino {
            match &self.inode(replaced)?.node {
                Node::Directory { .. } if !is_dir => return Err(Errno::ISDIR.into()),
                Node::Directory { names, .. } if !names.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                Node::File { .. } | Node::Symlink(_) if is_dir => {
                    return Err(Errno::NOTDIR.into());
                }
                _ => {}
            }
        }
        self.change_names(NameChange {
            removed: Some((from.dir, from.name)),
            added: vec![(to.dir, to.name, ino)],
        })
    }

    /// Lets two names change places, as `renameat2(2)` does.
    pub(super) fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        let (one, other) = (self.find(one, false)?, self.find(other, false)?);
        let first = one.ino.ok_or(Errno::NOENT)?;
        let second = other.ino.ok_or(Errno::NOENT)?;
        if self.lower.contains(&first) || self.lower.contains(&second) {
            return Err(Errno::XDEV.into());
        }
        self.change_names(NameChange {
            removed: None,
            added: vec![(one.dir, one.name, second), (other.dir, other.name, first)],
        })
    }

    /// Takes a name away from a file, or from an empty directory.
    pub(super) fn remove(&mut self, path: &Path, directory: bool) -> io::Result<()> {
        let found = self.find(path, false)?;
        match &self.inode(found.ino.ok_or(Errno::NOENT)?)?.node {
            Node::Directory { .. } if !directory => return Err(Errno::ISDIR.into()),
            Node::Directory { names, .. } if !names.is_empty() => {
                return Err(Errno::NOTEMPTY.into());
            }
            Node::File { .. } | Node::Symlink(_) if directory => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        self.change_names(NameChange {
            removed: Some((found.dir, found.name)),
            added: Vec::new(),
        })
    }
}
