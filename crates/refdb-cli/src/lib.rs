//! The command `refdb`: Git's reference commands.
//!
//! 1. The command decides nothing about refs: it reads arguments, calls the library, and prints.
//! 2. What is printed, where, and with which exit code, is what Git's command of the same name
//!    prints, so that a script can take one for the other.
//! 3. A closed pipe ends the command quietly, and nothing that is read can make it panic.
//!
//! It is a library so that fuzz targets can call it; the program is [`run_as`].

mod commands;
mod context;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod global;
mod interrupt;
mod options;
mod output;
mod pager;
mod platform;
mod programs;
mod progress;
mod remote;
mod shim;
mod suggest;
mod trace;

use std::ffi::OsStr;
use std::process::ExitCode;

/// Runs the command line `args` of a program that is called `name`: as `git` it answers what it knows
/// as Git does, and becomes the real Git for all else. The process is to end with it.
#[must_use]
pub fn run_as(name: &OsStr, args: &[Vec<u8>]) -> ExitCode {
    shim::begin(name, args).unwrap_or_else(|| run(args))
}

/// Runs the command line `args`, which is without the name of the program. The process is to end
/// with it.
#[must_use]
pub fn run(args: &[Vec<u8>]) -> ExitCode {
    trace::begin();
    let code = match commands::run(args) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    };
    trace::end(code, interrupt::signal());
    interrupt::finish();
    pager::finish();
    ExitCode::from(code)
}
