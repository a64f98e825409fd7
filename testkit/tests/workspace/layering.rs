//! The layers of the workspace, read from its sources.
//!
//! A crate and a module import only what lies below them, ARCHITECTURE.md says the same, the two
//! backends do not know each other, only the system layer touches the file system, files stay short
//! and sources ASCII. Each checker is shown to find what it is for by the tests at the end.

use std::fmt::Write as _;
use std::fs;

use refdb_testkit::oracle::workspace_root;

use super::sources::{Source, all, below, read};

mod the_checkers;

/// A crate, and its modules from the lowest layer up, if it has any. A module may import from its own
/// layer and from lower ones.
struct Crate {
    /// Its folder in the workspace.
    folder: &'static str,
    /// Its name in code.
    name: &'static str,
    layers: &'static [&'static [&'static str]],
    /// The crates whose module `internals` it may use.
    insides_of: &'static [&'static str],
}

/// All crates, from the lowest up: each may import from those before it.
const CRATES: &[Crate] = &[
    Crate {
        folder: "crates/reftable",
        name: "reftable",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-names",
        name: "refdb_names",
        layers: &[&["name", "oid"], &["target"], &["internals"]],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-system",
        name: "refdb_system",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-simulation",
        name: "refdb_simulation",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb",
        name: "refdb",
        layers: &[
            &["error", "hook", "reflog"],
            &["system"],
            &["commit", "layout", "objects", "options", "shared"],
            &["backend"],
            &["refs", "resolve"],
            &["transaction"],
            &["store"],
            &["internals"],
        ],
        insides_of: &["refdb_names"],
    },
    Crate {
        folder: "crates/refdb-git",
        name: "refdb_git",
        layers: &[
            &["date", "objects", "places"],
            &["graph"],
            &["repository"],
            &["describe", "expire", "revision"],
            &["internals"],
        ],
        insides_of: &["refdb"],
    },
    Crate {
        folder: "crates/refdb-maintenance",
        name: "refdb_maintenance",
        layers: &[
            &["progress", "stacks"],
            &["migrate", "shared"],
            &["verify"],
            &["inspect", "repair"],
        ],
        insides_of: &["refdb", "refdb_git"],
    },
    Crate {
        folder: "crates/refdb-arrow",
        name: "refdb_arrow",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-c",
        name: "refdb_c",
        layers: &[
            &["border", "types"],
            &["log", "refs", "store", "transaction"],
        ],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-git2",
        name: "refdb_git2",
        layers: &[
            &["abi", "ffi"],
            &["border", "find"],
            &["objects", "scratch"],
            &[
                "backend", "heads", "init", "iterate", "locks", "logs", "refs",
            ],
            &["attach"],
            &["interpose"],
        ],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-git2-preload",
        name: "refdb_git2_preload",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-wasm",
        name: "refdb_wasm",
        layers: &[&["encode"], &["session"], &["border"]],
        insides_of: &[],
    },
    Crate {
        folder: "testkit",
        name: "refdb_testkit",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "bench",
        name: "refdb_bench",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-cli",
        name: "refdb_cli",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "crates/refdb-remote",
        name: "refdb_remote",
        layers: &[],
        insides_of: &[],
    },
    Crate {
        folder: "fuzz",
        name: "refdb_fuzz",
        layers: &[],
        insides_of: &[],
    },
];
/// How long a file may be without its tests.
const LINES_MAX: usize = 600;

#[test]
fn crates_import_only_downward() {
    for own in CRATES {
        let mut sources = below(own.folder);
        // The examples below are what is looked for.
        sources.retain(|source| source.path != "testkit/tests/workspace/layering/the_checkers.rs");
        let tests = format!("{}/tests/", own.folder);
        check(sources, |source| {
            let own = match source.path.starts_with(&tests) {
                true => for_tests(own, CRATES),
                false => own,
            };
            crates_upward(own, CRATES, &source.text)
        });
    }
}

#[test]
fn modules_import_only_downward() {
    for own in CRATES.iter().filter(|own| !own.layers.is_empty()) {
        let src = format!("{}/src", own.folder);
        let reexports = reexports(&read(&format!("{src}/lib.rs")).text);
        check(below(&src), |source| {
            let path = &source.path[src.len() + 1..];
            imports_upward(own, path, &source.text, &reexports)
        });
        for module in own.layers.concat() {
            let is_there = |path| workspace_root().join(&src).join(path).exists();
            let is_module = is_there(format!("{module}.rs"));
            assert!(is_module, "{src} has no module {module}, which has a layer");
        }
    }
}

#[test]
fn the_map_shows_these_crates_and_layers() {
    let map = fs::read_to_string(workspace_root().join("ARCHITECTURE.md")).expect("there is a map");
    assert_eq!(differences(&map, CRATES), Vec::<String>::new());
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
    for other in [
        "reftable",
        "refdb-git",
        "refdb-maintenance",
        "refdb-cli",
        "refdb-remote",
    ] {
        sources.extend(below(&format!("crates/{other}/src")));
    }
    sources.retain(|source| !is_test(&source.path));
    check(sources, |source| {
        mentions(&source.text, &["std::fs", "unsafe"])
    });
}

#[test]
fn no_file_is_too_long() {
    // Unit tests that stand beside the sources of the store are not counted.
    let mut sources = all();
    sources.retain(|source| !(is_test(&source.path) && source.path.contains("/src/")));
    check(sources, |source| too_long(&source.text));
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

/// Returns the crate as which the integration tests of one import: they stand beside what they test,
/// and use the test kit, which is made from crates that lie above.
fn for_tests<'a>(own: &'a Crate, crates: &'a [Crate]) -> &'a Crate {
    let (mut names, kit) = (crates.iter().map(|one| one.name), "refdb_testkit");
    let is_below = names.find(|name| [own.name, kit].contains(name)) == Some(own.name);
    let kit = crates.iter().find(|one| one.name == kit);
    kit.filter(|_| is_below).unwrap_or(own)
}

/// Returns the crates that a file imports and that do not lie below its own, tests included, and the
/// insides of others that it uses without being meant to.
fn crates_upward(own: &Crate, crates: &[Crate], text: &str) -> Vec<String> {
    let code: String = text.lines().map(code_of).collect::<Vec<_>>().join("\n");
    let lower = crates.iter().take_while(|other| other.name != own.name);
    let lower: Vec<&str> = lower.map(|other| other.name).collect();
    let mut faults = Vec::new();
    for other in crates.iter().filter(|other| other.name != own.name) {
        for (start, _) in code.match_indices(&format!("{}::", other.name)) {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|c| c == ':' || is_word(c)) {
                continue;
            }
            let mut found = Vec::new();
            open_braces(&code[start..], &[], &mut found);
            let may_know = own.insides_of.contains(&other.name);
            for path in found {
                if !lower.contains(&other.name) {
                    faults.push(format!("imports upward: {}", path.join("::")));
                } else if path.get(1).is_some_and(|part| part == "internals") && !may_know {
                    faults.push(format!("uses the insides of others: {}", path.join("::")));
                }
            }
        }
    }
    faults
}

/// Returns what the map says of crates and modules otherwise than the list does, or not at all.
///
/// It has a line for each crate, which begins with its folder, from the lowest up, and for each crate
/// with layers a table below "Inside `<folder>`". A line of such a table begins with the names of
/// modules of one layer, the highest first.
fn differences(map: &str, crates: &[Crate]) -> Vec<String> {
    let mut faults = Vec::new();
    let rows = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().skip_while(|line| !line.starts_with("    "));
        let lines = lines.take_while(|line| line.starts_with("    "));
        let names = lines.map(|line| line.trim().split("  ").next().unwrap_or_default());
        names
            .map(|names| names.split(", ").map(str::to_owned).collect())
            .collect()
    };
    let folders: Vec<&str> = crates.iter().map(|one| one.folder).collect();
    let listed = rows(map).concat();
    if listed != folders {
        faults.push(format!("crates {listed:?} in place of {folders:?}"));
    }
    for one in crates.iter().filter(|one| !one.layers.is_empty()) {
        let title = format!("\nInside `{}`", one.folder);
        let Some((_, text)) = map.split_once(&title) else {
            faults.push(format!("no layers of {}", one.folder));
            continue;
        };
        let mut layers = one.layers.iter().rev().peekable();
        let mut left: Vec<&str> = Vec::new();
        for row in rows(text) {
            for module in row {
                if left.is_empty() {
                    left = layers.next().map_or(Vec::new(), |layer| layer.to_vec());
                }
                match left.iter().position(|one| *one == module) {
                    Some(at) => drop(left.remove(at)),
                    None => faults.push(format!("{}: {module} is not there", one.folder)),
                }
            }
        }
        let missing = left
            .into_iter()
            .chain(layers.flat_map(|layer| layer.iter().copied()));
        faults.extend(missing.map(|module| format!("{}: {module} is missing", one.folder)));
    }
    faults
}

/// Returns the imports of a file that do not go down within its crate. `path` is below `src`.
fn imports_upward(
    own: &Crate,
    path: &str,
    text: &str,
    reexports: &[(String, String)],
) -> Vec<String> {
    let here: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    // The root names all modules, that is its work. Tests may build what they test from above.
    if here == ["lib"] || is_test(path) {
        return vec![];
    }
    let layers = own.layers;
    let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
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

/// Returns how long a file is, if that is too long and no line says why.
fn too_long(text: &str) -> Vec<String> {
    let code = without_tests(text);
    let lines = code.lines().count();
    let says_why = code.lines().any(|line| line.starts_with("// Long: "));
    match lines > LINES_MAX && !says_why {
        true => vec![format!("{lines} lines without its tests")],
        false => vec![],
    }
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
