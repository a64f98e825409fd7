//! Signals that end the command: its locks are given back first, as Git does, which fails on a lock that
//! is left.
//!
//! From the first lock on a signal is only noted. Whoever takes locks, waits for one, or waits for input
//! or another program asks for it, gives up, and gives back what it holds on its way out; the command
//! then ends by the signal. What is being published is published. A second signal ends it at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag::{register, register_conditional_default, register_usize};
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::platform;

/// What a terminal, a shell or a service manager ends a program by.
const SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Whether the command only takes a lock for some microseconds. It is not worth the time that it takes
/// to ask which signals are ignored (5 % of such a process): as with Git, they end it.
static IS_QUICK: AtomicBool = AtomicBool::new(false);

/// Says that the command is over at once.
pub(crate) fn expect_quick() {
    IS_QUICK.store(true, Ordering::Relaxed);
}

/// What is known of signals, once there is a lock.
static NOTED: OnceLock<Noted> = OnceLock::new();

struct Noted {
    /// Those that are noted.
    signals: Vec<i32>,
    came: Arc<AtomicBool>,
    /// Which one it was.
    which: Arc<AtomicUsize>,
    /// Gets a byte with every signal, so that one can be waited for along with something else; made when
    /// that is first done.
    wakes: OnceLock<Option<UnixStream>>,
}

impl Noted {
    fn begin() -> Noted {
        let (came, which) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut signals = Vec::new();
        // A file that becomes too long (`ulimit -f`) is an error, which is told, and locks are given back.
        let _ = register(SIGXFSZ, Arc::default());
        let is_quick = IS_QUICK.load(Ordering::Relaxed);
        let ignored = if is_quick {
            0
        } else {
            platform::ignored_signals()
        };
        for signal in SIGNALS {
            let number = usize::try_from(signal).unwrap_or_default();
            if ignored & 1 << (number - 1) != 0 {
                continue;
            }
            // Where that fails, the signal ends the process at once, and the next refdb clears up.
            let _ = register_conditional_default(signal, Arc::clone(&came));
            let _ = register_usize(signal, Arc::clone(&which), number);
            let _ = register(signal, Arc::clone(&came));
            signals.push(signal);
        }
        Noted {
            signals,
            came,
            which,
            wakes: OnceLock::new(),
        }
    }

    /// Returns what can be read when a signal came after this.
    fn wakes(&self) -> Option<&UnixStream> {
        let made = self.wakes.get_or_init(|| {
            let (wakes, woken) = UnixStream::pair().ok()?;
            for signal in &self.signals {
                pipe::register(*signal, woken.try_clone().ok()?).ok()?;
            }
            Some(wakes)
        });
        made.as_ref()
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
    let Some(wakes) = NOTED.get().and_then(Noted::wakes) else {
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

/// Returns the signal that was noted, if one was.
pub(crate) fn signal() -> Option<i32> {
    let which = NOTED.get()?.which.load(Ordering::Relaxed);
    i32::try_from(which).ok().filter(|signal| *signal != 0)
}

/// Ends the process by the signal that was noted, if one was.
pub(crate) fn finish() {
    if let Some(signal) = signal() {
        // It returns only for signals that end nothing.
        let _ = emulate_default_handler(signal);
    }
}
