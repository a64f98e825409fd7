//! Real directories into the simulation, and back.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::SimSystem;
use refdb_system::{FileKind, System, bytes_to_path};

impl SimSystem {
    /// Copies the real directory `from` to `to`, which must not exist; all of it is durable.
    ///
    /// # Errors
    /// Those of the real system, and those of the simulated one.
    pub fn import(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.copy_in(from, to)?;
        self.sync_all();
        Ok(())
    }

    fn copy_in(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.copy_in(&entry.path(), &target)?;
            } else if kind.is_symlink() {
                self.symlink(&fs::read_link(entry.path())?, &target)?;
            } else if kind.is_file() {
                let content = fs::read(entry.path())?;
                self.create_new(&target, 0o666)?.write_all(&content)?;
                let mode = entry.metadata()?.permissions().mode() & 0o7777;
                self.set_mode(&target, mode)?;
            }
        }
        Ok(())
    }

    /// Copies the simulated directory `from` to the real directory `to`, which must not exist.
    ///
    /// # Errors
    /// Those of the simulated system, and those of the real one.
    pub fn export(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::create_dir_all(to)?;
        for entry in self.read_dir(from)? {
            let source = from.join(bytes_to_path(&entry.name));
            let target = to.join(std::ffi::OsString::from_vec(entry.name));
            match entry.kind {
                FileKind::Directory => self.export(&source, &target)?,
                FileKind::Symlink => symlink(self.read_link(&source)?, &target)?,
                FileKind::File | FileKind::Other => {
                    fs::write(&target, self.read(&source)?)?;
                    let mode = fs::Permissions::from_mode(self.stat(&source)?.mode);
                    fs::set_permissions(&target, mode)?;
                }
            }
        }
        Ok(())
    }

    /// Creates a directory and those above it that are missing.
    ///
    /// # Errors
    /// Those of [`System::create_dir`].
    pub fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut done = std::path::PathBuf::from("/");
        for component in path.components() {
            done.push(component);
            if done.as_os_str().as_bytes() == b"/" {
                continue;
            }
            match self.create_dir(&done) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
