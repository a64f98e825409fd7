//! Refs whose lines need their objects wait until there are many of them: what is asked of the objects is found out
//! by two threads then, before the first of the lines is made.
//!
//! Lines and notes come in the order in which they would come one by one. What cannot be found out ahead is asked for
//! once more for its own line, which then tells what is wrong.

use std::cell::RefCell;

use super::sort::Owned;
use super::{Listing, Printer};
use crate::failure::{Result, say};

/// So many wait at first: perhaps a reader wants to see only a few.
const FIRST_LEN: usize = 128;

/// So many wait at most.
pub(super) const LEN_MAX: usize = 8192;

/// What waits: refs, and what is to be told between them.
enum Waiting {
    Ref(Owned),
    Note(&'static str, String),
}

/// Prints the refs of a listing.
pub(super) fn print(listing: &mut Listing<'_>, printer: &mut Printer<'_>) -> Result<()> {
    let waiting = RefCell::new(Vec::new());
    let mut len_max = FIRST_LEN;
    let mut note = |severity, text| waiting.borrow_mut().push(Waiting::Note(severity, text));
    let read = listing.read(&mut note, |item| {
        let mut waiting = waiting.borrow_mut();
        waiting.push(Waiting::Ref(Owned::new(item)));
        if waiting.len() < printer.left.unwrap_or(len_max).min(len_max) {
            return Ok(true);
        }
        len_max = LEN_MAX.min(2 * len_max);
        print_all(&mut waiting, printer)
    });
    // What came before an error is shown before it is told.
    print_all(&mut waiting.into_inner(), printer)?;
    read
}

/// Prints what waits; returns whether more may follow. Nothing waits afterwards.
fn print_all(waiting: &mut Vec<Waiting>, printer: &mut Printer<'_>) -> Result<bool> {
    let refs = waiting.iter().filter_map(|waiting| match waiting {
        Waiting::Ref(one) => Some(one.item()),
        Waiting::Note(..) => None,
    });
    printer.values.learn(refs);
    for waiting in waiting.drain(..) {
        match waiting {
            Waiting::Note(severity, text) => say(severity, text.as_bytes()),
            Waiting::Ref(one) => {
                if !printer.print(&one.item())? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
