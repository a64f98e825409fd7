//! The program `refdb-remote`: `refdb`, and it can use buckets. `refdb` becomes it where a URL asks for that.

use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// As in `refdb`: musl's own takes long for large transactions.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<Vec<u8>> = args.map(OsStringExt::into_vec).collect();
    refdb_remote::install();
    refdb_cli::run_as(&name, &args)
}
