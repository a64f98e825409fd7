//! Signals that end the command: its locks are given back first, as Git does, which fails on a lock that
//! is left.
//!
//! From the first lock on a signal is only noted. Whoever takes locks, waits for one, or waits for input
//! or another program asks for it, gives up, and gives back what it holds on its way out; the command
//! then ends by the signal. What is being published is published. A second signal ends it at once.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::{register, register_conditional_default, register_usize};
use signal_hook::low_level::{emulate_default_handler, pipe};

/// What a terminal, a shell or a service manager ends a program by.
const SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// What is known of signals, once there is a lock.
static NOTED: OnceLock<Noted> = OnceLock::new();

struct Noted {
    came: Arc<AtomicBool>,
    /// Which one it was.
    which: Arc<AtomicUsize>,
    /// Gets a byte with every signal, so that one can be waited for along with something else.
    wakes: Option<UnixStream>,
}

impl Noted {
    fn begin() -> Noted {
        let (came, which) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (wakes, woken) = UnixStream::pair().ok().unzip();
        let ignored = ignored();
        for signal in SIGNALS {
            let number = usize::try_from(signal).unwrap_or_default();
            if ignored & 1 << (number - 1) != 0 {
                continue;
            }
            // Where that fails, the signal ends the process at once, and the next refdb clears up.
            let _ = register_conditional_default(signal, Arc::clone(&came));
            let _ = register_usize(signal, Arc::clone(&which), number);
            let _ = register(signal, Arc::clone(&came));
            if let Some(Ok(woken)) = woken.as_ref().map(UnixStream::try_clone) {
                let _ = pipe::register(signal, woken);
            }
        }
        Noted { came, which, wakes }
    }
}

/// Returns which signals whoever started the command wants it to ignore, as `nohup` does: a bit for each.
fn ignored() -> u64 {
    let mut status = String::new();
    let read = std::fs::File::open("/proc/self/status")
        .and_then(|file| file.take(1 << 14).read_to_string(&mut status));
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    match (read, mask) {
        (Ok(_), Some(mask)) => u64::from_str_radix(mask.trim(), 16).unwrap_or_default(),
        // Where the system does not tell, nobody is taken to want that.
        _ => 0,
    }
}

/// Returns whether a signal came, and begins to note them.
pub(crate) fn came() -> bool {
    NOTED.get_or_init(Noted::begin).came.load(Ordering::Relaxed)
}

/// Returns whether a signal was noted, by which the command is to end.
pub(crate) fn is_ending() -> bool {
    let noted = NOTED.get();
    noted.is_some_and(|noted| noted.came.load(Ordering::Relaxed))
}

/// Waits until something can be read, or has ended.
///
/// # Errors
/// `Interrupted` when a signal came before that. Those of the system.
pub(crate) fn wait_for(fd: BorrowedFd<'_>) -> io::Result<()> {
    let Some(Noted {
        wakes: Some(wakes), ..
    }) = NOTED.get()
    else {
        // There is no lock: signals end the command where it waits.
        return Ok(());
    };
    while !is_ending() {
        let mut fds = [
            PollFd::from_borrowed_fd(fd, PollFlags::IN),
            PollFd::from_borrowed_fd(wakes.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// Ends the process by the signal that was noted, if one was.
pub(crate) fn finish() {
    if let Some(noted) = NOTED.get()
        && let Ok(signal) = i32::try_from(noted.which.load(Ordering::Relaxed))
        && signal != 0
    {
        // It returns only for signals that end nothing.
        let _ = emulate_default_handler(signal);
    }
}
