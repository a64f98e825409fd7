//! What the workspace is built from: licences that go with ours, one source, no needless second
//! version, and a reason for each dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use refdb_testkit::oracle::workspace_root;
use serde_json::Value;

/// Licences that ask for no more than a notice.
const LICENCES: [&str; 7] = [
    "Apache-2.0",
    "MIT",
    "BSD-3-Clause",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "Apache-2.0 WITH LLVM-exception",
];
/// Packages of which two versions are accepted, since others ask for an old one. None of them is
/// in what is shipped.
const TWICE: [&str; 3] = ["bitflags", "defmt", "syn"];
/// How many packages the store needs, four of which are our own (itself, the format, names, the system): what
/// other programs have to build that want nothing but refs.
const STORE_MAX: usize = 19;
/// All that the format crate may need beside the standard library.
const FORMAT_CRATE: [&str; 3] = ["bytes", "crc", "flate2"];

#[test]
fn every_licence_is_accepted() {
    for package in packages() {
        let licence = text(&package, "license");
        assert!(
            is_accepted(&licence),
            "{}: {licence}",
            text(&package, "name")
        );
    }
}

#[test]
fn everything_comes_from_the_registry_or_from_here() {
    for package in packages() {
        let source = text(&package, "source");
        assert!(
            source.is_empty() || source.starts_with("registry+"),
            "{}: {source}",
            text(&package, "name")
        );
    }
}

#[test]
fn crates_that_may_be_published_are_those_that_are_packed() {
    let script = workspace_root().join("scripts/package");
    let script = fs::read_to_string(script).expect("a script");
    let list = script.split_once("\nCRATES=(").expect("a list").1;
    let list = list.split_once(')').expect("its end").0;
    let packed: BTreeSet<String> = list.split_whitespace().map(str::to_owned).collect();
    let is_public =
        |package: &&Value| text(package, "source").is_empty() && package["publish"].is_null();
    let all = packages();
    let public = all
        .iter()
        .filter(is_public)
        .map(|package| text(package, "name"));
    assert_eq!(packed, public.collect());
}

#[test]
fn nothing_is_there_in_two_versions() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions
            .entry(text(&package, "name"))
            .or_default()
            .insert(text(&package, "version"));
    }
    versions.retain(|name, versions| versions.len() > 1 && !TWICE.contains(&name.as_str()));
    assert_eq!(versions, BTreeMap::new());
}

#[test]
fn the_format_crate_needs_two_packages() {
    let package = packages()
        .into_iter()
        .find(|p| text(p, "name") == "refdb-reftable");
    let package = package.expect("the workspace has a format crate");
    let dependencies = package["dependencies"].as_array().expect("a list");
    let mut names: Vec<String> = dependencies
        .iter()
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| text(dependency, "name"))
        .collect();
    names.sort_unstable();
    // One of them differs by what is built for.
    names.dedup();
    assert_eq!(names, FORMAT_CRATE);
}

#[test]
fn the_store_needs_few_packages_and_no_objects() {
    let needed = needed_by("refdb");
    assert!(needed.contains("refdb-reftable"), "{needed:?}");
    assert!(needed.len() <= STORE_MAX, "{}: {needed:?}", needed.len());
    assert_eq!(of_objects(&needed), Vec::<&str>::new());
    // The crate above it is where they are.
    assert!(!of_objects(&needed_by("refdb-git")).is_empty());
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(workspace_root().join("Cargo.toml")).expect("a manifest");
    assert_eq!(without_reason(&manifest), Vec::<&str>::new());
}

/// Tells whether a licence expression can be met with accepted licences alone.
fn is_accepted(expression: &str) -> bool {
    // `/` is the old way to write OR, and some write it small. AND binds tighter, as in SPDX.
    let expression = expression.replace('/', " OR ").replace(" or ", " OR ");
    let expression = expression.replace(['(', ')'], " ");
    let all = |part: &str| {
        part.split(" AND ")
            .all(|name| LICENCES.contains(&name.trim()))
    };
    // In "(A OR B) AND C" C belongs to both: the brackets are gone, so C is asked for with each.
    match expression.rsplit_once(" AND ") {
        Some((choice, also)) => LICENCES.contains(&also.trim()) && choice.split(" OR ").any(all),
        None => expression.split(" OR ").any(all),
    }
}

/// Returns the third-party lines of the workspace's list that say nothing behind a `#`.
fn without_reason(manifest: &str) -> Vec<&str> {
    let list = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .unwrap_or_default();
    let list = list.split("\n[").next().unwrap_or_default();
    let entries = list
        .lines()
        .filter(|line| line.contains(" = ") && !line.contains("path = "));
    entries.filter(|line| !line.contains(" # ")).collect()
}

fn packages() -> Vec<Value> {
    let out = cargo(&["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&out).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Returns the packages that are built for one of the workspace, by name, that one included.
fn needed_by(package: &str) -> BTreeSet<String> {
    let of = ["tree", "--locked", "--prefix=none", "--package", package];
    let out = cargo(&[&of[..], &["--edges=normal,build"]].concat());
    let out = String::from_utf8(out).expect("packages have ASCII names");
    let names = out.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Returns those that read Git's objects.
fn of_objects(packages: &BTreeSet<String>) -> Vec<&str> {
    let names = packages.iter().map(String::as_str);
    names.filter(|name| name.starts_with("gix")).collect()
}

/// Returns what cargo writes.
fn cargo(arguments: &[&str]) -> Vec<u8> {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let out = Command::new(cargo)
        .args(arguments)
        .current_dir(workspace_root())
        .output()
        .expect("cargo can be run");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    out.stdout
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

mod the_checkers {
    use super::*;

    #[test]
    fn refuse_licences_that_ask_for_more() {
        assert!(!is_accepted("GPL-3.0"));
        assert!(!is_accepted("MIT AND GPL-3.0"));
        assert!(!is_accepted("(MIT OR Apache-2.0) AND OpenSSL"));
        assert!(!is_accepted(""));
        assert!(is_accepted("MIT OR Apache-2.0 OR LGPL-2.1-or-later"));
        assert!(is_accepted("LGPL-2.1-or-later or MIT") && !is_accepted("LGPL-2.1-or-later"));
        assert!(is_accepted("Unlicense/MIT"));
        assert!(is_accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
    }

    #[test]
    fn find_a_dependency_without_a_reason() {
        let manifest = "[workspace.dependencies]\na = \"1\" # why\nb = \"2\"\nc = { path = \"c\" }\n\n[x]\nd = 1\n";
        assert_eq!(without_reason(manifest), ["b = \"2\""]);
    }
}
