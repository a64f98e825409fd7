//! The store as a program uses it, beside Git, in every format.

mod changing;
mod cursors;
mod damage;
mod files_git;
mod in_the_way;
mod initial;
mod library;
mod misuse;
mod reflogs;
mod reftable_golden;
mod shared_repository;
mod stack;
mod worktrees;
