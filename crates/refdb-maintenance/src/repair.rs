//! Repair: rebuilds what can be rebuilt, and says what cannot.
//!
//! 1. A repair is planned in memory: nothing is changed before [`Plan::apply`].
//! 2. Every file that is changed or taken away is first kept aside, durably.
//! 3. A stack changes in one step, the renaming of its list; every other file by a rename of its
//!    own. After a crash the same repair can be planned and applied again.
//! 4. Nothing is changed that lies outside of the repository, behind a link.
//! 5. No ref gets a value that was not the repository's: what was read must name an object that
//!    exists, and what is taken from a reflog too.
//!
//! ```no_run
//! use refdb_maintenance::repair::{Options, plan};
//!
//! let repository = refdb_git::Repository::discover(".".as_ref())?;
//! let plan = plan(&repository, Options::default())?;
//! for change in plan.refs() {
//!     println!("{}: {:?} -> {:?}", change.name, change.before, change.after);
//! }
//! if !plan.is_empty() {
//!     println!("what was there is in {}", plan.apply()?.display());
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

mod apply;
mod files;
mod head;
mod leftover;
mod members;
mod overlap;
mod shared;
mod stack;

pub use shared::{StoreMeans, StorePlan, plan_store};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bstr::{BString, ByteSlice};
use refdb::internals::{Home, Says, finish_left};
use refdb::objects::{ObjectKind, Objects};
use refdb::system::{FileKind, System};
use refdb::{Error, ObjectId, RefFormat, Result, Target};
use refdb_git::Repository;
use refdb_git::internals::real_path;
use reftable::Salvaged;

use crate::progress::{Watch, nobody};
use crate::verify::{Advice, Damage, KINDS_MAX, Repair, deep_watched, leads_in_a_circle, no_file};

/// What a repair may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Take locks and unfinished files away. Only right when no process is writing.
    pub remove_locks: bool,
}

/// What a repair does to one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// The name, with the worktree before it where it is another than the main one.
    pub name: BString,
    /// What could be read before; `None` if nothing could.
    pub before: Option<Target>,
    /// What is read afterwards; `None` if the ref is lost.
    pub after: Option<Target>,
    /// Whether the value comes from the reflog.
    pub from_log: bool,
}

/// One step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A file gets its name, which no other had.
    Create(PathBuf, Vec<u8>),
    /// A file gets another content, under its lock, if it still has the one that was read.
    Replace {
        path: PathBuf,
        old: Option<Vec<u8>>,
        new: Vec<u8>,
    },
    /// A file is taken away.
    Remove(PathBuf),
    /// The lock of a process that has ended is taken away, and what it left for it; or what stands beside no lock, under
    /// that.
    TakeOver(PathBuf),
    /// A table is taken away under the lock of its list, if that does not name it.
    DropTable(PathBuf),
}

impl Step {
    fn path(&self) -> &Path {
        match self {
            Step::Create(path, _)
            | Step::Replace { path, .. }
            | Step::Remove(path)
            | Step::TakeOver(path)
            | Step::DropTable(path) => path,
        }
    }
}

/// What is said of entries of reflogs for which a table that is written again has no update index.
const OF_NEWER_TABLES: &str = "entries of reflogs with update indices of newer tables are lost";

/// What is said of such entries that are kept, there being no newer table.
const OF_NO_TABLE: &str = "entries of reflogs have update indices above those of the table: they are kept, and no ref \
                           that can be read changes for them";

/// What is said of places and lines that cannot be read.
const NAMELESS: &str = "could not be read: refs that stood there and have no reflog are lost, and nobody can say which \
                        they were; compare with a copy";

/// Returns what is said of names that stand twice in what is left of a table.
fn doubled(salvaged: &Salvaged) -> Option<String> {
    let mut names = salvaged.doubled();
    let first = names.next()?.as_bstr();
    let which = match names.len() {
        0 => format!("{first} stands there twice"),
        others => format!("{first} and {others} other refs stand there twice"),
    };
    Some(format!(
        "{which}, with different values: the first one is taken, compare with a copy"
    ))
}

/// What cannot be repaired, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub file: PathBuf,
    /// What remains of it, or is lost.
    pub what: String,
    /// Whether something is lost, or may be, that nobody can name.
    pub is_loss: bool,
    /// What a person can do.
    pub way_out: Option<WayOut>,
}

/// What a person can do about what a repair leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WayOut {
    /// What the check advises.
    Advice(Advice),
    /// Ask for it with [`Options::remove_locks`], if no process is at work.
    RemoveLocks,
}

/// A repair that was planned.
#[derive(Debug)]
pub struct Plan<'a> {
    repository: &'a Repository,
    steps: Vec<Step>,
    refs: Vec<RefChange>,
    notes: Vec<Note>,
    /// A file that is in the repository only by a link.
    outside: Option<PathBuf>,
    /// Whether an object that is missing may be where nobody can look.
    may_be_elsewhere: bool,
    /// The refs of reflogs: whoever writes one holds the lock of the other.
    guards: BTreeMap<PathBuf, PathBuf>,
    /// The leftovers that are taken away.
    leftovers: BTreeSet<PathBuf>,
    /// What is known of objects: many refs and entries of reflogs may name one.
    kinds: Mutex<HashMap<ObjectId, Option<ObjectKind>>>,
}

impl Plan<'_> {
    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns what becomes of refs: those that change, in the order of their names.
    pub fn refs(&self) -> &[RefChange] {
        &self.refs
    }

    /// Returns what cannot be repaired, or only in part.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns whether anything is lost, or may be: refs, entries of reflogs, or what nobody can name.
    pub fn loses(&self) -> bool {
        self.refs.iter().any(|change| change.after.is_none())
            || self.notes.iter().any(|note| note.is_loss)
    }

    /// Returns the files that are changed, and those that are taken away: for them it is true.
    pub fn files(&self) -> Vec<(&Path, bool)> {
        let steps = self.steps.iter();
        let steps = steps.filter(|step| !matches!(step, Step::Create(..)));
        let goes = |step: &Step| !matches!(step, Step::Replace { .. });
        let mut files: Vec<_> = steps.map(|step| (step.path(), goes(step))).collect();
        files.sort();
        files.dedup_by_key(|file| file.0);
        files
    }

    fn content(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        content(self.repository.system().as_ref(), path)
            .map_err(|error| Error::io("unable to read", path, error))
    }
}

/// Reads a file; `None` if there is none, and where something else has its place.
fn content(system: &dyn System, path: &Path) -> io::Result<Option<Vec<u8>>> {
    if no_file(system, path).is_some() {
        return Ok(None);
    }
    match system.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || leads_in_a_circle(&error) => {
            Ok(None)
        }
        content => content.map(Some),
    }
}

/// Finishes a transaction that was committed and whose process may have ended, where that cannot be
/// told: for a person who says that no process is at work in the repository. What cannot be done of it keeps
/// it unfinished, or with `gives_up` is told as a warning and given up.
///
/// # Errors
/// `Corrupt` when something else has the place of the journal; `Io`.
pub fn finish_unseen(repository: &Repository, gives_up: bool) -> Result<()> {
    let options = repository.store().options();
    let home = Home::new(repository.system(), repository.refs_base(), options);
    let says = if gives_up {
        Says::GiveUp
    } else {
        Says::NobodyWorks
    };
    finish_left(&home, says)
}

/// Plans the repair of everything that the deep check finds.
///
/// ```no_run
/// use refdb_git::Repository;
/// use refdb_maintenance::repair::{self, Options};
///
/// let repository = Repository::discover(".".as_ref())?;
/// let plan = repair::plan(&repository, Options::default())?;
/// if !plan.is_empty() {
///     // What was damaged is kept there.
///     println!("{}", plan.apply()?.display());
/// }
/// # Ok::<(), refdb::Error>(())
/// ```
///
/// # Errors
/// As for [`deep_watched`].
pub fn plan(repository: &Repository, options: Options) -> Result<Plan<'_>> {
    plan_watched(repository, options, &nobody)
}

/// The same, and tells how far it is.
///
/// # Errors
/// As for [`deep_watched`].
pub fn plan_watched<'r>(
    repository: &'r Repository,
    options: Options,
    progress: &Watch<'_>,
) -> Result<Plan<'r>> {
    let mut found: Vec<Damage> = Vec::new();
    let mut on = |damage: &Damage| {
        // A file is written again once, however many of its lines are bad.
        let is_known = matches!(
            damage.repair,
            Repair::RewriteLog | Repair::RewritePackedRefs
        ) && found
            .last()
            .is_some_and(|last| last.repair == damage.repair && last.file == damage.file);
        if !is_known {
            found.push(damage.clone());
        }
    };
    deep_watched(repository, &mut on, progress)?;
    let mut plan = Plan {
        repository,
        steps: Vec::new(),
        refs: Vec::new(),
        notes: Vec::new(),
        outside: None,
        may_be_elsewhere: !found.is_empty() && !repository.odb().absent()?.is_empty(),
        guards: BTreeMap::new(),
        leftovers: BTreeSet::new(),
        kinds: Mutex::default(),
    };
    plan.leftovers(&found, options);
    for worktree in repository.worktrees()? {
        let layout = repository.worktree_layout(&worktree)?;
        let dir = layout.worktree_dir();
        let prefix = match &worktree.id {
            None => Vec::new(),
            Some(id) => [b"worktrees/", id.as_slice(), b"/"].concat(),
        };
        match repository.ref_format() {
            RefFormat::Files => plan.files_of(dir, &prefix, worktree.id.is_none(), &found)?,
            RefFormat::Reftable => {
                plan.head_stub(dir, &found)?;
                plan.stack_of(dir, &prefix, &found, options)?;
            }
        }
    }
    plan.refs.sort_by(|a, b| a.name.cmp(&b.name));
    // Only beside a whole list can be told what it does not name.
    plan.steps
        .sort_by_key(|step| matches!(step, Step::DropTable(_)));
    plan.look_outside()?;
    Ok(plan)
}

impl Plan<'_> {
    /// Looks for steps at files that are somewhere else: whatever they are there, they may be no refs.
    fn look_outside(&mut self) -> Result<()> {
        let system = self.repository.system().as_ref();
        let real = |dir: &Path| {
            let real = real_path(system, dir);
            real.map_err(|error| Error::io("unable to read", dir, error))
        };
        let roots = [self.repository.common_dir(), self.repository.refs_base()];
        let roots = [real(roots[0])?, real(roots[1])?];
        let is_outside = |path: &Path| {
            let is_link = || {
                system
                    .lstat(path)
                    .is_ok_and(|stat| stat.kind == FileKind::Symlink)
            };
            // Others may have packed refs in common, and Git goes on writing through the link.
            if path.file_name().is_some_and(|name| name == "packed-refs") && is_link() {
                return true;
            }
            // Directories that are to be made are not there yet.
            let mut dirs = path.ancestors().skip(1);
            let dir = dirs.find_map(|dir| real_path(system, dir).ok());
            !dir.is_some_and(|dir| roots.iter().any(|root| dir.starts_with(root)))
        };
        let paths = self.steps.iter().map(Step::path);
        let outside: Vec<PathBuf> = paths
            .filter(|path| is_outside(path))
            .map(Path::to_owned)
            .collect();
        for path in &outside {
            let what = "a link leads to it, perhaps out of the repository: a person has to see to it there";
            self.note(path, what);
        }
        self.outside = outside.into_iter().next();
        Ok(())
    }

    fn note(&mut self, file: &Path, what: &str) {
        self.note_with(file, what, None);
    }

    fn note_with(&mut self, file: &Path, what: &str, way_out: Option<WayOut>) {
        self.notes.push(Note {
            file: file.to_owned(),
            what: what.to_owned(),
            is_loss: false,
            way_out,
        });
    }

    /// Notes that something is lost, or may be.
    fn note_loss(&mut self, file: &Path, what: &str) {
        self.note(file, what);
        if let Some(note) = self.notes.last_mut() {
            note.is_loss = true;
        }
    }

    fn objects(&self) -> &dyn Objects {
        self.repository.store().objects().as_ref()
    }

    /// Returns whether a ref may hold an object: it exists, and is a commit where one belongs. What cannot be looked
    /// for is not taken for missing.
    fn may_hold(&self, name: &[u8], oid: ObjectId) -> Result<bool> {
        let needs_commit = name.starts_with(b"refs/heads/") || name == b"HEAD";
        let kind = match self.kind(oid) {
            // It is there, and nobody can say what it is: replace refs may lead in a circle.
            Err(error) if error.kind() == refdb::ErrorKind::Corrupt => {
                return Ok(!oid.is_null());
            }
            kind => kind?,
        };
        Ok(match kind {
            _ if oid.is_null() => false,
            None => self.may_be_elsewhere,
            Some(kind) => !needs_commit || kind == ObjectKind::Commit,
        })
    }

    fn kind(&self, oid: ObjectId) -> Result<Option<ObjectKind>> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = kinds.get(&oid) {
            return Ok(*kind);
        }
        let kind = self.objects().kind(oid)?;
        if kinds.len() >= KINDS_MAX {
            kinds.clear();
        }
        kinds.insert(oid, kind);
        Ok(kind)
    }

    /// Returns the newest of these values, oldest first, that a ref may hold.
    fn newest(&self, name: &[u8], values: &[ObjectId]) -> Result<Option<ObjectId>> {
        for oid in values.iter().rev() {
            if self.may_hold(name, *oid)? {
                return Ok(Some(*oid));
            }
        }
        Ok(None)
    }

    /// Notes every difference between what could be read and what will be.
    fn compare(
        &mut self,
        prefix: &[u8],
        before: &BTreeMap<Vec<u8>, Target>,
        after: &BTreeMap<Vec<u8>, Target>,
        from_log: &[Vec<u8>],
    ) {
        let from_log: BTreeSet<&Vec<u8>> = from_log.iter().collect();
        let mut names: Vec<&Vec<u8>> = before.keys().chain(after.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let (old, new) = (before.get(name), after.get(name));
            if old != new {
                self.refs.push(RefChange {
                    name: [prefix, name.as_slice()].concat().as_bstr().to_owned(),
                    before: old.cloned(),
                    after: new.cloned(),
                    from_log: from_log.contains(name),
                });
            }
        }
    }
}
