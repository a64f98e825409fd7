//! What repositories have before their first ref: the callback `init`, which libgit2's main branch calls for
//! one that is being made, and worktrees that a release has made.

use std::ffi::{c_char, c_int, c_uint};
use std::fs;
use std::io;
use std::path::Path;

use refdb::layout::{HEAD_OF_TABLES, HEADS_OF_TABLES};
use refdb::{Edit, Error, ObjectId, RefFormat, RefName, Store};
use refdb_git::Repository;

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
            make_stubs(dir)
        }
    }
}

/// Makes what tells programs that do not know tables that this is a repository, and that there are no files.
fn make_stubs(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("refs"))?;
    let heads = dir.join("refs/heads");
    if !heads.is_dir() {
        fs::write(heads, HEADS_OF_TABLES)?;
    }
    fs::write(dir.join("HEAD"), HEAD_OF_TABLES)
}

/// Gives a worktree that libgit2 has added the table that it lacks: released versions only write the file
/// HEAD, wherever refs are. Where that file says that refs are tables, there were some: they are lost, which
/// is told to whoever reads them.
pub(crate) fn complete_worktree(repository: &Repository, store: &Store) -> refdb::Result<()> {
    let dir = repository.git_dir();
    let is_linked = dir != repository.common_dir();
    if !is_linked || store.format() != RefFormat::Reftable || dir.join("reftable").exists() {
        return Ok(());
    }
    let Ok(head) = repository.system().read(&dir.join("HEAD")) else {
        return Ok(());
    };
    if head == HEAD_OF_TABLES {
        return Ok(());
    }
    let failed = |error| Error::io("cannot complete the worktree in", dir, error);
    fs::create_dir(dir.join("reftable")).map_err(failed)?;
    let edit = match head.strip_prefix(b"ref:") {
        Some(target) => {
            let target: &bstr::BStr = target.trim_ascii().into();
            Some(Edit::symbolic(RefName::HEAD, target))
        }
        None => ObjectId::from_hex(head.trim_ascii()).map(|oid| Edit::update(RefName::HEAD, oid)),
    };
    if let Some(edit) = edit {
        let mut transaction = store.transaction();
        transaction.add(edit.no_deref().skip_log().skip_object_check())?;
        let _ = transaction.commit()?;
    }
    // The file goes last: until then it says where HEAD leads.
    make_stubs(dir).map_err(failed)
}
