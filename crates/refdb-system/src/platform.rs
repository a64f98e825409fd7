//! What systems do in ways of their own: all that is said of one of them by name is below this module.
//!
//! Linux is what refdb is tested on. `elsewhere` is macOS, with what other systems have in common with it:
//! it is compiled, linted and linked for macOS, and was not run there.
//!
//! | | Linux | elsewhere |
//! |---|---|---|
//! | a file is durable | `fsync` | `F_FULLFSYNC` on macOS, since `fsync` leaves it in the cache of the disk |
//! | all that was written is | `syncfs` | not known: ordinary writes sync each file and directory ([`SYNCS_AT_ONCE`]); others ask for `sync`, which does not wait |
//! | a file system is this machine's alone | by its number | APFS and HFS+ on macOS; nothing is known of others, so that no lock is taken over there |
//! | a mark on locks | the sticky bit | none: locks say at once in their content whose they are |
//! | who has a lock | `/proc/locks` | as the lock says itself |
//! | since when a process runs, when the machine was booted | `/proc` | not known |
//! | the way below a directory | `openat2` | one `openat` for each part, which follows no link |
//! | what may only be added to, what is mounted | by `statx` | not known |
//! | two names change places | `renameat2` | `renameatx_np` on macOS |
//! | how finely changes are dated | by the tick of its clock where the kernel alone dates them, else 50 ms | two seconds, for file systems that are old |
//! | a second thread keeps off the processor of the first | by affinity | as the system likes |

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

/// What the system tells of a process that runs, or has ended unasked.
pub(crate) struct ProcessStat {
    /// The tick at which it started.
    pub(crate) started: u64,
    pub(crate) ended: bool,
}
