//! The two ways to keep refs, behind one interface.
//!
//! Invariants:
//! 1. A backend stores. It decides nothing about what an edit means: expansion of symrefs, expected
//!    values, name conflicts and reflog rules are the transaction's, and stand there once.
//! 2. Nothing here calls upward: backends know names, values, reflog entries, files and locks.
//! 3. A cursor owns what it reads from, so that no write and no compaction can invalidate it.

pub(crate) mod batch;
pub(crate) mod bulk;
pub(crate) mod cursor;
pub(crate) mod files;
pub(crate) mod group;
pub(crate) mod maintained;
pub(crate) mod migration;
pub(crate) mod reftable;
pub(crate) mod tags;

use std::collections::HashSet;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bstr::ByteSlice;
use refdb_names::{ObjectId, RefName, RefNameBuf, Target};

use crate::error::{Error, ErrorKind, Message, Reason, Result};
use crate::layout::Place;
use crate::objects::Objects;
use crate::reflog::{LogEntry, Signature};
use cursor::Cursor;
use tags::Wanted;

/// Which format a store keeps its refs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefFormat {
    /// Loose refs and packed-refs.
    Files,
    /// Stacks of reftables.
    Reftable,
}

impl RefFormat {
    /// Returns the name that Git's configuration uses (`extensions.refStorage`).
    pub const fn name(self) -> &'static str {
        match self {
            RefFormat::Files => "files",
            RefFormat::Reftable => "reftable",
        }
    }

    /// Returns the format of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        [RefFormat::Files, RefFormat::Reftable]
            .into_iter()
            .find(|format| format.name() == name)
    }
}

/// What is stored of one ref, without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// The value.
    pub(crate) target: Target,
    /// What the value peels to, when it is stored beside it: only for annotated tags. `None` says
    /// nothing about whether the object is a tag.
    pub(crate) peeled: Option<ObjectId>,
    /// Whether the value comes from packed-refs.
    pub(crate) packed: bool,
}

/// What one format can do, for names and values that need no further thought.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// Which format this is.
    fn format(&self) -> RefFormat;

    /// In what Git treats refs of this format in its own way.
    fn quirks(&self) -> Quirks;

    /// Reads one ref, without following symrefs.
    ///
    /// # Errors
    /// `BrokenRef` when the ref is there and cannot be read.
    fn read(&self, name: RefName<'_>) -> Result<Option<Value>>;

    /// Reads refs as [`Backend::read`] does each, which may cost less together.
    ///
    /// # Errors
    /// What keeps all of them from being read.
    fn read_all(&self, names: &[RefName<'_>]) -> Result<Vec<Result<Option<Value>>>>;

    /// Makes a cursor over everything that this worktree sees: refs below `refs/` and root refs.
    fn cursor(&self) -> Result<Box<dyn Cursor>>;

    /// Returns whether `name` has a reflog, possibly an empty one.
    fn log_exists(&self, name: RefName<'_>) -> Result<bool>;

    /// Calls `each` for the entries of a reflog, newest or oldest first, until it gives `false`.
    /// Returns whether there is a reflog.
    fn for_each_log_entry(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        each: &mut dyn FnMut(LogEntry) -> Result<bool>,
    ) -> Result<bool>;

    /// Returns the names that have a reflog, as this worktree sees them, in the format's own order.
    fn log_names(&self) -> Result<Vec<RefNameBuf>>;

    /// Begins to write. Nothing is locked yet.
    fn begin(&self) -> Result<Box<dyn Session + '_>>;

    /// Returns for how long a transaction is tried again that was prepared and overtaken by another one
    /// ([`Published::Moved`]); `None` where locks keep others out.
    fn tries_again(&self) -> Option<Duration> {
        None
    }

    /// Returns how many times the refs were changed, as far as is known here, or as they are now. Always 0
    /// where locks keep others out.
    fn generation(&self, now: bool) -> Result<u64> {
        let _ = now;
        Ok(0)
    }

    /// Packs loose refs, or compacts tables.
    fn optimize(&self, options: &Optimize<'_>, objects: &dyn Objects) -> Result<()>;

    /// Returns what only maintenance asks of it.
    fn maintained(&self) -> &dyn maintained::Maintained;

    /// Returns a cursor that stands on every ref that leads to a wanted object. It may stand on others, too.
    fn refs_of_objects(&self, wanted: &Wanted) -> Result<Box<dyn Cursor>>;
}

/// In what Git's two formats differ beyond how refs are stored. The rules ask for this, and never for the
/// format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quirks {
    /// Names are paths: a reflog alone needs the place of its name too, a lock makes the directories above
    /// it, and what is in the place of a branch beside tables is told apart.
    pub(crate) names_are_paths: bool,
    /// New names must not be in anybody's way in lower case either.
    pub(crate) asks_in_lower_case: bool,
    /// A ref with a null id is none yet.
    pub(crate) null_is_none: bool,
    /// The ref of an entry for a reflog alone is read.
    pub(crate) log_edits_read: bool,
    /// An expected target is compared on the way to the end of a symref.
    pub(crate) compares_on_the_way: bool,
    /// The entry of a new symref tells where that leads when the edits before it are done.
    pub(crate) edits_in_turn: bool,
    /// An entry is judged as it will be when the one before it goes, and the oldest one tells of nothing
    /// before it.
    pub(crate) judges_joined: bool,
    /// The reflog of a new name tells of a renaming by one entry, from a value to itself, if it is logged by
    /// default; else by one that ends the old ref and one that begins the new one.
    pub(crate) renames_in_one_entry: bool,
    /// What is said to be done to a symref that is not renamed.
    pub(crate) renaming: &'static str,
}

/// In which order reflog entries are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOrder {
    /// The newest entry first.
    NewestFirst,
    /// The oldest entry first.
    OldestFirst,
}

/// What [`Store::optimize`](crate::Store::optimize) shall do.
pub struct Optimize<'a> {
    /// Do it only if it is worth it.
    pub auto: bool,
    /// Remove loose refs that were packed (files).
    pub prune: bool,
    /// Which refs to pack (files).
    pub include: &'a dyn Fn(RefName<'_>) -> bool,
    /// Told of refs that stay loose (files): one whose object is missing is not packed (`BrokenRef`); one that
    /// somebody has locked is packed, and keeps its file (`Locked`).
    pub warn: &'a dyn Fn(Error),
}

impl Default for Optimize<'_> {
    fn default() -> Self {
        Optimize {
            auto: false,
            prune: true,
            include: &|_| true,
            warn: &|_| {},
        }
    }
}

/// A running write: locks are taken in it, values read under them, and all published at once.
/// Dropping it releases every lock and leaves everything as it was.
pub(crate) trait Session: Send {
    /// Locks names, which are sorted, and reads their values. Every name is given at most once, until
    /// all locks are given back.
    ///
    /// They are locked in the order of the files (`Layout::lock_order`), and none is waited for while
    /// one is held that comes after it: [`Locked::Behind`] is the answer then.
    ///
    /// `answer` is called for each name with its position. After the first refusal the rest may be
    /// left out when `stop_at_refusal` is set.
    ///
    /// # Errors
    /// Only for what makes the whole session impossible.
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()>;

    /// Locks a name of which nothing is asked, since a locked ref above or below it is in its way, and goes.
    /// Does nothing where one lock is that of all names. Returns `false` where [`Session::lock`] answers
    /// [`Locked::Behind`].
    ///
    /// # Errors
    /// `Locked`.
    fn lock_nested(&mut self, _name: RefName<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Allows locks on whole directories, which keep others from new names in them, too: what is
    /// locked is published at once, and no symref is among it.
    fn lock_directories(&mut self) {}

    /// From now on a lock that another process holds is refused at once.
    fn wait_no_more(&mut self);

    /// Gives every lock back, to take them again in their order. What was read under them counts for
    /// nothing.
    fn begin_again(&mut self);

    /// Releases the locks of names that the plan will not touch after all, so that they are not in
    /// the way of others (a lock below `a/b/` in the way of the ref `a/b`).
    fn release(&mut self, names: &HashSet<&[u8]>);

    /// Makes a cursor over the refs against which new names are still to be checked for conflicts:
    /// all refs (reftable), or those that locking could not check (packed refs, files).
    fn names(&mut self) -> Result<Box<dyn Cursor + '_>>;

    /// Returns whether there is a ref of this name, which is not below `refs/`, so that the cursor of
    /// [`names`](Self::names) may not show it. False where locking what is below it meets the ref.
    fn has_apart(&mut self, name: RefName<'_>) -> Result<bool>;

    /// Returns the first ref below a name that the cursor does not show either: one of another worktree,
    /// or one below a name that is locked by [`lock_nested`](Self::lock_nested), if it is not locked itself.
    /// `None` where locking the name meets the ref.
    fn first_below_apart(&mut self, name: RefName<'_>) -> Result<Option<RefNameBuf>>;

    /// Reads a ref that is not locked by this session: used to follow symrefs that are only read.
    fn read(&mut self, name: RefName<'_>) -> Result<Option<Value>>;

    /// Returns whether `name` may have a reflog; true where finding out is no less work than reading
    /// the ref.
    fn may_have_log(&mut self, _name: RefName<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Returns whether one of `names` is in packed-refs; `None` in a format that has none. Only a
    /// hook wants to know.
    fn any_packed(&self, names: &[RefName<'_>]) -> Result<Option<bool>>;

    /// Returns where a ref is kept, and by which name there.
    fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>);

    /// Reads a reflog, the oldest entry first, and prepares it anew with what `judge` leaves of each
    /// entry, and `then` behind that. Returns whether there is such a reflog. Its name was locked before,
    /// and is given at most once.
    fn rewrite_log(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool>;

    /// Writes all that can be written without becoming visible. Names that were locked and are not
    /// in the plan are only held.
    fn prepare(&mut self, plan: Plan<'_>) -> Result<()>;

    /// Makes the plan visible and durable, and releases the locks.
    ///
    /// # Errors
    /// What fails after the plan became visible is not an error but reported in [`Published`].
    fn publish(self: Box<Self>) -> Result<Published>;
}

/// Says what becomes of a reflog entry.
pub(crate) type Judge<'j> = dyn FnMut(&LogEntry) -> Result<Fate> + 'j;

/// What becomes of an entry when its reflog is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays, with this old value.
    Keep {
        /// The old value from now on.
        old: ObjectId,
    },
    /// It goes.
    Drop,
}

/// A name that was locked, or could not be.
#[derive(Clone, Debug)]
pub(crate) enum Locked {
    /// Locked, and there is such a ref.
    Found(Value),
    /// Locked, and there is no such ref.
    Missing,
    /// Locked, and there is neither such a ref nor one below its name: that was seen in looking for it,
    /// and need not be looked for once more.
    Alone,
    /// Not locked, or unreadable.
    Refused(Refusal),
    /// Not locked: another process holds the lock, and may be waiting for one that is held here and
    /// that comes later in the order of locks. Names behind this one were not looked at. All locks
    /// are to be given back ([`Session::begin_again`]), and taken again together with this one. After
    /// the time for which a lock is waited for there is no such answer any more.
    Behind,
}

/// Answers for those names of which it is known already what locking them finds; returns the others, each
/// with its position.
pub(crate) fn answer_known<'n>(
    names: &[RefName<'n>],
    known: impl Fn(RefName<'_>) -> Result<Option<Locked>>,
    answer: &mut dyn FnMut(usize, Locked),
) -> Result<(Vec<RefName<'n>>, Vec<usize>)> {
    let (mut others, mut places) = (Vec::new(), Vec::new());
    for (at, &name) in names.iter().enumerate() {
        if let Some(known) = known(name)? {
            answer(at, known);
        } else {
            others.push(name);
            places.push(at);
        }
    }
    Ok((others, places))
}

impl From<Option<Value>> for Locked {
    fn from(found: Option<Value>) -> Self {
        found.map_or(Locked::Missing, Locked::Found)
    }
}

/// Why a name could not be locked.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Why, as one of Git's reasons; `Generic` when the whole transaction must fail.
    pub(crate) reason: Reason,
    /// Why, in full, without a `cannot lock ref` before it.
    pub(crate) message: Message,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<Message>) -> Self {
        let message = message.into();
        Refusal { reason, message }
    }

    /// Returns the error of whoever needs the lock of `name`.
    pub(crate) fn into_error(self, name: RefName<'_>) -> Error {
        let error = Error::new(ErrorKind::Locked, self.message);
        error.context(format_args!("cannot lock ref '{name}'"))
    }
}

/// Says that a ref cannot be made because of one that exists.
pub(crate) fn in_the_way(existing: &[u8], name: RefName<'_>) -> String {
    let existing = existing.as_bstr();
    format!("'{existing}' exists; cannot create '{name}'")
}

/// What a transaction does to the store, with every rule applied.
///
/// Writes and entries are made as they are asked for: a large transaction is not copied for its
/// plan.
pub(crate) struct Plan<'a> {
    writes: Box<dyn Fn() -> Writes<'a> + Sync + 'a>,
    log: Box<dyn Fn(usize) -> Option<LogWrite<'a>> + Sync + 'a>,
    log_places: usize,
    committer: Box<dyn Fn() -> Result<Signature> + Sync + 'a>,
    who: OnceLock<Signature>,
    /// What happens to whole reflogs before the entries are appended.
    pub(crate) log_changes: Vec<LogChange<'a>>,
    /// Refs that are deleted although they do not exist. Where reflogs are files, one that was
    /// left of such a ref goes.
    pub(crate) ended: Vec<RefName<'a>>,
    /// Whether the store was empty and nobody else writes (clone, migration).
    pub(crate) initial: bool,
    /// Whether an entry may make a reflog that does not exist.
    pub(crate) creates_logs: bool,
    /// Whether the writes take the ref of one name to another one, so that the new one has to be
    /// there before the old one goes.
    pub(crate) renames: bool,
}

/// A change of a reflog as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogChange<'a> {
    /// The reflog is made, without entries, unless there is one.
    Create(RefName<'a>),
    /// The reflog goes; its ref stays.
    Delete(RefName<'a>),
    /// The entries of `from` are those of `to` as well.
    Copy { from: RefName<'a>, to: RefName<'a> },
    /// The entries of `from` become those of `to`. The plan deletes the ref `from`.
    Move { from: RefName<'a>, to: RefName<'a> },
}

impl<'a> LogChange<'a> {
    /// Returns the name whose reflog changes without a lock of its ref, if there is one.
    pub(crate) fn unlocked(&self) -> Option<RefName<'a>> {
        match *self {
            LogChange::Create(name) | LogChange::Delete(name) => Some(name),
            LogChange::Copy { .. } | LogChange::Move { .. } => None,
        }
    }
}

/// The new values of a plan, one after the other.
pub(crate) type Writes<'a> = Box<dyn Iterator<Item = Write<'a>> + Send + 'a>;

impl<'a> Plan<'a> {
    /// Makes a plan of `writes` and of the entries that `log` makes for the places up to
    /// `log_places`. Who is named in them is asked of `committer` when the first one is written.
    pub(crate) fn new(
        writes: impl Fn() -> Writes<'a> + Sync + 'a,
        log: impl Fn(usize) -> Option<LogWrite<'a>> + Sync + 'a,
        log_places: usize,
        committer: impl Fn() -> Result<Signature> + Sync + 'a,
        initial: bool,
    ) -> Self {
        Plan {
            writes: Box::new(writes),
            log: Box::new(log),
            log_places,
            committer: Box::new(committer),
            who: OnceLock::new(),
            log_changes: Vec::new(),
            ended: Vec::new(),
            initial,
            creates_logs: true,
            renames: false,
        }
    }

    /// Makes a plan of a few values and entries.
    pub(crate) fn of(
        writes: Vec<Write<'a>>,
        logs: Vec<LogWrite<'a>>,
        committer: impl Fn() -> Result<Signature> + Sync + 'a,
    ) -> Self {
        let places = logs.len();
        Plan::new(
            move || Box::new(writes.clone().into_iter()),
            move |at| logs.get(at).copied(),
            places,
            committer,
            false,
        )
    }

    /// Returns the new values, at most one for each name, sorted by name.
    pub(crate) fn writes(&self) -> Writes<'a> {
        (self.writes)()
    }

    /// Returns how many updates the plan was made from: about as many as it has values.
    pub(crate) fn len_hint(&self) -> usize {
        self.log_places
    }

    /// Returns the new reflog entries, in the order in which they are to be appended, each with
    /// its place.
    pub(crate) fn logs(&self) -> impl Iterator<Item = (usize, LogWrite<'a>)> {
        (0..self.log_places).filter_map(|at| Some((at, (self.log)(at)?)))
    }

    /// Returns the entry at a place.
    pub(crate) fn log(&self, place: usize) -> Option<LogWrite<'a>> {
        (self.log)(place)
    }

    /// Returns who is named in an entry.
    ///
    /// # Errors
    /// When nobody is and the committer cannot be found out.
    pub(crate) fn who<'p>(&'p self, entry: &LogWrite<'p>) -> Result<&'p Signature> {
        if let Some(who) = entry.who.or(self.who.get()) {
            return Ok(who);
        }
        let who = (self.committer)()?;
        Ok(self.who.get_or_init(|| who))
    }
}

/// A new value for one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) name: RefName<'a>,
    pub(crate) value: NewValue<'a>,
}

/// What a name is to hold.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// An object id, with what it peels to if that is known and right.
    Direct {
        /// The id.
        oid: &'a ObjectId,
        /// What it peels to, if it is a tag.
        peeled: Option<&'a ObjectId>,
    },
    /// The name of another ref.
    Symbolic(RefName<'a>),
    /// Nothing: the ref is deleted and its reflog with it.
    Deleted,
}

/// A new reflog entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogWrite<'a> {
    pub(crate) name: RefName<'a>,
    pub(crate) old: ObjectId,
    pub(crate) new: ObjectId,
    /// The reason, normalised; empty if there is none.
    pub(crate) message: &'a [u8],
    /// Who is named in the entry; the committer of the plan if `None`.
    pub(crate) who: Option<&'a Signature>,
    /// Whether a missing reflog is made; otherwise the entry is only added to an existing one.
    pub(crate) create: bool,
}

/// What publishing came to.
#[derive(Debug)]
pub(crate) enum Published {
    /// The plan is visible and durable. What went wrong afterwards (compaction, clean-up) is told
    /// here and has no bearing on the refs.
    Done { afterwards: Vec<Error> },
    /// Another writer published first, where no lock excludes that: nothing was written, and the
    /// transaction has to be checked again.
    Moved,
}

/// Returns the error of a transaction that failed when some of it was visible already: several
/// stacks, or several loose refs, are not published in one step.
pub(crate) fn committed_in_part(why: impl fmt::Display) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the transaction was committed in part: {why}; read the refs again"),
    )
}
