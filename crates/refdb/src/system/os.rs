//! The real system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Bytes, DirEntry, FileKind, ReadFile, Stat, System, WriteFile, map};

/// The operating system's files, clock and random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsSystem {
    _private: (),
}

impl OsSystem {
    /// Returns the real system.
    pub fn new() -> Self {
        OsSystem { _private: () }
    }
}

struct OsFile(File);

impl Write for OsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for OsFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl ReadFile for OsFile {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(&self.0, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(describe(&self.0.metadata()?))
    }
}

fn kind_of(kind: fs::FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

fn describe(metadata: &fs::Metadata) -> Stat {
    let nanoseconds =
        |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Stat {
        kind: kind_of(metadata.file_type()),
        len: metadata.len(),
        dev: metadata.dev(),
        ino: metadata.ino(),
        mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        uid: metadata.uid(),
        mode: metadata.mode() & 0o7777,
    }
}

impl System for OsSystem {
    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        // Most files read here are loose refs and lists: one read into a small buffer beats asking
        // for the length first, and one that does not fill the buffer has met the end.
        let mut file = File::open(path)?;
        let mut start = [0; 256];
        let count = loop {
            match file.read(&mut start) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => break count?,
            }
        };
        let mut content = start.get(..count.min(limit)).unwrap_or_default().to_vec();
        if count == start.len() && limit > count {
            let rest = u64::try_from(limit - count).unwrap_or(u64::MAX);
            file.take(rest).read_to_end(&mut content)?;
        }
        Ok(content)
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        map::content(&file, len)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(OsFile(File::open(path)?)))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(describe(&fs::metadata(path)?))
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        Ok(describe(&fs::symlink_metadata(path)?))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let kind = kind_of(entry.file_type()?);
                Ok(DirEntry {
                    name: entry.file_name().into_vec(),
                    kind,
                })
            })
            .collect()
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn append(&self, path: &Path, create: Option<u32>) -> io::Result<Box<dyn WriteFile>> {
        let mut options = OpenOptions::new();
        options.append(true);
        if let Some(mode) = create {
            options.create(true).mode(mode);
        }
        Ok(Box::new(OsFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(text, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o777).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn now(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => u64::from_ne_bytes(bytes),
            // Without the kernel's generator the clock and the process id still differ between
            // the writers whose names must not collide.
            _ => {
                let now = self.now();
                let moment = now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos());
                moment ^ (u64::from(self.process_id()) << 40)
            }
        }
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }
}

/// Turns the bytes of a name into a path; on Unix they are the same.
pub(crate) fn bytes_to_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        fs::write(&path, &content).unwrap();
        let system = OsSystem::new();
        assert_eq!(system.read(&path).unwrap(), content);
        for limit in [0, 1, 255, 256, 257, 999, 1000, 1001] {
            let part = content.get(..limit).unwrap_or(&content);
            assert_eq!(system.read_at_most(&path, limit).unwrap(), part, "{limit}");
        }
    }
}
