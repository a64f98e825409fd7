//! A plain model of a ref store: what Git does with a transaction, in memory.
//!
//! 1. The model knows nothing of files, tables or locks: its state is two maps.
//! 2. Where Git's two backends disagree, the model takes the ref format into account. Where Git is
//!    wrong, the model is right, and tells beforehand what Git may do wrong: [`Mistake`].
//! 3. A test compares the model with real Git on generated transactions; that is its proof.
//!
//! ```
//! use refdb_testkit::model::{Edit, Model, Reason, Rules, Transaction, Verdict};
//! use refdb_testkit::{objects::Objects, Format};
//!
//! let mut model = Model::new(Rules::new(Format::FILES_SHA1));
//! let commit = &Objects::standard(Format::FILES_SHA1.objects).commits[0];
//! let create = Transaction::of([Edit::create("refs/heads/main", commit)]);
//! assert_eq!(model.apply(&create), Verdict::Done { rejections: vec![] });
//! assert_eq!(model.state().log("HEAD").len(), 1);
//! let again = model.apply(&create);
//! assert_eq!(again, Verdict::Refused { reasons: vec![Reason::CreateExists] });
//! ```

mod apply;
mod edit;
mod git;
mod mistakes;
mod names;
mod prepare;

use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice};

use crate::format::Format;
use crate::oracle::{EMAIL, NAME, TIME, ZONE};
use crate::state::{State, Target};

pub use edit::{Edit, OldSymref, Transaction, Verb};
pub use git::{GitSays, git_says};
pub use mistakes::Mistake;
pub use names::{is_safe, is_valid};

/// How many refs Git reads while it resolves one name.
const SYMREF_DEPTH: usize = 5;

/// Why an edit is refused. The first ones can be rejections of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The name is a folder of another's, or the other way round; or an edit reaches it twice.
    NameConflict,
    /// It was expected not to exist.
    CreateExists,
    /// It was expected to exist.
    NonexistentRef,
    /// It has another value than expected.
    IncorrectOldValue,
    /// The object does not exist, or is no commit though the ref is a branch.
    InvalidNewValue,
    /// It was expected to be a symref.
    ExpectedSymref,
    /// The name is not allowed. Never a rejection: it ends a batch too.
    BadName,
    /// Two edits have the same name. Never a rejection: it ends a batch too.
    Duplicate,
    /// A symref of which a value is expected leads in a circle, or through too many others. Never a
    /// rejection: it ends a batch too.
    Unresolvable,
    /// See [`Mistake::ReachedTwice`]. Never what the model says.
    RacilyUpdated,
    /// See [`Mistake::ConflictInBatch`]. Never what the model says.
    HalfDone,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was committed, without the rejected edits of a batch.
    Done {
        /// In the order of the edits.
        rejections: Vec<Rejection>,
    },
    /// Nothing was changed.
    Refused {
        /// Everything that is wrong with it, sorted; which of it is reported depends on the order
        /// in which a backend looks.
        reasons: Vec<Reason>,
    },
}

/// An edit of a batch that was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rejection {
    /// Which edit, counted from 0.
    pub index: usize,
    /// The name it failed at: that of the ref which a symref led to, if it was that one.
    pub name: BString,
    /// Why.
    pub reason: Reason,
}

/// When a reflog is begun for a ref that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAllRefUpdates {
    /// Never.
    False,
    /// For HEAD, branches, remote-tracking branches and notes.
    True,
    /// For every ref.
    Always,
}

/// What the model goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The formats.
    pub format: Format,
    /// The setting `core.logAllRefUpdates`.
    pub log_all_ref_updates: LogAllRefUpdates,
}

/// A ref store.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    state: State,
}

impl Reason {
    /// Those with which a batch rejects an edit.
    pub const REJECTIONS: [Reason; 6] = [
        Reason::NameConflict,
        Reason::CreateExists,
        Reason::NonexistentRef,
        Reason::IncorrectOldValue,
        Reason::InvalidNewValue,
        Reason::ExpectedSymref,
    ];

    /// Returns the words with which `git update-ref --batch-updates` reports a rejection.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NameConflict => "refname conflict",
            Reason::CreateExists => "reference already exists",
            Reason::NonexistentRef => "reference does not exist",
            Reason::IncorrectOldValue => "incorrect old value provided",
            Reason::InvalidNewValue => "invalid new value provided",
            Reason::ExpectedSymref => "expected symref but found regular ref",
            Reason::BadName
            | Reason::Duplicate
            | Reason::Unresolvable
            | Reason::HalfDone
            | Reason::RacilyUpdated => "unknown failure",
        }
    }

    /// Tells the reason from the message with which Git gave up.
    pub fn of_message(message: &[u8]) -> Option<Reason> {
        const PATTERNS: [(&str, Reason); 20] = [
            ("couldn't set", Reason::HalfDone),
            ("couldn't write '", Reason::RacilyUpdated),
            ("error reading reference", Reason::Unresolvable),
            ("racily updated", Reason::RacilyUpdated),
            ("multiple updates for ref", Reason::Duplicate),
            ("refusing to update", Reason::BadName),
            ("invalid ref format", Reason::BadName),
            ("with nonexistent object", Reason::InvalidNewValue),
            ("non-commit object", Reason::InvalidNewValue),
            ("reference already exists", Reason::CreateExists),
            ("dangling symref already exists", Reason::CreateExists),
            ("unable to resolve reference", Reason::NonexistentRef),
            ("reference is missing but expected", Reason::NonexistentRef),
            ("but is a regular ref", Reason::ExpectedSymref),
            ("but expected", Reason::IncorrectOldValue),
            ("exists; cannot create", Reason::NameConflict),
            ("at the same time", Reason::NameConflict),
            ("including one via", Reason::NameConflict),
            ("blocking reference", Reason::NameConflict),
            ("non-directory in the way", Reason::NameConflict),
        ];
        let found = PATTERNS.iter().find(|(text, _)| message.contains_str(text));
        found.map(|(_, reason)| *reason)
    }
}

impl Rules {
    /// Those of a repository with a working folder and no settings.
    pub fn new(format: Format) -> Rules {
        Rules {
            format,
            log_all_ref_updates: LogAllRefUpdates::True,
        }
    }
}

impl Model {
    /// Makes a new store, in which only HEAD is: a symref to `refs/heads/main`.
    pub fn new(rules: Rules) -> Model {
        let head = Target::Symbolic("refs/heads/main".into());
        let refs = BTreeMap::from([("HEAD".into(), head)]);
        Model {
            rules,
            state: State {
                refs,
                logs: BTreeMap::new(),
            },
        }
    }

    /// Takes over what another store holds.
    pub fn with_state(rules: Rules, state: State) -> Model {
        Model { rules, state }
    }

    /// Returns all refs and reflogs.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns what it goes by.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Carries out a transaction, with the oracle's identity and time.
    pub fn apply(&mut self, transaction: &Transaction) -> Verdict {
        self.apply_at(transaction, TIME, ZONE)
    }

    /// Returns the object that a name finally leads to.
    pub fn resolve(&self, name: &BStr) -> Option<&str> {
        self.follow(name).ok().flatten()
    }

    /// Returns the object that a name finally leads to, unless the way there is too long.
    fn follow(&self, name: &BStr) -> Result<Option<&str>, Reason> {
        let mut name = name;
        for _ in 0..SYMREF_DEPTH {
            match self.state.refs.get(name) {
                None => return Ok(None),
                Some(Target::Direct(id)) => return Ok(Some(id)),
                Some(Target::Symbolic(target)) => name = target.as_bstr(),
            }
        }
        Err(Reason::Unresolvable)
    }

    /// Returns the object that a name leads to, however long the way.
    fn follow_all(&self, name: &BStr) -> Option<&str> {
        let mut name = name;
        for _ in 0..=self.state.refs.len() {
            match self.state.refs.get(name)? {
                Target::Direct(id) => return Some(id),
                Target::Symbolic(target) => name = target.as_bstr(),
            }
        }
        None
    }

    /// Returns the branch that HEAD names.
    pub fn head_target(&self) -> Option<&BStr> {
        match self.state.refs.get("HEAD".as_bytes())? {
            Target::Direct(_) => None,
            Target::Symbolic(target) => Some(target.as_bstr()),
        }
    }
}

/// The identity that stands in the model's reflogs.
fn committer() -> BString {
    format!("{NAME} <{EMAIL}>").into()
}
