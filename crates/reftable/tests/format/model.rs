//! Tables, merged tables and compacted tables against sorted maps.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use super::common::{Entry, Model, Value, own_log, own_ref};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use reftable::{
    LogCursor, MergedLogs, MergedRefs, ObjectFormat, RefCursor, RefRecord, RefValue, Table,
    WriteOptions, check, compact, find_ref, objects_without_peeled, refs_by_oid,
    refs_that_may_lead_to,
};

/// The cursors of one table and of many have the same verbs, and are put to the same test.
macro_rules! verbs {
    ($cursor:expr, $own:path, $all:expr, $seeks:expr) => {{
        let mut cursor = $cursor;
        let all: Vec<_> = $all.into_iter().collect();
        let mut seen = Vec::new();
        while let Some(record) = cursor.next().unwrap() {
            seen.push($own(record));
        }
        prop_assert_eq!(&seen, &all);
        prop_assert!(!cursor.advance().unwrap());
        for (target, is_prefix, steps) in $seeks {
            if is_prefix {
                cursor.seek_prefix(&target).unwrap();
            } else {
                cursor.seek(&target).unwrap();
            }
            let mut expected = all
                .iter()
                .skip_while(|record| record.name() < target)
                .take_while(|record| !is_prefix || record.name().starts_with(&target));
            for _ in 0..steps {
                let record = cursor.next().unwrap().map($own);
                prop_assert_eq!(record.as_ref(), expected.next());
            }
        }
    }};
}

trait Named {
    fn name(&self) -> Vec<u8>;
}

impl Named for (Vec<u8>, (u64, Value)) {
    fn name(&self) -> Vec<u8> {
        self.0.clone()
    }
}

impl Named for ((Vec<u8>, u64), Entry) {
    fn name(&self) -> Vec<u8> {
        self.0.0.clone()
    }
}

/// Names that collide, nest and share prefixes.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("a".to_owned()),
        Just("ab".to_owned()),
        Just("b-c".to_owned()),
        "[a-c]{1,4}",
        (0..40_u32).prop_map(|n| format!("{n:02}")),
        Just("\u{e9}".to_owned()),
    ];
    prop_oneof![
        1 => Just(b"HEAD".to_vec()),
        20 => vec(part, 1..4).prop_map(|parts| format!("refs/{}", parts.join("/")).into_bytes()),
    ]
}

/// Object ids that are often the same, and often alike.
fn oid(object_format: ObjectFormat) -> impl Strategy<Value = Vec<u8>> {
    let len = object_format.raw_len();
    (0..6_usize, 0..4_u8, any::<bool>()).prop_map(move |(shared, last, random)| {
        let mut oid = vec![7; len];
        oid[shared] = last;
        if random {
            oid[len - 1] = last;
        }
        oid
    })
}

fn value(object_format: ObjectFormat) -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Deletion),
        6 => oid(object_format).prop_map(Value::Direct),
        2 => (oid(object_format), oid(object_format)).prop_map(|(oid, peeled)| Value::Peeled(oid, peeled)),
        1 => name().prop_map(Value::Symref),
    ]
}

fn entry(object_format: ObjectFormat) -> impl Strategy<Value = Entry> {
    let update = (
        oid(object_format),
        oid(object_format),
        "[A-Z]{0,3}",
        0..1_u64 << 40,
        any::<i16>(),
        "[a-z]{0,9}",
    );
    prop_oneof![
        1 => Just(Entry::Deletion),
        5 => update.prop_map(|(old, new, who, time, tz, message)| Entry::Update {
            old, new, who: who.into_bytes(), time, tz, message: (message + "\n").into_bytes(),
        }),
    ]
}

fn model(object_format: ObjectFormat, max: usize) -> impl Strategy<Value = Model> {
    let refs = btree_map(name(), (1..=100_u64, value(object_format)), 0..max);
    let logs = btree_map(
        (name(), (1..=100_u64).prop_map(|index| !index)),
        entry(object_format),
        0..max,
    );
    (refs, logs).prop_map(|(refs, logs)| Model { refs, logs })
}

fn write_options(object_format: ObjectFormat) -> impl Strategy<Value = WriteOptions> {
    let block_size = prop_oneof![Just(300), 256..700_u32, Just(0), Just(70_000)];
    let interval = prop_oneof![Just(1), 2..5_u16, Just(0), Just(u16::MAX)];
    (block_size, interval, any::<bool>(), any::<bool>()).prop_map(
        move |(block_size, restart_interval, index_objects, unpadded)| WriteOptions {
            block_size,
            restart_interval,
            index_objects,
            unpadded,
            max_update_index: 100,
            ..WriteOptions::new(object_format)
        },
    )
}

fn object_format() -> impl Strategy<Value = ObjectFormat> {
    prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)]
}

/// Where to seek, whether by prefix, and how many records to read from there.
type Seeks = Vec<(Vec<u8>, bool, usize)>;

fn no_seeks() -> Seeks {
    Vec::new()
}

/// In any order, or forwards, as a pass over sorted names seeks: from each place to one soon after it.
fn seeks() -> impl Strategy<Value = Seeks> {
    let target = prop_oneof![
        4 => name(),
        1 => "(refs/?)?[a-c]?".prop_map(String::into_bytes),
        1 => Just(vec![0xff]),
    ];
    let seeks = vec((target, any::<bool>(), 0..6_usize), 0..30);
    let forwards = vec((name(), Just(false), 0..3_usize), 0..90).prop_map(|mut seeks| {
        seeks.sort();
        seeks
    });
    prop_oneof![seeks, forwards]
}

fn check_by_oid(tables: &[Arc<Table>], live: &Model, oids: &[Vec<u8>]) {
    let expected = |is_found: &dyn Fn(&Value) -> bool| -> Vec<_> {
        let refs = live.refs.iter().filter(|(_, (_, value))| is_found(value));
        refs.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    for oid in oids {
        let mut found = Vec::new();
        refs_by_oid(tables, oid, &mut |record| found.push(own_ref(record))).unwrap();
        assert_eq!(found, expected(&|value| value.names(oid)));
    }
    for count in 0..=oids.len() {
        let oids: Vec<&[u8]> = oids.iter().take(count).map(Vec::as_slice).collect();
        let mut found = Vec::new();
        let each = &mut |record: RefRecord<'_>| found.push(own_ref(record));
        refs_that_may_lead_to(tables, &oids, each).unwrap();
        let is_found = |value: &Value| {
            matches!(value, Value::Symref(_)) || oids.iter().any(|oid| value.names(oid))
        };
        assert_eq!(found, expected(&is_found));
    }
}

/// Hidden records may be among those that are told, but no others, and none that is live is missing.
fn check_without_peeled(tables: &[Arc<Table>], live: &Model) {
    for prefix in [&b""[..], b"refs/", b"refs/a", b"refs/b", b"\xff"] {
        let mut told = Vec::new();
        objects_without_peeled(tables, prefix, &mut |oid| told.push(oid.to_vec())).unwrap();
        let mut all = Vec::new();
        for table in tables {
            let mut refs = RefCursor::new(Arc::clone(table));
            while let Some(record) = refs.next().unwrap() {
                match record.value {
                    RefValue::Direct(oid) if record.name.starts_with(prefix) => {
                        all.push(oid.to_vec())
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(told, all);
        let live = live
            .refs
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        for (_, (_, value)) in live {
            assert!(!matches!(value, Value::Direct(oid) if !told.contains(oid)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn one_table(
        (model, options, oids) in object_format().prop_flat_map(|object_format| {
            (model(object_format, 200), write_options(object_format), vec(oid(object_format), 3))
        }),
        seeks in seeks(),
    ) {
        let table = model.table(options);
        prop_assert_eq!(check(&table), []);
        let blocks = table.blocks().collect::<reftable::Result<Vec<_>>>().unwrap();
        let disk: u64 = blocks.iter().map(|block| block.len_on_disk).sum();
        if !blocks.is_empty() {
            prop_assert_eq!(disk + table.len() - (table.weight() - 1), table.len()
                + if table.version() == 1 { 24 } else { 28 });
        }
        verbs!(RefCursor::new(Arc::clone(&table)), own_ref, model.refs.clone(), seeks.clone());
        verbs!(LogCursor::new(Arc::clone(&table)), own_log, model.logs.clone(), seeks);
        let live = model.without_tombstones();
        check_by_oid(&[Arc::clone(&table)], &live, &oids);
        check_without_peeled(&[Arc::clone(&table)], &live);
    }

    #[test]
    fn many_tables(
        (models, oids) in object_format().prop_flat_map(|object_format| {
            (vec((model(object_format, 60), write_options(object_format)), 0..6), vec(oid(object_format), 3))
        }),
        seeks in seeks(),
    ) {
        let tables: Vec<_> = models.iter().map(|(m, options)| m.table(options.clone())).collect();
        let mut all = Model::default();
        models.iter().for_each(|(model, _)| all.overlay(model));
        let live = all.clone().without_tombstones();

        let refs = || MergedRefs::new(tables.clone());
        let logs = || MergedLogs::new(tables.clone());
        verbs!(refs(), own_ref, all.refs.clone(), seeks.clone());
        verbs!(refs().live_only(), own_ref, live.refs.clone(), seeks.clone());
        verbs!(logs(), own_log, all.logs.clone(), seeks.clone());
        verbs!(logs().live_only(), own_log, live.logs.clone(), seeks.clone());
        for (name, ..) in &seeks {
            let found = find_ref(&tables, name, own_ref).unwrap();
            prop_assert_eq!(found.map(|(_, value)| value), all.refs.get(name).cloned());
        }
        check_by_oid(&tables, &live, &oids);
        check_without_peeled(&tables, &live);
        let Some((_, options)) = models.first() else {
            prop_assert!(compact(&tables, true, &WriteOptions::new(ObjectFormat::Sha1), vec![]).is_err());
            return Ok(());
        };
        for (drop_tombstones, expected) in [(false, &all), (true, &live)] {
            let finished = compact(&tables, drop_tombstones, options, Vec::new()).unwrap();
            prop_assert_eq!(finished.stats.refs, expected.refs.len() as u64);
            prop_assert_eq!(finished.stats.logs, expected.logs.len() as u64);
            let table = Arc::new(Table::open(finished.sink).unwrap());
            prop_assert_eq!(check(&table), []);
            verbs!(RefCursor::new(Arc::clone(&table)), own_ref, expected.refs.clone(), no_seeks());
            verbs!(LogCursor::new(table), own_log, expected.logs.clone(), no_seeks());
        }
    }

    #[test]
    fn logs_are_found_by_index(
        model in model(ObjectFormat::Sha1, 120),
        options in write_options(ObjectFormat::Sha1),
        seeks in vec((name(), 0..=101_u64), 0..20),
    ) {
        let table = model.table(options);
        let mut one = LogCursor::new(Arc::clone(&table));
        let mut many = MergedLogs::new(vec![table]);
        for (name, index) in seeks {
            let expected = model.logs.range((name.clone(), !index)..).next();
            let expected = expected.map(|(key, entry)| (key.clone(), entry.clone()));
            one.seek_at(&name, index).unwrap();
            prop_assert_eq!(one.next().unwrap().map(own_log), expected.clone());
            many.seek_at(&name, index).unwrap();
            prop_assert_eq!(many.next().unwrap().map(own_log), expected);
        }
    }
}
