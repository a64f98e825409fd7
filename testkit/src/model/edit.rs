//! Transactions as `git update-ref --stdin` knows them, and how they are written there.

use std::fmt;

use bstr::{BStr, BString};

/// What an edit does, named after its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Sets a ref to an object, or deletes it if that is the zero id.
    Update {
        /// The new value.
        new: String,
        /// The expected value; zero for "does not exist".
        old: Option<String>,
    },
    /// Sets a ref that must not exist.
    Create {
        /// The new value.
        new: String,
    },
    /// Deletes a ref.
    Delete {
        /// The expected value.
        old: Option<String>,
    },
    /// Changes nothing.
    Verify {
        /// The expected value; none or zero for "does not exist".
        old: Option<String>,
    },
    /// Makes a ref a symref.
    SymrefUpdate {
        /// The new target.
        target: BString,
        /// The expected value.
        old: Option<OldSymref>,
    },
    /// Makes a symref that must not exist.
    SymrefCreate {
        /// The new target.
        target: BString,
    },
    /// Deletes a symref.
    SymrefDelete {
        /// The expected target.
        old: Option<BString>,
    },
    /// Changes nothing.
    SymrefVerify {
        /// The expected target; none for "does not exist".
        old: Option<BString>,
    },
}

/// The value that `symref-update` expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldSymref {
    /// A symref with this target.
    Target(BString),
    /// This object; zero for "does not exist".
    Id(String),
}

/// One command of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The ref, as given.
    pub name: BString,
    /// What is done.
    pub verb: Verb,
    /// Whether a symref itself is meant, and not the ref it leads to.
    pub no_deref: bool,
}

/// Edits that are carried out together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In the order in which they are given.
    pub edits: Vec<Edit>,
    /// Whether single edits may be rejected while the others are carried out.
    pub batch: bool,
    /// Goes to the reflogs.
    pub message: BString,
    /// Whether updates begin a reflog in any case.
    pub create_reflog: bool,
}

impl Edit {
    /// Makes an edit that follows symrefs.
    pub fn new(name: impl Into<BString>, verb: Verb) -> Edit {
        Edit {
            name: name.into(),
            verb,
            no_deref: false,
        }
    }

    /// Makes a `create`.
    pub fn create(name: impl Into<BString>, new: impl Into<String>) -> Edit {
        Edit::new(name, Verb::Create { new: new.into() })
    }

    /// Makes an `update` without expectation.
    pub fn update(name: impl Into<BString>, new: impl Into<String>) -> Edit {
        Edit::new(
            name,
            Verb::Update {
                new: new.into(),
                old: None,
            },
        )
    }

    /// Makes a `delete` without expectation.
    pub fn delete(name: impl Into<BString>) -> Edit {
        Edit::new(name, Verb::Delete { old: None })
    }

    /// Makes it mean a symref itself.
    pub fn no_deref(mut self) -> Edit {
        self.no_deref = true;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &BStr {
        self.name.as_ref()
    }
}

impl Transaction {
    /// Makes a transaction of all or nothing.
    pub fn of(edits: impl IntoIterator<Item = Edit>) -> Transaction {
        Transaction {
            edits: edits.into_iter().collect(),
            ..Transaction::default()
        }
    }

    /// Makes a transaction that may reject single edits.
    pub fn batch(edits: impl IntoIterator<Item = Edit>) -> Transaction {
        Transaction {
            batch: true,
            ..Transaction::of(edits)
        }
    }

    /// Returns the arguments for `git`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["update-ref".to_owned(), "--stdin".to_owned()];
        if self.batch {
            arguments.push("--batch-updates".to_owned());
        }
        if self.create_reflog {
            arguments.push("--create-reflog".to_owned());
        }
        if !self.message.is_empty() {
            arguments.push(format!("-m{}", self.message));
        }
        arguments
    }

    /// Returns what Git reads from standard input.
    pub fn script(&self) -> String {
        self.edits.iter().map(Edit::to_string).collect()
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.no_deref {
            writeln!(f, "option no-deref")?;
        }
        let name = &self.name;
        let with_old = |f: &mut fmt::Formatter<'_>, old: Option<&str>| match old {
            Some(old) => writeln!(f, " {old}"),
            None => writeln!(f),
        };
        match &self.verb {
            Verb::Update { new, old } => {
                write!(f, "update {name} {new}")?;
                with_old(f, old.as_deref())
            }
            Verb::Create { new } => writeln!(f, "create {name} {new}"),
            Verb::Delete { old } => {
                write!(f, "delete {name}")?;
                with_old(f, old.as_deref())
            }
            Verb::Verify { old } => {
                write!(f, "verify {name}")?;
                with_old(f, old.as_deref())
            }
            Verb::SymrefUpdate { target, old } => {
                write!(f, "symref-update {name} {target}")?;
                match old {
                    Some(OldSymref::Target(old)) => writeln!(f, " ref {old}"),
                    Some(OldSymref::Id(old)) => writeln!(f, " oid {old}"),
                    None => writeln!(f),
                }
            }
            Verb::SymrefCreate { target } => writeln!(f, "symref-create {name} {target}"),
            Verb::SymrefDelete { old: Some(old) } => writeln!(f, "symref-delete {name} {old}"),
            Verb::SymrefDelete { old: None } => writeln!(f, "symref-delete {name}"),
            Verb::SymrefVerify { old: Some(old) } => writeln!(f, "symref-verify {name} {old}"),
            Verb::SymrefVerify { old: None } => writeln!(f, "symref-verify {name}"),
        }
    }
}
