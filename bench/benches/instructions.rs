//! Instruction counts of the hot paths, in both formats: exact where a clock is not.
//!
//! Each function below is one operation on a store that was prepared outside the count.
//! `scripts/instructions` runs them and compares the counts with the recorded ones.

#![allow(missing_docs, reason = "the macros make modules that cannot have any")]

use std::hint::black_box;
use std::sync::Arc;

use gungraun::prelude::*;
use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::system::OsSystem;
use refdb::{
    Edit, Expected, LogOrder, ObjectFormat, ObjectId, Optimize, Options, RefFormat, RefName, Store,
};

/// Refs in the prepared stores.
const REFS: usize = 2_000;

/// A store in a folder of its own, and the refs that the operation is about.
struct Job {
    store: Store,
    refs: Vec<(String, ObjectId)>,
    // Removed when the job is done, outside the count.
    _folder: tempfile::TempDir,
}

fn empty(format: RefFormat) -> Job {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let refs = folder.path().join("refs");
    std::fs::create_dir(&refs).expect("the folder is empty");
    match format {
        RefFormat::Files => std::fs::create_dir(refs.join("heads")),
        RefFormat::Reftable => std::fs::create_dir(folder.path().join("reftable"))
            .and_then(|()| std::fs::write(folder.path().join("reftable/tables.list"), "")),
    }
    .expect("the folder is empty");
    let store = Store::open(
        Arc::new(OsSystem::new()),
        Layout::main(folder.path()),
        format,
        Arc::new(NoObjects),
        Options::new(ObjectFormat::Sha1),
    )
    .expect("nothing is read yet");
    Job {
        store,
        refs: refs_of(0..REFS),
        _folder: folder,
    }
}

/// Returns names as a hosting service has them, sorted, with a few hundred values.
fn refs_of(range: std::ops::Range<usize>) -> Vec<(String, ObjectId)> {
    let mut refs: Vec<(String, ObjectId)> = range
        .map(|at| {
            let name = match at % 4 {
                0 => format!("refs/heads/team-{:02}/feature-{at:07}", at % 89),
                1 => format!("refs/pull/{}/head", at / 4),
                2 => format!("refs/remotes/origin/topic/{:02}/{at:07}", at % 53),
                _ => format!("refs/tags/release-{:03}/v{at:07}", at % 211),
            };
            // Like those of real objects, ids differ from their first byte on.
            let number = (at * 7919 % 600) as u64;
            let mut id = [0x5a; 20];
            id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            (name, ObjectId::from_bytes(&id).expect("twenty bytes"))
        })
        .collect();
    refs.sort();
    refs
}

fn full(format: RefFormat) -> Job {
    let job = write(empty(format));
    job.store
        .optimize(&Optimize::default())
        .expect("the disk has room");
    job
}

fn grown(format: RefFormat) -> Job {
    let mut job = full(format);
    job.refs = refs_of(REFS..REFS + REFS / 10);
    job
}

fn deleted(format: RefFormat) -> Job {
    delete(full(format))
}

fn single(format: RefFormat) -> Job {
    let mut job = full(format);
    job.refs = refs_of(REFS..REFS + 1);
    job
}

fn write(job: Job) -> Job {
    let mut transaction = job.store.transaction();
    for (name, id) in &job.refs {
        let edit = Edit::update(RefName::new(name).expect("well-formed"), *id);
        transaction
            .add(edit.expecting(Expected::Missing))
            .expect("well-formed");
    }
    let _ = black_box(transaction.commit().expect("the refs are free"));
    job
}

fn delete(job: Job) -> Job {
    let mut transaction = job.store.transaction();
    for (name, _) in &job.refs {
        let edit = Edit::delete(RefName::new(name).expect("well-formed"));
        transaction.add(edit).expect("well-formed");
    }
    let _ = black_box(transaction.commit().expect("nobody else writes"));
    job
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = empty)]
#[bench::reftable(args = (RefFormat::Reftable), setup = empty)]
fn create_all(job: Job) -> Job {
    write(job)
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = grown)]
#[bench::reftable(args = (RefFormat::Reftable), setup = grown)]
fn create_a_tenth_more(job: Job) -> Job {
    write(job)
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = deleted)]
#[bench::reftable(args = (RefFormat::Reftable), setup = deleted)]
fn create_all_again(job: Job) -> Job {
    write(job)
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = full)]
#[bench::reftable(args = (RefFormat::Reftable), setup = full)]
fn delete_all(job: Job) -> Job {
    delete(job)
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = single)]
#[bench::reftable(args = (RefFormat::Reftable), setup = single)]
fn create_one(job: Job) -> Job {
    write(job)
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = full)]
#[bench::reftable(args = (RefFormat::Reftable), setup = full)]
fn list_all(job: Job) -> Job {
    let mut refs = job.store.refs().expect("the store is whole");
    refs.seek_prefix(b"refs/").expect("the store is whole");
    while let Some(record) = refs.next().expect("the store is whole") {
        black_box(record);
    }
    job
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = full)]
#[bench::reftable(args = (RefFormat::Reftable), setup = full)]
fn look_up_a_tenth(job: Job) -> Job {
    for (name, _) in job.refs.iter().step_by(10) {
        let name = RefName::new(name).expect("well-formed");
        black_box(job.store.read(name).expect("the store is whole"));
    }
    job
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = full)]
#[bench::reftable(args = (RefFormat::Reftable), setup = full)]
fn refs_of_an_object(job: Job) -> Job {
    let (_, id) = job.refs[0];
    black_box(job.store.refs_by_oid(id).expect("the store is whole"));
    job
}

#[library_benchmark]
#[bench::files(args = (RefFormat::Files), setup = full)]
#[bench::reftable(args = (RefFormat::Reftable), setup = full)]
fn read_reflogs(job: Job) -> Job {
    let order = LogOrder::NewestFirst;
    for name in job.store.log_names().expect("the store is whole") {
        black_box(
            job.store
                .log(name.as_name(), order)
                .expect("the store is whole"),
        );
    }
    job
}

library_benchmark_group!(
    name = writing;
    benchmarks = create_all, create_a_tenth_more, create_all_again, delete_all, create_one
);
library_benchmark_group!(
    name = reading;
    benchmarks = list_all, look_up_a_tenth, refs_of_an_object, read_reflogs
);
main!(library_benchmark_groups = [writing, reading]);
