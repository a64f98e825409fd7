//! refdb behind libgit2: the refs of a repository, in both of Git's formats, for programs that use a
//! released libgit2 (1.5 to 1.9), or its main branch.
//!
//! A host calls [`refdb_git2_enable`] once, and [`refdb_git2_attach`] for each repository that it opens.
//! `include/refdb-git2.h` has both for C; docs/libgit2.md says what else there is.
//!
//! Invariants:
//! 1. Nothing of libgit2 is linked: what is called is found in the process, or given by the host, so that
//!    one build serves every version. What a version looks like is found out by what it does.
//! 2. Rules about refs are the store's. What stands here is what libgit2 means by its calls, and its codes.
//! 3. No panic leaves.
#![allow(
    unsafe_code,
    non_camel_case_types,
    non_snake_case,
    reason = "a border to C: pointers come from libgit2, and its types have their own names"
)]

mod abi;
mod attach;
mod backend;
mod border;
mod ffi;
mod find;
mod heads;
mod init;
mod interpose;
mod iterate;
mod locks;
mod logs;
mod objects;
mod refs;
mod scratch;

pub use attach::*;
pub use ffi::*;
pub use interpose::*;
