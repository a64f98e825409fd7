//! Random stacks written by real Git: the format crate writes and compacts the same bytes, chooses
//! the same tables for compaction, and what it writes Git reads.
//!
//! Compressed blocks are compared by what they contain, since two compressors need not agree.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use refdb_testkit::Format;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use reftable::compaction::choose;
use reftable::{
    BlockInfo, BlockKind, LogCursor, MergedRefs, RefCursor, RefValue, Table, WriteOptions, Writer,
    check, compact,
};

/// Keeps Git from compacting after a transaction.
const NO_AUTO: (&str, &str) = ("GIT_TEST_REFTABLE_AUTOCOMPACTION", "0");

/// A repository with random settings.
struct Case {
    repo: Repo,
    rng: Rng,
    block_size: u32,
    restart_interval: u16,
    index_objects: bool,
    names: Vec<String>,
}

impl Case {
    fn new(format: Format, seed: u64) -> Case {
        let mut rng = Rng::new(seed);
        let block_size = *rng.pick(&[0, 320, 331, 512, 1000, 4096, 60_000, 0x00ff_ffff]);
        let restart_interval = *rng.pick(&[0, 1, 2, 5, 16, 100, u16::MAX]);
        let index_objects = rng.percent(70);
        let repo = Repo::init_bare(format);
        repo.config("reftable.blockSize", &block_size.to_string());
        repo.config("reftable.restartInterval", &restart_interval.to_string());
        repo.config(
            "reftable.indexObjects",
            if index_objects { "true" } else { "false" },
        );
        repo.config(
            "core.logAllRefUpdates",
            if rng.percent(70) { "always" } else { "false" },
        );
        Case {
            repo,
            rng,
            block_size,
            restart_interval,
            index_objects,
            names: Vec::new(),
        }
    }

    /// Runs one transaction of at most `max` edits, without compaction.
    fn transact(&mut self, max: usize) {
        let objects = self.repo.objects();
        let mut script = String::new();
        let mut touched = std::collections::BTreeSet::new();
        for _ in 0..=self.rng.below(max) {
            let name = if !self.names.is_empty() && self.rng.percent(30) {
                self.rng.pick(&self.names).clone()
            } else {
                let space = *self
                    .rng
                    .pick(&["refs/tags", "refs/x", "refs/notes/deep/er"]);
                format!("{space}/{}-{}", self.rng.below(40), self.rng.below(1000))
            };
            if !touched.insert(name.clone()) {
                continue;
            }
            let known = self.names.contains(&name);
            match self.rng.below(10) {
                0..3 if known => {
                    writeln!(script, "delete {name}").unwrap();
                    self.names.retain(|other| *other != name);
                    continue;
                }
                3 => {
                    writeln!(script, "option no-deref\nsymref-update {name} none/{name}").unwrap();
                }
                4 | 5 => {
                    let tag = &self.rng.pick(&objects.tags).id;
                    writeln!(script, "option no-deref\nupdate {name} {tag}").unwrap();
                }
                _ => {
                    let commit = self.rng.pick(&objects.commits);
                    writeln!(script, "option no-deref\nupdate {name} {commit}").unwrap();
                }
            }
            if !known {
                self.names.push(name);
            }
        }
        let (time, zone) = (1_600_000_000 + self.rng.next_u64() % (1 << 28), "-0730");
        let message = "m".repeat(1 + self.rng.below(60));
        let run = self.repo.git(["update-ref", "-m", &message, "--stdin"]);
        run.env(NO_AUTO.0, NO_AUTO.1)
            .at(time, zone)
            .stdin(script)
            .run()
            .ok();
    }

    fn folder(&self) -> PathBuf {
        self.repo.git_dir().join("reftable")
    }

    fn list(&self) -> Vec<String> {
        let list = fs::read_to_string(self.folder().join("tables.list")).unwrap();
        list.lines().map(str::to_owned).collect()
    }

    fn tables(&self) -> Vec<Arc<Table>> {
        let bytes = |name: &String| fs::read(self.folder().join(name)).unwrap();
        self.list()
            .iter()
            .map(|name| Arc::new(Table::open(bytes(name)).unwrap()))
            .collect()
    }

    fn options(&self, table: &Table) -> WriteOptions {
        let mut options = WriteOptions::new(table.object_format());
        // The first table was written before anything was configured.
        options.block_size = table.block_size();
        options.restart_interval = self.restart_interval;
        options.index_objects = self.index_objects;
        options.min_update_index = table.min_update_index();
        options.max_update_index = table.max_update_index();
        options
    }

    fn rewrite(&self, table: &Arc<Table>) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), self.options(table)).unwrap();
        let mut refs = RefCursor::new(Arc::clone(table));
        while let Some(record) = refs.next().unwrap() {
            writer.add_ref(record).unwrap();
        }
        let mut logs = LogCursor::new(Arc::clone(table));
        while let Some(record) = logs.next().unwrap() {
            writer.add_log(record).unwrap();
        }
        writer.finish().unwrap().sink
    }
}

/// Compares a table of Git's with one of ours, compressed bytes aside.
#[track_caller]
fn assert_same(theirs: &[u8], ours: &[u8]) {
    let open = |bytes: &[u8]| Arc::new(Table::open(bytes.to_vec()).unwrap());
    let (left, right) = (open(theirs), open(ours));
    assert_eq!(check(&left), []);
    assert_eq!(check(&right), []);
    let blocks = |table: &Table| table.blocks().collect::<Result<Vec<_>, _>>().unwrap();
    let (left_blocks, right_blocks) = (blocks(&left), blocks(&right));
    let first_log = left_blocks
        .iter()
        .find(|block| block.kind == BlockKind::Log);
    let Some(first_log) = first_log else {
        assert_eq!(theirs, ours);
        return;
    };
    let same = usize::try_from(first_log.offset).unwrap();
    assert_eq!(theirs[..same], ours[..same], "before the logs");
    let shape = |block: &BlockInfo| {
        // An index over log blocks holds their positions, which may be longer or shorter.
        let len = (block.kind == BlockKind::Log).then_some(block.len);
        (block.kind, block.records, block.restarts, len)
    };
    let shapes = |blocks: &[BlockInfo]| blocks.iter().map(shape).collect::<Vec<_>>();
    assert_eq!(shapes(&left_blocks), shapes(&right_blocks));
    let (mut left, mut right) = (LogCursor::new(left), LogCursor::new(right));
    while let Some(record) = left.next().unwrap() {
        assert_eq!(Some(record), right.next().unwrap());
    }
    assert_eq!(right.next().unwrap(), None);
}

#[expect(clippy::print_stdout, reason = "names the case when a test fails")]
fn stacks(format: Format, seeds: std::ops::Range<u64>, mut test: impl FnMut(Case)) {
    for seed in seeds {
        println!("{format} seed {seed}");
        let mut case = Case::new(format, seed);
        for _ in 0..=case.rng.below(5) {
            let max = *case.rng.pick(&[3, 40, 400]);
            case.transact(max);
        }
        test(case);
    }
}

fn both_formats(seeds: std::ops::Range<u64>, mut test: impl FnMut(Case)) {
    stacks(Format::REFTABLE_SHA1, seeds.clone(), &mut test);
    stacks(Format::REFTABLE_SHA256, seeds, &mut test);
}

#[test]
fn a_table_written_again_is_the_same() {
    both_formats(0..20, |case| {
        for (name, table) in case.list().iter().zip(case.tables()) {
            let theirs = fs::read(case.folder().join(name)).unwrap();
            assert_same(&theirs, &case.rewrite(&table));
        }
    });
}

#[test]
fn a_stack_is_compacted_into_the_same_table() {
    both_formats(100..120, |case| {
        let tables = case.tables();
        if tables.len() < 2 {
            return;
        }
        let mut options = case.options(&tables[0]);
        options.block_size = case.block_size;
        let ours = compact(&tables, true, &options, Vec::new()).unwrap();
        case.repo.git(["pack-refs", "--all"]).run().ok();
        let list = case.list();
        assert_eq!(list.len(), 1);
        let theirs = fs::read(case.folder().join(&list[0])).unwrap();
        assert_same(&theirs, &ours.sink);
    });
}

#[test]
fn git_reads_what_is_written() {
    both_formats(200..212, |case| {
        let before = (case.repo.refs(), case.repo.state());
        let tables = case.tables();
        for (name, table) in case.list().iter().zip(&tables) {
            fs::write(case.folder().join(name), case.rewrite(table)).unwrap();
        }
        case.repo.assert_sound();
        assert_eq!(before, (case.repo.refs(), case.repo.state()));

        let listed: Vec<_> = case
            .repo
            .git(["for-each-ref", "--format=%(refname)"])
            .run()
            .ok();
        let mut refs = MergedRefs::new(tables).live_only();
        refs.seek_prefix(b"refs/").unwrap();
        let mut ours = Vec::new();
        while let Some(record) = refs.next().unwrap() {
            // Git lists no ref that leads nowhere.
            if !matches!(record.value, RefValue::Symref(_)) {
                ours.extend_from_slice(record.name);
                ours.push(b'\n');
            }
        }
        assert_eq!(listed, ours);
    });
}

#[test]
fn the_same_tables_are_chosen_for_compaction() {
    let mut chosen = 0;
    stacks(Format::REFTABLE_SHA1, 300..330, |mut case| {
        let factor = *case.rng.pick(&[2, 2, 3, 5]);
        case.repo
            .config("reftable.geometricFactor", &factor.to_string());
        if case.rng.percent(50) {
            case.repo.git(["pack-refs", "--all"]).run().ok();
        }
        for _ in 0..case.rng.below(4) {
            case.transact(5);
        }
        let before = case.list();
        let weights: Vec<u64> = case.tables().iter().map(|table| table.weight()).collect();
        let ours = choose(&weights, u8::try_from(factor).unwrap());
        case.repo.git(["pack-refs", "--auto"]).run().ok();
        let after = case.list();
        let kept = before
            .iter()
            .zip(&after)
            .take_while(|(old, new)| old == new)
            .count();
        let newer = before.iter().rev().zip(after.iter().rev());
        let newer = newer.take_while(|(old, new)| old == new).count();
        let theirs = (before != after).then(|| kept..before.len() - newer);
        assert_eq!(theirs, ours, "{weights:?}");
        chosen += usize::from(ours.is_some());
    });
    assert!(chosen > 5 && chosen < 30, "{chosen}");
}
