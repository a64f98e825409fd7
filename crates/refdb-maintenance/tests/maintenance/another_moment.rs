//! A migration that died, and a configuration that is not of the same moment as the rest.

use std::path::Path;

use refdb::system::System;
use refdb_simulation::{Fault, SimSystem};
use refdb_testkit::{Format, for_every_format};

use super::migrate_faults::{GIT_DIR, changes, check_and_go_on, migrate, other, repository, state};

/// A process dies, and somebody puts the configuration of another moment in its place: whoever clears up then removes
/// no store that has the refs.
fn die_beside_another_configuration(base: &SimSystem, format: Format) {
    let (refs, expected) = state(base, format, "the beginning");
    let path = Path::new(GIT_DIR).join("config");
    let config = |system: &SimSystem| system.read(&path).expect("a configuration");
    let put = |system: &SimSystem, content: &[u8]| {
        system.remove_file(&path).expect("there is one");
        let mut file = system.create_new(&path, 0o666).expect("a new file");
        file.write_all(content).expect("room");
    };
    let whole = base.fork();
    migrate(&whole, refs, format).expect("no fault");
    let (old, new) = (config(base), config(&whole));
    let mut refused = 0;
    for (at, op) in changes(base, |whole| {
        migrate(whole, refs, format).expect("no fault")
    }) {
        let context = format!("dies beside another configuration at {op}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let _ = migrate(&system, refs, format);
        system.end();
        let process = system.process(3500);
        if process
            .stat(&Path::new(GIT_DIR).join("refdb-migration/journal"))
            .is_err()
        {
            continue;
        }
        let right = config(&process);
        let (other_config, said) = match right == old {
            true => (&new, other(refs)),
            false => (&old, refs),
        };
        put(&process, other_config);
        if migrate(&process, said, format).is_err() {
            refused += 1;
            put(&process, &right);
        }
        check_and_go_on(&system, &expected, format, &context);
    }
    assert!(refused > 10, "{refused}");
}

for_every_format! {
    fn a_configuration_of_another_moment_costs_no_refs(format) {
        die_beside_another_configuration(&repository(format), format);
    }
}
