//! How far something is, for whoever waits: what is being done, how much of it is done, and how long it
//! will take.
//!
//! 1. Nothing is shown of what takes less than a second, nor where nobody looks: standard error is no
//!    terminal. `--progress` asks for it in any case, as lines, and `--no-progress` keeps it away.
//! 2. What is done is never slower for it: nothing is counted beforehand before somebody waits.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use refdb::Store;
use refdb_maintenance::progress::Progress;

use crate::failure::complain;

/// It is shown after this time.
const AFTER: Duration = Duration::from_secs(1);
/// How often it is renewed, on a terminal and as lines.
const EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Whoever counts looks so often whether that is still wanted.
const COUNT_STEP: u64 = 1024;

/// The help text of `--progress`.
pub(crate) const HELP: &str = "tell how far it is (on a terminal it does)";

/// The bar that is on the terminal now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Counts what there is to be done, until the flag says that nobody wants to know any more.
pub(crate) type Count = Box<dyn FnOnce(&AtomicBool) -> Option<u64> + Send>;

/// Shows how far something is until it is dropped.
pub(crate) struct Meter(Option<Inner>);

struct Inner {
    bar: ProgressBar,
    /// What the first count is about; of everything else there is no count.
    first: &'static str,
    counted: Arc<Mutex<Option<u64>>>,
    is_over: Arc<AtomicBool>,
    ends: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Meter {
    /// Begins to wait for `what`. `wish` is what `--progress` or `--no-progress` says.
    pub(crate) fn begin(wish: Option<bool>, what: &'static str) -> Meter {
        Meter::counted(wish, what, Box::new(|_| None))
    }

    /// The same, where somebody can count how much there is to be done of what comes first.
    pub(crate) fn counted(wish: Option<bool>, what: &'static str, count: Count) -> Meter {
        let is_terminal = std::io::stderr().is_terminal();
        if !wish.unwrap_or(is_terminal) {
            return Meter(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style());
        bar.set_message(what);
        let (sender, receiver) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let counted = Arc::new(Mutex::new(None));
        let (shown, over, known) = (bar.clone(), Arc::clone(&is_over), Arc::clone(&counted));
        let show = move || {
            if receiver.recv_timeout(AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if is_terminal {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(EVERY);
                *lock(&SHOWN) = Some(shown.clone());
            }
            let counting = std::thread::Builder::new().spawn(move || {
                if let Some(total) = count(&over) {
                    *lock(&known) = Some(total);
                }
            });
            while receiver.recv_timeout(LINE_EVERY) == Err(RecvTimeoutError::Timeout) {
                if !is_terminal {
                    complain(&format!("{}\n", line(&shown)));
                }
            }
            // It looks at the flag, and has nothing to tell.
            let _ = counting.map(JoinHandle::join);
            if is_terminal {
                *lock(&SHOWN) = None;
                shown.finish_and_clear();
            }
        };
        // Where no thread can be had nothing is shown.
        let thread = std::thread::Builder::new().spawn(show);
        Meter(Some(Inner {
            bar,
            first: what,
            counted,
            is_over,
            ends: thread.ok().map(|thread| (sender, thread)),
        }))
    }

    /// Notes how far it is.
    pub(crate) fn show(&self, progress: Progress) {
        let Some(inner) = &self.0 else { return };
        let bar = &inner.bar;
        if bar.message() != progress.what {
            // Another kind of work has its own pace.
            bar.reset();
            bar.unset_length();
            bar.set_message(progress.what);
        }
        let counted = match progress.what == inner.first {
            true => *lock(&inner.counted),
            false => None,
        };
        let total = progress.total.or(counted);
        if let Some(total) = total.filter(|_| total != bar.length()) {
            bar.set_length(total);
        }
        bar.set_position(progress.count);
    }

    /// Notes how far something is that has names of its own.
    pub(crate) fn told(&self, what: &str, done: usize, total: usize) {
        if let Some(Inner { bar, .. }) = &self.0 {
            bar.set_message(what.to_owned());
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }

    /// Does something that is waited for.
    pub(crate) fn during<T>(wish: Option<bool>, what: &'static str, work: impl FnOnce() -> T) -> T {
        let _meter = Meter::begin(wish, what);
        work()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(inner) = &mut self.0
            && let Some((sender, thread)) = inner.ends.take()
        {
            inner.is_over.store(true, Ordering::Relaxed);
            drop(sender);
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// Counts the refs of a store.
pub(crate) fn refs_of(store: &Store) -> Count {
    let store = store.clone();
    Box::new(move |is_over| {
        let mut refs = store.refs().ok()?;
        let mut count = 0;
        while refs.next().ok()?.is_some() {
            count += 1;
            if count % COUNT_STEP == 0 && is_over.load(Ordering::Relaxed) {
                return None;
            }
        }
        Some(count)
    })
}

/// Writes to standard error while nothing of the terminal is in the way.
pub(crate) fn aside(write: impl FnOnce()) {
    let shown = lock(&SHOWN).clone();
    match shown {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// A count that is there is whole, whoever panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{msg}{far}");
    // The template is right: a test draws it.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key(
        "far",
        |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let text = far(state.pos(), state.len(), state.elapsed());
            // What cannot be drawn is not drawn.
            let _ = out.write_str(&text);
        },
    )
}

fn line(bar: &ProgressBar) -> String {
    let far = far(bar.position(), bar.length(), bar.elapsed());
    format!("{}{far}", bar.message())
}

/// Returns how far it is: how much of how much, and how long it will still take, or how long it took
/// so far.
fn far(count: u64, total: Option<u64>, elapsed: Duration) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match (count, total) {
        (0, None) => Ok(()),
        (count, None) => write!(text, ": {}", HumanCount(count)),
        (count, Some(total)) => {
            let percent = count.saturating_mul(100).checked_div(total).unwrap_or(100);
            let (count, total) = (HumanCount(count), HumanCount(total));
            write!(text, ": {count} of {total} ({}%)", percent.min(100))
        }
    };
    let left = total
        .filter(|total| count > 0 && *total > count)
        .map(|total| {
            #[expect(clippy::cast_precision_loss, reason = "a guess")]
            let share = (total - count) as f64 / count as f64;
            elapsed.mul_f64(share.min(1e6))
        });
    let _ = match left {
        Some(left) => write!(text, ", {} left", lasting(left)),
        None => write!(text, ", {}", lasting(elapsed)),
    };
    text
}

/// Returns a time in the units that people use for it.
fn lasting(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil().min(1e9);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in range"
    )]
    let seconds = seconds as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_much_and_how_long() {
        let second = Duration::from_secs(1);
        assert_eq!(far(0, None, second), ", 1 s");
        assert_eq!(far(1234, None, 2 * second), ": 1,234, 2 s");
        assert_eq!(
            far(25_000, Some(100_000), 2 * second),
            ": 25,000 of 100,000 (25%), 6 s left"
        );
        assert_eq!(far(5, Some(5), 2 * second), ": 5 of 5 (100%), 2 s");
        assert_eq!(
            far(1, Some(1_000_000), second),
            ": 1 of 1,000,000 (0%), 277 h 46 min left"
        );
        assert_eq!(far(7, Some(0), second), ": 7 of 0 (100%), 1 s");
    }

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template("{msg}{far}").is_ok());
    }
}
