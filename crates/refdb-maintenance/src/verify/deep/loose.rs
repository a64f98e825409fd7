//! Loose refs and root refs, file by file.

use std::io;
use std::path::Path;

use refdb::internals::{
    Entry, Leaf, TOO_MANY_LINKED, Tree, are_too_many_linked, bytes_to_path, is_absent, is_frozen,
    parse_loose, read_loose_link,
};
use refdb::layout::HEADS_OF_TABLES;
use refdb::name::{FormatOptions, is_per_worktree, is_root_ref, is_well_formed};
use refdb::system::FileKind;
use refdb::{Error, Result, Target};

use super::{Deep, Repair, Seen, Source, Value, condition, leads_in_a_circle, no_file};

impl Deep<'_> {
    /// Checks the root refs and everything below `refs/` of a directory.
    pub(super) fn loose_refs(&mut self, index: usize, dir: &Path) -> Result<()> {
        let entries = match self.system.read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && index > 0 => return Ok(()),
            entries => self.told_unless_read(dir, entries)?,
        };
        for entry in entries.into_iter().flatten() {
            let path = dir.join(bytes_to_path(&entry.name));
            // A lock, or the new content beside one.
            let locked = entry.name.strip_suffix(b".lock");
            let locked = locked.map(|name| name.strip_suffix(b".lock").unwrap_or(name));
            let is_lock = locked.is_some_and(|name| is_root_ref(name) || name == b"packed-refs");
            if is_lock || entry.name == b"packed-refs.new" {
                self.leftover(&path);
            } else if is_root_ref(&entry.name) && entry.kind != FileKind::Directory {
                self.loose_ref(index, &entry.name, &path, entry.kind)?;
            }
        }
        self.loose_tree(index, &dir.join("refs"))
    }

    /// Reports a file that a writer left behind, or is about to give its name.
    pub(super) fn leftover(&mut self, path: &Path) {
        let what = "a lock or an unfinished file: what it is for cannot be written, unless a process \
             is at it right now";
        self.warning(path, what, Repair::RemoveLeftover);
    }

    fn loose_tree(&mut self, index: usize, dir: &Path) -> Result<()> {
        let mut tree = Tree::new(self.system, dir, b"refs/");
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
            match Entry::of_leaf(self.system, &leaf) {
                Entry::Lock | Entry::NewValue | Entry::Barrier => self.leftover(&leaf.path),
                // A migration keeps writers out of a directory.
                _ if leaf.kind == FileKind::Symlink && is_frozen(self.system, &leaf.path) => {
                    self.leftover(&leaf.path);
                }
                _ if leaf.kind == FileKind::Symlink && self.leads_to_dir(&leaf.path) => {
                    self.follow(&mut tree, &leaf)?;
                }
                _ => {
                    self.linked_refs += usize::from(tree.is_behind_link());
                    self.loose_ref(index, &leaf.name, &leaf.path, leaf.kind)?;
                }
            }
        }
        Ok(())
    }

    /// Fails where links that were followed lead back to themselves: there is no end to what is below.
    pub(super) fn check_end(&self, tree: &Tree<'_>, leaf: &Leaf) -> Result<()> {
        if leaf.kind != FileKind::Symlink || !tree.is_behind_link() {
            return Ok(());
        }
        match self.system.stat(&leaf.path) {
            Err(error) if leads_in_a_circle(&error) => {
                Err(Error::io("unable to read", &leaf.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a link leads to a directory. Readers follow it, of refs and of reflogs.
    pub(super) fn leads_to_dir(&self, path: &Path) -> bool {
        no_file(self.system, path) == Some(FileKind::Directory)
    }

    /// Goes on below a link that leads to a directory.
    pub(super) fn follow(&mut self, tree: &mut Tree<'_>, leaf: &Leaf) -> Result<()> {
        self.linked += 1;
        if are_too_many_linked(self.linked, self.linked_refs) {
            return Err(Error::corrupt(&leaf.path, TOO_MANY_LINKED));
        }
        tree.follow(leaf);
        Ok(())
    }

    fn loose_ref(&mut self, index: usize, name: &[u8], path: &Path, kind: FileKind) -> Result<()> {
        self.count_ref();
        if !is_root_ref(name) && !is_well_formed(name, FormatOptions::FULL) {
            let what = "the name is none that a ref can have: Git lists it as broken";
            self.error(path, None, what, Repair::RemoveFile);
            return Ok(());
        }
        if index > 0 && !is_per_worktree(name) {
            // A migration takes it away that has put the refs there.
            let content = self.system.read_at_most(path, HEADS_OF_TABLES.len() + 1);
            if content.is_ok_and(|content| content == HEADS_OF_TABLES) {
                self.leftover(path);
                return Ok(());
            }
            let what = "a shared ref in a worktree's directory: nobody reads it there";
            self.warning(path, what, Repair::RemoveFile);
            return Ok(());
        }
        let target = match kind {
            FileKind::Symlink => match read_loose_link(self.system, path) {
                Ok(Some(target)) => {
                    let leads_to = match &target {
                        Target::Symbolic(name) => Some(name),
                        Target::Direct(_) => None,
                    };
                    self.link(index, name, leads_to);
                    target
                }
                _ => {
                    if self.system.stat(path).is_ok() {
                        self.link(index, name, None);
                    }
                    return self.loose_file(index, name, path);
                }
            },
            FileKind::File => return self.loose_file(index, name, path),
            _ => {
                let what = "neither a file nor a link: the ref cannot be read";
                self.error(path, None, what, Repair::RewriteRef);
                return Ok(());
            }
        };
        self.see(index, name, target);
        Ok(())
    }

    fn loose_file(&mut self, index: usize, name: &[u8], path: &Path) -> Result<()> {
        let content = match self.system.read(path) {
            Err(error) if is_absent(&error) => {
                // Deleted meanwhile, unless it is a link that leads nowhere.
                if self.system.lstat(path).is_ok() {
                    let what = "the link leads nowhere: the ref cannot be read";
                    self.error(path, None, what, Repair::RewriteRef);
                }
                return Ok(());
            }
            content => match self.told_unless_read(path, content)? {
                Some(content) => content,
                None => return Ok(()),
            },
        };
        let Some(target) = parse_loose(&content, self.repository.object_format()) else {
            let what = condition(&content).unwrap_or("neither an object id nor a symref");
            let what = format!("{what}: the ref cannot be read");
            self.error(path, Some(0), what, Repair::RewriteRef);
            return Ok(());
        };
        let len = match &target {
            Target::Direct(oid) => oid.format().hex_len(),
            Target::Symbolic(_) => content.trim_ascii_end().len(),
        };
        let rest = content.get(len..).unwrap_or_default();
        if rest != b"\n" {
            let what = match rest {
                b"" => "the line has no end: it may have been cut",
                _ => "the ref goes on behind its value, which readers leave out",
            };
            let offset = u64::try_from(len).ok();
            let severity = super::Severity::Warning;
            self.report(severity, path, offset, what, Repair::RewriteRef);
        }
        self.see(index, name, target);
        Ok(())
    }

    /// Remembers a loose ref for the checks of values.
    fn see(&mut self, dir: usize, name: &[u8], target: Target) {
        let value = match &target {
            Target::Direct(oid) => Value::Oid {
                oid: *oid,
                peeled: None,
            },
            Target::Symbolic(target) => Value::Symref(target.as_bytes()),
        };
        self.seen.push(Seen {
            name,
            value,
            dir,
            source: Source::Loose,
        });
    }
}
