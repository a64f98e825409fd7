//! Arbitrary input for `update-ref --stdin`: it is cut into commands and read, or refused, and a
//! line is the same however it is read.

use super::command::{Parser, Verb, recognise, split};
use super::plain::Lines;
use crate::context::Context;

/// Reads an input in both forms, and both as lines of the usual form and as all others; nothing of it
/// is carried out.
///
/// # Panics
/// If a byte belongs to no command, or if the two ways to read a line differ.
pub(crate) fn check(context: &Context, input: &[u8]) {
    read(context, input, false);
    read(context, input, true);
    check_plain(context, input);
}

/// A line that is found to have the usual form comes to the same as it does for all other commands.
fn check_plain(context: &Context, input: &[u8]) {
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
                let added = store.transaction().add(edit);
                assert!(added.is_err(), "{:?}", bstr::BStr::new(command));
            }
        }
    }
}

/// Reads all commands of an input.
fn read(context: &Context, input: &[u8], zero: bool) {
    let (mut rest, mut read) = (input, 0);
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
            let parser = Parser::new(context, verb, fields, zero, no_deref);
            let Ok(edit) = parser.edit() else { continue };
            // Whatever the name is, the store takes the edit or says why not.
            let store = context.store().expect("a repository");
            let _ = store.transaction().add(edit);
        }
    }
    assert_eq!(read, input.len(), "every byte belongs to a command");
}
