//! A word for whoever waits: what is being done and for how long already, on a terminal only.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::failure::complain;

/// It is shown after this time, and renewed as often.
const EVERY: Duration = Duration::from_secs(1);

/// Shown on standard error until it is dropped.
pub(crate) struct Waiting(Option<(Sender<()>, JoinHandle<()>)>);

impl Waiting {
    /// Does something that is waited for.
    pub(crate) fn during<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
        let _waiting = Waiting::begin(what);
        work()
    }

    /// Begins to wait for `what`. Nothing is shown of what takes less than a second.
    pub(crate) fn begin(what: &'static str) -> Waiting {
        if !std::io::stderr().is_terminal() {
            return Waiting(None);
        }
        let (sender, receiver) = channel();
        let begun = Instant::now();
        let show = move || {
            let mut is_shown = false;
            while receiver.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                is_shown = true;
                // What is written meanwhile takes the place of the line.
                complain(&format!(
                    "\r\x1b[K{what}: {} s\r",
                    begun.elapsed().as_secs()
                ));
            }
            if is_shown {
                complain("\x1b[K");
            }
        };
        let thread = std::thread::Builder::new().spawn(show);
        // Where no thread can be had nothing is shown.
        Waiting(thread.ok().map(|thread| (sender, thread)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // It panics in no way that would matter here.
            let _ = thread.join();
        }
    }
}
