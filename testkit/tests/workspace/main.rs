//! The workspace as a whole: its layers, its dependencies, its invariants and their tests, its public
//! items, its everyday tasks.

mod dependencies;
mod everyday;
mod invariants;
mod layering;
mod public_items;
mod sources;
