//! The format for JavaScript, as WebAssembly: tables are given as bytes, and refs, reflogs and what a table
//! is made of come back as bytes.
//!
//! [`session`] is what it does, in safe Rust: numbers stand for tables, stacks and cursors, one buffer takes
//! what a call is about, and another one what it comes to. `border` gives it to JavaScript as plain functions
//! over linear memory: no generated glue, which would be larger than all of this. `js/engine.js` is the
//! other side.
//!
//! Invariants:
//! 1. No bytes of a table, no number and no order of calls make it panic or loop: what cannot be is an
//!    error, which has a text and, where there is one, a place in the file.
//! 2. What is given out at a time is bounded by the size of a block and [`session::BATCH`].

pub mod border;
mod encode;
pub mod session;
