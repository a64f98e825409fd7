//! The command `refdb`: Git's reference commands.
//!
//! 1. The command decides nothing about refs: it reads arguments, calls the library, and prints.
//! 2. What is printed, where, and with which exit code, is what Git's command of the same name
//!    prints, so that a script can take one for the other.
//! 3. A closed pipe ends the command quietly, and nothing that is read can make it panic.

mod commands;
mod context;
mod failure;
mod global;
mod options;
mod output;
mod pager;
mod programs;
mod suggest;
mod waiting;

use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// musl maps and unmaps memory at nearly every turn, which makes a large transaction take twice as
/// long.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<Vec<u8>> = std::env::args_os()
        .skip(1)
        .map(OsStringExt::into_vec)
        .collect();
    let code = match commands::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.report()),
    };
    pager::finish();
    code
}
