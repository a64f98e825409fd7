//! Sequences of transactions with failures, deaths and losses of power, in both formats, beside a
//! sorted map: what was acknowledged is there, what was refused is not, and nothing is half there.

use std::collections::BTreeMap;
use std::io::ErrorKind as Io;

use refdb::store::Optimize;
use refdb_simulation::{Crash, Failure, Fault, SimSystem};
use refdb::{Edit, Expected, RefFormat, RefName, Store};

use super::stores::{commit, empty, name, oid, open};

const NAMES: [&str; 8] = [
    "refs/heads/a",
    "refs/heads/a/b",
    "refs/heads/b",
    "refs/heads/c/d",
    "refs/heads/c/e",
    "refs/heads/main",
    "refs/tags/t",
    "refs/x",
];

type Map = BTreeMap<&'static str, u64>;

/// Bytes, read one after the other.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::from(self.next()) % count
    }

    /// Takes as many bytes as the next two say.
    pub(crate) fn take(&mut self) -> &'a [u8] {
        let len = usize::from(self.next()) << 8 | usize::from(self.next());
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

pub(crate) fn sequence(bytes: &[u8]) {
    carry_out(bytes, false);
}

/// The same on a disk that says that things are durable and does not make them so.
pub(crate) fn on_a_disk_that_lies(bytes: &[u8]) {
    carry_out(bytes, true);
}

fn carry_out(bytes: &[u8], lies: bool) {
    let mut input = Input(bytes.get(..96).unwrap_or(bytes));
    let format = match input.next() % 2 {
        0 => RefFormat::Files,
        _ => RefFormat::Reftable,
    };
    let mut system = empty(format);
    system.sync_all();
    if lies {
        system.lie_about_syncs();
    }
    let mut model = Map::new();
    let mut pid = 2000;
    let mut value = 0;
    while !input.0.is_empty() {
        pid += 1;
        step(&mut system, format, &mut model, &mut input, pid, &mut value);
    }
    let store = open(&system, format);
    store.optimize(&Optimize::default()).expect("no fault");
    assert_eq!(read(&store), model, "at the end");
}

/// One process does one thing; something may happen to it.
fn step(
    system: &mut SimSystem,
    format: RefFormat,
    model: &mut Map,
    input: &mut Input<'_>,
    pid: u32,
    value: &mut u64,
) {
    let process = system.process(pid);
    let kind = input.next();
    let at = u64::from(input.next()) % 64;
    let fault = match kind % 8 {
        0 => Some(Fault::once(at, Io::Other)),
        1 => Some(Fault::once(at, Io::StorageFull)),
        2 => Some(Fault {
            at,
            failure: Failure::Short(1),
            persistent: true,
        }),
        3 | 4 => Some(Fault::dies_at(at)),
        _ => None,
    };
    process.set_fault(fault);
    let store = open(&process, format);
    let dies = matches!(kind % 8, 3 | 4);
    let mut wanted = model.clone();
    let done = if kind >= 224 {
        store.optimize(&Optimize::default()).map(|()| true)
    } else {
        let (edits, possible) = edits(&mut wanted, input, value);
        let mut transaction = store.transaction();
        let added = edits.into_iter().try_for_each(|edit| transaction.add(edit));
        let done = added.and_then(|()| transaction.commit());
        // What failed after the commit became visible may not be durable.
        let done = done.map(|outcome| outcome.afterwards.is_empty());
        assert!(
            possible || done.is_err(),
            "what is impossible was acknowledged"
        );
        if possible && fault.is_none() {
            done.as_ref().expect("nothing was in the way");
        }
        if !possible {
            wanted.clone_from(model);
        }
        done
    };
    drop(store);
    if dies {
        process.end();
    } else {
        process.set_fault(None);
    }
    let loses_power = dies && kind & 16 != 0;
    if loses_power {
        *system = system.crash(Crash::seeded(u64::from(kind) << 8 | at));
    }
    let found = read(&open(&system.process(1999), format));
    let told_in_part = done
        .as_ref()
        .is_err_and(|error| error.to_string().contains("in part"));
    let acknowledged = matches!(done, Ok(true));
    if acknowledged || done.is_ok() && !loses_power {
        assert_eq!(found, wanted, "acknowledged");
    } else if told_in_part || dies {
        assert!(
            found == wanted || found == *model,
            "half of it: {found:?} {model:?} {wanted:?}"
        );
    } else {
        assert_eq!(&found, model, "refused: {done:?}");
    }
    if !acknowledged {
        // What was read once may go with the power when nobody has promised it.
        system.sync_all();
    }
    *model = found;
    // Whatever was left behind is in nobody's way.
    *value += 1;
    let store = open(&system.process(1998), format);
    commit(&store, Edit::update(name("refs/later"), oid(*value))).expect("nothing is in the way");
}

/// Makes a transaction, applies it to the map, and tells whether it can go through.
fn edits(model: &mut Map, input: &mut Input<'_>, value: &mut u64) -> (Vec<Edit<'static>>, bool) {
    let (mut edits, mut possible) = (Vec::new(), true);
    let mut taken = Vec::new();
    let before = model.clone();
    for _ in 0..1 + input.pick(5) {
        let text = NAMES[input.pick(NAMES.len())];
        if taken.contains(&text) {
            continue;
        }
        taken.push(text);
        let found: RefName<'static> = name(text);
        let now = before.get(text).copied();
        let choice = input.next();
        if choice.is_multiple_of(4) && now.is_none() {
            // Whether deleting nothing is refused is asked elsewhere.
            continue;
        }
        let expected = match choice >> 6 {
            0 => Expected::Any,
            1 => match now {
                Some(now) => Expected::Oid(oid(now)),
                None => Expected::Any,
            },
            2 => {
                possible &= now.is_none();
                Expected::Missing
            }
            _ => {
                possible &= now == Some(1);
                Expected::Oid(oid(1))
            }
        };
        let edit = if choice.is_multiple_of(4) {
            model.remove(text);
            Edit::delete(found)
        } else {
            *value += 1;
            model.insert(text, *value);
            Edit::update(found, oid(*value))
        };
        edits.push(edit.expecting(expected).into_owned());
    }
    // A ref and one below it: neither before nor after, nor one for the other at once.
    let below = |short: &str, long: &str| {
        long.len() > short.len() + 1 && long.starts_with(&format!("{short}/"))
    };
    for one in model.keys().filter(|text| !before.contains_key(*text)) {
        let mut others = before.keys().chain(model.keys());
        possible &= !others.any(|other| below(one, other) || below(other, one));
    }
    (edits, possible)
}

fn read(store: &Store) -> Map {
    let mut found = Map::new();
    let mut refs = store.refs().expect("readable refs");
    while let Some(record) = refs.next().expect("readable refs") {
        assert!(!record.broken && !record.has_bad_name(), "{record:?}");
        let text = NAMES
            .iter()
            .find(|text| text.as_bytes() == record.name.as_bytes());
        let oid = record.target.oid().expect("no symref was made").to_string();
        let value = u64::from_str_radix(&oid[24..], 16).expect("a number");
        match text {
            Some(text) => drop(found.insert(*text, value)),
            None => assert_eq!(record.name.as_bytes(), b"refs/later", "a name from nowhere"),
        }
    }
    found
}
