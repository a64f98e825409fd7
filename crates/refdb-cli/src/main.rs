//! The program `refdb`.

use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// musl maps and unmaps memory at nearly every turn, which makes a large transaction take twice as
/// long.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<Vec<u8>> = args.map(OsStringExt::into_vec).collect();
    refdb_cli::run_as(&name, &args)
}
