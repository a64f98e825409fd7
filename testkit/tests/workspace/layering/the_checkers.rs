//! Each checker finds what it is for, and only that.

use super::*;

fn faults(path: &str, text: &str) -> Vec<String> {
    let store = ("Store".to_owned(), "store".to_owned());
    imports_upward(crate_of("refdb"), path, text, &[store])
}

fn crate_of(name: &str) -> &'static Crate {
    let mut crates = CRATES.iter();
    let found = crates.find(|one| one.name == name);
    found.expect("the crate is in the list")
}

#[test]
fn find_imports_of_higher_crates() {
    let of = |name, text| crates_upward(crate_of(name), CRATES, text);
    let up = ["imports upward: refdb_git::Repository"];
    assert_eq!(of("refdb", "use refdb_git::Repository;\n"), up);
    assert_eq!(of("refdb", "fn f() -> refdb_git::Repository {}\n"), up);
    let tests = "#[cfg(test)]\nmod tests {\n    use refdb_git::{Repository};\n}\n";
    assert_eq!(of("refdb", tests), up);
    assert_eq!(
        of(
            "refdb_git",
            "use refdb_maintenance::verify::{deep, Event};\n"
        ),
        [
            "imports upward: refdb_maintenance::verify::deep",
            "imports upward: refdb_maintenance::verify::Event"
        ]
    );
    let down = "use refdb::{Error, internals};\nuse refdb_git::internals::real_path;\n";
    assert_eq!(of("refdb_maintenance", down), Vec::<String>::new());
    let other = "use super::refdb_git::X;\n// refdb_git::Y\nuse my_refdb_git::Z;\n";
    assert_eq!(of("refdb", other), Vec::<String>::new());
}

#[test]
fn let_integration_tests_use_the_test_kit() {
    let of = |name, text| crates_upward(for_tests(crate_of(name), CRATES), CRATES, text);
    let kit = "use refdb_testkit::repo::Repo;\nuse refdb_git::Repository;\n";
    assert_eq!(of("refdb", kit), Vec::<String>::new());
    assert_eq!(
        of("refdb", "use refdb_cli::run;\n"),
        ["imports upward: refdb_cli::run"]
    );
    assert_eq!(
        of("refdb", "use refdb::internals::Guard;\n"),
        ["uses the insides of others: refdb::internals::Guard"]
    );
    let cli = "use refdb_bench::main;\nuse refdb_testkit::Format;\n";
    assert_eq!(of("refdb_cli", cli), Vec::<String>::new());
}

#[test]
fn find_who_uses_the_insides_of_others() {
    let of = |name, text| crates_upward(crate_of(name), CRATES, text);
    assert_eq!(
        of("refdb_cli", "use refdb::{Error, internals::LockFile};\n"),
        ["uses the insides of others: refdb::internals::LockFile"]
    );
    assert_eq!(
        of("refdb_testkit", "use refdb_git::internals;\n"),
        ["uses the insides of others: refdb_git::internals"]
    );
}

#[test]
fn find_a_map_that_differs() {
    let crates = [
        Crate {
            folder: "low",
            name: "low",
            layers: &[&["leaf", "other"], &["top"]],
            insides_of: &[],
        },
        Crate {
            folder: "high",
            name: "high",
            layers: &[],
            insides_of: &[],
        },
    ];
    let map = |crates: &str, modules: &str| format!("{crates}\nInside `low`:\n\n{modules}");
    let two = "    low   the first\n    high  the second\n";
    let right = "    top          above\n    other, leaf  below\n";
    let split = "    top\n    leaf   one\n    other  two\n";
    for modules in [right, split] {
        assert_eq!(
            differences(&map(two, modules), &crates),
            Vec::<String>::new()
        );
    }
    for (crates_of_map, modules) in [
        ("    high\n    low\n", right),
        ("    low\n", right),
        (two, "    leaf\n    other\n    top\n"),
        (two, "    top\n    leaf\n"),
        (two, "    top\n    other, leaf, more\n"),
        (two, ""),
    ] {
        let found = differences(&map(crates_of_map, modules), &crates);
        assert!(!found.is_empty(), "{crates_of_map}{modules}");
    }
    assert_eq!(differences(two, &crates), ["no layers of low"]);
}

#[test]
fn find_imports_that_go_up() {
    let up = ["imports upward: store::Store"];
    assert_eq!(faults("backend.rs", "use crate::store::Store;\n"), up);
    assert_eq!(faults("backend.rs", "use super::store::Store;\n"), up);
    assert_eq!(
        faults("backend/files.rs", "use super::super::store::Store;\n"),
        up
    );
    assert_eq!(
        faults(
            "backend.rs",
            "use crate::{\n    error,\n    store::{Store},\n};\n"
        ),
        up
    );
    assert_eq!(faults("error.rs", "fn f() -> crate::store::Store {}\n"), up);
    assert_eq!(
        faults("error.rs", "use crate::Store;\n"),
        ["imports upward: Store"]
    );
    assert_eq!(
        faults("reflog.rs", "use crate::system;\n"),
        ["imports upward: system"]
    );
    assert_eq!(
        faults("error.rs", "use super::*;\n"),
        ["crate::* is in no layer"]
    );
}

#[test]
fn accept_imports_that_go_down() {
    let down = "use crate::{error::{self, Error as Failed}, reflog};\nuse super::overlay::*;\n";
    assert_eq!(
        faults("backend/files/session.rs", down),
        Vec::<String>::new()
    );
    let link = "//! See [`crate::store::Store`].\nuse $crate::store;\n";
    assert_eq!(faults("error.rs", link), Vec::<String>::new());
    let tests = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::store::Store;\n}\n";
    assert_eq!(faults("error.rs", tests), Vec::<String>::new());
}

#[test]
fn find_a_module_without_a_layer() {
    assert_eq!(faults("new.rs", ""), ["the module new has no layer"]);
    let unknown = faults("error.rs", "use crate::new::New;\n");
    assert_eq!(unknown, ["crate::new::New is in no layer"]);
}

#[test]
fn find_backends_that_know_each_other() {
    let fault = ["backend files imports backend::reftable::Stack"];
    assert_eq!(
        faults(
            "backend/files/log.rs",
            "use crate::backend::reftable::Stack;\n"
        ),
        fault
    );
    assert_eq!(
        faults("backend/files.rs", "use super::reftable::Stack;\n"),
        fault
    );
    assert_eq!(
        faults("backend/files/log.rs", "use super::loose;\n"),
        Vec::<String>::new()
    );
}

#[test]
fn find_forbidden_words_and_only_those() {
    let text = "use std::fs;\n// unsafe\nunsafe {}\n#![forbid(unsafe_code)]\nuse std::fsx;\n";
    assert_eq!(
        mentions(text, &["std::fs", "unsafe"]),
        ["line 1: std::fs", "line 3: unsafe"]
    );
}

#[test]
fn find_other_characters() {
    assert_eq!(not_ascii("a\n\u{2013}\n"), ["line 2: \u{2013}"]);
}

#[test]
fn find_long_files_that_do_not_say_why() {
    let long = "a\n".repeat(LINES_MAX + 1);
    assert_eq!(too_long(&long), ["601 lines without its tests"]);
    assert_eq!(too_long(&"a\n".repeat(LINES_MAX)), Vec::<String>::new());
    let why = format!("{long}// Long: one table.\n");
    assert_eq!(too_long(&why), Vec::<String>::new());
}

#[test]
fn do_not_count_tests() {
    let text = "one\n\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(without_tests(text), "one\n\n");
    assert_eq!(
        without_tests("one\n\n#[cfg(test)]\nmod tests;\ntwo\n")
            .lines()
            .count(),
        5
    );
}
