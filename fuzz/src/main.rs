//! Everything in refdb that reads bytes, as functions of bytes that panic if something is wrong.
//!
//! A target ends without a panic, in bounded time and memory, whatever it is given; and what it
//! accepts is written back, read again, and is the same. libFuzzer makes the inputs and calls the
//! target that `REFDB_FUZZ_TARGET` names; without the variable the names of all are printed.
//! `scripts/fuzz` is how to call this.

#![no_main]

mod commands;
mod config;
mod leftovers;
mod names;
mod repository;
mod stores;
mod tables;
mod transactions;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rustix::process::{Resource, Rlimit, setrlimit};

/// A name, and a function that panics if something is wrong.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("batch", commands::batch),
    ("block", tables::block),
    ("commit-graph", commands::commit_graph),
    ("config", config::config),
    ("for-each-ref", commands::for_each_ref),
    ("journal", leftovers::journal),
    ("lock", leftovers::lock),
    ("log-block", tables::log_block),
    ("loose-ref", stores::loose_ref),
    ("migration", leftovers::migration),
    ("names", names::names),
    ("packed-refs", stores::packed_refs),
    ("reflog", stores::reflog),
    ("salvage", tables::salvage),
    ("table", tables::table),
    ("tables-list", stores::tables_list),
    ("transactions", transactions::sequence),
    ("update-ref", commands::update_ref),
];

/// Targets that must fail, with an empty corpus: what is wrong with them is found, or the others would
/// find nothing either.
const PLANTED: &[Target] = &[
    (
        "planted-a-disk-that-lies",
        transactions::on_a_disk_that_lies,
    ),
    ("planted-a-file-outside", leftovers::outside),
    ("planted-deep-in-the-grammar", config::planted),
];

/// How much memory the process may have, in bytes.
const MEMORY: u64 = 2 << 30;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Finds the target, or prints the names of all.
fn begin() {
    let name = std::env::var("REFDB_FUZZ_TARGET").unwrap_or_default();
    let mut all = TARGETS.iter().chain(PLANTED);
    let Some((_, run)) = all.find(|target| target.0 == name) else {
        TARGETS
            .iter()
            .chain(PLANTED)
            .for_each(|target| println!("{}", target.0));
        std::process::exit(i32::from(!name.is_empty()));
    };
    let memory = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    setrlimit(Resource::As, memory).expect("less memory can always be had");
    // What is made once is not part of how long an input takes.
    run(&[]);
    TARGET.set(*run).expect("it begins once");
}

fuzz_target!(init: begin(), |bytes: &[u8]| {
    TARGET.get().expect("it has begun")(bytes);
});
