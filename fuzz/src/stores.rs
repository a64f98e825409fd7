//! Files of a store: packed-refs, loose refs, reflogs, tables.list. What can be read is the same
//! after the store has been written to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::store::Optimize;
use refdb::system::System;
use refdb_simulation::SimSystem;
use refdb_testkit::ours;
use refdb::{Edit, LogOrder, ObjectFormat, ObjectId, RefFormat, RefName, Result, Store};

pub(crate) const GIT_DIR: &str = "/repo/.git";

/// Opens the store on a simulated disk.
pub(crate) fn open(system: &SimSystem, format: RefFormat) -> Store {
    let mut options = ours::simulated(ObjectFormat::Sha1);
    // One ref is locked by itself, and several of a directory that is missing with it.
    options.directory_lock_min = 2;
    let system = Arc::new(system.clone());
    Store::open(
        system,
        Layout::main(GIT_DIR),
        format,
        Arc::new(NoObjects),
        options,
    )
    .expect("a store")
}

/// Makes an empty store.
pub(crate) fn empty(format: RefFormat) -> SimSystem {
    let system = SimSystem::new(7);
    let dirs: &[&str] = match format {
        RefFormat::Files => &["refs/heads", "logs/refs/heads"],
        RefFormat::Reftable => &["reftable"],
    };
    for dir in dirs {
        system
            .create_dir_all(&Path::new(GIT_DIR).join(dir))
            .expect("a new directory");
    }
    system
}

pub(crate) fn write(system: &SimSystem, path: &str, bytes: &[u8]) {
    let path = Path::new(GIT_DIR).join(path);
    let mut file = system.create_new(&path, 0o666).expect("a new file");
    file.write_all(bytes).expect("no fault");
}

pub(crate) fn oid(number: u64) -> ObjectId {
    ObjectId::from_hex(format!("{number:040x}").as_bytes()).expect("an object id")
}

pub(crate) fn name(text: &str) -> RefName<'_> {
    RefName::new(text).expect("a good name")
}

pub(crate) fn commit(store: &Store, edit: Edit<'_>) -> Result<()> {
    let mut transaction = store.transaction();
    transaction.add(edit)?;
    transaction.commit().map(drop)
}

/// Returns all refs with their values; a broken one says so.
pub(crate) fn refs(store: &Store) -> Result<BTreeMap<Vec<u8>, String>> {
    let mut listed = BTreeMap::new();
    let mut refs = store.refs()?;
    while let Some(record) = refs.next()? {
        let value = format!("{:?} {:?} {}", record.target, record.peeled, record.broken);
        let before = listed.insert(record.name.as_bytes().to_vec(), value);
        assert!(before.is_none(), "{} is listed twice", record.name);
    }
    Ok(listed)
}

/// What the lines of a packed-refs say, as far as a look at them tells.
struct Packed<'b> {
    says_sorted: bool,
    /// The names, in the order of the lines.
    names: Vec<&'b [u8]>,
}

impl<'b> Packed<'b> {
    fn of(bytes: &'b [u8]) -> Self {
        let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
        let header = lines.next_if(|line| line.starts_with(b"# pack-refs"));
        let is_sorted = |header: &[u8]| header.windows(7).any(|word| word == b" sorted");
        let records = lines.filter(|line| !line.starts_with(b"^"));
        Packed {
            says_sorted: header.is_some_and(is_sorted),
            names: records.filter_map(|line| line.get(41..)).collect(),
        }
    }

    /// Returns whether the lines are in order, or the header does not say that they are. Where they
    /// are not, a search misses refs, in Git as well; `refs verify` tells.
    fn tells_its_order(&self) -> bool {
        !self.says_sorted || self.names.is_sorted_by(|one, other| one < other)
    }

    /// Returns whether a ref stands there twice. Git lists it twice then, whatever the header says,
    /// and so does refdb; `refs verify` tells.
    fn repeats_a_ref(&self) -> bool {
        let mut names = self.names.clone();
        names.sort_unstable();
        !names.is_sorted_by(|one, other| one < other)
    }
}

pub(crate) fn packed_refs(bytes: &[u8]) {
    let system = empty(RefFormat::Files);
    write(&system, "packed-refs", bytes);
    let store = open(&system, RefFormat::Files);
    let packed = Packed::of(bytes);
    if packed.repeats_a_ref() {
        if let Ok(mut refs) = store.refs() {
            while let Ok(Some(_)) = refs.next() {}
        }
        return;
    }
    let listed = refs(&store);
    for text in ["refs/heads/a", "refs/heads/zz", "refs/tags/v1"] {
        let found = store.read(name(text));
        if let (Ok(found), Ok(listed)) = (&found, &listed)
            && packed.tells_its_order()
        {
            let is_listed = listed.contains_key(text.as_bytes());
            assert_eq!(
                found.is_some(),
                is_listed,
                "{text}: listed or found, not both"
            );
        }
    }
    let Ok(before) = listed else { return };
    if !packed.tells_its_order() {
        return;
    }
    let update = commit(&store, Edit::update(name("refs/new/ref"), oid(9)));
    let deleted = update.and_then(|()| commit(&store, Edit::delete(name("refs/new/ref"))));
    if deleted
        .and_then(|()| store.optimize(&Optimize::default()))
        .is_ok()
    {
        let store = open(&system, RefFormat::Files);
        // A peeled value may become known that was not: compare names and values.
        let value = |text: &String| text.split(") ").next().map(str::to_owned);
        let same = |refs: &BTreeMap<Vec<u8>, String>| -> Vec<(Vec<u8>, Option<String>)> {
            let others = refs.iter().filter(|(name, _)| *name != b"refs/new/ref");
            others
                .map(|(name, text)| (name.clone(), value(text)))
                .collect()
        };
        let after = refs(&store).expect("what we write can be read");
        assert_eq!(same(&after), same(&before), "written again");
    }
}

pub(crate) fn loose_ref(bytes: &[u8]) {
    let system = empty(RefFormat::Files);
    write(&system, "refs/heads/x", bytes);
    write(&system, "HEAD", bytes);
    let store = open(&system, RefFormat::Files);
    let listed = refs(&store);
    for text in ["refs/heads/x", "HEAD"] {
        let Ok(Some(found)) = store.read(name(text)) else {
            continue;
        };
        let target = found.target;
        let _ = store.resolve(name(text));
        // The value is written to another ref, and read again.
        let edit = match target.as_ref() {
            refdb::TargetRef::Direct(oid) => Edit::update(name("refs/heads/y"), oid),
            refdb::TargetRef::Symbolic(to) => Edit::symbolic(name("refs/heads/y"), to).no_deref(),
        };
        let edit = edit.into_owned();
        if commit(&store, edit).is_ok() && target.as_ref().oid().is_none_or(|oid| !oid.is_null()) {
            let again = store
                .read(name("refs/heads/y"))
                .expect("readable")
                .expect("there");
            assert_eq!(again.target, target, "written again");
        }
    }
    if listed.is_ok() {
        let _ = store.optimize(&Optimize::default());
        refs(&store).expect("packing breaks nothing");
    }
    // A broken ref can be replaced, and deleted.
    let update = commit(
        &store,
        Edit::update(name("refs/heads/x"), oid(5)).no_deref(),
    );
    if update.is_ok() {
        let found = store
            .read(name("refs/heads/x"))
            .expect("readable")
            .expect("there");
        assert_eq!(found.target.as_ref().oid(), Some(oid(5)));
    }
}

pub(crate) fn reflog(bytes: &[u8]) {
    let system = empty(RefFormat::Files);
    write(&system, "refs/heads/x", format!("{}\n", oid(2)).as_bytes());
    write(&system, "logs/refs/heads/x", bytes);
    let store = open(&system, RefFormat::Files);
    let x = name("refs/heads/x");
    let oldest = store.log(x, LogOrder::OldestFirst);
    let newest = store.log(x, LogOrder::NewestFirst);
    let _ = store.log_names();
    if let (Ok(Some(oldest)), Ok(Some(newest))) = (&oldest, &newest) {
        let turned: Vec<_> = newest.iter().rev().cloned().collect();
        assert_eq!(oldest, &turned, "both orders show the same");
    }
    assert_eq!(
        oldest.is_ok(),
        newest.is_ok(),
        "damage is damage in both orders"
    );
    // One more entry: those that were there stay.
    if let Ok(Some(before)) = oldest
        && (bytes.is_empty() || bytes.ends_with(b"\n"))
        && commit(&store, Edit::update(x, oid(7)).message(b"more")).is_ok()
    {
        let after = store
            .log(x, LogOrder::OldestFirst)
            .expect("readable")
            .expect("there");
        assert_eq!(
            &after[..before.len()],
            &before,
            "an entry is added, and none changed"
        );
        assert_eq!(after.len(), before.len() + 1);
    }
}

/// The tables that are there, whatever the list says.
const TABLES: [&str; 3] = [
    "0x000000000001-0x000000000001-aaaaaaaa.ref",
    "0x000000000002-0x000000000002-bbbbbbbb.ref",
    "0x000000000003-0x000000000064-cccccccc.ref",
];

pub(crate) fn tables_list(bytes: &[u8]) {
    let system = empty(RefFormat::Reftable);
    for (index, table) in TABLES.iter().enumerate() {
        let count = [1, 3, 20][index];
        write(
            &system,
            &format!("reftable/{table}"),
            &super::tables::dense(count, 512),
        );
    }
    write(&system, "reftable/tables.list", bytes);
    let store = open(&system, RefFormat::Reftable);
    let Ok(before) = refs(&store) else { return };
    let done = commit(&store, Edit::update(name("refs/zz/new"), oid(9)));
    let store = open(&system, RefFormat::Reftable);
    let after = refs(&store).expect("a write breaks nothing");
    let mut wanted = before.clone();
    if done.is_ok() {
        let new = after
            .get(&b"refs/zz/new"[..])
            .expect("what was acknowledged is there");
        wanted.insert(b"refs/zz/new".to_vec(), new.clone());
    }
    assert_eq!(after, wanted);
}
