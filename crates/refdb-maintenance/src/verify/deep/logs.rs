//! Reflogs of the `files` format, line by line.

use std::path::Path;

use bstr::ByteSlice;
use refdb::Result;
use refdb::internals::{LOG_LINE_MAX, Leaf, Tree, is_absent, parse_log_line};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::system::FileKind;

use super::{BadLines, Deep, Repair, no_file};

impl Deep<'_> {
    /// Checks every reflog of a directory.
    pub(super) fn logs(&mut self, dir: &Path) -> Result<()> {
        let mut tree = Tree::new(self.system, &dir.join("logs"), b"");
        while let Some(leaf) = tree.next() {
            let leaf = match leaf {
                Err((_, error)) if is_absent(&error) => continue,
                Err((dir, error)) => {
                    self.told_unless_read::<Leaf>(&dir, Err(error))?;
                    continue;
                }
                Ok(leaf) => leaf,
            };
            self.check_end(&tree, &leaf)?;
            let path = &leaf.path;
            match leaf.kind {
                FileKind::File | FileKind::Symlink if leaf.name.ends_with(b".lock") => {
                    self.leftover(path);
                }
                FileKind::Symlink if self.leads_to_dir(path) => self.follow(&mut tree, &leaf)?,
                // On its way from one name to another.
                FileKind::File if is_moved(leaf.last_name()) => self.log(path)?,
                FileKind::File if !is_well_formed(&leaf.name, FormatOptions::ONE_LEVEL) => {
                    let what = "no name that a ref can have: nobody reads the reflog";
                    self.warning(path, what, Repair::RemoveFile);
                }
                FileKind::File => self.log(path)?,
                // Readers and writers follow it.
                FileKind::Symlink if no_file(self.system, path).is_none() => self.log(path)?,
                _ => {
                    let what = "neither a file nor a directory: the reflog cannot be read";
                    self.error(path, None, what, Repair::RewriteLog);
                }
            }
        }
        Ok(())
    }

    fn log(&mut self, path: &Path) -> Result<()> {
        let content = match self.system.map_whole(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                let what = "longer than 4 GiB: nobody reads all of the reflog";
                self.error(path, None, what, Repair::ByHand);
                return Ok(());
            }
            content => match self.told_unless_read(path, content)? {
                Some(content) => content,
                None => return Ok(()),
            },
        };
        let content = content.as_ref();
        let format = self.repository.object_format();
        let mut at = 0;
        let mut bad = BadLines::default();
        while let Some(rest) = content.get(at..).filter(|rest| !rest.is_empty()) {
            // A file with holes may seem to have lines that are longer than any memory.
            let most = rest.get(..LOG_LINE_MAX);
            let end = most.unwrap_or(rest).find_byte(b'\n');
            if end.is_none() && most.is_some() {
                self.bad_lines(path, &mut bad, Repair::RewriteLog);
                let what = "a line of more than 128 MiB: nobody reads the reflog beyond it";
                self.error(path, u64::try_from(at).ok(), what, Repair::ByHand);
                return Ok(());
            }
            let (line, _) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            let what = match line.strip_suffix(b"\n") {
                Some(entry) if parse_log_line(entry, format).is_some() => None,
                _ if line.iter().all(|byte| *byte == 0) => {
                    Some("zeros in the place of entries, as after a power failure")
                }
                _ if line.starts_with(b"\0") => {
                    Some("zeros before the entry: an entry before it is lost, and so is this one")
                }
                Some(_) => Some("the line is no entry: readers leave it out"),
                None => Some("the last line has no end: its entry is left out"),
            };
            self.count_entries(u64::from(what.is_none()));
            match what {
                Some(what) => bad.add(at, what),
                None => self.bad_lines(path, &mut bad, Repair::RewriteLog),
            }
            at += line.len();
        }
        self.bad_lines(path, &mut bad, Repair::RewriteLog);
        Ok(())
    }
}

/// Returns whether a reflog is named so that waits, between two names, for its directory.
fn is_moved(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(b".moved")
}
