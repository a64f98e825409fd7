//! Where a trace goes: a stream that is open, a file, a file of its own in a folder, a socket.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use refdb::system::{FileKind, OsSystem, System};
use refdb_git::repository::config::values;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::event::Event;
use super::{Kind, Trace, stamp};
use crate::failure::complain;

/// The file that keeps more files from being made in a folder.
const DISCARD: &str = "git-trace2-discard";

/// How many names are tried in a folder.
const NAMES_MAX: usize = 10;

/// One place, and what is written there.
pub(super) struct Target {
    kind: Kind,
    variable: &'static str,
    fd: OwnedFd,
    is_brief: bool,
    /// Whether it could not be written to.
    is_broken: AtomicBool,
}

impl Target {
    /// Opens the place that `value` names; `None` where it names none, or one that cannot be opened.
    pub(super) fn open<'s>(
        kind: Kind,
        variable: &'static str,
        value: &[u8],
        files_max: Option<i64>,
        sid: impl FnOnce() -> &'s str,
    ) -> Option<Target> {
        let lower = value.to_ascii_lowercase();
        let fd = match (lower.as_slice(), value) {
            (b"" | b"0" | b"false", _) => return None,
            (b"1" | b"true", _) => std::io::stderr().as_fd().try_clone_to_owned().ok(),
            ([digit @ b'2'..=b'9'], _) => inherited(*digit - b'0', variable),
            (_, [b'/', ..]) => {
                let path = Path::new(OsStr::from_bytes(value));
                let found = OsSystem::new().stat(path);
                match found.is_ok_and(|it| it.kind == FileKind::Directory) {
                    true => in_folder(path, variable, sid(), files_max),
                    false => open_file(path, OFlags::empty())
                        .inspect_err(|why| not_opened(path, variable, why))
                        .ok(),
                }
            }
            (_, [b'a', b'f', b'_', b'u', b'n', b'i', b'x', b':', socket @ ..]) => {
                connect(socket, variable)
            }
            _ => {
                let value = String::from_utf8_lossy(value);
                warn(&format!("unknown value for '{variable}': '{value}'"));
                None
            }
        };
        Some(Target {
            kind,
            variable,
            fd: fd?,
            is_brief: false,
            is_broken: AtomicBool::new(false),
        })
    }

    /// Leaves out when and where something happened.
    pub(super) fn brief(self, is_brief: bool) -> Target {
        Target { is_brief, ..self }
    }

    /// Writes an event, at once and whole, so that several programs can share a file.
    pub(super) fn write(&self, trace: &Trace, event: &Event) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let now = OsSystem::new().now();
        let line = match self.kind {
            Kind::Event => event.as_json(trace, &stamp(now, "-"), self.is_brief),
            kind => {
                let seconds = now.as_secs();
                let offset = i64::try_from(seconds).map_or(0, |it| trace.zone.offset(it));
                let local = now.as_secs().saturating_add_signed(offset.into());
                let local = std::time::Duration::new(local, now.subsec_nanos());
                // The time of day stands behind the day.
                let text = stamp(local, "-");
                let local = text.split('T').nth(1).map(|it| it.trim_end_matches('Z'));
                let local = local.filter(|_| !self.is_brief);
                match kind {
                    Kind::Perf => event.as_perf(trace, local),
                    _ => event.as_normal(local),
                }
            }
        };
        if let Err(error) = write_all(&self.fd, line.as_bytes()) {
            self.is_broken.store(true, Ordering::Relaxed);
            let why = refdb::error::io_text(&error.into());
            let variable = self.variable;
            complain(&format!(
                "warning: unable to write trace to '{variable}': {why}\n"
            ));
        }
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(fd, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Returns a stream that whoever started this process has opened for it.
fn inherited(number: u8, variable: &'static str) -> Option<OwnedFd> {
    let by_name = || {
        let path = PathBuf::from(format!("/dev/fd/{number}"));
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        openat(CWD, &path, flags, Mode::empty()).ok()
    };
    let duplicate = match number {
        2 => std::io::stderr().as_fd().try_clone_to_owned().ok(),
        // A socket cannot be opened by a name.
        _ => own_descriptor(number).or_else(by_name),
    };
    if duplicate.is_none() {
        let why = refdb::error::io_text(&Errno::BADF.into());
        complain(&format!(
            "warning: unable to write trace to '{variable}': {why}\n"
        ));
    }
    duplicate
}

/// Returns another descriptor of what this process has open by a number.
#[cfg(target_os = "linux")]
fn own_descriptor(number: u8) -> Option<OwnedFd> {
    use rustix::process::{
        ForeignRawFd, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open,
    };
    let this = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(this, ForeignRawFd::from(number), PidfdGetfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn own_descriptor(_: u8) -> Option<OwnedFd> {
    None
}

fn open_file(path: &Path, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | more;
    openat(CWD, path, flags, Mode::from_raw_mode(0o666))
}

/// Makes a file for this run in a folder, unless there are too many.
fn in_folder(
    folder: &Path,
    variable: &'static str,
    sid: &str,
    files_max: Option<i64>,
) -> Option<OwnedFd> {
    if let Some(max) = files_max.filter(|max| *max > 0) {
        let entries = OsSystem::new().read_dir(folder).unwrap_or_default();
        if entries.iter().any(|entry| entry.name == DISCARD.as_bytes()) {
            return None;
        }
        if i64::try_from(entries.len()).unwrap_or(i64::MAX) >= max {
            // Whoever else comes sees it.
            let _ = open_file(&folder.join(DISCARD), OFlags::EXCL);
            return None;
        }
    }
    let mut failed = Errno::EXIST;
    for attempt in 0..NAMES_MAX {
        let suffix = if attempt == 0 {
            String::new()
        } else {
            format!(".{attempt}")
        };
        match open_file(&folder.join(format!("{sid}{suffix}")), OFlags::EXCL) {
            Ok(fd) => return Some(fd),
            Err(error) => failed = error,
        }
        if failed != Errno::EXIST {
            break;
        }
    }
    not_opened(folder, variable, &failed);
    None
}

/// Connects with a socket: `stream:<path>`, `dgram:<path>`, or whichever of them answers.
fn connect(socket: &[u8], variable: &'static str) -> Option<OwnedFd> {
    let stream = |path: &Path| UnixStream::connect(path).map(OwnedFd::from);
    let datagram = |path: &Path| {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(OwnedFd::from(socket))
    };
    let (path, connected) = match socket {
        [b's', b't', b'r', b'e', b'a', b'm', b':', path @ ..] => (path, Some(true)),
        [b'd', b'g', b'r', b'a', b'm', b':', path @ ..] => (path, Some(false)),
        path => (path, None),
    };
    let path = Path::new(OsStr::from_bytes(path));
    let connected = match connected {
        Some(true) => stream(path),
        Some(false) => datagram(path),
        None => stream(path).or_else(|_| datagram(path)),
    };
    let failed = |why: &std::io::Error| {
        let (path, why) = (path.display(), refdb::error::io_text(why));
        warn(&format!(
            "could not connect to socket '{path}' for '{variable}' tracing: {why}"
        ));
    };
    connected.inspect_err(failed).ok()
}

fn not_opened(path: &Path, variable: &str, why: &Errno) {
    let (path, why) = (path.display(), refdb::error::io_text(&(*why).into()));
    warn(&format!(
        "could not open '{path}' for '{variable}' tracing: {why}"
    ));
}

/// Tells why there is no trace, if somebody wants to know (`GIT_TRACE2_DST_DEBUG`).
fn warn(what: &impl Display) {
    let wants = std::env::var_os("GIT_TRACE2_DST_DEBUG");
    if wants.is_some_and(|it| values::boolean(Some(it.as_bytes())).unwrap_or(true)) {
        complain(&format!("warning: trace2: {what}\n"));
    }
}
