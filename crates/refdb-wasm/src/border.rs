//! The functions that JavaScript calls: those of [`Session`], of which there is one for each instance.
//!
//! Numbers go in and come out, and addresses of the buffers; nothing here follows an address that came from
//! outside. Addresses hold until the next call.
#![allow(
    unsafe_code,
    reason = "a border: to give a function a name for others is unsafe, since two could have the same"
)]

use std::cell::RefCell;

use crate::session::Session;

thread_local! {
    static SESSION: RefCell<Session> = RefCell::default();
}

fn with<R>(call: impl FnOnce(&mut Session) -> R) -> R {
    SESSION.with(|session| call(&mut session.borrow_mut()))
}

/// Makes functions of the session ones that JavaScript can call.
macro_rules! exported {
    ($($(#[$attribute:meta])* $name:ident = $of:ident($($argument:ident: $type:ty),*) $(-> $back:ty)?;)*) => {
        $(
            #[doc = concat!("[`Session::", stringify!($of), "`]")]
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $type),*) $(-> $back)? {
                with(|session| session.$of($($argument),*))
            }
        )*
    };
}

exported! {
    refdb_table = open_table(len: usize) -> u32;
    refdb_stack = stack() -> u32;
    refdb_find = find(stack: u32) -> i32;
    refdb_refs = refs(stack: u32, len: usize, deleted: bool) -> u32;
    refdb_next = next(cursor: u32, most: u32) -> i32;
    refdb_close = close(number: u32);
}

#[cfg(feature = "whole")]
exported! {
    refdb_logs = logs(stack: u32, len: usize, is_prefix: bool, deleted: bool, index: u64) -> u32;
    refdb_skip = skip(cursor: u32, most: u32) -> i32;
    refdb_describe = describe(table: u32) -> i32;
    refdb_blocks = blocks(table: u32) -> i32;
}

/// Makes room for what the next call is about; returns where it is.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_input(len: usize) -> *mut u8 {
    with(|session| session.input(len).as_mut_ptr())
}

/// Returns where the answer to the last call is.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_output() -> *const u8 {
    with(|session| session.output().as_ptr())
}

/// Returns how many bytes it has.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_output_len() -> usize {
    with(|session| session.output().len())
}

/// Returns where it is said why the last call failed.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_error() -> *const u8 {
    with(|session| session.error().as_ptr())
}

/// Returns how many bytes that has; 0 if it did not fail.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_error_len() -> usize {
    with(|session| session.error().len())
}
