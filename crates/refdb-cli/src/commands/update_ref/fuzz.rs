//! Arbitrary input for `update-ref --stdin`: it is cut into commands and read, or refused, and never
//! more than that. `REFDB_UPDATE_REF_INPUTS` says how many inputs, `REFDB_UPDATE_REF_SEED` from which
//! seed.

use bstr::ByteSlice;
use refdb_testkit::Format;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{Tally, budget};

use super::command::{Parser, Verb, recognise, split};
use super::plain::Lines;
use crate::context::Context;
use crate::global;

/// How many inputs every test run tries.
const SHORT: u64 = 20_000;

/// Where an object id in full is among the words.
const COMMIT_AT: usize = 24;

/// Words of which inputs are made, beside arbitrary bytes.
fn words(repo: &Repo) -> Vec<Vec<u8>> {
    let commit = repo.objects().commits[0].as_str();
    let zero = "0".repeat(commit.len());
    let long = "x".repeat(5000);
    let words = [
        "update",
        "create",
        "delete",
        "verify",
        "symref-update",
        "symref-create",
        "symref-delete",
        "symref-verify",
        "option",
        "start",
        "prepare",
        "commit",
        "abort",
        "no-deref",
        "ref",
        "oid",
        "refs/heads/main",
        "HEAD",
        "refs/heads/..",
        "\"refs/heads/a\\040b\"",
        "\"unended",
        "\\777",
        "HEAD~1",
        "main@{1}",
        commit,
        &commit[1..],
        &zero,
        "",
        " ",
        "  ",
        "\t",
        "\r",
        "\n",
        "\0",
        "\"",
        &long,
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

fn input(rng: &mut Rng, words: &[Vec<u8>]) -> Vec<u8> {
    let mut input = Vec::new();
    let end = if rng.percent(50) { b'\n' } else { 0 };
    for _ in 0..1 + rng.below(6) {
        if end == b'\n' && rng.percent(20) {
            input.extend_from_slice(&usual_line(rng, words));
            continue;
        }
        for at in 0..1 + rng.below(5) {
            if at > 0 {
                input.push(if rng.percent(80) { b' ' } else { end });
            }
            input.extend_from_slice(&words[rng.below(words.len())]);
        }
        if rng.percent(90) {
            input.push(end);
        }
    }
    // There may be no byte to change.
    input.push(end);
    for _ in 0..rng.below(4) {
        let at = rng.below(input.len());
        let byte = u8::try_from(rng.below(256)).expect("a byte");
        match rng.below(3) {
            0 => input[at] = byte,
            1 => input.insert(at, byte),
            _ => drop(input.remove(at)),
        }
        input.push(end);
    }
    input
}

/// Makes a line that nearly has the usual form.
fn usual_line(rng: &mut Rng, words: &[Vec<u8>]) -> Vec<u8> {
    let verb = *rng.pick(&["create", "update", "delete"]);
    let name = *rng.pick(&[
        "refs/heads/main",
        "HEAD",
        "refs/tags/new",
        "refs/heads/..",
        "\"q\"",
    ]);
    let mut line = format!("{verb} {name}").into_bytes();
    for _ in 0..rng.below(3) {
        line.push(b' ');
        let at = match rng.percent(80) {
            true => COMMIT_AT,
            false => rng.below(words.len()),
        };
        line.extend_from_slice(&words[at]);
    }
    line.push(b'\n');
    line
}

/// A line that is found to have the usual form comes to the same as it does for all other commands.
fn check_plain(context: &Context, input: &[u8]) -> usize {
    let hex_len = context.object_format().expect("a repository").hex_len();
    let mut lines = Lines::default();
    lines.find(input, hex_len);
    for line in lines.iter() {
        let edit = lines.edit(line, input);
        let (command, _) = split(&input[line.start()..], false, true).expect("a whole line");
        assert_eq!(line.end(), line.start() + command.len());
        let (verb, fields) = recognise(command, false).expect("a known verb");
        assert_eq!(verb, line.verb());
        match Parser::new(context, verb, fields, false, false).edit() {
            Ok(other) => assert_eq!(format!("{edit:?}"), format!("{other:?}")),
            Err(_) => {
                let store = context.store().expect("a repository");
                assert!(
                    store.transaction().add(edit).is_err(),
                    "{}",
                    command.as_bstr()
                );
            }
        }
    }
    lines.iter().count()
}

/// Reads all commands of an input; returns how many were understood.
fn read(context: &Context, input: &[u8], zero: bool) -> usize {
    let (mut rest, mut read, mut understood) = (input, 0, 0);
    while !rest.is_empty() {
        let (command, after) = split(rest, zero, true).expect("the input has ended");
        assert!(!command.is_empty(), "nothing is taken: {rest:?}");
        read += command.len();
        rest = after;
        let Ok((verb, fields)) = recognise(command, zero) else {
            continue;
        };
        if matches!(
            verb,
            Verb::Option | Verb::Start | Verb::Prepare | Verb::Abort | Verb::Commit
        ) {
            continue;
        }
        for no_deref in [false, true] {
            let Ok(edit) = Parser::new(context, verb, fields, zero, no_deref).edit() else {
                continue;
            };
            understood += 1;
            // Whatever the name is, the store takes the edit or says why not.
            let store = context.store().expect("a repository");
            let _ = store.transaction().add(edit);
        }
    }
    assert_eq!(read, input.len(), "every byte belongs to a command");
    understood
}

#[test]
fn any_input_is_read_or_refused() {
    let seed = budget("REFDB_UPDATE_REF_SEED", 1);
    let mut tally = Tally::begin("fuzz: update-ref", seed);
    let repo = Repo::init(Format::FILES_SHA1);
    repo.update_refs(format!(
        "create refs/heads/main {}\n",
        repo.objects().commits[0]
    ));
    let git_dir = repo.git_dir().into_os_string().into_string().expect("text");
    let args = [format!("--git-dir={git_dir}"), "update-ref".to_owned()];
    let (globals, _) = global::parse(&args.map(String::into_bytes)).expect("good options");
    let context = Context::new(globals);
    let (mut rng, words, mut understood, mut usual) = (Rng::new(seed), words(&repo), 0, 0);
    assert_eq!(words[COMMIT_AT], repo.objects().commits[0].as_bytes());
    for _ in 0..budget("REFDB_UPDATE_REF_INPUTS", SHORT) {
        let input = input(&mut rng, &words);
        understood += [false, true]
            .map(|zero| read(&context, &input, zero))
            .iter()
            .sum::<usize>();
        usual += check_plain(&context, &input);
        tally.add(1);
    }
    assert!(usual > 100, "only {usual} lines had the usual form");
    assert!(understood > 100, "only {understood} commands made sense");
}
