//! Machines that share a directory (`hosts/`). `REFDB_HOSTS_SECONDS` says how long they work.

use std::time::Duration;

use refdb_testkit::trust::{Tally, budget};

use crate::hosts::{Found, Plan, run};

fn share_a_directory(seconds: u64, planted: &'static str) -> Found {
    let place = tempfile::tempdir().expect("a folder");
    run(Plan {
        url: format!("s3://directory{}", place.path().display()),
        hosts: 2,
        processes: 4,
        lasts: Duration::from_secs(seconds),
        planted,
        prefix: &|_| Vec::new(),
        beside: &mut |_| (),
    })
}

#[test]
fn machines_that_are_killed_and_stopped_lose_nothing() {
    let mut tally = Tally::begin("pushes of machines that are killed and stopped", 0);
    let found = share_a_directory(budget("REFDB_HOSTS_SECONDS", 4), "nothing");
    assert!(found.wrong.is_empty(), "{:#?}\n{}", found.wrong, found.said);
    assert!(found.done > 50 && found.untold > 0, "{found}");
    tally.add(found.done as u64);
}

#[test]
fn a_push_that_is_only_told_to_be_done_is_noticed() {
    let found = share_a_directory(2, "forgets");
    assert!(
        found.wrong.iter().any(|it| it.starts_with("lost: ")),
        "{found}"
    );
}
