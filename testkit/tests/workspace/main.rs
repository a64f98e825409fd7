//! The workspace as a whole: its layers, its dependencies, its invariants and their tests, its public
//! items.

mod dependencies;
mod invariants;
mod layering;
mod public_items;
mod sources;
