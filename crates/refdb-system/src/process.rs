//! On which machine a process runs, and what is known of others there.

/// What a machine is called.
///
/// ```
/// use refdb_system::{OsSystem, System};
/// println!("this is {}", OsSystem::new().machine().host);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The machine's name, which others may have as well.
    pub host: String,
    /// What changes whenever the machine is booted; empty if that is not known.
    pub boot: String,
}

/// What is known of the process that has an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// There is none, or it has ended and its parent has not asked how.
    Gone,
    /// There is one, which started at that tick since the machine was booted: that tells it from a later
    /// one with the same identifier.
    Since(u64),
    /// There is one, and no more can be found out.
    Unknown,
}

/// A directory or file that is taken for one process alone, until this is dropped.
pub type Guard = Box<dyn Send>;

/// Returns whether this process works for the user who started it.
pub(crate) fn is_itself() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| rustix::process::getuid() == rustix::process::geteuid())
}

/// Returns how many bytes long a file may become that this process writes.
pub(crate) fn longest_file() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.unwrap_or(u64::MAX)
}
