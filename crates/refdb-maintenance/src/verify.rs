//! Checking what is stored: Git's own checks, and a deep one of every byte.
//!
//! 1. Nothing here changes anything, and nothing here takes a lock.
//! 2. A check goes on behind what it finds: one damaged file does not hide the next.
//! 3. [`as_git`] says what `git refs verify` says, in its words and order.
//!
//! ```no_run
//! use refdb_maintenance::verify::{Event, Severities, as_git};
//!
//! let repository = refdb_git::Repository::discover(".".as_ref())?;
//! let severities = Severities::from_config(&repository, false)?;
//! let clean = as_git(&repository, &severities, &mut |event| {
//!     if let Event::Found(finding) = event {
//!         println!("{}: {}", finding.path, finding.text);
//!     }
//! })?;
//! println!("{}", if clean { "clean" } else { "damaged" });
//! # Ok::<(), refdb::Error>(())
//! ```

mod deep;
mod loose;
mod packed;
mod severity;
mod tables;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use bstr::{BStr, BString};
pub use deep::{Advice, Counts, Damage, Repair, deep, deep_watched};
pub(crate) use deep::{
    KINDS_MAX, condition, indices_of_name, is_of_one, leads_in_a_circle, no_file,
};
use refdb::error::{Message, Role, io_text};
use refdb::internals::still_there;
use refdb::system::FileKind;
use refdb::{Error, Options, RefFormat, Result};
use refdb_git::Repository;
use refdb_git::repository::Worktree;
pub use severity::{MessageId, Severities, Severity};

/// Something that one of Git's checks says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The ref, or the place in packed-refs, or the table.
    pub path: BString,
    /// Which check it was.
    pub id: MessageId,
    /// Whether it counts as damage.
    pub severity: Severity,
    /// What is wrong.
    pub text: BString,
}

/// What happens while Git's checks run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The refs of a worktree are begun, those of the main one first.
    Begin,
    /// A ref is looked at.
    Ref(&'a BStr),
    /// packed-refs is looked at.
    PackedRefs(&'a Path),
    /// A table is looked at.
    Table(&'a str),
    /// A check found something.
    Found(&'a Finding),
    /// A file or a directory cannot be read, and is passed over.
    Unread(&'a Message, Severity),
}

/// Takes what the checks say, and remembers whether any of it was an error.
struct Report<'a> {
    severities: &'a Severities,
    repository: &'a Repository,
    on: &'a mut dyn FnMut(Event<'_>),
    clean: bool,
    whereabouts: Whereabouts<'a>,
}

/// Where refs are checked, and whether they still are there: otherwise nothing is wrong that is found.
struct Whereabouts<'a> {
    options: &'a Options,
    moved: Option<Error>,
}

impl<'a> Whereabouts<'a> {
    fn of(repository: &'a Repository) -> Whereabouts<'a> {
        Whereabouts {
            options: repository.store().options(),
            moved: None,
        }
    }

    /// Returns whether the refs are there; once they are not, nobody is asked again.
    fn has_refs(&mut self) -> bool {
        if self.moved.is_none() {
            self.moved = still_there(self.options).err();
        }
        self.moved.is_none()
    }

    /// Returns what came of a check, if it was one of refs.
    ///
    /// # Errors
    /// `Moved`, whether something was found, nothing was, or something is missing.
    fn done<T>(mut self, checked: Result<T>) -> Result<T> {
        match self.has_refs() {
            true => checked,
            false => self.moved.map_or(checked, Err),
        }
    }
}

impl Report<'_> {
    fn check_all(&mut self) -> Result<()> {
        for worktree in worktrees(self.repository)? {
            (self.on)(Event::Begin);
            match self.repository.ref_format() {
                RefFormat::Files => loose::check(self.repository, &worktree, self)?,
                RefFormat::Reftable => tables::check(self.repository, &worktree, self)?,
            }
        }
        Ok(())
    }

    /// Reports a finding; returns whether it counts as an error.
    fn find(&mut self, path: &[u8], id: MessageId, text: impl Into<Vec<u8>>) -> bool {
        let Some(severity) = self.severities.of(id) else {
            return false;
        };
        if !self.whereabouts.has_refs() {
            return true;
        }
        let finding = Finding {
            path: path.into(),
            id,
            severity,
            text: BString::from(text.into()),
        };
        (self.on)(Event::Found(&finding));
        let is_error = severity == Severity::Error;
        self.clean &= !is_error;
        is_error
    }

    /// Reports that something is passed over: `what` with its path, and why.
    fn unread(&mut self, severity: Severity, path: &Path, what: &str, error: &io::Error) {
        if !self.whereabouts.has_refs() {
            return;
        }
        let text = format!("{what}: {}", io_text(error));
        let message = Message::from(text).of(path, Role::Place);
        (self.on)(Event::Unread(&message, severity));
        self.clean &= severity != Severity::Error;
    }
}

/// Runs Git's checks on the refs of every worktree; returns whether none found an error.
///
/// Objects, reflogs, and the content of tables as far as the refs do not need it, are not looked
/// at: that is Git's choice.
///
/// # Errors
/// `Io` where the system fails otherwise than for one file or directory (that is an [`Event::Unread`]), `Corrupt` where
/// a stack cannot be read; `Moved` where the refs were moved into the other format meanwhile.
pub fn as_git(
    repository: &Repository,
    severities: &Severities,
    on: &mut dyn FnMut(Event<'_>),
) -> Result<bool> {
    let mut report = Report {
        severities,
        repository,
        on,
        clean: true,
        whereabouts: Whereabouts::of(repository),
    };
    let checked = report.check_all();
    let clean = report.clean;
    report.whereabouts.done(checked.map(|()| clean))
}

/// Returns the worktrees in the order in which Git takes them: the linked ones as the directory
/// lists them.
fn worktrees(repository: &Repository) -> Result<Vec<Worktree>> {
    let mut worktrees = repository.worktrees()?;
    let dir = repository.common_dir().join("worktrees");
    let listed = match repository.system().read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("unable to read directory", &dir, error)),
    };
    let dirs = listed.iter().filter(|it| it.kind == FileKind::Directory);
    let places: HashMap<&[u8], usize> =
        dirs.enumerate().map(|(at, dir)| (&*dir.name, at)).collect();
    worktrees.sort_by_key(|worktree| places.get(worktree.id.as_ref()?.as_slice()).copied());
    Ok(worktrees)
}

/// Returns what stands before the names of a worktree's own refs.
fn name_prefix(worktree: &Worktree) -> Vec<u8> {
    match &worktree.id {
        None => Vec::new(),
        Some(id) => [b"worktrees/", id.as_slice(), b"/"].concat(),
    }
}

/// Returns the part of `text` that a C program sees: that before the first NUL.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}
