//! What `--json` prints is what the schemas in docs/schema say, in every command that has it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{RefFormat, for_every_format};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run()
}

/// Returns what is wrong with a value, if something is.
fn mistake(schema: &str, value: &Value) -> Option<String> {
    let path = folder().join(format!("{schema}.json"));
    let text = fs::read_to_string(&path).expect("there is a schema");
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    refused(&schema, value).err()
}

/// Checks a value against the part of JSON Schema that the schemas here use. A word that is not known
/// is a mistake of the schema, so that nothing in it is passed over. (A library for all of it brings
/// more than forty packages.)
fn refused(schema: &Value, value: &Value) -> Result<(), String> {
    let rules = schema.as_object().expect("a schema is an object");
    for (word, rule) in rules {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" => true,
            "type" => match rule {
                Value::Array(names) => names.iter().any(|name| is_of(name, value)),
                name => is_of(name, value),
            },
            "const" => rule == value,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minimum" => value
                .as_f64()
                .is_none_or(|it| it >= rule.as_f64().expect("a number")),
            "pattern" => value.as_str().is_none_or(|it| matches(rule, it)),
            "required" => {
                let has = |name: &Value| value.get(name.as_str().expect("a name")).is_some();
                !value.is_object() || rule.as_array().expect("a list").iter().all(has)
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                items.try_for_each(|item| refused(rule, item))?;
                true
            }
            "oneOf" => {
                let forms = rule.as_array().expect("a list").iter();
                forms.filter(|form| refused(form, value).is_ok()).count() == 1
            }
            "properties" | "patternProperties" | "additionalProperties" => {
                members(rules, value)?;
                true
            }
            _ => panic!("the schema says '{word}', which is not known here"),
        };
        if !holds {
            return Err(format!("{word} {rule}: {value}"));
        }
    }
    Ok(())
}

/// Checks the members of an object.
fn members(rules: &serde_json::Map<String, Value>, value: &Value) -> Result<(), String> {
    let of = |word: &str| rules.get(word).and_then(Value::as_object);
    for (name, member) in value.as_object().into_iter().flatten() {
        let named = of("properties").and_then(|all| all.get(name));
        let mut like = of("patternProperties").into_iter().flatten();
        let like = like.find(|(pattern, _)| matches(&Value::from(pattern.as_str()), name));
        match named
            .or(like.map(|(_, schema)| schema))
            .or(rules.get("additionalProperties"))
        {
            Some(Value::Bool(false)) => return Err(format!("{name} is not described")),
            Some(Value::Bool(true)) | None => {}
            Some(schema) => refused(schema, member).map_err(|why| format!("{name}: {why}"))?,
        }
    }
    Ok(())
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type '{other}'"),
    }
}

fn matches(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().expect("a pattern");
    regex_lite::Regex::new(pattern)
        .expect("a pattern")
        .is_match(text)
}

/// Checks each line, and returns how many there are.
#[track_caller]
fn check_lines(schema: &str, text: &[u8]) -> usize {
    let text = std::str::from_utf8(text).expect("JSON is UTF-8");
    let mut count = 0;
    for line in text.lines() {
        let value = serde_json::from_str(line).expect("a line is a value");
        assert_eq!(mistake(schema, &value), None, "{line}");
        count += 1;
    }
    count
}

for_every_format! {
    fn what_is_printed_is_what_the_schema_says(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let (commit, tag) = (&objects.commits[0], &objects.tags[0].id);
        repo.update_refs(format!(
            "create refs/heads/a {commit}\ncreate refs/tags/t {tag}\n"
        ));
        repo.git(["update-ref", "-m", "why", "HEAD", commit]).run().ok();
        repo.git(["symbolic-ref", "refs/heads/s", "refs/heads/a"]).run().ok();
        let lines = |schema, args: &[&str]| {
            let count = check_lines(schema, &refdb(&repo, args).ok());
            assert!(count > 0, "{args:?} prints something");
        };
        lines("for-each-ref", &["for-each-ref", "--json"]);
        let all = "--format=%(refname)%(symref)%(upstream)%(*objectname)%(contents)%(HEAD)";
        lines("for-each-ref", &["refs", "list", "--json", all]);
        lines("reflog-show", &["reflog", "show", "--json", "HEAD"]);
        lines("watch", &["watch", "--json"]);
        lines("inspect", &["inspect", "--json"]);
        if format.refs == RefFormat::Reftable {
            let list = fs::read_to_string(repo.git_dir().join("reftable/tables.list"));
            let list = list.expect("a list");
            let table = format!("--table={}", list.lines().next().expect("a table"));
            lines("inspect", &["inspect", "--json", &table]);
            lines("inspect", &["inspect", "--json", "--records", &table]);
        }
        let other = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        lines("refs-migrate", &["refs", "migrate", "--json", "--dry-run", other]);
        lines("refs-migrate", &["refs", "migrate", "--json", "--keep", other]);
        lines("refs-migrate", &["refs", "migrate", "--json", "--undo"]);
        let temp = tempfile::tempdir().expect("a folder");
        let url = format!("file://{}", temp.path().join("store").display());
        refdb(&repo, &["store", "init", &url]).ok();
        lines("store-status", &["store", "status", "--json", &url]);
        refdb(&repo, &["store", "import", &url]).ok();
        let store = format!("--store={url}");
        lines("watch", &[&store, "watch", "--json"]);
        refdb(&repo, &[&store, "update-ref", "-d", "refs/heads/a"]).ok();
        refdb(&repo, &["store", "freeze", "--reason=later", &url]).ok();
        lines("store-status", &["store", "status", "--json", &url]);
        lines("watch", &[&store, "watch", "--json"]);
    }

    fn what_a_check_finds_is_what_the_schema_says(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/a {commit}\n"));
        repo.git(["symbolic-ref", "refs/heads/round", "refs/heads/round"]).run();
        let dir = match format.refs {
            RefFormat::Files => repo.git_dir().join("refs/heads"),
            RefFormat::Reftable => repo.git_dir().join("reftable"),
        };
        for entry in fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("a name").path();
            if path.is_file() {
                let mut content = fs::read(&path).expect("a file");
                content.truncate(content.len() / 2);
                fs::write(&path, content).expect("a file");
            }
        }
        let out = refdb(&repo, &["refs", "verify", "--deep", "--json"]);
        assert_eq!(out.code(), 2);
        assert!(check_lines("refs-verify", &out.stdout) > 0);
    }
}

for_every_format! {
    /// Git, which could choose entries by paths, has no such lines, and is not blamed for it.
    fn what_lines_cannot_say_is_refused_for_that_reason(format) {
        let repo = Repo::init(format);
        let out = refdb(&repo, &["reflog", "show", "--json", "--", "path"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let expected = "fatal: entries cannot be chosen by paths together with --json\n";
        assert_eq!((out.code(), said.as_str()), (128, expected));
    }
}

#[test]
fn what_is_measured_is_what_the_schema_says() {
    let git = oracle::program().to_str().expect("UTF-8").to_owned();
    let out = Command::new(env!("CARGO_BIN_EXE_refdb"))
        .args([
            "bench",
            "--json",
            "--refs=10",
            "--runs=1",
            "--formats=files",
        ])
        .args(["--fsync=none", "--only=list", "--git", &git])
        .output()
        .expect("the program can be run");
    let value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(mistake("bench", &value), None, "{value}");
}

/// Each schema says something: what it does not describe is refused.
#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder()).expect("a folder") {
        let name = entry
            .expect("a name")
            .file_name()
            .into_string()
            .expect("UTF-8");
        names.insert(name.trim_end_matches(".json").to_owned());
    }
    let expected = [
        "bench",
        "for-each-ref",
        "inspect",
        "reflog-show",
        "refs-migrate",
        "refs-verify",
        "store-status",
        "watch",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    let page = fs::read_to_string(folder().join("../json.md")).expect("a page");
    for name in &names {
        let wrong = serde_json::json!({ "refname": 1, "nonsense": {} });
        assert!(mistake(name, &wrong).is_some(), "{name}");
        assert!(
            page.contains(&format!("schema/{name}.json")),
            "{name} is on the page"
        );
    }
}
