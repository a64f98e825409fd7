//! The callback `init`, which libgit2's main branch calls for a repository that is being made.

use std::ffi::{c_char, c_int, c_uint};
use std::fs;
use std::io;
use std::path::Path;

use refdb::{Edit, Error, RefFormat, RefName};

use crate::backend::Backend;
use crate::border::{Failure, run, text};
use crate::ffi::{code, git_refdb_backend};

/// `GIT_REFDB_BACKEND_INIT_FORCE_HEAD`.
const FORCE_HEAD: c_uint = 2;

pub(crate) unsafe extern "C" fn init(
    backend: *mut git_refdb_backend,
    initial_head: *const c_char,
    _mode: c_uint,
    flags: c_uint,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text or null.
        let head = unsafe { text(initial_head) };
        let dir = backend.repository().git_dir().to_owned();
        let store = backend.store();
        make(&dir, store.format()).map_err(|error| {
            Failure::from(Error::io("cannot make a repository in", &dir, error))
        })?;
        let Some(head) = head else {
            return Ok(code::OK);
        };
        if flags & FORCE_HEAD != 0 || store.read(RefName::HEAD)?.is_none() {
            let target: &bstr::BStr = head.into();
            let mut transaction = store.transaction();
            transaction.add(Edit::symbolic(RefName::HEAD, target).no_deref().skip_log())?;
            let _ = transaction.commit()?;
        }
        Ok(code::OK)
    })
}

/// Makes what a repository has before its first ref.
fn make(dir: &Path, format: RefFormat) -> io::Result<()> {
    match format {
        RefFormat::Files => {
            fs::create_dir_all(dir.join("refs/heads"))?;
            fs::create_dir_all(dir.join("refs/tags"))
        }
        RefFormat::Reftable => {
            fs::create_dir_all(dir.join("reftable"))?;
            fs::create_dir_all(dir.join("refs"))?;
            let stubs = [
                ("HEAD", "ref: refs/heads/.invalid\n"),
                ("refs/heads", "this repository uses the reftable format\n"),
            ];
            for (name, content) in stubs {
                let path = dir.join(name);
                if !path.is_dir() {
                    fs::write(path, content)?;
                }
            }
            Ok(())
        }
    }
}
