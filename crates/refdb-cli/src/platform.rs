//! What the command asks of the system in ways that only Linux has, and what it does elsewhere.
//!
//! | | Linux | elsewhere |
//! |---|---|---|
//! | waiting for a program, or a signal | a descriptor of the process | the signal that says that a program has ended |
//! | signals that the starter wants ignored, as `nohup` does | `/proc/self/status` | not known: while there is a lock, they end the command |
//! | the file that this process runs | `/proc/self/exe` | by its path |
//!
//! What both have is tried on Linux too.

use std::io;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};

use crate::interrupt;

/// The file that this process runs, even if its name has another file by now.
pub(crate) const THIS_PROGRAM: Option<&str> = if cfg!(target_os = "linux") {
    Some("/proc/self/exe")
} else {
    None
};

/// Returns which signals whoever started the command wants it to ignore, as `nohup` does: a bit for each.
#[cfg(target_os = "linux")]
pub(crate) fn ignored_signals() -> u64 {
    use bstr::ByteSlice;
    use refdb::system::{OsSystem, System};
    // It is far shorter.
    let status = OsSystem::new().read_at_most("/proc/self/status".as_ref(), 1 << 14);
    let status = status.unwrap_or_default();
    let mut lines = status.split(|&byte| byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigIgn:"));
    // Where the system does not tell, nobody is taken to want that.
    let mask = mask.and_then(|mask| mask.trim_ascii().to_str().ok());
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}

/// Returns which signals whoever started the command wants it to ignore: that is not known here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ignored_signals() -> u64 {
    0
}

/// Waits until a program has ended, or a signal came: then it is left alone, as by Git.
#[cfg(target_os = "linux")]
pub(crate) fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    // Without a descriptor to wait for, as on old kernels, a signal has to wait for the program.
    if let Some(pid) = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default())
        && let Ok(ended) = pidfd_open(pid, PidfdFlags::empty())
    {
        interrupt::wait_for(ended.as_fd())?;
    }
    child.wait()
}

#[cfg(not(target_os = "linux"))]
pub(crate) use wait_by_signal as wait;

/// Waits until a program has ended, or a signal came, where nothing can be waited for but signals.
#[cfg(any(test, not(target_os = "linux")))]
pub(crate) fn wait_by_signal(child: &mut Child) -> io::Result<ExitStatus> {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use signal_hook::consts::SIGCHLD;
    use signal_hook::low_level::{pipe, unregister};

    let (mut wakes, woken) = UnixStream::pair()?;
    let registered = pipe::register(SIGCHLD, woken)?;
    // One that ended before is seen at once, and one that ends from here on wakes.
    let ended = loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => break Ok(status),
            Err(error) => break Err(error),
        }
        if let Err(error) = interrupt::wait_for(wakes.as_fd()) {
            break Err(error);
        }
        // Any number of them: it is looked again anyway.
        let _ = wakes.read(&mut [0; 64]);
    };
    unregister(registered);
    ended
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_is_waited_for_by_the_signal_of_its_end() {
        for (script, code) in [("exit 3", 3), ("sleep 0.2; exit 4", 4)] {
            // Others that end meanwhile wake it as well.
            let mut other = Command::new("sh").args(["-c", "sleep 0.1"]).spawn();
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            assert_eq!(wait_by_signal(&mut child).unwrap().code(), Some(code));
            other.as_mut().unwrap().wait().unwrap();
        }
    }
}
