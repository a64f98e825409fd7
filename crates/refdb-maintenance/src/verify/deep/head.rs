//! `HEAD` of a worktree: without one that looks like it, Git takes the directory for no repository.

use std::io;
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{parse_loose, read_loose_link};
use refdb::system::FileKind;
use refdb::{RefFormat, Result, Target};

use super::{Deep, Repair, no_file};
use crate::stacks::head_file;

impl Deep<'_> {
    /// Reports a `HEAD` that is missing, or leads out of `refs/`. What else may be wrong with it is
    /// told as of any other ref.
    pub(super) fn head(&mut self, dir: &Path) -> Result<()> {
        let path = head_file(self.repository, dir);
        let is_told = no_file(self.system, &path) == Some(FileKind::Other)
            && self.repository.ref_format() == RefFormat::Files;
        let what = "Git takes the directory for no repository";
        if is_told || self.tells_no_file(&path, what, Repair::RewriteRef) {
            return Ok(());
        }
        let content = match self.system.read(&path) {
            Ok(content) => content,
            // A link may lead below a file: beside a stack it is there for Git to look at, and no more.
            Err(_)
                if self
                    .system
                    .read_link(&path)
                    .is_ok_and(|to| to.starts_with("refs")) =>
            {
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.system.lstat(&path).is_err() {
                    let what = "HEAD is missing: Git takes the directory for no repository";
                    self.error(&path, None, what, Repair::RewriteRef);
                }
                return Ok(());
            }
            content => match self.told_unless_read(&path, content)? {
                Some(content) => content,
                None => return Ok(()),
            },
        };
        if matches!(read_loose_link(self.system, &path), Ok(Some(_))) {
            return Ok(());
        }
        let what = match parse_loose(&content, self.repository.object_format()) {
            Some(Target::Symbolic(name)) if !name.as_bytes().starts_with(b"refs/") => {
                format!(
                    "HEAD leads to '{}': Git takes the directory for no repository",
                    name.as_bytes().as_bstr()
                )
            }
            // In a stack it is another HEAD that counts, and this one only has to look like it.
            None if self.repository.ref_format() == RefFormat::Reftable => {
                "no HEAD: Git takes the directory for no repository".to_owned()
            }
            _ => return Ok(()),
        };
        self.error(&path, Some(0), what, Repair::RewriteRef);
        Ok(())
    }
}
