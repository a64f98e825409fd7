//! The program `refdb`.

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
    refdb_cli::run(&args)
}
