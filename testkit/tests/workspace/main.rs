//! The workspace as a whole: its layers, its dependencies.

mod dependencies;
mod layering;
