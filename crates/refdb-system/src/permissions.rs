//! Who may read and write what is made.

use std::io;
use std::path::Path;

use crate::{FileKind, System};

/// Who may read and write the files of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRepository {
    /// Whoever the umask lets.
    Umask,
    /// These bits are added to what the umask leaves (`group` is 0660, `all` is 0664).
    Added(u32),
    /// Exactly these bits, whatever the umask (`0xxx`).
    Exactly(u32),
}

impl SharedRepository {
    /// Returns with which permissions a file is created, before they are adjusted: nobody has more of them for
    /// a moment than in the end.
    pub fn mode_of_new_file(self) -> u32 {
        match self {
            SharedRepository::Exactly(bits) => bits & 0o666,
            _ => 0o666,
        }
    }

    /// Gives a new file or directory the permissions that the setting asks for.
    ///
    /// # Errors
    /// Those of the system.
    pub fn adjust(self, system: &dyn System, path: &Path) -> io::Result<()> {
        let tweak = match self {
            SharedRepository::Umask => return Ok(()),
            SharedRepository::Added(bits) | SharedRepository::Exactly(bits) => bits,
        };
        let stat = system.lstat(path)?;
        if stat.kind == FileKind::Symlink {
            return Ok(());
        }
        let mut bits = tweak;
        if stat.mode & 0o200 == 0 {
            bits &= !0o222;
        }
        if stat.mode & 0o100 != 0 {
            bits |= (bits & 0o444) >> 2;
        }
        let mut mode = match self {
            SharedRepository::Exactly(_) => (stat.mode & !0o777) | bits,
            _ => stat.mode | bits,
        };
        if stat.kind == FileKind::Directory {
            // Directories can be entered by whoever may read them, and keep their group.
            mode |= (mode & 0o444) >> 2;
            if mode & 0o060 != 0 {
                mode |= 0o2000;
            }
        }
        if mode != stat.mode {
            system.set_mode(path, mode)
        } else {
            Ok(())
        }
    }
}
