//! The protocol of docs/scale-out.md, reduced to what can go wrong: writers, a busy writer that stores tables ahead,
//! a maintainer, a collector and a place whose answers get lost.
//!
//! A request that was sent stays on its way for ever: it may arrive at any time, any number of times, or
//! never. That is delay, doubling and loss in one, and sending it again changes nothing. Whoever waits for an
//! answer may get it when the request arrives, may be told at any time that the slot was not as expected,
//! rightly or not, and looks at the head then.

use std::collections::BTreeSet;

use stateright::{Model, Property};

/// A mistake in the protocol, for the model to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The collector removes every table that the head does not name.
    CollectAnyUnlisted,
    /// The collector removes merged tables of the present epoch, and begins none.
    CollectWithoutEpoch,
    /// A writer that got no answer begins anew, with another commit.
    RestartWhenUnknown,
    /// A slot is replaced whatever is in it.
    NoCondition,
    /// A writer that was overtaken names the table that it had stored, whatever its index is.
    ReuseStaleTable,
    /// A writer that got no answer removes its table, and says that it failed.
    DeleteWhenUnknown,
    /// The maintainer publishes although its epoch has ended.
    UnfencedMaintainer,
    /// The condition is the version that the slot has now, not the one that the base head carries.
    ConditionOfToday,
    /// A writer that was overtaken does not look whether it was its own request.
    ForgetOwnCommit,
    /// What is stored ahead has the name of a table that a commit brings.
    AheadAsOfCommit,
    /// What is stored ahead is named although its epoch has ended.
    AheadOfEpoch,
    /// What is stored ahead is named whatever stands in the head.
    AheadOfAnything,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 12] = [
        Bug::CollectAnyUnlisted,
        Bug::CollectWithoutEpoch,
        Bug::RestartWhenUnknown,
        Bug::NoCondition,
        Bug::ReuseStaleTable,
        Bug::DeleteWhenUnknown,
        Bug::UnfencedMaintainer,
        Bug::ConditionOfToday,
        Bug::ForgetOwnCommit,
        Bug::AheadAsOfCommit,
        Bug::AheadOfEpoch,
        Bug::AheadOfAnything,
    ];
}

/// What the second commit of a busy writer is called beside the first.
const SECOND: u8 = 100;

/// What a table holds: commits, by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    epoch: Option<u8>,
    min: u8,
    max: u8,
    /// Who stored it, and in which attempt.
    by: (u8, u8),
    commits: Vec<u8>,
}

/// A head. Its version is who made it and in which attempt: no two are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Head {
    generation: u8,
    index: u8,
    epoch: u8,
    by: (u8, u8),
    /// The makers of all generations up to this one: what `recent` and `slots` say.
    chain: Vec<(u8, u8)>,
    tables: Vec<Table>,
    /// The newest commits, which are in no table, and the index of the first of them.
    inline: Vec<u8>,
    inline_min: u8,
}

/// A request that replaces a slot, or removes a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    Swap(Option<(u8, u8)>, Head),
    Delete(Table),
}

/// What a process is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// To read the head and to try.
    Begin,
    /// It has read this head. Only where a bug makes a difference is that a step of its own: a request that
    /// is made from a head and sent later is one that arrives later.
    Read(Head),
    /// A head was sent; nobody has said what became of it.
    Waits(Head),
    /// The maintainer has its epoch, and this merged table in place of those.
    Merged(Table, Vec<Table>),
    /// The collector has listed these tables.
    Listed(BTreeSet<Table>),
    Done,
    /// It said that nothing was changed.
    Failed,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    step: Step,
    attempts: u8,
    /// The table that a writer has stored.
    stored: Option<Table>,
    /// The epoch that it began.
    epoch: u8,
    merged: Option<(Table, Vec<Table>)>,
    listed: Option<BTreeSet<Table>>,
    /// Whether the first commit of a busy writer is acknowledged.
    is_second: bool,
    /// What it has stored ahead: a table of what is in the head, and one in place of others.
    ahead: Option<Table>,
    merged_ahead: Option<(Table, Vec<Table>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Writer,
    Maintainer,
    Collector,
    /// Makes two commits in the head, and stores beside the first what the second names.
    Busy,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    slots: Vec<Option<Head>>,
    tables: BTreeSet<Table>,
    sent: BTreeSet<Request>,
    processes: Vec<Process>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process goes on.
    Go(usize),
    /// A request arrives; with an answer for who waits for it.
    Arrive(Request, bool),
    /// A process is told that the slot was not as expected.
    Disputed(usize),
    /// A process gives up waiting, where a bug lets it.
    Unknown(usize),
}

/// So many of each, and perhaps a bug.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub slots: usize,
    pub writers: usize,
    pub maintainers: usize,
    pub collectors: usize,
    pub busy: usize,
    pub bug: Option<Bug>,
}

impl Protocol {
    fn role(&self, process: usize) -> Role {
        match process {
            at if at < self.writers => Role::Writer,
            at if at < self.writers + self.maintainers => Role::Maintainer,
            at if at < self.writers + self.maintainers + self.collectors => Role::Collector,
            _ => Role::Busy,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn newest<'s>(&self, state: &'s State) -> &'s Head {
        let heads = state.slots.iter().flatten();
        heads
            .max_by_key(|head| head.generation)
            .expect("there is a first head")
    }

    /// Sends a new head, made from `base`.
    fn send(&self, state: &mut State, process: usize, base: &Head, mut new: Head) {
        let count = self.slots;
        new.generation = base.generation + 1;
        new.by = (process as u8, state.processes[process].attempts);
        new.chain.push(new.by);
        state.processes[process].attempts += 1;
        let slot = new.generation as usize % count;
        // The version of the generation that is replaced, as the base knows it.
        let mut expected = base.chain.len().checked_sub(count).map(|at| base.chain[at]);
        if self.has(Bug::ConditionOfToday) {
            expected = state.slots[slot].as_ref().map(|head| head.by);
        }
        state.sent.insert(Request::Swap(expected, new.clone()));
        state.processes[process].step = Step::Waits(new);
    }

    fn begin_writing(&self, state: &mut State, process: usize, base: Head) {
        let mut new = base.clone();
        let own = &mut state.processes[process];
        let stale = own.stored.take();
        let reuses = |table: &Table| table.min > base.index || self.has(Bug::ReuseStaleTable);
        let table = match stale.filter(reuses) {
            Some(table) => table,
            None => Table {
                epoch: None,
                min: base.inline_min.min(base.index + 1),
                max: base.index + 1,
                by: (process as u8, own.attempts),
                commits: [base.inline.as_slice(), &[process as u8]].concat(),
            },
        };
        own.stored = Some(table.clone());
        new.inline.clear();
        new.inline_min = u8::MAX;
        new.index = new.index.max(table.max);
        new.tables.push(table.clone());
        state.tables.insert(table);
        self.send(state, process, &base, new);
    }

    /// A busy writer commits what has room in the head. Beside its first commit it stores a table of that, and a
    /// merged one; its second commit names them.
    fn begin_in_head(&self, state: &mut State, process: usize) {
        let base = self.newest(state).clone();
        let mut new = base.clone();
        let own = &mut state.processes[process];
        new.index += 1;
        let is_of_epoch = |table: &Table| {
            table.epoch.is_none_or(|epoch| epoch == base.epoch) || self.has(Bug::AheadOfEpoch)
        };
        if own.is_second {
            if let Some((table, old)) = own.merged_ahead.take().filter(|it| is_of_epoch(&it.0))
                && let Some(at) = base.tables.windows(old.len()).position(|it| it == old)
            {
                new.tables.splice(at..at + old.len(), [table]);
            }
            let is_same =
                |table: &Table| table.commits == base.inline || self.has(Bug::AheadOfAnything);
            let ahead = own.ahead.take();
            if let Some(table) = ahead.filter(|it| is_of_epoch(it) && is_same(it)) {
                new.tables.push(table);
                new.inline.clear();
                new.inline_min = u8::MAX;
            }
        }
        let commit = process as u8 + if own.is_second { SECOND } else { 0 };
        new.inline.push(commit);
        new.inline_min = new.inline_min.min(new.index);
        if !own.is_second {
            let by = (process as u8, own.attempts);
            let ahead = Table {
                epoch: (!self.has(Bug::AheadAsOfCommit)).then_some(base.epoch),
                min: new.inline_min,
                max: new.index,
                by,
                commits: new.inline.clone(),
            };
            own.ahead = Some(ahead.clone());
            state.tables.insert(ahead);
            if let [first, .., last] = base.tables.as_slice() {
                let commits = base.tables.iter().flat_map(|it| it.commits.clone());
                let merged = Table {
                    epoch: Some(base.epoch),
                    min: first.min,
                    max: last.max,
                    by,
                    commits: commits.collect(),
                };
                own.merged_ahead = Some((merged.clone(), base.tables.clone()));
                state.tables.insert(merged);
            }
        }
        self.send(state, process, &base, new);
    }

    fn begin_epoch(&self, state: &mut State, process: usize) {
        let base = self.newest(state).clone();
        let mut new = base.clone();
        new.epoch += 1;
        state.processes[process].epoch = new.epoch;
        self.send(state, process, &base, new);
    }

    /// What follows when a head that a process sent is known to be in the chain.
    fn acknowledged(&self, state: &mut State, process: usize) {
        let newest = self.newest(state).clone();
        match self.role(process) {
            Role::Writer => state.processes[process].step = Step::Done,
            Role::Maintainer if state.processes[process].merged.is_some() => {
                state.processes[process].step = Step::Done;
            }
            Role::Maintainer => {
                let own = &mut state.processes[process];
                if newest.tables.len() < 2 {
                    own.step = Step::Done;
                    return;
                }
                let old = newest.tables.clone();
                let table = Table {
                    epoch: Some(own.epoch),
                    min: old[0].min,
                    max: old[old.len() - 1].max,
                    by: (process as u8, own.attempts),
                    commits: old.iter().flat_map(|it| it.commits.clone()).collect(),
                };
                own.merged = Some((table.clone(), old.clone()));
                own.step = Step::Merged(table.clone(), old);
                state.tables.insert(table);
            }
            Role::Collector => self.collect(state, process, &newest),
            Role::Busy if state.processes[process].is_second => {
                state.processes[process].step = Step::Done;
            }
            Role::Busy => {
                state.processes[process].is_second = true;
                state.processes[process].step = Step::Begin;
            }
        }
    }

    fn publish_merged(&self, state: &mut State, process: usize, new: Table, old: &[Table]) {
        let base = self.newest(state).clone();
        let is_ours = base.epoch == state.processes[process].epoch;
        let at = base
            .tables
            .windows(old.len())
            .position(|tables| tables == old);
        match at {
            Some(at) if is_ours || self.has(Bug::UnfencedMaintainer) => {
                let mut head = base.clone();
                head.tables.splice(at..at + old.len(), [new]);
                self.send(state, process, &base, head);
            }
            _ => state.processes[process].step = Step::Done,
        }
    }

    fn collect(&self, state: &mut State, process: usize, head: &Head) {
        let listed = state.processes[process].listed.clone().unwrap_or_default();
        for table in listed {
            let is_dead = match table.epoch {
                None => table.max <= head.index,
                Some(epoch) => epoch < head.epoch,
            };
            let is_wrong = self.has(Bug::CollectAnyUnlisted)
                || self.has(Bug::CollectWithoutEpoch) && table.epoch.is_some();
            if !head.tables.contains(&table) && (is_dead || is_wrong) {
                state.sent.insert(Request::Delete(table));
            }
        }
        state.processes[process].step = Step::Done;
    }

    fn go(&self, state: &mut State, process: usize) {
        match (state.processes[process].step.clone(), self.role(process)) {
            (Step::Begin, Role::Writer) => {
                let base = self.newest(state).clone();
                match self.has(Bug::ConditionOfToday) {
                    true => state.processes[process].step = Step::Read(base),
                    false => self.begin_writing(state, process, base),
                }
            }
            (Step::Read(base), _) => self.begin_writing(state, process, base),
            (Step::Begin, Role::Busy) => self.begin_in_head(state, process),
            (Step::Begin, Role::Maintainer) => self.begin_epoch(state, process),
            (Step::Begin, Role::Collector) => {
                let listed = state.tables.clone();
                state.processes[process].listed = Some(listed.clone());
                state.processes[process].step = Step::Listed(listed);
            }
            (Step::Listed(_), _) => match self.has(Bug::CollectWithoutEpoch) {
                true => {
                    let head = self.newest(state).clone();
                    self.collect(state, process, &head);
                }
                false => self.begin_epoch(state, process),
            },
            (Step::Merged(new, old), _) => self.publish_merged(state, process, new, &old),
            _ => {}
        }
    }

    /// A process that waits looks at the head.
    fn look(&self, state: &mut State, process: usize) {
        let Step::Waits(sent) = state.processes[process].step.clone() else {
            return;
        };
        let newest = self.newest(state).clone();
        if newest.generation < sent.generation {
            // It sends the same again.
            return;
        }
        let is_own = newest.chain[sent.generation as usize] == sent.by;
        if is_own && !self.has(Bug::ForgetOwnCommit) {
            return self.acknowledged(state, process);
        }
        self.begin_again(state, process);
    }

    fn begin_again(&self, state: &mut State, process: usize) {
        let own = &mut state.processes[process];
        own.step = match (&own.merged, &own.listed) {
            (Some((new, old)), _) => Step::Merged(new.clone(), old.clone()),
            (None, Some(listed)) => Step::Listed(listed.clone()),
            (None, None) => Step::Begin,
        };
    }

    fn arrive(&self, state: &mut State, request: Request, answers: bool) {
        match request {
            Request::Delete(table) => {
                state.tables.remove(&table);
            }
            Request::Swap(expected, head) => {
                let slot = head.generation as usize % self.slots;
                let found = state.slots[slot].as_ref().map(|head| head.by);
                if found != expected && !self.has(Bug::NoCondition) {
                    return;
                }
                let process = head.by.0 as usize;
                state.slots[slot] = Some(head.clone());
                let waits = state.processes.get(process).is_some_and(
                    |own| matches!(&own.step, Step::Waits(sent) if sent.by == head.by),
                );
                if answers && waits {
                    self.acknowledged(state, process);
                }
            }
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = Head {
            generation: 0,
            index: 0,
            epoch: 0,
            by: (99, 0),
            chain: vec![(99, 0)],
            tables: Vec::new(),
            inline: Vec::new(),
            inline_min: u8::MAX,
        };
        let mut slots = vec![None; self.slots];
        slots[0] = Some(first);
        let process = Process {
            step: Step::Begin,
            attempts: 0,
            stored: None,
            epoch: 0,
            merged: None,
            listed: None,
            is_second: false,
            ahead: None,
            merged_ahead: None,
        };
        vec![State {
            slots,
            tables: BTreeSet::new(),
            sent: BTreeSet::new(),
            processes: vec![process; self.writers + self.maintainers + self.collectors + self.busy],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, process) in state.processes.iter().enumerate() {
            match &process.step {
                Step::Begin | Step::Read(_) | Step::Merged(..) | Step::Listed(_) => {
                    actions.push(Action::Go(at));
                }
                Step::Waits(_) => {
                    actions.push(Action::Disputed(at));
                    let may = self.has(Bug::RestartWhenUnknown) || self.has(Bug::DeleteWhenUnknown);
                    if may && self.role(at) == Role::Writer && process.attempts < 3 {
                        actions.push(Action::Unknown(at));
                    }
                }
                Step::Done | Step::Failed => {}
            }
        }
        for request in &state.sent {
            actions.push(Action::Arrive(request.clone(), true));
            actions.push(Action::Arrive(request.clone(), false));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Go(process) => self.go(&mut state, process),
            Action::Arrive(request, answers) => self.arrive(&mut state, request, answers),
            Action::Disputed(process) => self.look(&mut state, process),
            Action::Unknown(process) if self.has(Bug::DeleteWhenUnknown) => {
                let own = &mut state.processes[process];
                own.step = Step::Failed;
                if let Some(table) = own.stored.take() {
                    state.sent.insert(Request::Delete(table));
                }
            }
            Action::Unknown(process) => self.begin_again(&mut state, process),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "every table that the head names is there",
                |model: &Protocol, state: &State| {
                    let head = model.newest(state);
                    head.tables.iter().all(|table| state.tables.contains(table))
                },
            ),
            Property::always(
                "no commit is there twice",
                |model: &Protocol, state: &State| {
                    let commits: Vec<u8> = all_commits(model.newest(state));
                    let distinct: BTreeSet<u8> = commits.iter().copied().collect();
                    distinct.len() == commits.len()
                },
            ),
            Property::always(
                "what was acknowledged is there",
                |model: &Protocol, state: &State| {
                    let commits = all_commits(model.newest(state));
                    state.processes.iter().enumerate().all(|(at, process)| {
                        let (is_done, first) = (process.step == Step::Done, at as u8);
                        match model.role(at) {
                            Role::Writer => !is_done || commits.contains(&first),
                            Role::Busy => {
                                (!process.is_second || commits.contains(&first))
                                    && (!is_done || commits.contains(&(first + SECOND)))
                            }
                            _ => true,
                        }
                    })
                },
            ),
            Property::always(
                "what failed is not there",
                |model: &Protocol, state: &State| {
                    let commits = all_commits(model.newest(state));
                    (0..model.writers).all(|writer| {
                        state.processes[writer].step != Step::Failed
                            || !commits.contains(&(writer as u8))
                    })
                },
            ),
            Property::always(
                "tables follow each other",
                |model: &Protocol, state: &State| {
                    let tables = &model.newest(state).tables;
                    tables.windows(2).all(|pair| pair[0].max < pair[1].min)
                },
            ),
            Property::sometimes("everybody is done", |_: &Protocol, state: &State| {
                state
                    .processes
                    .iter()
                    .all(|process| process.step == Step::Done)
            }),
            Property::sometimes(
                "a merged table is named",
                |model: &Protocol, state: &State| {
                    let none = model.maintainers == 0;
                    none || model
                        .newest(state)
                        .tables
                        .iter()
                        .any(|table| table.epoch.is_some())
                },
            ),
            Property::sometimes(
                "what was stored ahead is named",
                |model: &Protocol, state: &State| {
                    let is_ahead = |table: &Table| model.role(table.by.0 as usize) == Role::Busy;
                    model.busy == 0 || model.newest(state).tables.iter().any(is_ahead)
                },
            ),
            Property::sometimes("a table is removed", |model: &Protocol, state: &State| {
                let none = model.collectors == 0;
                none || state
                    .sent
                    .iter()
                    .any(|it| matches!(it, Request::Delete(table) if !state.tables.contains(table)))
            }),
        ]
    }
}

fn all_commits(head: &Head) -> Vec<u8> {
    let tables = head.tables.iter().flat_map(|table| &table.commits);
    tables.chain(&head.inline).copied().collect()
}
