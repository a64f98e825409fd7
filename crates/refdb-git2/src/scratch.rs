//! Reflogs for libgit2. It has no public way to make one: so its own backend reads one, from an otherwise
//! empty repository in a directory for temporary files.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use refdb::{Error, LogEntry, ObjectFormat};
use tempfile::TempDir;

use crate::abi::{Libgit2, Member};
use crate::border::Failure;
use crate::ffi::{code, git_refdb_backend, git_reflog, git_repository};

/// With what the names of these directories begin.
const PREFIX: &str = "refdb-git2-";

/// Returns whether a repository is one of these.
pub(crate) fn is_one(path: &[u8]) -> bool {
    let name = crate::border::path(path).file_name();
    name.is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()))
}

/// A repository in which one reflog at a time is written, read, and removed.
pub(crate) struct Scratch {
    lib: &'static Libgit2,
    dir: Option<TempDir>,
    /// The process that made it: a child of it makes its own.
    process: u32,
    repository: *mut git_repository,
    backend: *mut git_refdb_backend,
}

// SAFETY: libgit2's repositories may go from one thread to another, and a mutex is around this.
unsafe impl Send for Scratch {}

type ReadLog =
    unsafe extern "C" fn(*mut *mut git_reflog, *mut git_refdb_backend, *const c_char) -> c_int;
type Free = unsafe extern "C" fn(*mut git_refdb_backend);

impl Scratch {
    /// Returns the one of this process; makes it if there is none.
    pub(crate) fn of<'a>(
        place: &'a mut Option<Scratch>,
        lib: &'static Libgit2,
        format: ObjectFormat,
    ) -> Result<&'a mut Scratch, Failure> {
        match place {
            Some(scratch) if scratch.process == std::process::id() => {}
            _ => {
                if let Some(mut parents) = place.take() {
                    // The directory is the parent's.
                    parents.dir.take().map(TempDir::keep);
                }
                *place = Some(Scratch::make(lib, format)?);
            }
        }
        place
            .as_mut()
            .ok_or_else(|| Failure::Told(code::ERROR, "no place for a reflog".to_owned()))
    }

    fn make(lib: &'static Libgit2, format: ObjectFormat) -> Result<Scratch, Failure> {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let dir = dir.map_err(|error| failed(&std::env::temp_dir(), error))?;
        let at = dir.path();
        let config = match format {
            ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            ObjectFormat::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\
                 [extensions]\n\tobjectformat = sha256\n"
            }
        };
        let fill = || {
            fs::create_dir(at.join("objects"))?;
            fs::create_dir(at.join("refs"))?;
            fs::write(at.join("config"), config)?;
            fs::write(at.join("HEAD"), "ref: refs/heads/none\n")
        };
        fill().map_err(|error| failed(at, error))?;
        let path = CString::new(at.as_os_str().as_bytes())
            .map_err(|error| failed(at, io::Error::other(error)))?;
        let mut scratch = Scratch {
            lib,
            dir: Some(dir),
            process: std::process::id(),
            repository: ptr::null_mut(),
            backend: ptr::null_mut(),
        };
        let functions = &lib.functions;
        // SAFETY: the places can be written, and the path ends with a null byte.
        unsafe {
            passed((functions.git_repository_open)(
                &raw mut scratch.repository,
                path.as_ptr(),
            ))?;
            passed((functions.git_refdb_backend_fs)(
                &raw mut scratch.backend,
                scratch.repository,
            ))?;
        }
        Ok(scratch)
    }

    /// Makes a reflog of these entries, the oldest first.
    pub(crate) fn read(
        &mut self,
        name: &[u8],
        entries: &[LogEntry],
    ) -> Result<*mut git_reflog, Failure> {
        let Some(dir) = &self.dir else {
            return Err(Failure::Told(
                code::ERROR,
                "no place for a reflog".to_owned(),
            ));
        };
        let logs = dir.path().join("logs");
        let path = logs.join(OsStr::from_bytes(name));
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(&logs))?;
            fs::write(&path, lines(entries))
        };
        let c_name = CString::new(name).map_err(|error| failed(&path, io::Error::other(error)))?;
        write().map_err(|error| failed(&path, error))?;
        let mut log = ptr::null_mut();
        // SAFETY: the backend is libgit2's own, with this callback at its place.
        let answer = unsafe {
            let read = self.callback(Member::ReflogRead);
            let read = std::mem::transmute::<usize, ReadLog>(read);
            read(&raw mut log, self.backend, c_name.as_ptr())
        };
        // What is left behind is overwritten, or goes at the end.
        let _ = fs::remove_dir_all(&logs);
        passed(answer)?;
        Ok(log)
    }

    /// # Safety
    /// There is a backend.
    unsafe fn callback(&self, member: Member) -> usize {
        // SAFETY: it has so many words.
        unsafe { *self.backend.cast::<usize>().add(self.lib.word(member)) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: both are freed once, what stands on the other first.
        unsafe {
            if !self.backend.is_null() {
                let free = self.callback(Member::Free);
                std::mem::transmute::<usize, Free>(free)(self.backend);
            }
            if !self.repository.is_null() {
                (self.lib.functions.git_repository_free)(self.repository);
            }
        }
        if self.process != std::process::id() {
            self.dir.take().map(TempDir::keep);
        }
    }
}

fn passed(answer: c_int) -> Result<(), Failure> {
    match answer {
        0.. => Ok(()),
        _ => Err(Failure::Passed(answer)),
    }
}

fn failed(path: &Path, error: io::Error) -> Failure {
    Error::io("cannot write for libgit2", path, error).into()
}

/// Returns entries as lines of a reflog.
fn lines(entries: &[LogEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        entry.old.push_hex(&mut out);
        out.push(b' ');
        entry.new.push_hex(&mut out);
        out.push(b' ');
        let who = &entry.who;
        out.extend_from_slice(&who.name);
        out.extend_from_slice(b" <");
        out.extend_from_slice(&who.email);
        out.extend_from_slice(format!("> {} {:+05}", who.time, who.zone).as_bytes());
        // An entry without a reason has none in libgit2 either.
        if !entry.message.is_empty() {
            out.push(b'\t');
            out.extend_from_slice(&entry.message);
        }
        out.push(b'\n');
    }
    out
}
