//! Everything in refdb that reads bytes, as functions of bytes that panic if something is wrong.
//!
//! A target ends without a panic, in bounded memory, whatever it is given; and what it accepts is
//! written back, read again, and is the same. The driver is `main.rs`; any other, such as libFuzzer,
//! calls [`Target::run`].
//!
//! ```
//! let names = refdb_fuzz::target("names").expect("a target");
//! (names.run)(b"refs/heads/main");
//! ```

mod names;
pub mod rng;
mod stores;
mod tables;
mod transactions;

/// Something that is given bytes.
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// Panics if something is wrong.
    pub run: fn(&[u8]),
    /// Returns good inputs, from which others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "table",
        run: tables::table,
        seeds: tables::seeds,
    },
    Target {
        name: "block",
        run: tables::block,
        seeds: tables::block_seeds,
    },
    Target {
        name: "log-block",
        run: tables::log_block,
        seeds: tables::log_block_seeds,
    },
    Target {
        name: "salvage",
        run: tables::salvage,
        seeds: tables::seeds,
    },
    Target {
        name: "packed-refs",
        run: stores::packed_refs,
        seeds: stores::packed_seeds,
    },
    Target {
        name: "loose-ref",
        run: stores::loose_ref,
        seeds: stores::loose_seeds,
    },
    Target {
        name: "reflog",
        run: stores::reflog,
        seeds: stores::reflog_seeds,
    },
    Target {
        name: "tables-list",
        run: stores::tables_list,
        seeds: stores::list_seeds,
    },
    Target {
        name: "names",
        run: names::names,
        seeds: names::seeds,
    },
    Target {
        name: "transactions",
        run: transactions::sequence,
        seeds: transactions::seeds,
    },
];

/// Targets that must fail: what they are given breaks its promises.
pub const PLANTED: &[Target] = &[Target {
    name: "transactions on a disk that lies",
    run: transactions::on_a_disk_that_lies,
    seeds: transactions::seeds,
}];

/// Finds a target by its name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
