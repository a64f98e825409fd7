//! A history in numbers: names, values and steps.

use std::collections::HashMap;
use std::time::Duration;

use super::{Act, Call, Edit, Expected, History, Isolation, New, Outcome, Value, in_the_way};

/// A call has at most so many steps.
const MOST_NAMES: usize = 120;

/// The number of a name.
pub(super) type Name = usize;
/// The number of a value.
pub(super) type Id = u16;

/// What a step needs of one ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// This value.
    Value(Id),
    /// It is not there, or is a symref: one that leads nowhere is not listed, and where it leads
    /// is read at another moment.
    NotDirect,
}

/// An [`Edit`] in numbers.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) name: Name,
    pub(super) deref: bool,
    pub(super) expected: Need,
    pub(super) new: Put,
}

impl Change {
    fn itself(name: Name, expected: Need, new: Put) -> Change {
        Change {
            name,
            deref: false,
            expected,
            new,
        }
    }
}

/// What a change expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Any,
    Missing,
    Exists,
    Is(Id),
}

/// What a change makes of its ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Kept,
    Gone,
    /// Nothing, where nothing above or below the ref may be at this moment.
    Free,
    Value(Id),
    /// What the other ref of a rename was.
    Moved,
}

/// What a call does, step by step.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Nothing that anybody could see.
    Nothing,
    /// There must be a reason against it at some moment.
    Refused(Vec<Change>),
    /// Checked at one moment. What follows is told by its manner.
    Write {
        changes: Vec<Change>,
        manner: Manner,
        may_end_early: bool,
    },
    /// Steps that read; each reads all of its refs at one moment.
    Reads(Vec<Vec<(Name, Seen)>>),
}

/// How the changes of a write follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// All happen at the moment of the check.
    AtOnce,
    /// One after the other in any order; nobody else writes these refs meanwhile.
    AnyOrder,
    /// The same in the order given.
    InOrder,
    /// In the order given, and others may come between.
    Loose,
}

/// A call in numbers.
#[derive(Debug)]
pub(super) struct Compiled<'a> {
    pub(super) call: &'a Call,
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    pub(super) kind: Kind,
}

/// A history in numbers, its calls in the order of their beginnings.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    pub(super) names: Vec<String>,
    /// For each name those above and below it.
    pub(super) in_the_way: Vec<Vec<Name>>,
    pub(super) values: Vec<Value>,
    /// For each value the ref it leads to, if it is a symref.
    pub(super) targets: Vec<Option<Name>>,
    pub(super) first: Vec<Option<Id>>,
    pub(super) calls: Vec<Compiled<'a>>,
}

/// Gives numbers.
#[derive(Default)]
struct Numbers {
    names: HashMap<String, Name>,
    values: HashMap<Value, Id>,
    listed: Vec<String>,
    told: Vec<Value>,
}

impl Numbers {
    fn name(&mut self, name: &str) -> Name {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        self.listed.push(name.to_owned());
        self.names.insert(name.to_owned(), self.listed.len() - 1);
        self.listed.len() - 1
    }

    fn value(&mut self, value: &Value) -> Id {
        if let Value::Symbolic(target) = value {
            self.name(target);
        }
        if let Some(&number) = self.values.get(value) {
            return number;
        }
        let number = Id::try_from(self.told.len()).expect("a history has few values");
        self.told.push(value.clone());
        self.values.insert(value.clone(), number);
        number
    }

    fn change(&mut self, edit: &Edit) -> Change {
        Change {
            name: self.name(&edit.name),
            deref: edit.deref,
            expected: match &edit.expected {
                Expected::Any => Need::Any,
                Expected::Missing => Need::Missing,
                Expected::Is(value) => Need::Is(self.value(value)),
            },
            new: match &edit.new {
                New::Kept => Put::Kept,
                New::Gone => Put::Gone,
                New::Value(value) => Put::Value(self.value(value)),
            },
        }
    }

    /// The new name first: that is the order in which it is seen.
    fn rename(&mut self, old: &str, new: &str) -> Vec<Change> {
        vec![
            Change::itself(self.name(new), Need::Missing, Put::Moved),
            Change::itself(self.name(old), Need::Exists, Put::Gone),
        ]
    }

    /// Whether the new name is free is seen before it is locked, and not once more under the lock.
    /// Where it is not said how it ended, the old name may be put back behind the new one, or in place
    /// of it.
    fn loose_rename(&mut self, old: &str, new: &str, outcome: Outcome) -> Vec<Change> {
        let (free, there) = ((new, Put::Free), (new, Put::Moved));
        // What has come there meanwhile goes first.
        let gone = (new, Put::Gone);
        let back = (old, Put::Moved);
        let ends: &[(&str, Put)] = match outcome {
            Outcome::Done => &[gone, free, there],
            Outcome::Perhaps => &[gone, free, there, back],
            Outcome::Refused | Outcome::Failed => &[back],
        };
        let ends = ends.iter().map(|(end, put)| (*end, Need::Any, *put));
        [(old, Need::Exists, Put::Gone)]
            .into_iter()
            .chain(ends)
            .map(|(name, need, put)| Change::itself(self.name(name), need, put))
            .collect()
    }
}

/// Turns a history into numbers.
#[expect(
    clippy::too_many_lines,
    reason = "one translation, in which each step uses what those before found"
)]
pub(super) fn compile(history: &History, isolation: Isolation) -> Calls<'_> {
    let mut numbers = Numbers::default();
    for (name, value) in &history.first {
        numbers.name(name);
        numbers.value(value);
    }
    let mut order: Vec<&Call> = history.calls.iter().collect();
    order.sort_by_key(|call| call.begun);
    let mut calls: Vec<Compiled<'_>> = Vec::new();
    for &call in &order {
        let kind = match &call.act {
            Act::Write(edits, outcome) => {
                let changes = edits.iter().map(|edit| numbers.change(edit)).collect();
                write(changes, *outcome, isolation, Manner::AnyOrder)
            }
            Act::Rename(old, new, outcome) => write(
                numbers.rename(old, new),
                *outcome,
                isolation,
                Manner::InOrder,
            ),
            Act::RenameOver(old, new, outcome) => {
                let mut changes = numbers.rename(old, new);
                if *outcome != Outcome::Refused {
                    changes[0].expected = Need::Any;
                }
                write(changes, *outcome, isolation, Manner::InOrder)
            }
            Act::LooseRename(old, new, outcome) => Kind::Write {
                changes: numbers.loose_rename(old, new, *outcome),
                manner: Manner::Loose,
                may_end_early: *outcome != Outcome::Done,
            },
            Act::List(listed) => {
                for (name, value) in listed {
                    numbers.name(name);
                    numbers.value(value);
                }
                // What is not listed is known when all names are.
                Kind::Nothing
            }
        };
        calls.push(Compiled {
            call,
            begun: call.begun,
            ended: call.ended,
            kind,
        });
    }
    let targets: Vec<Option<Name>> = numbers
        .told
        .iter()
        .map(|value| match value {
            Value::Oid(_) => None,
            Value::Symbolic(target) => Some(numbers.names[target]),
        })
        .collect();
    let symbolic = symbolic(history, &numbers);
    for compiled in &mut calls {
        if let Act::List(listed) = &compiled.call.act {
            compiled.kind = reads(listed, &numbers, &symbolic, isolation);
        }
    }
    let mut first = vec![None; numbers.listed.len()];
    for (name, value) in &history.first {
        first[numbers.names[name]] = Some(numbers.values[value]);
    }
    let names = numbers.listed;
    assert!(
        names.len() < MOST_NAMES,
        "a history of more names than are looked at"
    );
    let below = |one: &String| {
        let others = names.iter().enumerate();
        others
            .filter(|(_, other)| in_the_way(one, other))
            .map(|(number, _)| number)
            .collect()
    };
    Calls {
        in_the_way: names.iter().map(below).collect(),
        targets,
        values: numbers.told,
        first,
        calls,
        names,
    }
}

fn write(changes: Vec<Change>, outcome: Outcome, isolation: Isolation, manner: Manner) -> Kind {
    match outcome {
        Outcome::Failed => Kind::Nothing,
        Outcome::Done | Outcome::Perhaps if changes.is_empty() => Kind::Nothing,
        Outcome::Refused => Kind::Refused(changes),
        Outcome::Done | Outcome::Perhaps => Kind::Write {
            manner: match isolation {
                Isolation::EachRef if changes.len() > 1 => manner,
                _ => Manner::AtOnce,
            },
            may_end_early: outcome == Outcome::Perhaps,
            changes,
        },
    }
}

/// Which refs may be symrefs. A program reads what they lead to after it has read them.
fn symbolic(history: &History, numbers: &Numbers) -> Vec<bool> {
    let mut symbolic = vec![false; numbers.listed.len()];
    let mut note = |name: &String, value: &Value| {
        if matches!(value, Value::Symbolic(_)) {
            symbolic[numbers.names[name]] = true;
        }
    };
    for (name, value) in &history.first {
        note(name, value);
    }
    for call in &history.calls {
        match &call.act {
            Act::Write(edits, _) => {
                for edit in edits {
                    if let New::Value(value) = &edit.new {
                        note(&edit.name, value);
                    }
                }
            }
            Act::List(listed) => {
                for (name, value) in listed {
                    note(name, value);
                }
            }
            Act::Rename(..) | Act::RenameOver(..) | Act::LooseRename(..) => {}
        }
    }
    symbolic
}

fn reads(
    listed: &[(String, Value)],
    numbers: &Numbers,
    symbolic: &[bool],
    isolation: Isolation,
) -> Kind {
    let mut seen = vec![None; numbers.listed.len()];
    let mut unknown = Vec::new();
    for (name, value) in listed {
        seen[numbers.names[name]] = Some(numbers.values[value]);
        if matches!(value, Value::Symbolic(target) if target == name) {
            unknown.push(numbers.names[name]);
        }
    }
    let mut together = Vec::new();
    let mut steps = Vec::new();
    for (name, value) in seen.into_iter().enumerate() {
        if unknown.contains(&name) {
            continue;
        }
        let step = (
            name,
            match value {
                Some(value) => Seen::Value(value),
                None => Seen::NotDirect,
            },
        );
        if isolation == Isolation::EachRef || symbolic[name] {
            steps.push(vec![step]);
        } else {
            together.push(step);
        }
    }
    if !together.is_empty() {
        steps.push(together);
    }
    Kind::Reads(steps)
}
