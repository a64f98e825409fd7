//! Where a second thread runs.

/// Returns what a second thread calls first, so that it works beside the one that starts it, which
/// called this: it keeps off that one's processor, if it may run on others.
///
/// A system can take an idle processor of a virtual machine for one that the host has taken away, and
/// then starts the thread on the processor of its starter. Two that wait for each other now and then
/// stay there, and are as slow as one.
///
/// ```
/// let stand_apart = refdb::system::beside_this_thread();
/// let thread = std::thread::spawn(move || {
///     stand_apart();
///     "done"
/// });
/// assert_eq!(thread.join().unwrap(), "done");
/// ```
#[cfg(target_os = "linux")]
pub fn beside_this_thread() -> impl FnOnce() + Copy + Send {
    let here = rustix::thread::sched_getcpu();
    move || {
        let Ok(mut others) = rustix::thread::sched_getaffinity(None) else {
            return;
        };
        if here < rustix::thread::CpuSet::MAX_CPU && others.is_set(here) && others.count() > 1 {
            others.unset(here);
            // Where that is refused, it works all the same.
            let _ = rustix::thread::sched_setaffinity(None, &others);
        }
    }
}

/// Returns what a second thread calls first. Nothing needs to be done here.
#[cfg(not(target_os = "linux"))]
pub fn beside_this_thread() -> impl FnOnce() + Copy + Send {
    || {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn a_second_thread_keeps_off_the_processor_of_the_first() {
        let before = sched_getaffinity(None).unwrap();
        let stand_apart = beside_this_thread();
        let second = std::thread::spawn(move || {
            stand_apart();
            sched_getaffinity(None).unwrap()
        });
        let second = second.join().unwrap();
        // It stays where there is no other.
        assert_eq!(second.count(), (before.count() - 1).max(1));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
