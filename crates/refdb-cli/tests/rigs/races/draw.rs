//! What the workers of a cell do, drawn from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use refdb_testkit::linear::{Edit, Expected, Value};
use refdb_testkit::rng::Rng;

use super::actor::{How, Op};
use super::names::{BRANCHES, LINK, MANY, NESTED, SPARE};

/// What a worker mostly does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Create,
    Delete,
    Rename,
    Symref,
    Head,
    Pack,
    Expire,
    Migrate,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Create,
        Kind::Delete,
        Kind::Rename,
        Kind::Symref,
        Kind::Head,
        Kind::Pack,
        Kind::Expire,
        Kind::Migrate,
    ];
}

/// Draws operations.
#[derive(Debug)]
pub(crate) struct Drawer<'a> {
    pub(crate) rng: Rng,
    /// Values that nobody has written in this round.
    pub(crate) fresh: Vec<&'a String>,
    /// The refs at the beginning of the round.
    pub(crate) first: &'a BTreeMap<String, Value>,
    /// Whether nothing may run for longer than one operation, nor hold what it has prepared.
    pub(crate) hurry: bool,
}

impl Drawer<'_> {
    fn oid(&mut self) -> String {
        match self.fresh.pop() {
            Some(oid) => oid.clone(),
            // Seldom: what a round can do is less than there are commits.
            None => self.first.values().find_map(oid_of).unwrap_or_default(),
        }
    }

    fn put(&mut self, name: &str) -> Edit {
        let oid = self.oid();
        let old = self.first.get(name).and_then(oid_of);
        match (self.rng.below(10), old) {
            (0..3, Some(old)) => Edit::swap(name, &old, &oid),
            _ => Edit::put(name, Value::Oid(oid)),
        }
    }

    fn create(&mut self, name: &str) -> Edit {
        let oid = self.oid();
        Edit::create(name, &oid)
    }

    fn delete(&mut self, name: &str) -> Edit {
        match self.first.get(name).and_then(oid_of) {
            Some(old) if self.rng.percent(20) => {
                Edit::delete(name).expecting(Expected::Is(Value::Oid(old)))
            }
            _ => Edit::delete(name),
        }
    }

    fn link(&mut self, name: &str, targets: &[&str]) -> Edit {
        let target = (*self.rng.pick(targets)).to_owned();
        Edit::put(name, Value::Symbolic(target))
    }

    /// Draws one edit of a kind, or one that makes it possible.
    fn edit(&mut self, kind: Kind) -> Edit {
        let nested = *self.rng.pick(&NESTED);
        let branch = *self.rng.pick(&BRANCHES);
        let many = *self.rng.pick(&MANY);
        match (kind, self.rng.below(100)) {
            (Kind::Create, 0..55) => self.create(nested),
            (Kind::Create, 55..75) => self.create(many),
            (Kind::Create, _) => self.delete(nested),
            (Kind::Delete, 0..50) => self.delete(nested),
            (Kind::Delete, 50..65) => Edit::delete(many),
            (Kind::Delete, 65..75) => self.delete(branch),
            (Kind::Delete, _) => self.create(nested),
            (Kind::Symref, 0..40) => self.link(LINK, &NESTED),
            (Kind::Symref, 40..75) => self.put(LINK),
            (Kind::Symref, 75..85) => Edit::delete(LINK),
            (Kind::Symref, _) => self.delete(nested),
            (Kind::Head, 0..40) => self.put("HEAD"),
            (Kind::Head, 40..80) => self.put(branch),
            (Kind::Head, 80..95) => self.link("HEAD", &BRANCHES),
            (Kind::Head, _) => self.put("HEAD").no_deref(),
            (Kind::Rename, 0..50) => self.create(nested),
            (Kind::Rename, 50..70) => self.delete(SPARE),
            (Kind::Rename, _) => self.delete(nested),
            (_, 0..40) => self.put(nested),
            (_, 40..60) => self.put(branch),
            (_, 60..80) => self.delete(nested),
            (_, 80..90) => self.create(many),
            (_, _) => self.put("HEAD"),
        }
    }

    /// Draws a transaction: mostly of one edit, else of two that are not in each other's way.
    fn edits(&mut self, kind: Kind) -> Vec<Edit> {
        let mut edits = vec![self.edit(kind)];
        if self.rng.percent(25) {
            let name = edits[0].name.clone();
            if !BRANCHES.contains(&name.as_str()) && name != "HEAD" {
                let branch = *self.rng.pick(&BRANCHES);
                let other = self.put(branch);
                edits.push(other);
            }
        }
        edits
    }

    fn how(&mut self) -> How {
        let pause = Duration::from_micros(self.rng.below(3000) as u64);
        match self.rng.below(100) {
            0..35 => How::Plain,
            35..60 => How::Input(self.rng.percent(50)),
            60..93 => How::Prepared(pause),
            _ => How::Aborted(pause),
        }
    }

    /// Draws what a worker of a kind does next.
    pub(crate) fn op(&mut self, kind: Kind) -> Op {
        match (kind, self.rng.below(100)) {
            (Kind::Rename, 0..65) => {
                // Not a branch of HEAD, which `git branch -m` moves as well.
                let names = [NESTED[0], NESTED[1], NESTED[2], SPARE];
                let old = *self.rng.pick(&names);
                let others: Vec<&str> = names.into_iter().filter(|name| *name != old).collect();
                Op::Rename(old.into(), (*self.rng.pick(&others)).into())
            }
            (Kind::Pack, 0..60) => Op::Pack,
            (Kind::Expire, 0..60) => Op::Expire,
            (Kind::Migrate, _) => Op::Migrate,
            (_, 90..100) if !self.hurry => {
                let (one, other) = (self.edits(kind), self.edits(kind));
                Op::Two(one, other)
            }
            _ => {
                let (edits, how) = (self.edits(kind), self.how());
                Op::Write(edits, how)
            }
        }
    }
}

fn oid_of(value: &Value) -> Option<String> {
    match value {
        Value::Oid(oid) => Some(oid.clone()),
        Value::Symbolic(_) => None,
    }
}
