//! The command, in a small real repository: formats of `for-each-ref`, dialogues of `update-ref` and of `batch`,
//! files of the commit-graph.

use std::fs::{File, read_dir, write};
use std::path::Path;

use refdb::RefFormat;
use refdb_cli::fuzzing::{UpdateRef, command};

use super::repository::{FIXTURE, STABLE};

/// A format, and behind NULs more arguments.
pub(crate) fn for_each_ref(bytes: &[u8]) {
    // A column takes as much memory as its width says.
    let mut numbers = bytes.split(|byte| !byte.is_ascii_digit());
    if numbers.any(|number| number.len() > 5) {
        return;
    }
    let mut pieces = bytes.split(|&byte| byte == 0);
    let format = [b"--format=", pieces.next().unwrap_or_default()].concat();
    let mut args = STABLE.args([b"for-each-ref", &format]);
    args.extend(pieces.map(<[u8]>::to_vec));
    command(&args);
}

thread_local! {
    static READER: UpdateRef = UpdateRef::new(&STABLE.git_dir);
}

/// What the first byte says, a bit each, behind the one that is the format.
const OPTIONS: [&[u8]; 4] = [b"-z", b"--batch-updates", b"--no-deref", b"--create-reflog"];

/// Returns the format that the first byte asks for.
fn format_of(first: u8) -> RefFormat {
    match first & 1 {
        0 => RefFormat::Files,
        _ => RefFormat::Reftable,
    }
}

/// Options, and an input of `update-ref --stdin`.
pub(crate) fn update_ref(bytes: &[u8]) {
    let Some((&first, input)) = bytes.split_first() else {
        return;
    };
    FIXTURE.reset(format_of(first));
    READER.with(|reader| reader.read(input));
    give(input);
    let mut args = FIXTURE.args([b"update-ref", b"--stdin"]);
    let given = OPTIONS.iter().enumerate();
    let given = given.filter(|(bit, _)| first >> (bit + 1) & 1 != 0);
    args.extend(given.map(|(_, option)| option.to_vec()));
    command(&args);
    let list = FIXTURE.args([b"for-each-ref"]);
    assert!(command(&list), "what was written can be read");
    no_locks(&FIXTURE.git_dir);
}

/// The format and `-z`, a bit each, and questions of `batch`. Whatever they are, the process ends well: what
/// cannot be answered is answered by an error, and the next question is answered.
pub(crate) fn batch(bytes: &[u8]) {
    let Some((&first, input)) = bytes.split_first() else {
        return;
    };
    FIXTURE.reset(format_of(first));
    give(input);
    let mut args = FIXTURE.args([b"batch"]);
    if first & 2 != 0 {
        args.push(b"-z".to_vec());
    }
    assert!(command(&args), "questions make no process fail");
    // One that leads out of refs/ may be written, as by Git: then nobody takes it for a repository.
    write(FIXTURE.git_dir.join("HEAD"), "ref: refs/heads/main\n").expect("room");
    let list = FIXTURE.args([b"for-each-ref"]);
    assert!(command(&list), "what was written can be read");
    no_locks(&FIXTURE.git_dir);
}

/// Makes bytes the standard input.
fn give(input: &[u8]) {
    let path = FIXTURE.git_dir.join("input");
    write(&path, input).expect("room");
    let file = File::open(&path).expect("it is there");
    rustix::stdio::dup2_stdin(file).expect("a descriptor");
}

fn no_locks(dir: &Path) {
    for entry in read_dir(dir).expect("a directory") {
        let entry = entry.expect("it can be listed");
        let path = entry.path();
        let is_lock = path.extension().is_some_and(|it| it == "lock");
        assert!(!is_lock, "left behind: {}", path.display());
        if entry.file_type().expect("it is there").is_dir() {
            no_locks(&path);
        }
    }
}

/// A file of the commit-graph.
pub(crate) fn commit_graph(bytes: &[u8]) {
    static ASKED: [&[&[u8]]; 4] = [
        &[
            b"--contains=refs/heads/old",
            b"--format=%(ahead-behind:refs/heads/side)",
        ],
        &[b"--merged=refs/heads/main", b"--no-contains=refs/tags/v1"],
        &[
            b"--no-merged=refs/heads/side",
            b"--format=%(is-base:refs/heads/main)",
        ],
        &[
            b"--format=%(describe) %(upstream:track)",
            b"--sort=-committerdate",
        ],
    ];
    write(FIXTURE.git_dir.join("objects/info/commit-graph"), bytes).expect("room");
    for asked in ASKED {
        let mut args = FIXTURE.args([b"for-each-ref"]);
        args.extend(asked.iter().map(|arg| arg.to_vec()));
        command(&args);
    }
}
