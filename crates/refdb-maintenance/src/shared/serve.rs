//! A repository in which Git hands pushes over: its hook `proc-receive`, and the setting that calls it.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb::internals::{is_absent, lock_path};
use refdb::options::SharedRepository;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};
use refdb_git::Repository;
use refdb_git::internals::{real_path, set_config, unset_config};

/// The name of the hook.
const HOOK: &str = "proc-receive";
/// What tells our hook from everybody else's.
const MARK: &[u8] = b"# Written by refdb serve-hook install.\n";
/// Which refs are handed over: all.
const REFS: &[u8] = b"refs";
const KEY: &str = "receive.procreceiverefs";
/// The same, in the parts that it has in a file.
const SECTION: &str = "receive";
const VARIABLE: &str = "procreceiverefs";
/// Who may read and run the hook.
const MODE: u32 = 0o755;

/// Has Git hand over every push to `program`, which is called with the argument `receive`. Returns whether
/// anything was changed.
///
/// # Errors
/// `Misuse` where there is another such hook, or where only some refs are handed over; `Locked` while somebody
/// changes the configuration; `Io`.
pub fn install_hook(repository: &Repository, program: &Path) -> Result<bool> {
    let system = repository.system().as_ref();
    let shared = repository.store().options().shared_repository;
    let path = hook_path(repository)?;
    let hook = hook_for(program);
    let found = own_hook(system, &path)?;
    let config = repository.config();
    let said: Vec<_> = config.all(KEY).filter_map(|entry| entry.value()).collect();
    let is_set = said.iter().any(|value| *value == REFS);
    if let (false, Some(other)) = (is_set, said.first()) {
        let what = format!(
            "receive.procReceiveRefs is '{other}' already: a hook of somebody else takes those refs"
        );
        return Err(Error::new(ErrorKind::Misuse, what));
    }
    let is_written = found.as_deref() == Some(hook.as_slice());
    if !is_written {
        if let Some(folder) = path.parent() {
            let made = system.create_dir(folder);
            match made.and_then(|()| shared.adjust(system, folder)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("cannot create", folder, error));
                }
                _ => {}
            }
        }
        replace(system, &path, &hook, shared)?;
    }
    // The hook comes first: a push that finds only the setting would be refused.
    if !is_set {
        change_config(repository, &|content| {
            set_config(content, SECTION, VARIABLE, Some(REFS))
        })?;
    }
    Ok(!is_written || !is_set)
}

/// Takes back what [`install_hook`] did. Returns whether anything was changed.
///
/// # Errors
/// As for [`install_hook`].
pub fn uninstall_hook(repository: &Repository) -> Result<bool> {
    let system = repository.system().as_ref();
    let path = hook_path(repository)?;
    let found = own_hook(system, &path)?;
    if found.is_none() {
        return Ok(false);
    }
    // What others set beside it is theirs.
    change_config(repository, &|content| {
        unset_config(content, SECTION, VARIABLE, REFS)
    })?;
    let removed = system.remove_file(&path);
    removed.map_err(|error| Error::io("cannot remove", &path, error))?;
    Ok(true)
}

fn hook_path(repository: &Repository) -> Result<PathBuf> {
    let folder = match repository.config().path("core.hookspath")? {
        Some(folder) => repository.git_dir().join(folder),
        None => repository.common_dir().join("hooks"),
    };
    Ok(folder.join(HOOK))
}

/// Returns the hook that is there, if it is ours.
fn own_hook(system: &dyn System, path: &Path) -> Result<Option<Vec<u8>>> {
    match system.read(path) {
        Ok(content) if content.find(MARK).is_some() => Ok(Some(content)),
        Ok(_) => {
            let what = format!(
                "'{}' is a hook of somebody else: nothing was changed",
                path.display()
            );
            Err(Error::new(ErrorKind::Misuse, what))
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io("cannot read", path, error)),
    }
}

fn hook_for(program: &Path) -> Vec<u8> {
    let quoted = program.as_os_str().as_bytes().replace("'", r"'\''");
    [b"#!/bin/sh\n", MARK, b"exec '", &quoted, b"' receive\n"].concat()
}

/// Changes the repository's own configuration.
fn change_config(repository: &Repository, change: &dyn Fn(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
    let system = repository.system().as_ref();
    let named = repository.common_dir().join("config");
    // Where it is a link, Git changes the file that it leads to, and takes its lock beside that.
    let path =
        real_path(system, &named).map_err(|error| Error::io("cannot read", &named, error))?;
    let lock = lock_path(&path);
    let created = system.create_new(&lock, 0o666);
    let mut file = created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let what = format!(
                "'{}' is there: somebody changes the configuration",
                lock.display()
            );
            Error::new(ErrorKind::Locked, what)
        }
        _ => Error::io("cannot create", &lock, error),
    })?;
    let done = (|| {
        let read = |error| Error::io("cannot read", &path, error);
        let content = system.read(&path).map_err(read)?;
        let mode = system.stat(&path).map_err(read)?.mode;
        let new = change(&content)?;
        let write = |error| Error::io("cannot write", &lock, error);
        file.write_all(&new).map_err(write)?;
        system.set_mode(&lock, mode & 0o777).map_err(write)?;
        file.sync().map_err(write)?;
        system.rename(&lock, &path).map_err(write)
    })();
    if done.is_err() {
        let _ = system.remove_file(&lock);
    }
    done?;
    let folder = path.parent().unwrap_or(repository.common_dir());
    let synced = system.sync_dir(folder);
    synced.map_err(|error| Error::io("cannot sync", folder, error))
}

/// Gives a hook a content in one step.
fn replace(
    system: &dyn System,
    path: &Path,
    content: &[u8],
    shared: SharedRepository,
) -> Result<()> {
    let new = path.with_extension(format!("{:016x}", system.random()));
    let done = (|| {
        let mut file = system.create_new(&new, MODE)?;
        shared.adjust(system, &new)?;
        file.write_all(content)?;
        file.sync()?;
        drop(file);
        system.rename(&new, path)
    })();
    if done.is_err() {
        let _ = system.remove_file(&new);
    }
    done.map_err(|error| Error::io("cannot write", path, error))
}
