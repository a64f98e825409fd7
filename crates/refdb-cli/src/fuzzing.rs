//! What the fuzz targets call, which run in one process again and again.

use std::path::Path;

use crate::commands::{carry_out, update_ref};
use crate::context::Context;
use crate::global::{self, Globals};

/// Runs a command line as [`crate::run`] does, and gives back all that was opened for it.
///
/// Returns whether it succeeded.
pub fn command(args: &[Vec<u8>]) -> bool {
    let done = global::parse(args)
        .and_then(|(globals, request)| carry_out(&Context::new(globals), request, args));
    done.map_err(|failure| failure.report()).is_ok()
}

/// A repository for whose `update-ref` input is read.
#[derive(Debug)]
pub struct UpdateRef(Context);

impl UpdateRef {
    /// Opens the repository at `git_dir` when it is first asked for.
    #[must_use]
    pub fn new(git_dir: &Path) -> Self {
        UpdateRef(Context::new(Globals {
            git_dir: Some(git_dir.to_owned()),
            ..Globals::default()
        }))
    }

    /// Reads an input of `update-ref --stdin`, with and without `-z`, and carries out nothing.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn read(&self, input: &[u8]) {
        update_ref::fuzz::check(&self.0, input);
    }
}
