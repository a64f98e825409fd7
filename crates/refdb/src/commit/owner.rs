//! Who made a lock, as the file says itself. It only explains: whether its process lives, the kernel
//! tells (`hold`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bstr::ByteSlice;

use super::encoding::dir_of_journal;
use super::entries::is_exchanged;
use crate::error::Remedy;
use crate::system::{FileKind, Machine, System, if_there};

/// How such a file starts. The number is that of this way of writing it.
const START: &[u8] = b"refdb lock 5\n";

/// How the files of all versions start.
const START_OF_ALL: &[u8] = b"refdb lock ";

/// So much of a file is read to see whose it is.
pub(super) const HEAD_LEN: usize = 1024;

/// What a lock was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A transaction, or anything else that concerns this lock alone.
    Transaction,
    /// A migration: what its locks keep apart may lie in two formats, so that they are given free
    /// together or not at all.
    Migration,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Transaction => "transaction",
            Purpose::Migration => "migration",
        }
    }
}

/// Who made a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) purpose: Purpose,
    /// What tells the transaction from others.
    pub(super) id: u64,
    /// The number of the process, on a machine of that name.
    process: u32,
    host: String,
    /// What changes whenever the machine is booted; empty if that is not known.
    pub(super) boot: String,
}

/// What a file says of its maker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signed {
    /// Nothing: it is no lock of refdb, or it was not written yet.
    Nothing,
    /// It was made by another version of refdb.
    OtherVersion,
    /// This, in so many bytes.
    By(Owner, usize),
}

impl Owner {
    /// Returns who this process is, for a new transaction.
    pub(super) fn new(system: &dyn System, purpose: Purpose) -> Owner {
        let Machine { host, boot } = system.machine();
        Owner {
            purpose,
            id: system.random(),
            process: system.process_id(),
            host: one_line(&host),
            boot: one_line(&boot),
        }
    }

    /// Returns the text of the owner's locks.
    pub(super) fn text(&self) -> Vec<u8> {
        let Owner {
            purpose,
            id,
            process,
            host,
            boot,
        } = self;
        let purpose = purpose.name();
        let lines = format!("{purpose} {id:016x}\nprocess {process}\nhost {host}\nboot {boot}\n\n");
        [START, lines.as_bytes()].concat()
    }

    /// Reads what a file says at its start.
    pub(super) fn parse(content: &[u8]) -> Signed {
        let Some(rest) = content.strip_prefix(START) else {
            return match content.starts_with(START_OF_ALL) {
                true => Signed::OtherVersion,
                false => Signed::Nothing,
            };
        };
        let fields = || {
            let end = rest.windows(2).position(|two| two == b"\n\n")?;
            let text = std::str::from_utf8(rest.get(..end)?).ok()?;
            let mut lines = text.split('\n');
            let (purpose, id) = lines.next()?.split_once(' ')?;
            let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
            let owner = Owner {
                purpose: [Purpose::Transaction, Purpose::Migration]
                    .into_iter()
                    .find(|known| known.name() == purpose)?,
                id: u64::from_str_radix(id, 16).ok()?,
                process: field("process")?.parse().ok()?,
                host: field("host")?.to_owned(),
                boot: field("boot")?.to_owned(),
            };
            Some(Signed::By(owner, START.len() + end + 2))
        };
        fields().unwrap_or(Signed::Nothing)
    }
}

/// Returns whether a file can be one of refdb that was not written to its end before power failed.
pub(super) fn is_cut(content: &[u8]) -> bool {
    let written = content.trim_end_with(|end| end == '\0');
    START.starts_with(written) || written.starts_with(START) && !written.contains_str("\n\n")
}

/// Returns the part of a text that takes one line, and no more than so many bytes.
fn one_line(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(64)
        .collect()
}

/// Reads how the file of a lock begins; `None` if there is none.
///
/// # Errors
/// Those of the system: a file that cannot be read may be anybody's.
pub(super) fn head(system: &dyn System, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let read = || match system.lstat(path)?.kind {
        FileKind::File => Ok(Some(system.read_at_most(path, HEAD_LEN)?.to_vec())),
        // A link is nobody's lock, wherever it leads.
        _ => Ok(None),
    };
    if_there(read()).map(Option::flatten)
}

/// Reads who made the lock at `path`; `None` if there is none, or if it does not say so.
///
/// # Errors
/// As for [`head`].
pub(super) fn of_lock(system: &dyn System, path: &Path) -> io::Result<Option<Owner>> {
    let head = head(system, path)?;
    Ok(match head.map(|head| Owner::parse(&head)) {
        Some(Signed::By(owner, _)) => Some(owner),
        _ => None,
    })
}

/// Returns whether the lock at `path` is one of refdb for certain, whoever holds it.
pub(crate) fn is_ours(system: &dyn System, path: &Path) -> bool {
    let is_guarded = || system.lstat(path).is_ok_and(|stat| stat.is_guarded());
    is_guarded() || matches!(of_lock(system, path), Ok(Some(_))) || is_exchanged(system, path)
}

/// Returns the file that the holder of the lock at `path` has for as long as he lives.
pub(super) fn proof(system: &dyn System, path: &Path) -> PathBuf {
    match is_exchanged(system, path) {
        true => path.with_extension(""),
        false => path.to_owned(),
    }
}

/// Returns whether the lock at `path` is one of refdb that nobody has any more, and that can be taken
/// over by itself: none of a migration.
pub fn is_left(system: &dyn System, path: &Path) -> bool {
    let is_migration = |owner: Owner| owner.purpose == Purpose::Migration;
    let is_alone = || of_lock(system, path).is_ok_and(|owner| !owner.is_some_and(is_migration));
    is_ours(system, path) && is_free(system, path) && is_alone()
}

fn is_free(system: &dyn System, path: &Path) -> bool {
    (system.guard_file(&proof(system, path))).is_ok_and(|guard| guard.is_some())
}

/// Says who holds the lock at `path`, since when, and what can be done about it.
pub(crate) fn describe(system: &dyn System, path: &Path) -> io::Result<(String, Option<Remedy>)> {
    let stat = system.lstat(path)?;
    let made = Duration::from_nanos(u64::try_from(stat.mtime_ns).unwrap_or(0));
    let age = age(system.now().saturating_sub(made));
    if !is_ours(system, path) {
        let text = format!(
            "It was made {age} ago. refdb did not make it, and breaks no lock of others: if no \
             program is writing refs, remove the file"
        );
        return Ok((text, None));
    }
    let owner = of_lock(system, path).ok().flatten();
    // A number in the lock says who made it, as that process saw itself; this system may tell who has it.
    let made_by = owner.as_ref().map(|owner| owner.process);
    let proof = proof(system, path);
    let who = match (system.guard_owner(&proof), made_by) {
        (Some(pid), Some(other)) if pid != other => format!("the process {pid}"),
        (Some(pid), _) | (None, Some(pid)) => format!("the refdb process {pid}"),
        (None, None) => "a refdb process".to_owned(),
    };
    let is_migration = owner
        .as_ref()
        .is_some_and(|owner| owner.purpose == Purpose::Migration);
    let head = head(system, path).ok().flatten();
    let has_journal = head.is_some_and(|head| dir_of_journal(&head).is_some());
    let state = (is_free(system, path), system.is_taken(&proof));
    let text = match state {
        (true, _) if is_migration => format!(
            "It was held by a migration, {who}, which has ended: the next refdb command in this \
             repository clears up after it"
        ),
        (true, _) if has_journal => format!(
            "It was held by {who}, which has ended in the midst of a transaction: the next refdb command \
             in the repository of that transaction finishes it, of a user who may write there all that it \
             wrote, and remove what it left: who owns that, or root"
        ),
        (true, _)
            if path
                .parent()
                .is_some_and(|dir| system.may_write(dir).is_err()) =>
        {
            format!(
                "It was held by {who}, which has ended, and this user may not remove it: who may write its folder \
             takes it over"
            )
        }
        (true, _) => {
            format!("It was held by {who}, which has ended, and could not be taken over: try again")
        }
        (false, true) => format!(
            "It is held by {who}, which runs, for {age}: wait for it, or end it, and the next refdb \
             takes the lock over"
        ),
        (false, false) => {
            let host = owner.map_or_else(String::new, |owner| {
                format!(" of the machine '{}'", owner.host)
            });
            format!(
                "It was made by {who}{host} {age} ago. On this file system, or with these \
                 permissions, it cannot be told whether that runs"
            )
        }
    };
    Ok((
        text,
        (state == (false, false)).then_some(Remedy::RemoveLocks),
    ))
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
    use refdb_simulation::SimSystem;

    #[test]
    fn an_owner_is_written_and_read() {
        let system = SimSystem::new(1);
        for purpose in [Purpose::Transaction, Purpose::Migration] {
            let owner = Owner::new(&system, purpose);
            let text = owner.text();
            let len = text.len();
            assert_eq!(Owner::parse(&text), Signed::By(owner.clone(), len));
            assert_ne!(Owner::new(&system, purpose), owner, "another transaction");
            let more = [&text[..], b"more"].concat();
            assert_eq!(Owner::parse(&more), Signed::By(owner, len));
            for cut in 0..len {
                let is_whole = matches!(Owner::parse(&text[..cut]), Signed::By(..));
                assert!(!is_whole, "{cut}");
            }
        }
        assert_eq!(Owner::parse(b"refdb lock 4\nx\n\n"), Signed::OtherVersion);
        assert_eq!(one_line("a\nb\0c"), "abc");
    }
}
