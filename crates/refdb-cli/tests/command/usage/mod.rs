//! Scripts as people write them: the same shell commands with real Git, and with refdb standing in
//! for it in the reference commands while everything else is real Git on the same repository. What
//! is printed, how each command ends, and what Git reads afterwards have to be the same.
//!
//! A file of scripts has a title (`# title`) before each; a line is a command, and goes on in lines
//! that begin with a tab. Behind a `|` a title can say `files`, `reftable` or `sha1`, the only
//! format that the script is about, and `logs differ`, which docs/compat.md must explain.

mod run;

use refdb_testkit::{Format, for_every_format};

/// Runs every script of a file and reports all differences together.
fn check(format: Format, file: &str, text: &str) {
    let only = std::env::var("REFDB_CASE").unwrap_or_default();
    let scripts = run::parse(text);
    let scripts = scripts.iter().filter(|script| script.title.contains(&only));
    let differences: Vec<String> = scripts
        .filter(|script| script.is_about(format))
        .flat_map(|script| run::differences(script, format))
        .collect();
    assert!(
        differences.is_empty(),
        "{file}, {format}: {} differences\n\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

for_every_format! {
    fn update_ref(format) {
        check(format, "update-ref", include_str!("update-ref.txt"));
    }

    fn names_and_values(format) {
        check(format, "names", include_str!("names.txt"));
    }

    fn listing(format) {
        check(format, "listing", include_str!("listing.txt"));
    }

    fn reflogs(format) {
        check(format, "reflogs", include_str!("reflogs.txt"));
    }

    fn packing_and_stores(format) {
        check(format, "stores", include_str!("stores.txt"));
    }

    fn hooks_and_worktrees(format) {
        check(format, "hooks", include_str!("hooks.txt"));
    }

    fn surroundings(format) {
        check(format, "surroundings", include_str!("surroundings.txt"));
    }
}
