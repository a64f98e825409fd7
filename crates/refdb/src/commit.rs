//! Making changes visible: locks, the journal of what takes several steps, and what is done about a
//! process that ended in the midst of it.
//!
//! A lock is `<file>.lock`, as everybody has it who writes refs. All locks of a transaction are names
//! of one file, which its process has for itself as long as it runs (`hold`): so the kernel tells
//! whether its holder lives, wherever one stands, and one look tells whether somebody took one of the
//! locks away. New content stands in `<file>~<number of the transaction>.lock` until it is renamed over the
//! file; the lock of one file that is written alone takes the content itself, and is renamed.
//!
//! Invariants:
//! 1. A lock that was acquired is released on every path: by release, or by drop.
//! 2. A lock whose file somebody has, of another program, or of which nothing is certain is waited
//!    for and never broken. Numbers of processes only explain.
//! 3. Whoever takes a lock over has its file from before he looks at the lock to after it is gone,
//!    and finishes the transaction that the dead process began, should there be one (`journal`).
//! 4. Nobody else writes what a transaction puts in place: its new content has a name that no other one
//!    has. It goes with its lock. Where a power failure, or a person, took the lock alone, it goes when
//!    refs are packed, or when it is in somebody's way ([`sweep`]).

mod change;
mod content;
mod dirs;
mod encoding;
pub(crate) mod entries;
mod hold;
mod home;
pub(crate) mod journal;
mod lock;
pub(crate) mod owner;
mod place;
mod possible;
mod put;
mod step;
mod takeover;
mod view;
mod watch;

pub(crate) use change::{Carried, Change, Means};
pub(crate) use content::{Content, Part};
pub(crate) use dirs::{MANY_MIN, add_parent, sync};
pub use entries::{Entry, is_barrier};
pub use hold::Holder;
pub(crate) use hold::Look;
pub use home::Home;
pub use journal::{Says, finish_left};
pub use lock::LockFile;
pub(crate) use lock::not_placed;
pub(crate) use place::{Place, Roots};
pub(crate) use step::{Step, between, unable_to_append};
pub(crate) use takeover::sweep;
pub use takeover::{sweep_all, take_over, take_over_any};
pub(crate) use view::{Becomes, View};
pub(crate) use watch::JournalWatch;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use sha1_smol::Sha1;

use crate::error::{Error, ErrorKind, Message, Role, io_text};
use crate::options::{LockTimeout, Options, SharedRepository};
use crate::system::{System, bytes_to_path};
pub use refdb_system::{remove_if_there, suffixed};

/// What a lock needs to know of the repository's settings.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// How long it is waited for.
    pub timeout: LockTimeout,
    /// Who may read the lock, and the file that it becomes.
    pub shared: SharedRepository,
    /// Write `<file>~pid.lock` beside the lock (`core.lockfilePid`).
    pub pid_file: bool,
}

impl LockOptions {
    /// A lock that is there now, or not to be had, and has nothing beside it.
    pub const AT_ONCE: LockOptions = LockOptions {
        timeout: LockTimeout::from_millis(0),
        shared: SharedRepository::Umask,
        pid_file: false,
    };

    /// A lock by the settings of a repository.
    pub(crate) fn of(options: &Options, timeout: LockTimeout) -> LockOptions {
        LockOptions {
            timeout,
            shared: options.shared_repository,
            pid_file: options.lockfile_pid,
        }
    }

    /// The same, that is waited for so long.
    pub(crate) fn within(self, timeout: LockTimeout) -> LockOptions {
        LockOptions { timeout, ..self }
    }
}

const LOCK: &[u8] = b".lock";

/// How the name of the file ends that says who holds a lock.
const PID: &str = "~pid.lock";

/// How long a name can be, in bytes.
const NAME_MAX: usize = 255;

/// Returns the path of the lock of a file.
pub fn lock_path(target: &Path) -> PathBuf {
    suffixed(target, ".lock")
}

/// Returns where the transaction of that number has the new content of a file until it is in place. Every
/// program that lists refs, or checks them, passes over names that end so.
pub(crate) fn value_path(target: &Path, transaction: u64) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    target.with_file_name(fitting(name, &format!("~{transaction:016x}.lock")))
}

/// Returns the file of which there is new content at `path`; `None` if that is not such content, or if the name
/// of the file did not fit into its own.
fn target_of_value(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes().strip_suffix(LOCK)?;
    let (target, number) = name.rsplit_once_str("~")?;
    let is_number = number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit);
    let is_whole = is_number && !target.is_empty() && !target.contains(&b'~');
    is_whole.then(|| path.with_file_name(bytes_to_path(target)))
}

/// Returns the file for whose lock one of that name was made, to stand beside it: new content, or the number of who holds
/// the lock. `None` if it is neither, or if the name of the file did not fit into its own.
pub fn target_beside(path: &Path) -> Option<PathBuf> {
    let of_pid = || {
        let name = path.file_name()?.as_bytes().strip_suffix(PID.as_bytes())?;
        (!name.is_empty()).then(|| path.with_file_name(bytes_to_path(name)))
    };
    target_of_value(path).or_else(of_pid)
}

/// Returns whether a file of that name is new content of the file `target`, which nobody has any more if the
/// caller holds its lock.
pub(crate) fn is_new_value(name: &str, target: &str) -> bool {
    target_of_value(Path::new(name)).is_some_and(|found| found == Path::new(target))
}

/// Returns `name` with something behind it, as far as a file can have that name. A hash makes up for what is
/// left out, of which nobody can find two names that share it, and no ref has a `~`.
fn fitting(name: &[u8], end: &str) -> PathBuf {
    if name.len() + end.len() <= NAME_MAX {
        return suffixed(bytes_to_path(name), end);
    }
    let hash = Sha1::from(name).digest().to_string();
    let hash = format!("~{hash}{end}");
    let start = name.get(..NAME_MAX - hash.len()).unwrap_or_default();
    suffixed(bytes_to_path(start), &hash)
}

/// Says why `<target>.lock` could not be created, in Git's words as far as scripts look for them.
pub(crate) fn describe_refusal(system: &dyn System, target: &Path, error: &io::Error) -> Message {
    let target = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    describe_held(system, &lock_path(&target), &pid_path(&target), error)
}

/// Says why the file at `path` could not be created, beside which its holder may have left his number.
fn describe_held(system: &dyn System, path: &Path, pid: &Path, error: &io::Error) -> Message {
    let text = format!("Unable to create '{}': {}", path.display(), io_text(error));
    let told = |text: String| Message::from(text).of(path, Role::InTheWay);
    if error.kind() != io::ErrorKind::AlreadyExists {
        return told(text);
    }
    let told = |text: String| told(text).held();
    let (more, remedy) = owner::describe(system, path).unwrap_or_default();
    if owner::is_ours(system, path) {
        return told(format!("{text}.\n\n{more}")).with(remedy);
    }
    let advice = match pid_beside(system, pid) {
        Some(pid) => format!(
            "Lock may be held by process {pid}; if no git process is running, the lock file may be \
             stale (PIDs can be reused)"
        ),
        None => "Another git process seems to be running in this repository, or the lock file may \
                 be stale"
            .to_owned(),
    };
    told(format!("{text}.\n\n{advice}. {more}")).with(remedy)
}

/// Returns the error of a lock that could not be taken.
pub fn refused(system: &dyn System, target: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::AlreadyExists => ErrorKind::Locked,
        _ => ErrorKind::Io,
    };
    let message = describe_refusal(system, target, &error);
    Error::new(kind, message).with_source(error)
}

/// Says why `<target>.lock` could not be created below a barrier.
pub(crate) fn describe_barred(
    system: &dyn System,
    target: &Path,
    barrier: &Path,
    error: &io::Error,
) -> Message {
    let path = lock_path(target);
    let (shown, why) = (path.display(), io_text(error));
    let (about, remedy) = owner::describe(system, &lock_path(barrier)).unwrap_or_default();
    let barrier = barrier.display();
    let text = format!(
        "Unable to create '{shown}': {why}.\n\nThe directory '{barrier}' is locked as a whole. {about}"
    );
    Message::from(text)
        .of(&path, Role::InTheWay)
        .held()
        .with(remedy)
}

/// Returns the process that holds a lock, if it left its number in that file.
fn pid_beside(system: &dyn System, pid: &Path) -> Option<u32> {
    let content = system.read_at_most(pid, 64).ok()?;
    let number = content.strip_prefix(b"pid ")?.trim_ascii_end();
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn pid_path(target: &Path) -> PathBuf {
    suffixed(target, PID)
}

#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod torn_tests;
