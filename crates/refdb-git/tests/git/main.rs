//! A repository as Git opens it, beside Git: configuration, objects, revisions, history.

mod graph;
mod objects;
mod open;
mod revision;
