//! The layers of the workspace, read from its sources.
//!
//! A module imports only what lies below it, the two backends do not know each other, only the
//! system layer touches the file system, files stay short and sources ASCII. Each checker is shown
//! to find what it is for by the tests at the end.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use refdb_testkit::oracle::workspace_root;

/// The modules of refdb from the lowest layer up. A module may import from lower layers, and from
/// its own.
const LAYERS: &[&[&str]] = &[
    &["error", "hook", "name", "oid", "reflog", "target"],
    &["beside", "system"],
    &["commit", "date", "layout", "objects", "options"],
    &["graph"],
    &["backend"],
    &["refs", "resolve"],
    &["transaction"],
    &["store"],
    &["repository"],
    &["verify"],
    &["repair", "inspect"],
    &["describe", "expire", "revision"],
    &["migrate"],
    &["internals"],
];
/// How long a file may be without its tests.
const LINES_MAX: usize = 600;

/// A source file of the workspace.
struct Source {
    /// From the root of the workspace, with `/`.
    path: String,
    text: String,
}

#[test]
fn refdb_imports_only_downward() {
    for house in ["refdb", "refdb-git", "refdb-maintenance"] {
        let src = format!("crates/{house}/src");
        let reexports = reexports(&read(&format!("{src}/lib.rs")).text);
        check(below(&src), |source| {
            imports_upward(&source.path[src.len() + 1..], &source.text, &reexports)
        });
    }
}

#[test]
fn the_format_crate_opens_nothing_and_knows_no_clock() {
    check(below("crates/reftable/src"), |source| {
        mentions(
            &source.text,
            &["std::fs", "std::net", "std::env", "std::time"],
        )
    });
}

#[test]
fn only_the_system_layer_touches_files_or_is_unsafe() {
    let mut sources = below("crates/refdb/src");
    for other in ["reftable", "refdb-git", "refdb-maintenance", "refdb-cli"] {
        sources.extend(below(&format!("crates/{other}/src")));
    }
    // The benchmark makes repositories to measure in, from outside as a user would.
    let elsewhere = [
        "crates/refdb/src/system",
        "crates/refdb-cli/src/commands/bench",
    ];
    sources.retain(|source| {
        !elsewhere.iter().any(|path| source.path.starts_with(path)) && !is_test(&source.path)
    });
    check(sources, |source| {
        mentions(&source.text, &["std::fs", "unsafe"])
    });
}

#[test]
fn no_file_is_too_long() {
    let mut sources = all();
    sources.retain(|source| !is_test(&source.path));
    check(sources, |source| {
        let lines = without_tests(&source.text).lines().count();
        if lines > LINES_MAX {
            vec![format!("{lines} lines without its tests")]
        } else {
            vec![]
        }
    });
}

#[test]
fn sources_are_ascii() {
    check(all(), |source| not_ascii(&source.text));
}

/// Fails with everything that `find` finds.
fn check(sources: Vec<Source>, find: impl Fn(&Source) -> Vec<String>) {
    assert!(!sources.is_empty(), "there is nothing to check");
    let mut report = String::new();
    for source in &sources {
        for fault in find(source) {
            writeln!(report, "{}: {fault}", source.path).expect("a string takes everything");
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Returns the imports of a file of refdb that do not go down. `path` is below `src`.
fn imports_upward(path: &str, text: &str, reexports: &[(String, String)]) -> Vec<String> {
    let here: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    // The root names all modules, that is its work. Tests may build what they test from above.
    if here == ["lib"] || is_test(path) {
        return vec![];
    }
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let Some(own) = layer(here[0]) else {
        return vec![format!("the module {} has no layer", here[0])];
    };
    let backends = ["files", "reftable"];
    let mut faults = Vec::new();
    for path in paths(&here, without_tests(text)) {
        let known = reexports.iter().find(|(name, _)| *name == path[0]);
        let module = known.map_or(path[0].as_str(), |(_, module)| module.as_str());
        match layer(module) {
            None => faults.push(format!("crate::{} is in no layer", path.join("::"))),
            Some(other) if other > own => {
                faults.push(format!("imports upward: {}", path.join("::")));
            }
            Some(_) => (),
        }
        let of_backend = |path: &[&str]| path.len() > 1 && backends.contains(&path[1]);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        if module == "backend" && of_backend(&here) && of_backend(&path) && here[1] != path[1] {
            faults.push(format!("backend {} imports {}", here[1], path.join("::")));
        }
    }
    faults
}

/// Returns every path in the code that begins at the root of the crate, written as such or with
/// `super`, without the root. Braces are opened: `crate::{a, b::c}` are two paths.
fn paths(here: &[&str], text: &str) -> Vec<Vec<String>> {
    let code: String = text.lines().map(code_of).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (start, _) in code.match_indices("crate::") {
        let before = code[..start].chars().next_back();
        if !before.is_some_and(|c| c == '$' || is_word(c)) {
            open_braces(&code[start + "crate::".len()..], &[], &mut found);
        }
    }
    let mut at = 0;
    while let Some(start) = code[at..].find("super::").map(|start| at + start) {
        let mut rest = &code[start..];
        let mut parents = 0;
        while let Some(shorter) = rest.strip_prefix("super::") {
            parents += 1;
            rest = shorter;
        }
        at = code.len() - rest.len();
        let kept: Vec<String> = here[..here.len().saturating_sub(parents)]
            .iter()
            .map(|s| (*s).to_owned())
            .collect();
        if rest.starts_with('*') && kept.is_empty() {
            found.push(vec!["*".to_owned()]);
        } else if !rest.starts_with('*') {
            open_braces(rest, &kept, &mut found);
        }
    }
    found
}

/// Reads one path, or several in braces, after `prefix`. Returns the rest of the text.
fn open_braces<'a>(text: &'a str, prefix: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = open_braces(rest, prefix, found).trim_start();
            let Some(next) = rest.strip_prefix(',') else {
                return rest.strip_prefix('}').unwrap_or(rest);
            };
            rest = next.trim_start();
            if let Some(rest) = rest.strip_prefix('}') {
                return rest;
            }
        }
    }
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let mut path = prefix.to_vec();
    // `self` in braces is the prefix itself.
    if !word.is_empty() && word != "self" {
        path.push(word.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return open_braces(rest, &path, found);
    }
    if !path.is_empty() {
        found.push(path);
    }
    match rest.trim_start().strip_prefix("as ") {
        Some(alias) => alias.trim_start().trim_start_matches(is_word),
        None => rest,
    }
}

/// Returns the names that the root of the crate exports, each with the module it is from.
fn reexports(root: &str) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for (start, _) in root.match_indices("\npub use ") {
        let mut found = Vec::new();
        open_braces(&root[start + "\npub use ".len()..], &[], &mut found);
        let pairs = found.into_iter().filter_map(|path| {
            let (first, last) = (path.first()?.clone(), path.last()?.clone());
            Some((last, first))
        });
        names.extend(pairs);
    }
    names
}

/// Returns the forbidden words that the code of a file mentions outside its tests.
fn mentions(text: &str, forbidden: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in without_tests(text).lines().enumerate() {
        let code = code_of(line);
        for word in forbidden {
            let whole = |start: usize| {
                let before = code[..start].chars().next_back();
                let after = code[start + word.len()..].chars().next();
                !before.is_some_and(is_word) && !after.is_some_and(is_word)
            };
            if code.match_indices(word).any(|(start, _)| whole(start)) {
                faults.push(format!("line {}: {word}", number + 1));
            }
        }
    }
    faults
}

fn not_ascii(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_ascii());
    lines
        .map(|(number, line)| format!("line {}: {line}", number + 1))
        .collect()
}

/// Returns a file up to its tests, which stand at its end.
fn without_tests(text: &str) -> &str {
    let start = text.find("\n#[cfg(test)]\nmod ").filter(|start| {
        let rest = &text[start + 1..];
        rest.lines().nth(1).is_some_and(|line| line.ends_with('{'))
    });
    start.map_or(text, |start| &text[..start + 1])
}

/// Returns a line without its comment. A `//` in a string is taken for one, too.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Tells whether a file holds nothing but tests.
fn is_test(path: &str) -> bool {
    path.trim_end_matches(".rs")
        .split('/')
        .any(|part| part == "tests")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns all Rust files of the workspace.
fn all() -> Vec<Source> {
    ["crates", "testkit", "bench", "fuzz"]
        .into_iter()
        .flat_map(below)
        .collect()
}

/// Returns the Rust files below a folder of the workspace.
fn below(folder: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(workspace_root().join(&folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.expect("the sources can be listed");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("the entry is there").is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if path.extension() == Some("rs".as_ref()) {
                sources.push(read(path.to_str().expect("sources have ASCII names")));
            }
        }
    }
    sources
}

fn read(path: &str) -> Source {
    let text = fs::read_to_string(Path::new(workspace_root()).join(path));
    Source {
        path: path.to_owned(),
        text: text.expect("the source can be read"),
    }
}

mod the_checkers {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        imports_upward(path, text, &[("Store".to_owned(), "store".to_owned())])
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
                "use crate::{\n    name,\n    store::{Store},\n};\n"
            ),
            up
        );
        assert_eq!(faults("name.rs", "fn f() -> crate::store::Store {}\n"), up);
        assert_eq!(
            faults("name.rs", "use crate::Store;\n"),
            ["imports upward: Store"]
        );
        assert_eq!(
            faults("oid.rs", "use crate::system;\n"),
            ["imports upward: system"]
        );
        assert_eq!(
            faults("name.rs", "use super::*;\n"),
            ["crate::* is in no layer"]
        );
    }

    #[test]
    fn accept_imports_that_go_down() {
        let down = "use crate::{name::{self, RefName as Name}, error};\nuse super::overlay::*;\n";
        assert_eq!(
            faults("backend/files/session.rs", down),
            Vec::<String>::new()
        );
        let link = "//! See [`crate::store::Store`].\nuse $crate::store;\n";
        assert_eq!(faults("name.rs", link), Vec::<String>::new());
        let tests = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::store::Store;\n}\n";
        assert_eq!(faults("name.rs", tests), Vec::<String>::new());
    }

    #[test]
    fn find_a_module_without_a_layer() {
        assert_eq!(faults("new.rs", ""), ["the module new has no layer"]);
        let unknown = faults("name.rs", "use crate::new::New;\n");
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
}
