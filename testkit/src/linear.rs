//! Whether a history of transactions over several refs is linearizable: whether there is one order
//! of all calls that explains every answer.
//!
//! 1. The order respects time: a call that ended before another began comes before it.
//! 2. A transaction takes place at one moment: everything that it expects holds then, and no name
//!    that it makes stands above or below another one (`a` and `a/b` never both exist).
//! 3. What was done happens. What was refused had a reason at some moment of the call. What failed
//!    for another reason changes nothing.
//! 4. A listing shows the refs of one moment ([`Isolation::Snapshot`]), or each ref as it was at
//!    some moment of the call ([`Isolation::EachRef`]: what files can promise). Then the new values
//!    of one transaction may also be seen one after the other; to other writers they are one.
//! 5. No listing has a name twice, or a name that nobody wrote.
//!
//! The search is that of Wing and Gong with the memory of Lowe: it goes through the orders depth
//! first and does not look twice at the same calls done with the same refs left. A read that fits
//! is taken at once, which loses no order, since it changes nothing. It gives up after
//! [`MOST_NODES`].
//!
//! ```
//! use std::time::Duration;
//! use refdb_testkit::linear::{Act, Call, Edit, History, Isolation, Outcome, check};
//!
//! let call = |begun, ended, act| Call {
//!     who: "one".into(),
//!     begun: Duration::from_secs(begun),
//!     ended: Duration::from_secs(ended),
//!     act,
//! };
//! let create = |name| Act::Write(vec![Edit::create(name, "1")], Outcome::Done);
//! let mut history = History::default();
//! history.calls.push(call(0, 3, create("a")));
//! check(&history, Isolation::EachRef).expect("nobody else is there");
//! history.calls.push(call(1, 2, create("a/b")));
//! check(&history, Isolation::EachRef).expect_err("both would exist");
//! ```

mod compile;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

/// So many states of the search are looked at before it gives up.
pub const MOST_NODES: usize = 100_000;

/// What a ref says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// An object.
    Oid(String),
    /// Another ref.
    Symbolic(String),
}

/// What an edit expects of its ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Any,
    /// That it does not exist.
    Missing,
    /// This value.
    Is(Value),
}

/// What an edit makes of its ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// It stays as it is.
    Kept,
    /// It goes.
    Gone,
    /// It gets this value.
    Value(Value),
}

/// What a transaction does with one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The ref.
    pub name: String,
    /// What it expects.
    pub expected: Expected,
    /// What it makes of it.
    pub new: New,
    /// Whether a symref is followed: then what it leads to is changed.
    pub deref: bool,
}

impl Edit {
    /// Makes a ref that does not exist.
    pub fn create(name: &str, oid: &str) -> Edit {
        Edit::put(name, Value::Oid(oid.into())).expecting(Expected::Missing)
    }

    /// Gives a ref a value, whatever it was.
    pub fn put(name: &str, value: Value) -> Edit {
        Edit {
            name: name.into(),
            expected: Expected::Any,
            deref: matches!(value, Value::Oid(_)),
            new: New::Value(value),
        }
    }

    /// Moves a ref from one object to another.
    pub fn swap(name: &str, old: &str, new: &str) -> Edit {
        Edit::put(name, Value::Oid(new.into())).expecting(Expected::Is(Value::Oid(old.into())))
    }

    /// Removes a ref, and not what it leads to.
    pub fn delete(name: &str) -> Edit {
        Edit {
            name: name.into(),
            expected: Expected::Any,
            new: New::Gone,
            deref: false,
        }
    }

    /// Asks that a ref exists, or not, and leaves it.
    pub fn verify(name: &str, expected: Expected) -> Edit {
        Edit {
            name: name.into(),
            expected,
            new: New::Kept,
            deref: true,
        }
    }

    /// The same edit that expects something.
    pub fn expecting(self, expected: Expected) -> Edit {
        Edit { expected, ..self }
    }

    /// The same edit that does not follow a symref.
    pub fn no_deref(self) -> Edit {
        Edit {
            deref: false,
            ..self
        }
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Done,
    /// It was refused because of what the refs are.
    Refused,
    /// It failed and says that nothing has changed.
    Failed,
    /// It failed, and may have changed all, some or nothing.
    Perhaps,
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A transaction.
    Write(Vec<Edit>, Outcome),
    /// The first ref got the name of the second, which did not exist. With [`Isolation::EachRef`]
    /// the new name is there before the old one goes.
    Rename(String, String, Outcome),
    /// The same at one moment, whatever the new name was: that it was free was seen before.
    RenameOver(String, String, Outcome),
    /// The same in several steps that others may come between: the old name goes, then the new one
    /// comes, whatever was made there meanwhile. Where it fails, the old one may be put back.
    LooseRename(String, String, Outcome),
    /// All refs, in the order in which they were listed. A symref that leads nowhere is not
    /// listed. One that leads to itself was one when it was found, and no longer when it was
    /// followed: that says nothing.
    List(Vec<(String, Value)>),
}

/// A call, with the moments of its beginning and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who called, for messages.
    pub who: String,
    /// When.
    pub begun: Duration,
    /// When it had returned.
    pub ended: Duration,
    /// What it did.
    pub act: Act,
}

/// What a reader and a writer of several refs sees of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Everything at one moment.
    Snapshot,
    /// Each ref at a moment of its own; writers see each other's transactions as one.
    EachRef,
}

/// Calls, and the refs before all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The refs before.
    pub first: BTreeMap<String, Value>,
    /// The calls, in any order.
    pub calls: Vec<Call>,
}

/// Why a history was not found linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not, and why.
    Wrong(String),
    /// Too many orders are possible.
    Undecided,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Wrong(why) => f.write_str(why),
            Fault::Undecided => f.write_str("too many orders are possible"),
        }
    }
}

/// Checks a history; returns how many states were looked at.
///
/// # Errors
///
/// That it is not linearizable, or that this was not found out.
pub fn check(history: &History, isolation: Isolation) -> Result<usize, Fault> {
    for call in &history.calls {
        if let Act::List(listed) = &call.act {
            twice(listed)
                .map_err(|name| Fault::Wrong(format!("{name} twice in one listing: {call}")))?;
        }
    }
    let compiled = compile::compile(history, isolation);
    search::search(&compiled).map_err(|stuck| match stuck {
        search::Stuck::Undecided => Fault::Undecided,
        search::Stuck::At(refs, calls) => {
            let mut text = String::from(
                "no order explains these calls; at the best one they wait for other refs than: ",
            );
            let _ = write!(text, "{refs}");
            for call in calls {
                let _ = write!(text, "\n    {}", compiled.calls[call].call);
            }
            Fault::Wrong(text)
        }
    })
}

/// Finds a name that is listed twice.
///
/// # Errors
///
/// The name.
pub fn twice(listed: &[(String, Value)]) -> Result<(), String> {
    let mut names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(pair[0].to_owned()),
        None => Ok(()),
    }
}

/// Whether one of two different names lies below the other.
pub fn in_the_way(one: &str, other: &str) -> bool {
    let below = |upper: &str, lower: &str| {
        lower
            .strip_prefix(upper)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    below(one, other) || below(other, one)
}

/// Object ids are shortened: the test draws them so that their beginnings differ.
fn short(oid: &str) -> &str {
    &oid[..oid.len().min(8)]
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Oid(oid) => f.write_str(short(oid)),
            Value::Symbolic(target) => write!(f, "->{target}"),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = if self.deref { "" } else { " itself" };
        write!(f, "{}{arrow}", self.name)?;
        match &self.expected {
            Expected::Any => {}
            Expected::Missing => f.write_str(" (if missing)")?,
            Expected::Is(value) => write!(f, " (if {value})")?,
        }
        match &self.new {
            New::Kept => f.write_str(" kept"),
            New::Gone => f.write_str(" deleted"),
            New::Value(value) => write!(f, " := {value}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begun, ended) = (self.begun.as_micros(), self.ended.as_micros());
        write!(f, "[{begun:>8} {ended:>8}] {}: ", self.who)?;
        match &self.act {
            Act::Write(edits, outcome) => {
                for edit in edits {
                    write!(f, "{edit}; ")?;
                }
                write!(f, "{outcome:?}")
            }
            Act::Rename(old, new, outcome)
            | Act::RenameOver(old, new, outcome)
            | Act::LooseRename(old, new, outcome) => {
                write!(f, "rename {old} to {new}; {outcome:?}")
            }
            Act::List(listed) => {
                f.write_str("listed")?;
                for (name, value) in listed {
                    write!(f, " {name}={value}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("before:")?;
        for (name, value) in &self.first {
            write!(f, " {name}={value}")?;
        }
        let mut calls: Vec<&Call> = self.calls.iter().collect();
        calls.sort_by_key(|call| call.begun);
        for call in calls {
            write!(f, "\n{call}")?;
        }
        Ok(())
    }
}
