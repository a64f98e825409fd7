//! refdb behind libgit2, for programs that know nothing of it: loaded before libgit2 (`LD_PRELOAD`), this
//! library has the names of two of its functions, and so is called in their place.
//!
//! Each passes on from where it was called: a process may have several libgit2, and each is to get its own.
#![allow(
    unsafe_code,
    reason = "it has the names of functions of another library"
)]

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use refdb_git2::{git_refdb_backend, git_repository};

/// In the place of libgit2's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn git_refdb_backend_fs(
    _out: *mut *mut git_refdb_backend,
    _repository: *mut git_repository,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdx, [rsp]", "jmp {}", sym backend_fs);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x2, x30", "b {}", sym backend_fs);
}

unsafe extern "C" fn backend_fs(
    out: *mut *mut git_refdb_backend,
    repository: *mut git_repository,
    caller: *const c_void,
) -> c_int {
    let own = git_refdb_backend_fs as *const c_void;
    // SAFETY: as libgit2 has it.
    unsafe { refdb_git2::backend_fs(own, caller, out, repository) }
}

/// In the place of libgit2's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn git_libgit2_init() -> c_int {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdi, [rsp]", "jmp {}", sym init);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x0, x30", "b {}", sym init);
}

unsafe extern "C" fn init(caller: *const c_void) -> c_int {
    refdb_git2::init(git_libgit2_init as *const c_void, caller)
}
