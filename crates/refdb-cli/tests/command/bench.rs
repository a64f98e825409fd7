//! `refdb bench` beside real Git: small runs of every workload, and of a given repository.

use std::process::Command;

use refdb_testkit::{for_every_format, oracle, repo::Repo};

fn bench(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_refdb"))
        .env_clear()
        .envs(oracle::environment())
        .arg("bench")
        .args(args)
        .output()
        .expect("the program runs")
}

/// Returns standard output of a run that has to succeed.
fn text(output: std::process::Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).expect("the report is text")
}

#[test]
fn every_workload_is_measured_and_confirmed() {
    let git = oracle::program().to_str().expect("a plain path").to_owned();
    let list = text(bench(&["--list"]));
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.len() > 20, "{list}");
    let args = [
        "--refs=40",
        "--runs=1",
        "--fsync=none",
        "--json",
        "--git",
        &git,
    ];
    let json: serde_json::Value = serde_json::from_str(&text(bench(&args))).expect("JSON");
    for format in ["files", "reftable"] {
        for name in &names {
            let measures = &json[format!("{format}/none/{name}")];
            assert!(
                measures["latency"]["value"].as_f64() > Some(0.0),
                "{format} {name}"
            );
            assert!(
                measures["ratio"]["value"].as_f64() > Some(0.0),
                "{format} {name}"
            );
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    for (args, error) in [
        (
            ["--only=nothing"],
            "unknown workload 'nothing'; see 'refdb bench --list'",
        ),
        (["--formats=paper"], "unknown ref format 'paper'"),
        (["--refs=3"], "--refs must be at least 10"),
    ] {
        let output = bench(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains(error),
            "{stderr}"
        );
    }
}

for_every_format! {
    fn a_repository_is_measured_on_a_copy(format) {
    let repo = Repo::init(format);
    let commit = &repo.objects().commits[0];
    for at in 0..12 {
        repo.git(["update-ref", &format!("refs/heads/b{at}"), commit])
            .run();
    }
    let before = repo.git(["for-each-ref"]).run().text();
    let path = repo.git_dir().to_str().expect("a plain path").to_owned();
    let args = [
        "--repo",
        &path,
        "--runs=1",
        "--fsync=none",
        "--only=create,create-more,delete",
    ];
    let report = text(bench(&args));
    assert!(report.starts_with("12 refs"), "{report}");
    assert_eq!(repo.git(["for-each-ref"]).run().text(), before);
    }
}

#[test]
fn a_store_is_measured_and_its_requests_are_counted() {
    let temp = tempfile::tempdir().expect("a folder");
    let url = format!("--store=file://{}", temp.path().join("store").display());
    let report = text(bench(&[&url, "--runs=1"]));
    let row = |what: &str| -> Vec<f64> {
        let line = report.lines().find_map(|line| line.strip_prefix(what));
        let words = line.expect("there is such a row").split_whitespace();
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let [alone, together, read] = [
        "one writer, one ref each",
        "64 writers, one process",
        "reading a ref, nothing older",
    ]
    .map(row);
    assert_eq!(alone[3..5], [1.0, 0.0], "{report}");
    // Writers that ask together share requests. How many of them do is the scheduler's: what a
    // quiet machine reaches is in README, not here.
    assert!(together[3] < 0.5 && together[4] < 0.5, "{report}");
    assert_eq!(read[3..5], [0.0, 1.0], "{report}");
    // Beside it what a repository of this machine does a second, and a place in memory.
    assert!(
        [&alone, &together, &read]
            .iter()
            .all(|row| row.len() == 8 && row[5] > 0.0),
        "{report}"
    );
    // There is a store now, and another one is not made in its place.
    let again = bench(&[&url]);
    assert!(!again.status.success());
}
