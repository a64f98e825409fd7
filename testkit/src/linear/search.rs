//! The search for an order.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::MOST_NODES;
use super::compile::{Calls, Change, Compiled, Id, Kind, Manner, Name, Need, Put, Seen};

/// Why no order was found.
#[derive(Debug)]
pub(super) enum Stuck {
    /// The search gave up.
    Undecided,
    /// What the refs are where the most calls are explained, and the calls that come next.
    At(String, Vec<usize>),
}

/// A chain of symrefs is followed so far, as Git does.
const DEEPEST: usize = 5;

/// How far a call is: a bit for each step that was taken, the value that a rename moves, and
/// whether it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    steps: u128,
    moved: Option<Id>,
    is_over: bool,
}

/// What was done, and what it left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    /// All calls before this one are over.
    base: usize,
    /// The calls from there on, as far as any of them has begun.
    calls: Vec<Progress>,
    refs: Vec<Option<Id>>,
}

impl Node {
    fn progress(&self, call: usize) -> Progress {
        match call.checked_sub(self.base) {
            None => Progress {
                is_over: true,
                ..Progress::default()
            },
            Some(at) => self.calls.get(at).copied().unwrap_or_default(),
        }
    }

    fn set(&mut self, call: usize, progress: Progress) {
        let at = call - self.base;
        if self.calls.len() <= at {
            self.calls.resize(at + 1, Progress::default());
        }
        self.calls[at] = progress;
    }

    /// Forgets the calls at the beginning that are over, so that equal nodes look equal.
    fn tidy(&mut self) {
        let over = self.calls.iter().take_while(|call| call.is_over).count();
        self.calls.drain(..over);
        self.base += over;
        while self
            .calls
            .last()
            .is_some_and(|it| *it == Progress::default())
        {
            self.calls.pop();
        }
    }

    fn explained(&self) -> usize {
        self.base + self.calls.iter().filter(|call| call.is_over).count()
    }
}

/// Looks for an order; returns how many nodes were looked at.
pub(super) fn search(calls: &Calls<'_>) -> Result<usize, Stuck> {
    let mut seen = HashSet::new();
    let mut stack = vec![Node {
        base: 0,
        calls: Vec::new(),
        refs: calls.first.clone(),
    }];
    let mut best: Option<Node> = None;
    while let Some(mut node) = stack.pop() {
        read_what_fits(calls, &mut node);
        node.tidy();
        if node.base == calls.calls.len() {
            return Ok(seen.len() + 1);
        }
        if best
            .as_ref()
            .is_none_or(|it| it.explained() < node.explained())
        {
            best = Some(node.clone());
        }
        if seen.contains(&node) {
            continue;
        }
        if seen.len() >= MOST_NODES {
            return Err(Stuck::Undecided);
        }
        for call in open(calls, &node) {
            follow(calls, &node, call, &mut stack);
        }
        seen.insert(node);
    }
    let best = best.expect("the first node was looked at");
    Err(Stuck::At(describe(calls, &best.refs), open(calls, &best)))
}

fn describe(calls: &Calls<'_>, refs: &[Option<Id>]) -> String {
    let mut text = String::new();
    for (name, id) in calls.names.iter().zip(refs) {
        if let Some(id) = id {
            let _ = write!(text, "{name}={} ", calls.values[usize::from(*id)]);
        }
    }
    text
}

/// Returns the calls that may come next: no call that is not over ended before they began.
fn open(calls: &Calls<'_>, node: &Node) -> Vec<usize> {
    let mut first_end = Duration::MAX;
    let mut open = Vec::new();
    for (number, call) in calls.calls.iter().enumerate().skip(node.base) {
        // Those that follow begin later still.
        if call.begun > first_end {
            break;
        }
        if !node.progress(number).is_over {
            first_end = first_end.min(call.ended);
            open.push(number);
        }
    }
    open.retain(|&number| calls.calls[number].begun <= first_end);
    open
}

/// Takes the steps that change nothing, as long as there are any.
fn read_what_fits(calls: &Calls<'_>, node: &mut Node) {
    loop {
        let mut any = false;
        for number in open(calls, node) {
            let mut progress = node.progress(number);
            match &calls.calls[number].kind {
                Kind::Nothing => progress.is_over = true,
                Kind::Refused(changes) => {
                    progress.is_over = is_refusable(calls, node, changes);
                }
                Kind::Reads(steps) => {
                    for (at, step) in steps.iter().enumerate() {
                        if fits(calls, node, step) {
                            progress.steps |= 1 << at;
                        }
                    }
                    progress.is_over = progress.steps == (1 << steps.len()) - 1;
                }
                Kind::Write { .. } => {}
            }
            if progress != node.progress(number) {
                node.set(number, progress);
                any = true;
            }
        }
        if !any {
            return;
        }
    }
}

fn fits(calls: &Calls<'_>, node: &Node, step: &[(Name, Seen)]) -> bool {
    let is_direct = |id: Id| calls.targets[usize::from(id)].is_none();
    step.iter().all(|&(name, seen)| match seen {
        Seen::Value(id) => node.refs[name] == Some(id),
        Seen::NotDirect => !node.refs[name].is_some_and(is_direct),
    })
}

/// Follows symrefs from a name, if `deref`.
fn resolve(calls: &Calls<'_>, refs: &[Option<Id>], name: Name, deref: bool) -> Name {
    let mut at = name;
    for _ in 0..DEEPEST {
        match refs[at].and_then(|id| calls.targets[usize::from(id)]) {
            Some(target) if deref => at = target,
            _ => break,
        }
    }
    at
}

/// Returns whether what a change expects holds.
fn holds(refs: &[Option<Id>], change: &Change, name: Name) -> bool {
    match change.expected {
        Need::Any => true,
        Need::Missing => refs[name].is_none(),
        Need::Exists => refs[name].is_some(),
        Need::Is(id) => refs[name] == Some(id),
    }
}

/// Returns the names that calls which have begun hold, and those of them that they will make.
fn held(calls: &Calls<'_>, node: &Node) -> (Vec<Name>, Vec<Name>) {
    let (mut all, mut to_come) = (Vec::new(), Vec::new());
    for (at, progress) in node.calls.iter().enumerate() {
        let compiled: &Compiled<'_> = &calls.calls[node.base + at];
        let Kind::Write {
            changes, manner, ..
        } = &compiled.kind
        else {
            continue;
        };
        if progress.is_over || progress.steps == 0 || *manner == Manner::Loose {
            continue;
        }
        for (index, change) in changes.iter().enumerate() {
            let name = resolve(calls, &node.refs, change.name, change.deref);
            all.extend([change.name, name]);
            let is_taken = progress.steps & (2 << index) != 0;
            if !is_taken && matches!(change.new, Put::Value(_) | Put::Moved) {
                to_come.push(name);
            }
        }
    }
    (all, to_come)
}

/// Returns whether a name above or below what the changes make is there, or is about to be.
fn is_in_conflict(calls: &Calls<'_>, node: &Node, changes: &[Change], to_come: &[Name]) -> bool {
    let makes = |change: &Change| matches!(change.new, Put::Free | Put::Value(_) | Put::Moved);
    let end = |change: &Change| resolve(calls, &node.refs, change.name, change.deref);
    changes.iter().filter(|it| makes(it)).any(|change| {
        let name = end(change);
        node.refs[name].is_none()
            && calls.in_the_way[name].iter().any(|&other| {
                match changes.iter().find(|it| end(it) == other) {
                    Some(own) if own.new != Put::Kept => makes(own),
                    _ => node.refs[other].is_some() || to_come.contains(&other),
                }
            })
    })
}

/// Returns whether there is a reason at this moment to refuse the changes.
fn is_refusable(calls: &Calls<'_>, node: &Node, changes: &[Change]) -> bool {
    let unmet = changes.iter().any(|change| {
        let name = resolve(calls, &node.refs, change.name, change.deref);
        let is_gone = change.new == Put::Gone && node.refs[name].is_none();
        is_gone || !holds(&node.refs, change, name)
    });
    unmet || is_in_conflict(calls, node, changes, &held(calls, node).1)
}

/// Adds what a call can make of a node.
fn follow(calls: &Calls<'_>, node: &Node, number: usize, stack: &mut Vec<Node>) {
    let Kind::Write {
        changes,
        manner,
        may_end_early,
    } = &calls.calls[number].kind
    else {
        return;
    };
    let progress = node.progress(number);
    if *may_end_early {
        let mut next = node.clone();
        let is_over = Progress {
            is_over: true,
            ..Progress::default()
        };
        next.set(number, is_over);
        stack.push(next);
    }
    if progress.steps == 0 {
        stack.extend(begin(calls, node, number, changes, *manner));
        return;
    }
    for (index, change) in changes.iter().enumerate() {
        if progress.steps & (2 << index) != 0 {
            continue;
        }
        let is_possible = *manner != Manner::Loose || {
            let (all, to_come) = held(calls, node);
            let one = std::slice::from_ref(change);
            match change.new {
                Put::Free => !is_in_conflict(calls, node, one, &to_come),
                _ => !all.contains(&change.name),
            }
        };
        if is_possible {
            let mut next = node.clone();
            take(calls, &mut next, number, index);
            stack.push(next);
        }
        let may_leave_out = *manner == Manner::Loose && *may_end_early;
        if *manner != Manner::AnyOrder && !may_leave_out {
            return;
        }
    }
}

/// Has a write begin, if what it expects holds and nobody holds its refs.
fn begin(
    calls: &Calls<'_>,
    node: &Node,
    number: usize,
    changes: &[Change],
    manner: Manner,
) -> Option<Node> {
    let (all, to_come) = held(calls, node);
    let is_loose = manner == Manner::Loose;
    let is_free = changes.iter().all(|change| {
        let name = resolve(calls, &node.refs, change.name, change.deref);
        let is_held = all.contains(&name) || all.contains(&change.name);
        (is_loose || !is_held) && holds(&node.refs, change, name)
    });
    if !is_free || !is_loose && is_in_conflict(calls, node, changes, &to_come) {
        return None;
    }
    let mut next = node.clone();
    let goes = changes.iter().find(|change| change.new == Put::Gone);
    let moved = goes.and_then(|change| node.refs[change.name]);
    let begun = Progress {
        steps: 1,
        moved: moved.filter(|_| changes.iter().any(|it| it.new == Put::Moved)),
        is_over: false,
    };
    next.set(number, begun);
    if manner == Manner::AtOnce {
        (0..changes.len()).for_each(|index| take(calls, &mut next, number, index));
    }
    Some(next)
}

/// Carries out one change of a call that has begun.
fn take(calls: &Calls<'_>, node: &mut Node, number: usize, index: usize) {
    let Kind::Write {
        changes, manner, ..
    } = &calls.calls[number].kind
    else {
        return;
    };
    let mut progress = node.progress(number);
    let change = &changes[index];
    let name = resolve(calls, &node.refs, change.name, change.deref);
    match change.new {
        Put::Kept | Put::Free => {}
        Put::Gone => node.refs[name] = None,
        Put::Value(id) => node.refs[name] = Some(id),
        Put::Moved => node.refs[name] = progress.moved,
    }
    progress.steps |= 2 << index;
    if *manner == Manner::Loose {
        // What was left out before it is not done behind it.
        progress.steps |= (2 << index) - 1;
    }
    progress.is_over = progress.steps == (2 << changes.len()) - 1;
    node.set(number, progress);
}
