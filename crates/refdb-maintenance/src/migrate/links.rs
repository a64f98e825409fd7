//! Repositories that have their refs or their configuration from elsewhere, by links: from another one,
//! as `git-new-workdir` makes them, which would list nothing after a migration of this one, or from a
//! folder that may have more in it than refs, which would be moved with them. Nor is a link within the
//! repository followed: what is written follows none, as somebody may put one there meanwhile. Nor can
//! that be moved at which a file system is mounted, or in which this user may not write.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb::error::io_text;
use refdb::internals::{bytes_to_path, is_absent};
use refdb::name::is_root_ref;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, Result};

use super::context::Context;
use super::folder::{self, kept_number, list};
use super::place::Place;

/// What a migration changes, and what could be a link.
const CHANGED: [&str; 7] = [
    "config",
    "refs",
    "packed-refs",
    "reftable",
    "logs",
    "logs/refs",
    "worktrees",
];

/// The folders among them that are put elsewhere.
const MOVED: [&str; 3] = ["refs", "reftable", "logs"];

/// Makes sure that what a migration changes is no link, but for a configuration that is in this repository
/// or in none: that is changed in one place and nothing else is touched beside it.
///
/// # Errors
/// `Unsupported` if something is not; `Io` if that cannot be found out.
pub(super) fn check(context: &Context, places: &[Place]) -> Result<()> {
    let system = context.system.as_ref();
    let real = |path: &Path| {
        refdb_git::internals::real_path(system, path)
            .map_err(|error| Error::io("unable to follow the links of", path, error))
    };
    let here = real(&context.base)?;
    if let Some(path) = mounted(system, &here) {
        return Err(refused_mount(&path));
    }
    if let Some(path) = linked_worktree(system, &context.base)? {
        return Err(refused(&path, &real(&path)?, None));
    }
    for place in places {
        for name in CHANGED {
            let path = match name {
                "config" if place.is_common() => context.common_dir.join(name),
                _ => place.dir.join(name),
            };
            if !is_link(system, &path)? {
                if MOVED.contains(&name) {
                    check_movable(system, &path)?;
                }
                continue;
            }
            let target = real(&path)?;
            let other = match target.starts_with(&here) {
                // What another migration left, which leads nowhere.
                true if !folder::exists(system, &target)? => continue,
                true => None,
                false => repository_of(system, &target)?,
            };
            if other.is_some() || name != "config" {
                return Err(refused(&path, &target, other.as_deref()));
            }
        }
        let (refs, mut folders) = (place.dir.join("refs"), Vec::new());
        if let Err(error) = linked_folders(system, &refs, &mut folders) {
            return Err(out_of_reach(&refs, error));
        }
        if let Some(path) = folders.first() {
            return Err(refused(path, &real(path)?, None));
        }
    }
    Ok(())
}

/// Makes sure that a directory can be put elsewhere: for that this user must be allowed to write in it, since it says
/// what it is in.
fn check_movable(system: &dyn System, path: &Path) -> Result<()> {
    let is_dir = system.find(path);
    if !is_dir.is_ok_and(|stat| stat.is_some_and(|stat| stat.kind == FileKind::Directory)) {
        return Ok(());
    }
    system.may_write(path).map_err(|error| {
        let text = format!(
            "unable to move '{}': {}; nothing was changed: let its owner migrate, or allow writing there",
            path.display(),
            io_text(&error)
        );
        Error::new(ErrorKind::Io, text).with_source(error)
    })
}

/// Returns the directory of a worktree that is a link, if there is one.
fn linked_worktree(system: &dyn System, base: &Path) -> Result<Option<PathBuf>> {
    let dir = base.join("worktrees");
    let entries = list(system, &dir)?.into_iter();
    let links = entries.filter(|entry| entry.kind == FileKind::Symlink);
    let mut paths = links.map(|entry| dir.join(bytes_to_path(&entry.name)));
    Ok(paths.find(|path| leads_to_folder(system, path)))
}

fn leads_to_folder(system: &dyn System, link: &Path) -> bool {
    let found = system.stat(link);
    found.is_ok_and(|stat| stat.kind == FileKind::Directory)
}

/// Returns a file or a directory of what a migration moves at which another one is mounted, if the system tells it.
fn mounted(system: &dyn System, here: &Path) -> Option<PathBuf> {
    let table = system.read(Path::new("/proc/self/mountinfo")).ok()?;
    let places = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let place = line.split(|&byte| byte == b' ').nth(4)?;
        Some(bytes_to_path(&unescaped(place)).to_owned())
    });
    let is_moved = |place: &PathBuf| {
        let below = place.strip_prefix(here).ok();
        let first = below.and_then(|below| below.iter().next());
        first.is_some_and(|first| {
            CHANGED.iter().any(|name| first == *name)
                || is_root_ref(first.as_bytes())
                || kept_number(first.as_bytes()).is_some()
        })
    };
    places.into_iter().find(is_moved)
}

/// Returns a path as it is, which stands in the kernel's table with white space and backslashes as octal numbers.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| byte == b'\\');
        let number = digits.and_then(|digits| u8::from_str_radix(digits.to_str().ok()?, 8).ok());
        path.push(number.unwrap_or(byte));
        rest = number.and(behind.get(3..)).unwrap_or(behind);
    }
    path
}

fn refused_mount(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "something is mounted at '{path}', and what is mounted cannot be moved: unmount it, or put what is there into \
         the repository itself"
    );
    Error::new(ErrorKind::Unsupported, message)
}

fn refused(path: &Path, target: &Path, other: Option<&Path>) -> Error {
    let what = match other {
        Some(other) => format!(
            "which belongs to another repository: '{}' would list no refs after a migration of this \
             one",
            other.display()
        ),
        None => "and a migration follows no link: what is there may be more than refs, and somebody could \
                 exchange it meanwhile. Put the folder itself there first"
            .to_owned(),
    };
    let (path, target) = (path.display(), target.display());
    let message = format!("'{path}' is a link to '{target}', {what}");
    Error::new(ErrorKind::Unsupported, message)
}

/// A path of so many bytes may be too long for the system.
const LONG_MIN: usize = 1000;

/// Finds the links to folders below a folder of refs. Links to files are refs, and are not followed
/// when they are moved.
///
/// # Errors
/// `Io` where something cannot be reached, such as a file whose path is too long: readers pass it over.
fn linked_folders(system: &dyn System, dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in list(system, dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        if path.as_os_str().len() >= LONG_MIN {
            is_link(system, &path)?;
        }
        match entry.kind {
            FileKind::Directory => linked_folders(system, &path, found)?,
            FileKind::Symlink if leads_to_folder(system, &path) => found.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// Says of something below `refs` that cannot be reached what can be done, if its path is too long.
fn out_of_reach(refs: &Path, error: Error) -> Error {
    let (Some(io::ErrorKind::InvalidFilename), Some(path)) =
        (error.io_kind(), error.message().path())
    else {
        return error;
    };
    let text = format!(
        "the path '{}' is too long for the system: refs there would be lost, so that nothing was changed; move a \
         folder above it out of '{}' and migrate again",
        path.display(),
        refs.display()
    );
    Error::new(ErrorKind::Unsupported, text)
}

/// Returns whether there is a link of that name.
pub(super) fn is_link(system: &dyn System, path: &Path) -> Result<bool> {
    match system.lstat(path) {
        Ok(stat) => Ok(stat.kind == FileKind::Symlink),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Returns the repository in which a file is, be it a file that is still to be made.
fn repository_of(system: &dyn System, path: &Path) -> Result<Option<PathBuf>> {
    for dir in path.ancestors().skip(1) {
        let mut has_all = true;
        for name in ["HEAD", "objects", "refs"] {
            has_all = has_all && folder::exists(system, &dir.join(name))?;
        }
        if has_all {
            return Ok(Some(dir.to_owned()));
        }
    }
    Ok(None)
}
