//! The command and real Git, side by side: the same scripts on twin repositories, in both ref
//! formats and both object formats. What they print, how they end, and the refs and reflogs they
//! leave behind have to be the same, except where a script says why not.

mod run;
mod script;

use refdb_testkit::fixture::Fixture;
use refdb_testkit::for_every_format;

use run::Twins;

/// Runs every case of a file of scripts and reports all differences together.
fn check(format: refdb_testkit::Format, file: &str, text: &str) {
    let fixture = Fixture::new(format);
    let mut differences = Vec::new();
    let only = std::env::var("REFDB_CASE").unwrap_or_default();
    for case in script::parse(text) {
        if case.title.contains(&only) {
            let twins = Twins::new(&fixture);
            differences.extend(twins.run(&case));
        }
    }
    assert!(
        differences.is_empty(),
        "{file}, {format}: {} differences\n\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

for_every_format! {
    fn options(format) {
        check(format, "options", include_str!("options.txt"));
    }

    fn update_ref(format) {
        check(format, "update-ref", include_str!("update-ref.txt"));
    }

    fn update_ref_stdin(format) {
        check(format, "stdin", include_str!("stdin.txt"));
    }

    fn update_ref_sessions_and_batches(format) {
        check(format, "sessions", include_str!("sessions.txt"));
    }

    fn symbolic_ref(format) {
        check(format, "symbolic-ref", include_str!("symbolic-ref.txt"));
    }

    fn show_ref(format) {
        check(format, "show-ref", include_str!("show-ref.txt"));
    }

    fn for_each_ref(format) {
        check(format, "for-each-ref", include_str!("for-each-ref.txt"));
    }

    fn check_ref_format(format) {
        check(format, "check-ref-format", include_str!("check-ref-format.txt"));
    }

    fn history(format) {
        check(format, "history", include_str!("history.txt"));
    }

    fn hooks(format) {
        check(format, "hooks", include_str!("hooks.txt"));
    }

    fn atoms(format) {
        check(format, "atoms", include_str!("atoms.txt"));
    }

    fn reflog(format) {
        check(format, "reflog", include_str!("reflog.txt"));
    }

    fn pack_refs(format) {
        check(format, "pack-refs", include_str!("pack-refs.txt"));
    }

    fn refs_migrate(format) {
        check(format, "refs-migrate", include_str!("refs-migrate.txt"));
    }
}
