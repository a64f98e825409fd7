//! Writing a whole store at once: shared direct refs into packed-refs, all else into files.
//!
//! Invariants:
//! 1. What a worktree has for itself is never packed.
//! 2. packed-refs claims to be fully peeled only if every value came with what it peels to, or was
//!    told not to be a tag.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::RefName;
use refdb_names::internals::owned_from_disk;
use reftable::short;

use super::apart::is_shared;
use super::packed::HEADER;
use super::{Files, FilesBackend, freeze, join, log, loose, overlay, packed, rewrite};
use crate::backend::bulk::{Bulk, BulkOptions, Frozen, LogMark, Mark, NewLog};
use crate::backend::maintained::Maintained;
use crate::backend::{LogOrder, NewValue};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::reflog::LogEntry;
use crate::system::WriteFile;
use crate::system::dirs;

/// Bytes that are gathered before they are written.
const BUFFER_LEN: usize = 256 << 10;

/// A store that is being written.
pub(super) struct FilesBulk {
    files: Arc<Files>,
    options: BulkOptions,
    packed: Option<BufWriter<Box<dyn WriteFile>>>,
    // Where in `record` the last name is that was packed.
    last: Range<usize>,
    record: Vec<u8>,
    dirs: HashSet<PathBuf>,
    log: Option<OpenLog>,
}

/// The reflog that is being added.
struct OpenLog {
    path: PathBuf,
    content: Vec<u8>,
}

impl FilesBulk {
    pub(super) fn new(files: Arc<Files>, options: BulkOptions) -> FilesBulk {
        FilesBulk {
            files,
            options,
            packed: None,
            last: 0..0,
            record: Vec::new(),
            dirs: HashSet::new(),
            log: None,
        }
    }

    fn base(&self) -> &Path {
        self.files.layout.common_dir()
    }

    /// Creates the directory in which `path` is, and those above it.
    fn make_parent(&mut self, path: &Path) -> Result<()> {
        let Some(dir) = path.parent().filter(|dir| !self.dirs.contains(*dir)) else {
            return Ok(());
        };
        make_dir(&self.files, dir)?;
        self.dirs.insert(dir.to_owned());
        Ok(())
    }

    fn write(&mut self, path: &Path, content: &[u8]) -> Result<()> {
        self.make_parent(path)?;
        write_new(&self.files, path, content)
    }

    /// Returns packed-refs, which is begun when it is first asked for.
    fn packed(&mut self) -> Result<&mut BufWriter<Box<dyn WriteFile>>> {
        let packed = match self.packed.take() {
            Some(packed) => packed,
            None => {
                let path = self.base().join("packed-refs");
                let failed = |error| Error::io("unable to write", &path, error);
                let system = self.files.system.as_ref();
                let file = system.create_new(&path, 0o666).map_err(failed)?;
                let shared = self.files.options.shared_repository;
                shared.adjust(system, &path).map_err(failed)?;
                let mut packed = BufWriter::with_capacity(BUFFER_LEN, file);
                let peeling: &[u8] = match self.options.fully_peeled {
                    true => b"peeled fully-peeled sorted \n",
                    false => b"peeled sorted \n",
                };
                packed
                    .write_all(&[HEADER, peeling].concat())
                    .map_err(failed)?;
                packed
            }
        };
        Ok(self.packed.insert(packed))
    }

    fn end_log(&mut self) -> Result<()> {
        match self.log.take() {
            Some(log) => self.write(&log.path, &log.content),
            None => Ok(()),
        }
    }
}

/// Creates a directory below the common one, and those above it.
fn make_dir(files: &Files, dir: &Path) -> Result<()> {
    let base = files.layout.common_dir();
    if dir == base {
        return Ok(());
    }
    let (system, shared) = (files.system.as_ref(), files.options.shared_repository);
    dirs::create(system, shared, base, dir, &mut Vec::new())
        .map_err(|error| cannot_hold(error, dir))
}

/// Writes a file that is not there yet.
fn write_new(files: &Files, path: &Path, content: &[u8]) -> Result<()> {
    let system = files.system.as_ref();
    let mut file = system
        .create_new(path, 0o666)
        .map_err(|error| cannot_hold(error, path))?;
    let written = file
        .write_all(content)
        .and_then(|()| files.options.shared_repository.adjust(system, path));
    written.or_io("unable to write", path)
}

/// Tells a name that the file system cannot hold from other failures.
fn cannot_hold(error: io::Error, path: &Path) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename => ErrorKind::Misuse,
        _ => return Error::io("unable to create", path, error),
    };
    let text = crate::error::io_text(&error);
    Error::new(
        kind,
        format!("unable to create '{}': {text}", path.display()),
    )
}

impl Bulk for FilesBulk {
    fn add_ref(&mut self, name: RefName<'_>, value: NewValue<'_>) -> Result<()> {
        let bytes = name.as_bytes();
        let content = match value {
            NewValue::Direct { oid, peeled } if is_shared(name) => {
                let last = self.record.get(self.last.clone()).unwrap_or_default();
                if !short::is_less(last, bytes) {
                    let path = self.base().join("packed-refs");
                    return Err(rewrite::out_of_order(&path, last, bytes));
                }
                let mut record = std::mem::take(&mut self.record);
                record.clear();
                rewrite::push_record(&mut record, bytes, oid, peeled);
                let start = oid.format().hex_len() + 1;
                self.last = start..start + bytes.len();
                let written = self.packed()?.write_all(&record);
                self.record = record;
                let path = || self.base().join("packed-refs");
                return written.map_err(|error| Error::io("unable to write", &path(), error));
            }
            NewValue::Direct { oid, .. } => loose::direct(*oid),
            NewValue::Symbolic(target) => loose::symbolic(target),
            NewValue::Deleted => return Ok(()),
        };
        let path = join(self.base(), "", name)?;
        self.write(&path, &content)
    }

    fn log_order(&self) -> LogOrder {
        LogOrder::OldestFirst
    }

    fn begin_log(&mut self, name: RefName<'_>) -> Result<()> {
        self.end_log()?;
        self.log = Some(OpenLog {
            path: join(self.base(), "logs/", name)?,
            content: Vec::new(),
        });
        Ok(())
    }

    fn add_entry(&mut self, entry: &LogEntry) -> Result<()> {
        if let Some(log) = &mut self.log {
            log::push_entry(&mut log.content, entry);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end_log()?;
        if self.options.packed {
            self.packed()?;
        }
        if let Some(packed) = self.packed.take() {
            let path = self.base().join("packed-refs");
            packed
                .into_inner()
                .map_err(|error| Error::io("unable to write", &path, error.into_error()))?;
        }
        Ok(())
    }
}

/// Replaces whole reflogs in a store that nobody else writes to.
pub(super) fn replace_logs(files: &Files, logs: &[NewLog]) -> Result<()> {
    let base = files.layout.common_dir();
    for log in logs {
        let path = join(base, "logs/", log.name.as_name())?;
        let found = log::if_there(files.system.lstat(&path)).or_io("unable to look at", &path)?;
        if log.only_new && found.is_some() {
            continue;
        }
        log::if_there(files.system.remove_file(&path)).or_io("unable to remove", &path)?;
        let Some(entries) = &log.entries else {
            continue;
        };
        let mut content = Vec::new();
        for entry in entries {
            log::push_entry(&mut content, entry);
        }
        if let Some(dir) = path.parent() {
            make_dir(files, dir)?;
        }
        write_new(files, &path, &content)?;
    }
    Ok(())
}

/// Returns every reflog with a number that depends on the state of its file.
pub(super) fn log_marks(files: &Files) -> Result<Vec<LogMark>> {
    let base = files.layout.common_dir();
    let hex_len = files.options.object_format.hex_len();
    // Two ids, two spaces, `<> 0 +0000`, a line feed.
    let line_min = u64::try_from(2 * hex_len + 13).unwrap_or(u64::MAX);
    let mut marks = Vec::new();
    for name in files.log_names()? {
        let path = join(base, "logs/", name.as_name())?;
        let stat = log::if_there(files.system.lstat(&path)).or_io("unable to read", &path)?;
        let Some(stat) = stat else { continue };
        let mut hasher = DefaultHasher::new();
        (stat.dev, stat.ino, stat.len, stat.mtime_ns, stat.ctime_ns).hash(&mut hasher);
        marks.push(LogMark {
            name,
            state: hasher.finish(),
            entries_max: stat.len / line_min + 1,
        });
    }
    marks.sort_by(|low, high| low.name.cmp(&high.name));
    Ok(marks)
}

impl Maintained for FilesBackend {
    fn bulk(&self, options: BulkOptions) -> Result<Box<dyn Bulk>> {
        Ok(Box::new(FilesBulk::new(Arc::clone(&self.files), options)))
    }

    fn replace_logs(&self, logs: &[NewLog]) -> Result<()> {
        replace_logs(&self.files, logs)
    }

    fn log_marks(&self) -> Result<Vec<LogMark>> {
        log_marks(&self.files)
    }

    fn mark(&self) -> Result<Mark> {
        // What is packed after it was listed as loose changes packed-refs.
        let loose = overlay::list(&self.files, b"")?.into_iter();
        Ok(Mark {
            single: loose.map(|found| owned_from_disk(found.name)).collect(),
            together: self.files.packed.state()?,
            has_logs: false,
        })
    }

    fn lost_log_lines(&self) -> Result<Vec<(PathBuf, Range<u64>)>> {
        self.files.lost_log_lines()
    }

    fn is_fully_peeled(&self) -> Result<bool> {
        Ok(self.files.packed.snapshot()?.peeling() == packed::Peeling::Fully)
    }

    fn refs_len(&self) -> Result<u64> {
        let len = self.files.packed.snapshot()?.len();
        Ok(u64::try_from(len).unwrap_or(u64::MAX))
    }

    fn freeze(&self) -> Result<Box<dyn Frozen>> {
        Ok(Box::new(freeze::FrozenFiles::new(Arc::clone(&self.files))?))
    }
}
