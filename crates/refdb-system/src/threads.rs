//! Where other threads run.

use super::platform;

/// Returns what a second thread calls first, so that it works beside the one that starts it, which
/// called this: it keeps off that one's processor, if it may run on others.
///
/// A system can take an idle processor of a virtual machine for one that the host has taken away, and
/// then starts the thread on the processor of its starter. Two that wait for each other now and then
/// stay there, and are as slow as one.
///
/// ```
/// let stand_apart = refdb_system::beside_this_thread();
/// let thread = std::thread::spawn(move || {
///     stand_apart();
///     "done"
/// });
/// assert_eq!(thread.join().unwrap(), "done");
/// ```
pub fn beside_this_thread() -> impl FnOnce() + Copy + Send {
    platform::stand_apart()
}

/// Returns on how many processors this process may run.
pub fn processor_count() -> usize {
    platform::processor_count()
}
