//! Stores in buckets: what speaks with them is in a program of its own, `refdb-remote`, which is this command
//! with that linked in. Where a URL asks for it, this program becomes that one, with the same arguments.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use refdb::shared::Shared;
use refdb::{Error, ErrorKind};
use refdb_git::places::set_opener;

use crate::global::Globals;
use crate::{pager, trace};

const PROGRAM: &str = "refdb-remote";

/// The arguments that say what this program was asked for, from where it is now.
static CALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

/// Remembers what is to be asked of the other program, if it comes to that. Where something else opens buckets
/// already, this is the other program.
pub(crate) fn begin(globals: &Globals, rest: &[Vec<u8>]) {
    let mut all = globals.as_arguments();
    let pager = pager::Paging::option(globals.pager);
    all.extend(pager.map(|option| option.as_bytes().to_vec()));
    all.extend_from_slice(rest);
    if CALL.set(all).is_ok() {
        set_opener(hand_over);
    }
}

/// Becomes the program that can open the URL, which is among its arguments or in the configuration that it
/// reads. Nothing was printed or read yet: stores are opened first.
fn hand_over(url: &str, _make: bool) -> refdb::Result<Arc<dyn Shared>> {
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|program| Some(program.parent()?.join(PROGRAM)));
    let mut why = None;
    for program in beside.into_iter().chain([PathBuf::from(PROGRAM)]) {
        let mut command = Command::new(program);
        let args = CALL.get().into_iter().flatten();
        command.args(args.map(|arg| OsStr::from_bytes(arg)));
        trace::pass_on(&mut command);
        trace::exec(&command);
        let error = match pager::is_running() {
            // Who started the pager waits for it.
            true => match command.status() {
                Ok(status) => {
                    pager::finish();
                    std::process::exit(status.code().unwrap_or(128));
                }
                Err(error) => error,
            },
            false => command.exec(),
        };
        if error.kind() != io::ErrorKind::NotFound {
            why = Some(error);
        }
    }
    let scheme = url.split_once("://").map_or(url, |it| it.0);
    let text = match why {
        Some(error) => format!("cannot run {PROGRAM}: {}", refdb::error::io_text(&error)),
        None => format!(
            "a store in a bucket ({scheme}://) needs the program {PROGRAM}, and there is none beside refdb or in \
             PATH; in refdb's sources, cargo install --locked --path crates/{PROGRAM} makes it"
        ),
    };
    Err(Error::new(ErrorKind::Io, text))
}
