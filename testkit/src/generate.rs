//! Random transactions over a few names, so that conflicts are frequent.
//!
//! The same seed and the same states give the same transactions. About half of what a transaction
//! expects is right, so that many go through and many do not.
//!
//! ```
//! use refdb_testkit::{generate::Generator, model::{Model, Rules}, Format};
//!
//! let model = Model::new(Rules::new(Format::FILES_SHA1));
//! let mut generator = Generator::new(1, Format::FILES_SHA1);
//! let transaction = generator.next(&model);
//! assert!(!transaction.script().is_empty());
//! ```

use bstr::{BString, ByteSlice};

use crate::format::Format;
use crate::model::{Edit, Model, OldSymref, Transaction, Verb};
use crate::objects::Objects;
use crate::rng::Rng;
use crate::state::Target;

/// The names: short, nested in each other, and of every kind.
const NAMES: [&str; 18] = [
    "HEAD",
    "HEAD",
    "ORIG_HEAD",
    "refs/heads/main",
    "refs/heads/main",
    "refs/heads/side",
    "refs/heads/a",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/heads/d/e",
    "refs/heads/sym",
    "refs/heads/sym/x",
    "refs/notes/n",
    "refs/remotes/o/HEAD",
    "refs/remotes/o/m",
    "refs/sym",
    "refs/tags/t",
    "refs/tags/t/u",
];

/// Names that are never allowed, or only in some edits.
const BAD_NAMES: [&str; 3] = ["FETCH_HEAD", "MERGE_HEAD", "lower"];

/// Makes transactions.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    format: Format,
}

impl Generator {
    /// Begins the transactions of a seed.
    pub fn new(seed: u64, format: Format) -> Generator {
        Generator {
            rng: Rng::new(seed),
            format,
        }
    }

    /// Makes a transaction for the store as it is now.
    pub fn next(&mut self, model: &Model) -> Transaction {
        let count = 1 + self
            .rng
            .below(if self.rng.clone().percent(30) { 8 } else { 4 });
        let mut edits: Vec<Edit> = Vec::new();
        while edits.len() < count {
            let edit = self.edit(model);
            let taken = edits.iter().any(|other| other.name == edit.name);
            if is_harmless(&edit, model) && (!taken || self.rng.percent(1)) {
                edits.push(edit);
            }
        }
        let message = *self.rng.pick(&["", "", "moved", "  two  words\t"]);
        Transaction {
            edits,
            batch: self.rng.percent(50),
            message: message.into(),
            create_reflog: self.rng.percent(10),
        }
    }

    fn edit(&mut self, model: &Model) -> Edit {
        let name: BString = (*self.rng.pick(&NAMES)).into();
        if self.rng.below(400) == 0 {
            let name = *self.rng.pick(&BAD_NAMES);
            return Edit::new(name, Verb::Verify { old: None });
        }
        let symbolic = match model.state().refs.get(name.as_bstr()) {
            Some(Target::Symbolic(_)) => self.rng.percent(40),
            _ => self.rng.percent(12),
        };
        let verb = if symbolic {
            self.symref_verb(&name, model)
        } else {
            self.verb(&name, model)
        };
        let only_no_deref = matches!(verb, Verb::SymrefDelete { .. } | Verb::SymrefVerify { .. });
        let no_deref = only_no_deref || self.rng.percent(if symbolic { 60 } else { 15 });
        Edit {
            name,
            verb,
            no_deref,
        }
    }

    fn verb(&mut self, name: &BString, model: &Model) -> Verb {
        let zero = self.format.zero();
        match self.rng.below(10) {
            0..4 => {
                let new = if self.rng.percent(10) {
                    zero
                } else {
                    self.value(name, model)
                };
                Verb::Update {
                    new,
                    old: self.expected(name, model),
                }
            }
            4..7 => Verb::Create {
                new: self.value(name, model),
            },
            7..9 => Verb::Delete {
                old: self.expected(name, model).filter(|id| *id != zero),
            },
            _ => Verb::Verify {
                old: self.expected(name, model),
            },
        }
    }

    fn symref_verb(&mut self, name: &BString, model: &Model) -> Verb {
        let target: BString = self.target(name);
        match self.rng.below(10) {
            0..4 => {
                let old = match self.rng.below(3) {
                    0 => None,
                    1 => self.expected(name, model).map(OldSymref::Id),
                    _ => Some(OldSymref::Target(self.expected_target(name, model))),
                };
                Verb::SymrefUpdate { target, old }
            }
            4..7 => Verb::SymrefCreate { target },
            7..9 => Verb::SymrefDelete {
                old: self.some_target(name, model),
            },
            _ => Verb::SymrefVerify {
                old: self.some_target(name, model),
            },
        }
    }

    /// Chooses a target. HEAD must name a branch, or there is no repository any more.
    fn target(&mut self, name: &BString) -> BString {
        loop {
            let target = *self.rng.pick(&NAMES);
            if target.starts_with("refs/heads/") || (name != "HEAD" && self.rng.percent(30)) {
                return target.into();
            }
        }
    }

    fn some_target(&mut self, name: &BString, model: &Model) -> Option<BString> {
        if self.rng.percent(25) {
            None
        } else {
            Some(self.expected_target(name, model))
        }
    }

    fn expected_target(&mut self, name: &BString, model: &Model) -> BString {
        match model.state().refs.get(name.as_bstr()) {
            Some(Target::Symbolic(target)) if self.rng.percent(80) => target.clone(),
            _ => self.target(name),
        }
    }

    /// Chooses a new value: mostly a commit, now and then what may be refused, or no change.
    fn value(&mut self, name: &BString, model: &Model) -> String {
        let objects = Objects::standard(self.format.objects);
        match self.rng.below(50) {
            0 => objects.missing.clone(),
            1 => objects.blob.clone(),
            2..5 => objects.tags[self.rng.below(2)].id.clone(),
            5..10 => match model.resolve(name.as_bstr()) {
                Some(id) => id.to_owned(),
                None => objects.commits[0].clone(),
            },
            _ => objects.commits[self.rng.below(4)].clone(),
        }
    }

    fn expected(&mut self, name: &BString, model: &Model) -> Option<String> {
        let zero = self.format.zero();
        match self.rng.below(10) {
            0..4 => None,
            4..8 => Some(model.resolve(name.as_bstr()).map_or(zero, str::to_owned)),
            8 => Some(zero),
            _ => Some(Objects::standard(self.format.objects).commits[self.rng.below(4)].clone()),
        }
    }
}

/// Tells whether Git can work in the repository afterwards: HEAD must be there and name a branch.
fn is_harmless(edit: &Edit, model: &Model) -> bool {
    let direct = model.head_target().is_none();
    let zero = model.rules().format.zero();
    let deletes = match &edit.verb {
        Verb::Update { new, .. } => *new == zero,
        Verb::Delete { .. } | Verb::SymrefDelete { .. } => true,
        _ => false,
    };
    // Through another symref an edit can reach HEAD, too.
    let reaches_head = edit.name == "HEAD"
        || model.state().refs.get(edit.name.as_bstr()) == Some(&Target::Symbolic("HEAD".into()));
    let outside = match &edit.verb {
        Verb::SymrefUpdate { target, .. } | Verb::SymrefCreate { target } => {
            !target.starts_with(b"refs/heads/")
        }
        _ => false,
    };
    !(reaches_head && ((deletes && (direct || edit.no_deref)) || outside))
}
