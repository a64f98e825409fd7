//! What a client makes up, handed to the hook as Git would, and what is no protocol at all.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use refdb_testkit::format::ObjectFormat;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;

use super::{REFDB, Scene, refdb};

/// Starts the hook as Git would, and hands it lines.
pub(super) fn started(host: &Repo, input: &[u8]) -> Child {
    let mut child = Command::new(REFDB)
        .arg("receive")
        .current_dir(host.git_dir())
        .envs(oracle::environment())
        .env("GIT_DIR", ".")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child
}

/// Hands lines to the hook, and returns how it ends and what it answers.
fn spoken(host: &Repo, input: &[u8]) -> (Option<i32>, String, String) {
    let output = started(host, input).wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

pub(super) fn packet(text: &[u8]) -> Vec<u8> {
    [format!("{:04x}", text.len() + 4).as_bytes(), text].concat()
}

/// Returns all files of a host, and what is known of its store. Who leads keeps a lock in a folder.
fn made(host: &Repo) -> (Vec<String>, String) {
    let status = refdb(host, &["store", "status"]).text();
    let mut files = files_below(&host.git_dir());
    files.retain(|path| !path.ends_with("/refdb-committer") && !path.ends_with("/leader"));
    (files, status)
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        found.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            found.extend(files_below(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn what_a_client_makes_up_changes_nothing() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let (host, commit) = (scene.host(), &scene.pusher.objects().commits[0]);
    let null = "0".repeat(40);
    let greeting = [
        packet(b"version=1\0push-options atomic\n"),
        b"0000".to_vec(),
    ]
    .concat();
    let plain = [packet(b"version=1\n"), b"0000".to_vec()].concat();
    let command = |name: &[u8]| packet(&[format!("{null} {commit} ").as_bytes(), name].concat());
    let with = |greeting: &[u8], lines: &[Vec<u8>]| [greeting, &lines.concat(), b"0000"].concat();
    let before = (
        files_below(&host.git_dir()),
        refdb(host, &["store", "status"]).text(),
    );
    let long = vec![b'x'; 65_000];
    let names: &[(&[u8], &str)] = &[
        (b"refs/heads/../../../x", "funny refname"),
        (b"refs/heads/x.lock", "funny refname"),
        (b"refs/heads/a b", "funny refname"),
        (b"refs/heads/a\0b", "funny refname"),
        (b"refs/heads/a\nb", "funny refname"),
        (b"refs/heads/\x1b[2J", "funny refname"),
        (b"/etc/passwd", "funny refname"),
        (b"", "funny refname"),
        (b"HEAD", "funny refname"),
        (b"refs/x", "funny refname"),
        (b"refs/bisect/x", "per-worktree ref"),
        (
            &[b"refs/heads/", long.as_slice()].concat(),
            "failed to update refs",
        ),
    ];
    for (name, reason) in names {
        let (code, answer, stderr) = spoken(host, &with(&plain, &[command(name)]));
        assert_eq!(code, Some(0), "{stderr}");
        assert!(
            answer.contains(reason) && !answer.contains("ok "),
            "{name:?}: {answer} {stderr}"
        );
    }
    let twice = [command(b"refs/heads/twice"), command(b"refs/heads/twice")];
    let missing = packet(format!("{null} {} refs/heads/missing", "1".repeat(40)).as_bytes());
    for lines in [&twice[..], &[missing]] {
        let (code, answer, stderr) = spoken(host, &with(&plain, lines));
        assert!(
            code == Some(0) && answer.contains("ng ") && !answer.contains("ok "),
            "{answer} {stderr}"
        );
    }
    let atomic = with(
        &greeting,
        &[command(b"refs/heads/fine"), command(b"refs/heads/x..y")],
    );
    let (_, answer, _) = spoken(host, &atomic);
    assert!(
        answer.contains("ng refs/heads/fine atomic push failure"),
        "{answer}"
    );
    assert_eq!(made(host), before);
}

#[test]
fn what_is_malformed_ends_the_hook() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let (host, commit) = (scene.host(), &scene.pusher.objects().commits[0]);
    let (null, before) = ("0".repeat(40), made(scene.host()));
    let command = packet(format!("{null} {commit} refs/heads/a").as_bytes());
    let plain = [packet(b"version=1\n"), b"0000".to_vec()].concat();
    let with = |greeting: &[u8], line: Vec<u8>| [greeting, &line, b"0000"].concat();
    let malformed = [
        format!("{commit} {commit}"),
        format!("{}{commit} refs/heads/a", "g".repeat(40)),
        format!("{} {commit} refs/heads/a", "g".repeat(40)),
        format!("{commit} {commit}refs/heads/a"),
        "x".to_owned(),
    ];
    let malformed = malformed
        .iter()
        .map(|line| with(&plain, packet(line.as_bytes())));
    let version = [packet(b"version=2"), b"0000".to_vec()].concat();
    let inputs = [
        &b""[..],
        b"0000",
        b"zzzz",
        b"fff9",
        b"0003",
        &with(&version, command.clone()),
        // It ends in the middle.
        &[plain.as_slice(), &command].concat(),
        &[plain.as_slice(), &command[..30]].concat(),
    ];
    for input in inputs.map(<[u8]>::to_vec).into_iter().chain(malformed) {
        let (code, answer, stderr) = spoken(host, &input);
        assert_eq!(code, Some(128), "{input:?}: {answer} {stderr}");
        assert!(!answer.contains("ok "), "{answer}");
    }
    assert_eq!(made(host), before);
}
