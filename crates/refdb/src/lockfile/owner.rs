//! Who holds a lock, so that a lock of the dead can be told from one of the living.
//!
//! A lock of refdb is a symbolic link that leads nowhere and whose text says who made it. A link is
//! made with its text in one step, which no crash can come between, and it is a file that is there
//! already to everybody who wants to create it, Git included.
//!
//! Invariant: whatever cannot be found out counts as alive.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::alone;
use crate::system::{ProcessIdentity, ProcessState, System};

/// How the text of every such link starts, and how that of a migration's does.
const MARK: &str = "refdb";
const MARK_OF_MIGRATION: &str = "refdb-migration";

/// Of what changes with every boot, so many digits are kept: the text of a short link costs no
/// block of its own.
const BOOT_DIGITS: usize = 12;

/// What a lock was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A transaction, or anything else that concerns this lock alone.
    Transaction,
    /// A migration: what its locks keep apart may lie in two formats, so that they are given free
    /// together or not at all.
    Migration,
}

/// Who holds a lock: a process, and one of its transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    purpose: Purpose,
    process: ProcessIdentity,
    session: u32,
}

/// What is known of the owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The process runs.
    Alive,
    /// The process has ended, or its machine was booted since.
    Dead,
    /// It cannot be told from here.
    Unknown,
}

impl Owner {
    /// Returns the owner of the locks of a new transaction of this process; `None` if the system
    /// cannot tell who this process is.
    pub(crate) fn new(system: &dyn System, purpose: Purpose) -> Option<Owner> {
        let mut process = system.identity()?;
        let digits = process.boot.chars().filter(char::is_ascii_hexdigit);
        process.boot = digits.take(BOOT_DIGITS).collect();
        Some(Owner {
            purpose,
            process,
            session: u32::try_from(system.random() >> 32).unwrap_or(u32::MAX),
        })
    }

    /// Returns the text of the owner's locks.
    pub(crate) fn text(&self) -> PathBuf {
        let ProcessIdentity {
            pid,
            started,
            namespace,
            boot,
            host,
        } = &self.process;
        let session = self.session;
        let mark = match self.purpose {
            Purpose::Transaction => MARK,
            Purpose::Migration => MARK_OF_MIGRATION,
        };
        let text = format!("{mark} {pid} {started:x} {namespace:x} {boot} {session:08x} {host}");
        PathBuf::from(OsString::from_vec(text.into_bytes()))
    }

    /// Reads the text of a lock; `None` if it is none of refdb.
    pub(crate) fn parse(text: &Path) -> Option<Owner> {
        let text = std::str::from_utf8(text.as_os_str().as_bytes()).ok()?;
        let mut fields = text.splitn(7, ' ');
        let purpose = match fields.next()? {
            MARK => Purpose::Transaction,
            MARK_OF_MIGRATION => Purpose::Migration,
            _ => return None,
        };
        let pid = fields.next()?.parse().ok()?;
        let started = u64::from_str_radix(fields.next()?, 16).ok()?;
        let namespace = u64::from_str_radix(fields.next()?, 16).ok()?;
        let boot = fields.next()?.to_owned();
        let session = u32::from_str_radix(fields.next()?, 16).ok()?;
        let host = fields.next()?.to_owned();
        Some(Owner {
            purpose,
            process: ProcessIdentity {
                pid,
                started,
                namespace,
                boot,
                host,
            },
            session,
        })
    }

    /// Finds out whether the owner still runs. `made_ns` is when its lock was made.
    pub(crate) fn fate(&self, system: &dyn System, made_ns: i128) -> Fate {
        let Some(Owner { process: here, .. }) = Owner::new(system, self.purpose) else {
            return Fate::Unknown;
        };
        let owner = &self.process;
        if owner.host != here.host {
            return Fate::Unknown;
        }
        if owner.boot != here.boot {
            // Two machines can have one name: this lock must be older than all that runs here.
            let booted_ns = system
                .booted()
                .and_then(|at| i128::try_from(at.as_nanos()).ok());
            return match booted_ns {
                Some(booted_ns) if made_ns < booted_ns => Fate::Dead,
                _ => Fate::Unknown,
            };
        }
        if owner.namespace != here.namespace {
            return Fate::Unknown;
        }
        match system.process_state(owner.pid) {
            ProcessState::Gone => Fate::Dead,
            ProcessState::Since(started) if started != owner.started => Fate::Dead,
            ProcessState::Since(_) => Fate::Alive,
            ProcessState::Unknown => Fate::Unknown,
        }
    }
}

/// Reads who holds the lock at `path`: the text of the link, and the owner. `None` if there is no
/// lock, or if it is none of refdb.
pub(crate) fn of_lock(system: &dyn System, path: &Path) -> Option<(PathBuf, Owner)> {
    let text = system.read_link(path).ok()?;
    let owner = Owner::parse(&text)?;
    Some((text, owner))
}

/// Returns whether the lock at `path` is one of a migration.
pub(crate) fn is_of_migration(system: &dyn System, path: &Path) -> bool {
    of_lock(system, path).is_some_and(|(_, owner)| owner.purpose == Purpose::Migration)
}

/// Returns whether the lock at `path` is one of refdb whose owner has ended; its text then, and what
/// it was for.
pub(crate) fn dead(system: &dyn System, path: &Path) -> Option<(PathBuf, Purpose)> {
    let (text, owner) = of_lock(system, path)?;
    let made_ns = system.lstat(path).ok()?.mtime_ns;
    (owner.fate(system, made_ns) == Fate::Dead).then_some((text, owner.purpose))
}

/// Returns whether the lock at `path` is one of refdb whose owner has ended, and that can be taken
/// over by itself: none of a migration.
pub(crate) fn is_left(system: &dyn System, path: &Path) -> bool {
    matches!(dead(system, path), Some((_, Purpose::Transaction))) || alone::is_dead(system, path)
}

/// Returns whether the lock at `path` is one of refdb, whoever holds it.
pub(crate) fn is_ours(system: &dyn System, path: &Path) -> bool {
    of_lock(system, path).is_some() || system.lstat(path).is_ok_and(|stat| stat.is_guarded())
}

/// Says who holds the lock at `path`, since when, and what can be done about it.
pub(crate) fn describe(system: &dyn System, path: &Path) -> io::Result<String> {
    let stat = system.lstat(path)?;
    let made = Duration::from_nanos(u64::try_from(stat.mtime_ns).unwrap_or(0));
    let age = age(system.now().saturating_sub(made));
    if stat.is_guarded() {
        return Ok(alone::describe(system, path, &age));
    }
    let Some((_, owner)) = of_lock(system, path) else {
        return Ok(format!(
            "It was made {age} ago. refdb did not make it, and breaks no lock of others: if no \
             program is writing refs, remove the file"
        ));
    };
    let ProcessIdentity { pid, host, .. } = &owner.process;
    Ok(match owner.fate(system, stat.mtime_ns) {
        Fate::Alive => format!(
            "It is held by the refdb process {pid}, which runs, for {age}: wait for it, or end it, \
             and the next refdb takes the lock over"
        ),
        Fate::Dead if owner.purpose == Purpose::Migration => format!(
            "It was held by a migration, the refdb process {pid}, which has ended: the next refdb \
             command in this repository clears up after it"
        ),
        Fate::Dead => format!(
            "It was held by the refdb process {pid}, which has ended, and could not be taken over: \
             try again"
        ),
        Fate::Unknown => format!(
            "It was made by the refdb process {pid} of the machine '{host}' {age} ago, and from here \
             it cannot be told whether that runs: if it does not, remove the file"
        ),
    })
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::simulation::SimSystem;

    fn now_ns(system: &SimSystem) -> i128 {
        i128::try_from(system.now().as_nanos()).unwrap()
    }

    #[test]
    fn an_owner_is_written_and_read() {
        let system = SimSystem::new(1);
        let owner = Owner::new(&system, Purpose::Transaction).unwrap();
        assert_eq!(Owner::parse(&owner.text()), Some(owner.clone()));
        assert_ne!(
            Owner::new(&system, Purpose::Transaction),
            Some(owner),
            "another transaction"
        );
        for text in ["", "refdb", "refs/heads/main", "refdb 1 2 3 4 x host"] {
            assert_eq!(Owner::parse(Path::new(text)), None, "{text}");
        }
        let spaced = Owner::parse(Path::new("refdb 1 2 3 4 5 a host")).unwrap();
        assert_eq!(spaced.process.host, "a host");
    }

    #[test]
    fn only_who_is_known_to_have_ended_is_dead() {
        let here = SimSystem::new(1);
        let other = here.process(7);
        let owner = Owner::new(&other, Purpose::Transaction).unwrap();
        let made = now_ns(&here);
        assert_eq!(owner.fate(&here, made), Fate::Alive);
        let reused = here.fork();
        reused.process(7);
        assert_eq!(
            owner.fate(&reused, made),
            Fate::Dead,
            "another has its number"
        );
        other.end();
        assert_eq!(owner.fate(&here, made), Fate::Dead);
        let change = |change: fn(&mut ProcessIdentity)| {
            let mut owner = owner.clone();
            change(&mut owner.process);
            owner.fate(&here, made)
        };
        assert_eq!(change(|process| process.host.push('x')), Fate::Unknown);
        assert_eq!(change(|process| process.namespace += 1), Fate::Unknown);
        assert_eq!(
            change(|process| process.boot.push('0')),
            Fate::Unknown,
            "made after boot"
        );
    }

    #[test]
    fn whoever_ran_before_the_machine_was_booted_is_dead() {
        let before = SimSystem::new(1);
        let owner = Owner::new(&before, Purpose::Transaction).unwrap();
        let made = now_ns(&before);
        let after = before.crash(crate::system::simulation::Crash::seeded(1));
        assert_eq!(owner.fate(&after, made), Fate::Dead);
        // A machine of the same name that was booted elsewhere, and later.
        assert_eq!(owner.fate(&after, now_ns(&after)), Fate::Unknown);
    }
}
