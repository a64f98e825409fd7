//! What the other tests rely on: the fixtures, the model and the harness of JGit.

mod fixtures;
mod jgit;
mod model;
