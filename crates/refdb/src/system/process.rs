//! Who a process is, and whether it still runs.

/// What a process can be recognised by when it is gone.
///
/// ```
/// use refdb::system::{OsSystem, ProcessState, System};
/// let system = OsSystem::new();
/// if let Some(me) = system.identity() {
///     assert_eq!(system.process_state(me.pid), ProcessState::Since(me.started));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The identifier.
    pub pid: u32,
    /// When the process started, in ticks since the machine was booted. It tells the process from a
    /// later one that was given the same identifier.
    pub started: u64,
    /// Within which set of processes the identifier means something (a Linux pid namespace).
    pub namespace: u64,
    /// What changes whenever the machine is booted.
    pub boot: String,
    /// The machine's name.
    pub host: String,
}

/// What is known of the process that has an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// There is none, or it has ended and its parent has not asked how.
    Gone,
    /// There is one, which started at that tick: see [`ProcessIdentity::started`].
    Since(u64),
    /// There is one, and no more can be found out.
    Unknown,
}

/// A directory or file that is taken for one process alone, until this is dropped.
pub type Guard = Box<dyn Send>;
