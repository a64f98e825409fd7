//! The format: tables of other programs, models, damage.

mod common;
mod damage;
mod golden;
mod jgit;
mod model;
mod order;
mod salvage;
mod writer;
