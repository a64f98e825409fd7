//! The deep check: every byte that a ref or a reflog depends on.
//!
//! 1. What is found names the file and, where there is one, the offset, and says what a repair would
//!    do about it.
//! 2. A repository that works is clean: there is no finding about what is merely unusual.
//! 3. Writers may go on meanwhile. What a writer leaves for a moment, such as a lock, is a warning.
//! 4. A migration may go on meanwhile. Once it has taken the refs elsewhere, nothing is a finding.
//!
//! ```no_run
//! use refdb_maintenance::verify::{Severity, deep};
//!
//! let repository = refdb_git::Repository::discover(".".as_ref())?;
//! let mut damaged = false;
//! let counts = deep(&repository, &mut |found| {
//!     damaged |= found.severity == Severity::Error;
//!     println!("{}: {}", found.file.display(), found.what);
//! })?;
//! println!("{} refs, {}", counts.refs, if damaged { "damaged" } else { "whole" });
//! # Ok::<(), refdb::Error>(())
//! ```

mod head;
mod logs;
mod loose;
mod packed;
mod seen;
mod stack;
mod values;

use std::io;
use std::path::{Path, PathBuf};

use bstr::BString;
use refdb::error::io_text;
use refdb::internals::{Home, MIGRATION, Says, finish_left};
use refdb::layout::JOURNAL;
use refdb::system::{FileKind, System};
use refdb::{Error, RefFormat, Result};
use refdb_git::Repository;
use refdb_git::objects::Absent;
use refdb_git::repository::Worktree;
use rustix::io::Errno;

use super::{MessageId, Severities, Severity, Whereabouts};
use crate::migrate::finish_interrupted;
use crate::progress::{Progress, Watch, nobody};
use seen::{AllSeen, Seen, Source, Value};
pub(crate) use stack::indices_of_name;
pub(crate) use values::KINDS_MAX;

/// Something that the deep check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Whether something is lost or wrong, or only not as it should be.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// Where in the file, in bytes; `None` where the file as a whole is meant.
    pub offset: Option<u64>,
    /// The ref that is concerned, if it is one.
    pub name: Option<BString>,
    /// What is wrong, and what it means.
    pub what: String,
    /// What a repair does about it.
    pub repair: Repair,
    /// What a person can do about it, where a repair does nothing.
    pub advice: Option<Advice>,
}

/// What a person can do about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Delete one of two refs that cannot both exist, after its value was given to another name if it
    /// is wanted.
    DeleteOneOf([BString; 2]),
    /// Point the symref to a ref, or delete it.
    PointElsewhere(BString),
    /// Put back what was there, or begin again: the words.
    PutBack(String),
}

/// What a repair does about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repair {
    /// Writes the table again from its whole blocks.
    RebuildTable,
    /// Writes the list of tables again from the tables.
    RebuildList,
    /// Writes packed-refs again from its good lines.
    RewritePackedRefs,
    /// Writes the ref again, or takes it away if its value is lost.
    RewriteRef,
    /// Takes the ref's last value that its reflog knows and that exists.
    FromReflog,
    /// Writes the reflog again from its good lines.
    RewriteLog,
    /// Takes the file away.
    RemoveFile,
    /// Takes the lock, the unfinished file or the table without a list away, unless a process may be
    /// at work on it.
    RemoveLeftover,
    /// Nothing: a person has to decide.
    ByHand,
}

impl Repair {
    /// Returns whether the file as it is does not concern a repair of what it holds.
    pub(crate) fn is_for_others(self) -> bool {
        use Repair::{ByHand, RemoveFile, RemoveLeftover};
        matches!(self, ByHand | RemoveFile | RemoveLeftover)
    }

    /// Returns the name that stands in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Repair::RebuildTable => "rebuild-table",
            Repair::RebuildList => "rebuild-list",
            Repair::RewritePackedRefs => "rewrite-packed-refs",
            Repair::RewriteRef => "rewrite-ref",
            Repair::FromReflog => "from-reflog",
            Repair::RewriteLog => "rewrite-log",
            Repair::RemoveFile | Repair::RemoveLeftover => "remove-file",
            Repair::ByHand => "by-hand",
        }
    }

    /// Returns what a repair does, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Repair::RebuildTable => "writes the table again from its whole blocks",
            Repair::RebuildList => "writes the list again from the tables",
            Repair::RewritePackedRefs => "writes packed-refs again from its good lines",
            Repair::RewriteRef => "writes the ref again, or takes it away if its value is lost",
            Repair::FromReflog => "takes the last value from the reflog that exists",
            Repair::RewriteLog => "writes the reflog again from its good lines",
            Repair::RemoveFile => "takes the file away",
            Repair::RemoveLeftover => {
                "takes the file away if no process can be at work, and else with --remove-locks"
            }
            Repair::ByHand => "leaves it: somebody has to decide",
        }
    }
}

/// How much the deep check has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Refs, symrefs and root refs among them.
    pub refs: u64,
    /// Entries of reflogs.
    pub log_entries: u64,
    /// Tables.
    pub tables: u64,
}

/// How far it is, is told after so many refs or entries.
const PROGRESS_STEP: u64 = 1024;

/// The check of one repository.
struct Deep<'a> {
    repository: &'a Repository,
    system: &'a dyn System,
    on: &'a mut dyn FnMut(&Damage),
    progress: &'a Watch<'a>,
    counts: Counts,
    /// The directories of refs: the common one, then those of the linked worktrees.
    dirs: Vec<PathBuf>,
    /// How many directories of loose refs links led to, and how many refs were found there.
    linked: usize,
    linked_refs: usize,
    seen: AllSeen,
    whereabouts: Whereabouts<'a>,
    /// How bad it is what Git takes for no damage, as the repository says.
    severities: Severities,
    /// Where objects may be that cannot be had, once one is missing, and the refs whose object may be there.
    absent: Option<Absent>,
    perhaps_there: Vec<BString>,
    /// Why the last object that could not be read could not be.
    unread: Option<String>,
}

/// Bad lines, one behind the other, that are one finding: a file of nothing but line ends would be
/// a finding for each byte.
#[derive(Default)]
struct BadLines {
    /// Where the first one stands, and what is wrong with it.
    first: Option<(usize, &'static str)>,
    more: u64,
}

impl BadLines {
    fn add(&mut self, at: usize, what: &'static str) {
        match self.first {
            None => self.first = Some((at, what)),
            Some(_) => self.more += 1,
        }
    }
}

/// Checks everything that is stored about refs, in every worktree.
///
/// # Errors
/// `Io` where the system refuses to read, or the object database cannot be read; `Moved` where the refs were
/// migrated meanwhile.
pub fn deep(repository: &Repository, on: &mut dyn FnMut(&Damage)) -> Result<Counts> {
    deep_watched(repository, on, &nobody)
}

/// The same, and tells how far it is.
///
/// # Errors
/// As for [`deep`].
pub fn deep_watched(
    repository: &Repository,
    on: &mut dyn FnMut(&Damage),
    progress: &Watch<'_>,
) -> Result<Counts> {
    let worktrees: Vec<Worktree> = repository.worktrees()?;
    let mut check = Deep {
        repository,
        system: repository.system().as_ref(),
        on,
        progress,
        counts: Counts::default(),
        dirs: Vec::new(),
        linked: 0,
        linked_refs: 0,
        seen: AllSeen::default(),
        whereabouts: Whereabouts::of(repository),
        // A mistake in them is told by the check that is all about them.
        severities: Severities::from_config(repository, false)
            .unwrap_or_else(|_| Severities::new(false)),
        absent: None,
        perhaps_there: Vec::new(),
        unread: None,
    };
    for worktree in &worktrees {
        let layout = repository.worktree_layout(worktree)?;
        check.dirs.push(layout.worktree_dir().to_owned());
    }
    let done = check.all();
    let counts = check.counts;
    check.whereabouts.done(done.map(|()| counts))
}

impl Deep<'_> {
    fn all(&mut self) -> Result<()> {
        self.journal();
        self.migration();
        for index in 0..self.dirs.len() {
            self.head(&self.dir(index))?;
            match self.repository.ref_format() {
                RefFormat::Files => self.files(index)?,
                RefFormat::Reftable => self.stack(index)?,
            }
        }
        self.values()
    }

    fn dir(&self, index: usize) -> PathBuf {
        self.dirs.get(index).cloned().unwrap_or_default()
    }

    fn files(&mut self, index: usize) -> Result<()> {
        let dir = self.dir(index);
        self.loose_refs(index, &dir)?;
        if index == 0 {
            self.packed_refs(&dir)?;
        }
        self.logs(&dir)
    }

    /// Counts a ref, and tells now and then how many there were.
    fn count_ref(&mut self) {
        self.counts.refs += 1;
        if self.counts.refs.is_multiple_of(PROGRESS_STEP) {
            (self.progress)(Progress {
                what: "Reading refs",
                count: self.counts.refs,
                total: None,
            });
        }
    }

    /// Counts an entry of a reflog, and tells now and then how many there were.
    fn count_entries(&mut self, more: u64) {
        self.counts.log_entries += more;
        if more > 0 && self.counts.log_entries.is_multiple_of(PROGRESS_STEP) {
            (self.progress)(Progress {
                what: "Reading entries of reflogs",
                count: self.counts.log_entries,
                total: None,
            });
        }
    }

    /// Reports what has the place of the journal and is none, or cannot be finished.
    fn journal(&mut self) {
        let options = self.repository.store().options();
        let dir = self.repository.refs_base();
        let home = Home::new(self.repository.system(), dir, options);
        if let Err(error) = finish_left(&home, Says::Nothing) {
            let path = dir.join(JOURNAL);
            self.error(&path, None, error.to_string(), Repair::ByHand);
        }
    }

    /// Reports what has the place of a migration's folder and is none of this repository, or cannot be finished:
    /// refs cannot be migrated as long as it is there.
    fn migration(&mut self) {
        if let Err(error) = finish_interrupted(self.repository) {
            let dir = self.repository.refs_base();
            self.warning(&dir.join(MIGRATION), error.to_string(), Repair::ByHand);
        }
    }

    /// Reports damage: what is lost or wrong.
    fn error(&mut self, file: &Path, offset: Option<u64>, what: impl Into<String>, repair: Repair) {
        self.report(Severity::Error, file, offset, what, repair);
    }

    /// Returns what was read. What is in the way of a single file or directory is reported, such as a circle of links, or
    /// that no path is so long: the rest is checked all the same.
    ///
    /// # Errors
    /// `Io` for any other failure.
    fn told_unless_read<T>(&mut self, path: &Path, read: io::Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if is_of_one(&error) => {
                let what = format!("it cannot be read: {}; see what it is", io_text(&error));
                self.error(path, None, what, Repair::ByHand);
                Ok(None)
            }
            read => read
                .map(Some)
                .map_err(|error| Error::io("unable to read", path, error)),
        }
    }

    /// Reports what has the place of a file and is none: a pipe or a device is repaired as a file that is lost, and
    /// what is in a directory nobody knows. Returns whether it told something.
    fn tells_no_file(&mut self, path: &Path, lost: &str, repair: Repair) -> bool {
        match no_file(self.system, path) {
            Some(FileKind::Directory) => {
                let what = format!("a directory has the place of the file: {lost}; move it away");
                self.error(path, None, what, Repair::ByHand);
            }
            Some(_) => {
                let what = format!("neither a file nor a link: {lost}");
                self.error(path, None, what, repair);
            }
            None => return false,
        }
        true
    }

    /// Reports what is not as it should be, and harms nobody yet.
    fn warning(&mut self, file: &Path, what: impl Into<String>, repair: Repair) {
        self.report(Severity::Warning, file, None, what, repair);
    }

    /// Reports damage that no repair mends, and what a person can do about it.
    fn put_back(&mut self, file: &Path, what: String, words: String) {
        self.tell(&Damage {
            severity: Severity::Error,
            file: file.to_owned(),
            offset: None,
            name: None,
            what,
            repair: Repair::ByHand,
            advice: Some(Advice::PutBack(words)),
        });
    }

    /// Reports bad lines as one finding, if there are any.
    fn bad_lines(&mut self, file: &Path, bad: &mut BadLines, repair: Repair) {
        let BadLines { first, more } = std::mem::take(bad);
        let Some((at, what)) = first else { return };
        let what = match more {
            0 => what.to_owned(),
            1 => format!("{what}; the line after it is bad too"),
            _ => format!("{what}; the {more} lines after it are bad too"),
        };
        self.error(file, u64::try_from(at).ok(), what, repair);
    }

    fn report(
        &mut self,
        severity: Severity,
        file: &Path,
        offset: Option<u64>,
        what: impl Into<String>,
        repair: Repair,
    ) {
        self.tell(&Damage {
            severity,
            file: file.to_owned(),
            offset,
            name: None,
            what: what.into(),
            repair,
            advice: None,
        });
    }

    /// Reports a finding, unless it is only that the refs are kept elsewhere by now.
    fn tell(&mut self, found: &Damage) {
        if self.whereabouts.has_refs() {
            (self.on)(found);
        }
    }
}

/// Returns what has the place of a file and is none, as reading finds it behind links: a pipe or a device would
/// have to be waited for.
pub(crate) fn no_file(system: &dyn System, path: &Path) -> Option<FileKind> {
    let kind = system.stat(path).ok()?.kind;
    (kind != FileKind::File).then_some(kind)
}

/// Returns whether a failure is one of a single file or directory, and not of the disk or this process.
pub(crate) fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, PermissionDenied};
    let kind = error.kind();
    matches!(
        kind,
        InvalidFilename | IsADirectory | NotADirectory | PermissionDenied
    ) || leads_in_a_circle(error)
}

/// Returns whether links lead to each other, and to no file.
pub(crate) fn leads_in_a_circle(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Says of a file that is not what it should be how it came to be so, as far as that shows.
pub(crate) fn condition(content: &[u8]) -> Option<&'static str> {
    if content.is_empty() {
        return Some("the file is empty, as after a power failure");
    }
    let zeros = content.iter().all(|byte| *byte == 0);
    zeros.then_some("the file holds nothing but zeros, as after a power failure")
}
