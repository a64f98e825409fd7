//! Repair of a store that many machines share: each kind of damage, a repair that is disturbed, and writers who
//! were there before.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use refdb::objects::NoObjects;
use refdb::options::{Committer, Identity};
use refdb::shared::head::Head;
use refdb::shared::{Freshness, MemoryShared, Read, Register, Settings, Shared, Swap, Version};
use refdb::system::{Bytes, OsSystem};
use refdb::{
    Edit, Error, ErrorKind, ObjectFormat, ObjectId, Options, RefName, Result, Store, Target,
};
use refdb_git::places::DirShared;
use refdb_maintenance::repair::{StoreMeans, StorePlan, plan_store};
use refdb_maintenance::shared::{changes, verify};

/// What each ref is.
type Refs = BTreeMap<String, Target>;

/// A place, and one that goes away after so many requests that write, by refusing or by not answering.
#[derive(Debug)]
struct Fickle {
    inner: Arc<dyn Shared>,
    left: AtomicUsize,
    is_silent: bool,
}

impl Fickle {
    fn new(inner: &Arc<dyn Shared>, left: usize, is_silent: bool) -> Fickle {
        Fickle {
            inner: Arc::clone(inner),
            left: AtomicUsize::new(left),
            is_silent,
        }
    }

    fn is_away(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_err()
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Io, "the place went away")
}

impl Shared for Fickle {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        self.inner.head(slot, known)
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        match (self.is_away(), self.is_silent) {
            (false, _) => self.inner.swap(slot, expected, new),
            (true, false) => Err(away()),
            // It is done, and nobody is told.
            (true, true) => Ok(match self.inner.swap(slot, expected, new)? {
                Swap::Done(_) => Swap::Unknown,
                other => other,
            }),
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.inner.get(key, range)
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        match self.is_away() && !self.is_silent {
            true => Err(away()),
            false => self.inner.put(key, content),
        }
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.inner.delete(keys)
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        self.inner.clear(slots)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.inner.list(prefix)
    }
}

/// A store in which every commit brings a table, but for the last ones.
struct World {
    place: Arc<dyn Shared>,
    store: Store,
    register: Arc<Register>,
    format: ObjectFormat,
    system: OsSystem,
    _temp: tempfile::TempDir,
}

fn oid(format: ObjectFormat, digit: usize) -> ObjectId {
    let hex = format!("{digit:0width$x}", width = format.hex_len());
    ObjectId::from_hex(hex.as_bytes()).expect("digits")
}

fn open(
    place: &Arc<dyn Shared>,
    format: ObjectFormat,
    inline_max: usize,
) -> (Arc<Register>, Store) {
    let settings = Settings {
        inline_max,
        tables_many: 60,
        ..Settings::default()
    };
    let register = Register::open(Arc::clone(place), Arc::new(OsSystem::new()), settings);
    let register = Arc::new(register.expect("a register"));
    let mut options = Options::new(format);
    options.committer = Committer::from(Identity {
        name: "Ann".into(),
        email: "ann@example.org".into(),
        date: None,
        zone: 0,
    });
    let store = Store::open_shared(Arc::clone(&register), Arc::new(NoObjects), options);
    (register, store.expect("a store"))
}

fn set(store: &Store, name: &str, oid: ObjectId, logs: bool) -> Result<()> {
    let mut transaction = store.transaction();
    if !logs {
        transaction = transaction.skip_logs();
    }
    let mut edit = Edit::update(RefName::new(name)?, oid).message(&b"set"[..]);
    if logs {
        edit = edit.create_log();
    }
    transaction.add(edit)?;
    let outcome = transaction.commit()?;
    assert!(outcome.rejections.is_empty());
    Ok(())
}

impl World {
    fn new(slots: u32, format: ObjectFormat, in_memory: bool, logs: bool) -> World {
        let temp = tempfile::tempdir().expect("a folder");
        let place: Arc<dyn Shared> = match in_memory {
            true => Arc::new(MemoryShared::new()),
            false => {
                let root = temp.path().join("store");
                Arc::new(DirShared::open(&OsSystem::new(), &root, true).expect("a place"))
            }
        };
        Register::init(place.as_ref(), &OsSystem::new(), format, slots).expect("a store");
        let (_, early) = open(&place, format, 0);
        for at in 0..9 {
            let name = format!("refs/heads/b{}", at % 4);
            set(&early, &name, oid(format, at + 1), logs).expect("it commits");
        }
        let (register, store) = open(&place, format, 1 << 16);
        for at in 9..11 {
            let name = format!("refs/heads/b{}", at % 4);
            set(&store, &name, oid(format, at + 1), logs).expect("it commits");
        }
        World {
            place,
            store,
            register,
            format,
            system: OsSystem::new(),
            _temp: temp,
        }
    }

    fn refs(&self) -> Refs {
        let (_, store) = open(&self.place, self.format, 1 << 16);
        let mut found = Refs::new();
        let mut refs = store.refs().expect("refs");
        while let Some(record) = refs.next().expect("a ref") {
            found.insert(record.name.to_string(), record.target.to_owned());
        }
        found
    }

    fn head(&self) -> Head {
        let (register, _) = open(&self.place, self.format, 0);
        register
            .current(Freshness::Fresh)
            .expect("a head")
            .head
            .clone()
    }

    fn means(&self) -> StoreMeans {
        StoreMeans {
            objects: Arc::new(NoObjects),
            head: None,
            tables: None,
        }
    }

    /// Puts something else in the place of a head.
    fn break_slot(&self, slot: u32) -> Vec<u8> {
        let Read::Head(content, version) = self.place.head(slot, None).expect("a slot") else {
            panic!("slot {slot} has a head");
        };
        let mut bad = content.to_vec();
        bad[40] ^= 1;
        let swapped = self.place.swap(slot, Some(&version), &bad).expect("a swap");
        assert!(matches!(swapped, Swap::Done(_)));
        content.to_vec()
    }

    /// Fails unless the store is sound, nobody's index is used again, and whoever follows gets everything.
    fn is_sound(&self, before: &Head) {
        self.is_sound_again(before, true);
    }

    /// The same, where perhaps nothing was lost.
    fn is_sound_again(&self, before: &Head, is_lossy: bool) {
        let (register, store) = open(&self.place, self.format, 1 << 16);
        let problems = verify(&register, &|_| ()).expect("a head");
        assert!(problems.is_empty(), "{problems:?}");
        let head = self.head();
        assert!(head.index >= before.index + u64::from(is_lossy));
        assert!(head.generation > before.generation);
        assert_eq!((head.uuid, head.frozen.as_deref()), (before.uuid, None));
        for index in [1, before.index] {
            let since = refdb_maintenance::shared::Moment {
                uuid: head.uuid,
                index,
                commit: None,
            };
            let changes = changes(&register, Some(since)).expect("changes");
            assert!(changes.is_all || !is_lossy);
        }
        // It can be written to, more often than there are slots.
        for at in 0..head.slot_count as usize + 2 {
            set(&store, "refs/heads/later", oid(self.format, 100 + at), true).expect("a commit");
        }
        let next = plan(self, &self.means());
        assert!(next.is_empty(), "{:?}", next.notes());
    }
}

fn plan<'w>(world: &'w World, means: &StoreMeans) -> StorePlan<'w> {
    plan_store(world.place.as_ref(), &world.system, means).expect("a plan")
}

/// The refs whose newest record is in a table, and what they are without it.
fn only_in(world: &World, at: usize) -> Vec<String> {
    let head = world.head();
    let (min, max) = (head.tables[at].key.min, head.tables[at].key.max);
    let (register, _) = open(&world.place, world.format, 0);
    let all = changes(&register, None).expect("changes");
    let here = all
        .changes
        .iter()
        .filter(|it| (min..=max).contains(&it.index));
    here.map(|it| it.name.to_string()).collect()
}

fn worlds(logs: bool) -> impl Iterator<Item = World> {
    let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
    let places = [(1, true), (1, false), (4, true), (4, false)];
    formats.into_iter().flat_map(move |format| {
        places
            .into_iter()
            .map(move |(slots, in_memory)| World::new(slots, format, in_memory, logs))
    })
}

#[test]
fn what_is_sound_is_left_alone() {
    for world in worlds(true) {
        let before = world.head();
        assert!(plan(&world, &world.means()).is_empty());
        assert_eq!(world.head(), before);
    }
}

#[test]
fn a_table_that_is_missing_takes_only_what_it_said() {
    for logs in [true, false] {
        for at in 0..9 {
            let world = World::new(1, ObjectFormat::Sha1, true, logs);
            let (before, head) = (world.refs(), world.head());
            let lost = only_in(&world, at);
            let name = format!("tables/{}", head.tables[at].key);
            world.place.delete(&[&name]).expect("it goes");
            let plan = plan(&world, &world.means());
            assert!(!plan.is_empty());
            assert!(plan.notes()[0].starts_with(&name), "{:?}", plan.notes());
            plan.apply().expect("it is repaired");
            let after = world.refs();
            for (name, target) in &before {
                match lost.contains(name) {
                    false => assert_eq!(after.get(name), Some(target), "{name} of {at}"),
                    true => assert_ne!(after.get(name), Some(target), "{name} of {at}"),
                }
            }
            world.is_sound(&head);
        }
    }
}

#[test]
fn a_damaged_table_gives_what_its_whole_blocks_say_and_reflogs_the_rest() {
    for world in worlds(true) {
        let (before, head) = (world.refs(), world.head());
        let at = 7;
        assert_eq!(only_in(&world, at), ["refs/heads/b3"]);
        let name = format!("tables/{}", head.tables[at].key);
        let good = world
            .place
            .get(&name, None)
            .expect("it reads")
            .expect("a table");
        // The block of refs goes, and that of the reflogs stays.
        let mut bad = good.to_vec();
        bad[36..60].fill(0xff);
        world.place.put(&name, &bad).expect("it is stored");
        let found = plan(&world, &world.means());
        let told = &found.refs()[0];
        assert_eq!(
            (told.name.to_string().as_str(), told.from_log),
            ("refs/heads/b3", true)
        );
        assert_eq!(told.after, before.get("refs/heads/b3").cloned());
        assert_eq!(found.objects(), [name.as_str()]);
        let aside = found.apply().expect("it is repaired");
        let kept = world.place.list(&aside).expect("names");
        assert_eq!(kept.len(), 1);
        let content = world.place.get(&kept[0].0, None).expect("it reads");
        assert_eq!(content.expect("what was there").as_ref(), bad);
        assert_eq!(world.refs(), before);
        world.is_sound(&head);
    }
}

/// Where every block can be read, nothing is called lost that is there.
#[test]
fn a_table_of_whole_blocks_takes_nothing_that_is_known() {
    for world in worlds(true) {
        let (before, head) = (world.refs(), world.head());
        let name = format!("tables/{}", head.tables[7].key);
        let good = world.place.get(&name, None).expect("it reads");
        let mut bad = good.expect("a table").to_vec();
        let last = bad.len() - 1;
        bad[last] ^= 0xff;
        world.place.put(&name, &bad).expect("it is stored");
        let found = plan(&world, &world.means());
        let note = &found.notes()[0];
        let told = format!(
            "{name}: all blocks that are there could be read; if others are missing, refs that were \
             changed only in those, in the updates "
        );
        assert!(note.starts_with(&told), "{note}");
        found.apply().expect("it is repaired");
        assert_eq!(world.refs(), before);
    }
}

#[test]
fn a_table_is_taken_from_a_copy() {
    for world in worlds(false) {
        let (before, head) = (world.refs(), world.head());
        let name = head.tables[5].key.to_string();
        let object = format!("tables/{name}");
        let good = world
            .place
            .get(&object, None)
            .expect("it reads")
            .expect("a table");
        let copies = tempfile::tempdir().expect("a folder");
        let mut means = world.means();
        means.tables = Some(PathBuf::from(copies.path()));
        world
            .place
            .put(&object, b"nothing of it")
            .expect("it is stored");
        // A copy of something else is none.
        std::fs::write(copies.path().join(&name), &good[1..]).expect("a file");
        assert!(plan(&world, &means).notes()[0].contains("no block could be read"));
        std::fs::write(copies.path().join(&name), &good).expect("a file");
        plan(&world, &means).apply().expect("it is repaired");
        assert_eq!(world.refs(), before);
        world.is_sound(&head);
    }
}

#[test]
fn a_lost_head_goes_back_to_the_one_before_where_there_are_slots() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for in_memory in [true, false] {
            let world = World::new(4, format, in_memory, true);
            // The last of all commits is known here, as it is to a process that runs.
            let before = world.refs();
            set(&world.store, "refs/heads/last", oid(format, 77), true).expect("a commit");
            let head = world.register.known().expect("a head").head.clone();
            let (_, stale) = open(&world.place, format, 1 << 16);
            assert_eq!(stale.refs().map(drop).err().map(|it| it.kind()), None);
            world.break_slot(u32::try_from(head.generation % 4).expect("small"));
            let found = plan(&world, &world.means());
            let told = found.notes().join("\n");
            assert!(
                told.contains("what was committed later, if anything, is lost"),
                "{told}"
            );
            found.apply().expect("it is repaired");
            assert_eq!(world.refs(), before);
            // Whoever knew the lost head can do nothing on it: neither commit nor take back what was done since.
            let now = world.refs();
            let late = set(&stale, "refs/heads/stale", oid(format, 5), true);
            let mut after = world.refs();
            if late.is_ok() {
                assert!(
                    after.remove("refs/heads/stale").is_some(),
                    "what was told is there"
                );
            }
            assert_eq!(after, now);
            world.is_sound(&head);
        }
    }
}

#[test]
fn any_slot_that_is_damaged_is_written_anew() {
    for slot in 0..4 {
        let world = World::new(4, ObjectFormat::Sha1, true, true);
        let (before, head) = (world.refs(), world.head());
        let is_last = head.generation % 4 == u64::from(slot);
        world.break_slot(slot);
        let found = plan(&world, &world.means());
        let is_late = found.notes().join("\n").contains("is lost");
        // What stood where the next one comes may have been the next one.
        let may_be = is_last || (head.generation + 1) % 4 == u64::from(slot);
        assert_eq!(is_late, may_be, "slot {slot}");
        found.apply().expect("it is repaired");
        if !is_last {
            assert_eq!(world.refs(), before);
        }
        world.is_sound_again(&head, may_be);
    }
}

#[test]
fn a_head_that_is_the_only_one_is_taken_from_a_copy() {
    for in_memory in [true, false] {
        let world = World::new(1, ObjectFormat::Sha1, in_memory, true);
        let before = world.refs();
        let Read::Head(copy, _) = world.place.head(0, None).expect("a slot") else {
            panic!("there is a head");
        };
        set(&world.store, "refs/heads/last", oid(world.format, 77), true).expect("a commit");
        let head = world.head();
        world.break_slot(0);
        let error = plan_store(world.place.as_ref(), &world.system, &world.means());
        assert_eq!(error.err().map(|it| it.kind()), Some(ErrorKind::Corrupt));
        let mut means = world.means();
        let mut other = Head::decode(&copy, "x").expect("a head");
        other.uuid ^= 1;
        means.head = Some(copy.to_vec());
        let (_, stale) = open(&world.place, world.format, 0);
        plan(&world, &means).apply().expect("it is repaired");
        assert_eq!(world.refs(), before);
        world.is_sound(&head);
        drop(stale);
        // What knew the lost head does not put it back: it is refused, or has looked before it tried.
        let before = world.refs();
        let tried = set(&world.store, "refs/heads/x", oid(world.format, 3), true);
        let mut after = world.refs();
        assert_eq!(after.remove("refs/heads/x").is_some(), tried.is_ok());
        assert_eq!(after, before);
        // A head of another store is refused.
        means.head = Some(other.encode());
        let error = plan_store(world.place.as_ref(), &world.system, &means);
        assert_eq!(error.err().map(|it| it.kind()), Some(ErrorKind::Misuse));
    }
}

#[test]
fn a_repair_that_is_disturbed_is_done_again() {
    for slots in [1, 4] {
        for is_silent in [false, true] {
            let mut disturbed = 0;
            for left in 0.. {
                let world = World::new(slots, ObjectFormat::Sha1, true, true);
                let (before, head) = (world.refs(), world.head());
                let name = format!("tables/{}", head.tables[7].key);
                let good = world
                    .place
                    .get(&name, None)
                    .expect("it reads")
                    .expect("a table");
                let mut bad = good.to_vec();
                bad[36..60].fill(0xff);
                world.place.put(&name, &bad).expect("it is stored");
                if slots > 1 {
                    // An older one: nothing is lost by that.
                    world.break_slot(u32::try_from((head.generation + 2) % 4).expect("small"));
                }
                let fickle = Fickle::new(&world.place, left, is_silent);
                let found = plan_store(&fickle, &world.system, &world.means());
                let done = found.expect("a plan").apply();
                if done.is_err() {
                    disturbed += 1;
                    // Nobody writes to what is half done, and nothing is lost.
                    plan(&world, &world.means())
                        .apply()
                        .expect("it is repaired");
                }
                assert_eq!(world.refs(), before, "after {left}");
                world.is_sound(&head);
                if left > 12 {
                    break;
                }
            }
            assert_eq!(disturbed > 2, !is_silent, "{disturbed}");
        }
    }
}

#[test]
fn a_repair_that_was_planned_before_somebody_wrote_changes_nothing() {
    let world = World::new(1, ObjectFormat::Sha1, true, true);
    let head = world.head();
    let name = format!("tables/{}", head.tables[3].key);
    world.place.delete(&[&name]).expect("it goes");
    let found = plan(&world, &world.means());
    world
        .register
        .set_frozen(Some("a person"))
        .expect("it is frozen");
    let error = found.apply().expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(world.head().frozen.as_deref(), Some("a person"));
    // It stays frozen by whoever froze it.
    plan(&world, &world.means())
        .apply()
        .expect("it is repaired");
    assert_eq!(world.head().frozen.as_deref(), Some("a person"));
}
