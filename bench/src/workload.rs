//! The workloads: what is done, in a repository in which state, and which refs there must be then.

use std::io::{self, Write};

use refdb::{ObjectId, RefFormat};

use crate::shape::Shape;

/// Processes in a row, where one alone takes too short a time to be measured.
const ROW: usize = 50;
/// Concurrent writers.
pub(crate) const WRITERS: usize = 8;
/// Processes that each concurrent writer starts, one after another.
pub(crate) const WRITES: usize = 25;
/// Refs in a small repository.
pub(crate) const SMALL: usize = 10;

/// The state of a repository before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No refs.
    Empty,
    /// A handful of refs.
    Small,
    /// All refs, packed or compacted. The same for both programs.
    Full,
    /// All refs, as they were created in one transaction.
    Made,
    /// All refs created and deleted again.
    Deleted,
    /// All refs, and a tenth more that was added.
    Grown,
    /// All refs, packed or compacted, each of which names an object of its own. The same for both programs.
    Own,
}

/// Who brings a repository into its state before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The program that is measured.
    Itself,
    /// Git, whichever program is measured: users begin with what Git has left.
    Git,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One process.
    Once,
    /// Processes one after another.
    Row,
    /// Several writers at the same time, and one process after another that packs.
    Writers,
}

/// One workload.
#[derive(Debug)]
pub struct Workload {
    /// What it is called, on the command line too.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    pub(crate) state: State,
    pub(crate) by: By,
    /// Whether reflogs are written for all refs.
    pub(crate) logged: bool,
    pub(crate) action: Action,
    step: Step,
}

/// A single thing to do; what is read from standard input and what comes of it follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    /// Creates all refs, each of an object of its own.
    CreateOwn,
    CreateMore,
    CreateTags,
    Update,
    Delete,
    Single,
    Transactions,
    DeleteOne,
    /// Asks by these words, in which `{middle}` stands for the name of the ref in the middle, and `{commit}` for a
    /// commit that a ref in the middle names.
    Ask(&'static [&'static str]),
    ByObject,
    ByNoObject,
    Pack,
    Migrate,
    Write,
}

const fn workload(name: &'static str, about: &'static str, state: State, step: Step) -> Workload {
    Workload {
        name,
        about,
        state,
        by: By::Itself,
        logged: false,
        action: Action::Once,
        step,
    }
}

/// A listing by these words of refs each of which names an object of its own.
const fn own(name: &'static str, about: &'static str, words: &'static [&'static str]) -> Workload {
    workload(name, about, State::Own, Step::Ask(words))
}

/// What lists all refs.
const LIST: Step = Step::Ask(&["for-each-ref"]);

impl Workload {
    const fn in_a_row(self) -> Self {
        let action = Action::Row;
        Workload { action, ..self }
    }

    const fn by_git(self) -> Self {
        Workload {
            by: By::Git,
            ..self
        }
    }

    const fn logged(self) -> Self {
        Workload {
            logged: true,
            ..self
        }
    }
}

/// Every workload, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    workload("create", "create all refs", State::Empty, Step::Create),
    workload(
        "create-more",
        "create a tenth more",
        State::Full,
        Step::CreateMore,
    ),
    workload(
        "create-tags",
        "create annotated tags",
        State::Full,
        Step::CreateTags,
    ),
    workload("update", "update all refs", State::Full, Step::Update),
    workload("delete", "delete all refs", State::Full, Step::Delete),
    workload(
        "create-again",
        "create all after deleting all",
        State::Deleted,
        Step::Create,
    ),
    workload(
        "update-git",
        "update all that Git created",
        State::Made,
        Step::Update,
    )
    .by_git(),
    workload(
        "delete-git",
        "delete all that Git created",
        State::Made,
        Step::Delete,
    )
    .by_git(),
    workload(
        "create-after-git",
        "create all after Git deleted all",
        State::Deleted,
        Step::Create,
    )
    .by_git(),
    workload(
        "single-small",
        "one ref, small repository",
        State::Small,
        Step::Single,
    )
    .in_a_row(),
    workload(
        "single-large",
        "one ref, large repository",
        State::Full,
        Step::Single,
    )
    .in_a_row(),
    workload(
        "transactions",
        "transactions in one process",
        State::Full,
        Step::Transactions,
    ),
    workload(
        "delete-one",
        "delete 1 of all",
        State::Full,
        Step::DeleteOne,
    ),
    workload(
        "create-logged",
        "create all, reflogs on",
        State::Empty,
        Step::Create,
    )
    .logged(),
    workload(
        "more-logged",
        "a tenth more, reflogs on",
        State::Full,
        Step::CreateMore,
    )
    .logged(),
    workload(
        "update-logged",
        "update all, reflogs on",
        State::Full,
        Step::Update,
    )
    .logged(),
    workload(
        "again-logged",
        "create again, reflogs on",
        State::Deleted,
        Step::Create,
    )
    .logged(),
    workload(
        "transactions-logged",
        "transactions, reflogs on",
        State::Full,
        Step::Transactions,
    )
    .logged(),
    workload("list", "list all", State::Full, LIST),
    workload("list-git", "list all that Git created", State::Made, LIST).by_git(),
    workload(
        "list-after-git",
        "list after Git deleted all",
        State::Deleted,
        LIST,
    )
    .by_git(),
    workload(
        "list-names",
        "list names only",
        State::Full,
        Step::Ask(&["for-each-ref", "--format=%(refname)"]),
    ),
    workload(
        "list-first",
        "list the first ref",
        State::Full,
        Step::Ask(&["for-each-ref", "--count=1"]),
    )
    .in_a_row(),
    workload(
        "list-prefix",
        "list a prefix",
        State::Full,
        Step::Ask(&["for-each-ref", "refs/heads/team-07/"]),
    )
    .in_a_row(),
    workload(
        "list-exclude",
        "list with exclusions",
        State::Full,
        Step::Ask(&[
            "for-each-ref",
            "--exclude=refs/pull/",
            "--exclude=refs/remotes/",
        ]),
    ),
    workload(
        "list-ignore-case",
        "list without regard to case",
        State::Full,
        Step::Ask(&["for-each-ref", "--ignore-case"]),
    ),
    workload(
        "lookup",
        "look up one name",
        State::Full,
        Step::Ask(&["show-ref", "--verify", "{middle}"]),
    )
    .in_a_row(),
    workload(
        "by-object",
        "refs of an object id",
        State::Full,
        Step::ByObject,
    ),
    workload(
        "by-no-object",
        "an object that no ref names",
        State::Full,
        Step::ByNoObject,
    ),
    own("own-list", "list all, with kinds", &["for-each-ref"]),
    own("own-exist", "list all, objects looked up", &["show-ref"]),
    own("own-tags", "list all, tags peeled", &["show-ref", "-d"]),
    own(
        "own-short",
        "list with short ids",
        &["for-each-ref", "--format=%(objectname:short) %(refname)"],
    ),
    own(
        "own-dates",
        "list by date, with subjects",
        &[
            "for-each-ref",
            "--sort=-creatordate",
            "--format=%(creatordate:short) %(refname:short) %(subject)",
        ],
    ),
    own(
        "own-sizes",
        "list with sizes of objects",
        &[
            "for-each-ref",
            "--format=%(objectsize) %(objectsize:disk) %(refname)",
        ],
    ),
    own(
        "own-merged",
        "list what is merged",
        &["for-each-ref", "--merged={commit}"],
    ),
    workload("pack", "pack or compact a tenth", State::Grown, Step::Pack),
    workload(
        "pack-git",
        "the same, that Git created",
        State::Grown,
        Step::Pack,
    )
    .by_git(),
    workload(
        "migrate",
        "migrate to the other format",
        State::Full,
        Step::Migrate,
    ),
    Workload {
        action: Action::Writers,
        ..workload("writers", "8 concurrent writers", State::Full, Step::Write)
    },
];

impl Workload {
    /// Returns what is done in the measurement.
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Returns how many processes the measurement takes.
    pub(crate) fn processes(&self) -> usize {
        match self.action {
            Action::Once => 1,
            Action::Row => ROW,
            Action::Writers => WRITERS * WRITES,
        }
    }
}

impl Step {
    /// Returns the arguments of process `at`.
    pub(crate) fn args(self, shape: &Shape, format: RefFormat, at: usize) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let middle = || String::from_utf8_lossy(&shape.middle()).into_owned();
        match self {
            Step::Create
            | Step::CreateOwn
            | Step::CreateMore
            | Step::CreateTags
            | Step::Update
            | Step::Delete
            | Step::Transactions => words(&["update-ref", "--stdin"]),
            Step::Single | Step::Write => {
                let (name, value) = (single(at), shape.value(at, 0).to_string());
                words(&["update-ref", &name, &value])
            }
            Step::DeleteOne => words(&["update-ref", "-d", &middle()]),
            Step::Ask(words) => {
                let word = |word: &&str| match *word {
                    "{middle}" => middle(),
                    word => word.replace("{commit}", &shape.commit().to_string()),
                };
                words.iter().map(word).collect()
            }
            Step::ByObject => {
                let points_at = format!("--points-at={}", shape.value(0, 0));
                words(&["for-each-ref", &points_at])
            }
            Step::ByNoObject => {
                // None of the refs that are there names a tag: `create-tags` makes those that do.
                let points_at = format!("--points-at={}", shape.tag(0));
                words(&["for-each-ref", &points_at])
            }
            Step::Pack => words(&["pack-refs", "--all"]),
            Step::Migrate => {
                let other = match format {
                    RefFormat::Files => RefFormat::Reftable,
                    RefFormat::Reftable => RefFormat::Files,
                };
                words(&["refs", "migrate", &format!("--ref-format={}", other.name())])
            }
        }
    }

    /// Writes what the process reads from standard input; returns whether it reads anything.
    pub(crate) fn input(self, shape: &Shape, out: &mut dyn Write) -> io::Result<bool> {
        let value = |updates| move |at| Some(shape.value(at, updates));
        match self {
            Step::Create => commands(shape, out, "create", false, value(0))?,
            Step::CreateOwn => commands(shape, out, "create", false, |at| Some(shape.own(at)))?,
            Step::CreateMore => commands(shape, out, "create", true, value(0))?,
            Step::Update => commands(shape, out, "update", false, value(1))?,
            Step::Delete => commands(shape, out, "delete", false, |_| None)?,
            Step::CreateTags => {
                for at in 0..shape.more() {
                    writeln!(out, "create {} {}", tag(at), shape.tag(at))?;
                }
            }
            Step::Transactions => {
                for at in 0..shape.more() {
                    let value = shape.value(at, 0);
                    writeln!(out, "start\ncreate {} {value}\ncommit", single(at))?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Gives every ref that there must be afterwards, in any order. `processes` have run.
    pub(crate) fn after<E>(
        self,
        state: State,
        shape: &Shape,
        processes: usize,
        mut each: impl FnMut(&[u8], ObjectId) -> Result<(), E>,
    ) -> Result<(), E> {
        let (updates, middle) = (usize::from(self == Step::Update), shape.middle());
        if state == State::Small {
            for at in 0..SMALL {
                each(small(at).as_bytes(), shape.value(at, 0))?;
            }
        } else if self != Step::Delete && (state != State::Deleted || self == Step::Create) {
            let grown = state == State::Grown || self == Step::CreateMore;
            shape.each(|entry| {
                let gone = self == Step::DeleteOne && entry.name == middle;
                if gone || (entry.more && !grown) {
                    return Ok(());
                }
                let value = match (state, entry.more) {
                    (State::Own, _) => shape.own(entry.at),
                    (_, true) => shape.value(entry.at, 0),
                    (_, false) => shape.value(entry.at, updates),
                };
                each(&entry.name, value)
            })?;
        }
        let singles = match self {
            Step::Single | Step::Write => processes,
            Step::Transactions => shape.more(),
            _ => 0,
        };
        for at in 0..singles {
            each(single(at).as_bytes(), shape.value(at, 0))?;
        }
        let tags = if self == Step::CreateTags {
            shape.more()
        } else {
            0
        };
        (0..tags).try_for_each(|at| each(tag(at).as_bytes(), shape.tag(at)))
    }
}

/// Returns the name of a ref that a process or transaction of its own creates.
fn single(at: usize) -> String {
    format!("refs/heads/single/{at:06}")
}

fn tag(at: usize) -> String {
    format!("refs/tags/annotated/{at:08}")
}

/// Returns the name of a ref in a small repository.
pub(crate) fn small(at: usize) -> String {
    format!("refs/heads/small-{at:02}")
}

/// Writes a command for each ref of the shape, or for those that come later, with the value of the ref of that number.
fn commands(
    shape: &Shape,
    out: &mut dyn Write,
    verb: &str,
    more: bool,
    value: impl Fn(usize) -> Option<ObjectId>,
) -> io::Result<()> {
    shape.each(|entry| {
        if entry.more != more {
            return Ok(());
        }
        out.write_all(verb.as_bytes())?;
        out.write_all(b" ")?;
        out.write_all(&entry.name)?;
        match value(entry.at) {
            Some(value) => writeln!(out, " {value}"),
            None => writeln!(out),
        }
    })
}
