//! Commits and trees, as far as revision expressions walk through them: parents, messages, entries.

use std::collections::{BinaryHeap, HashSet};
use std::io;

use bstr::{BString, ByteSlice};
use refdb::{Error, ErrorKind, ObjectId, Result};
use regex_lite::RegexBuilder;

use super::{Hint, Revisions, index, shown};
use crate::graph::{commit_parents, commit_time};
use crate::objects::ObjectKind;

impl Revisions<'_> {
    /// Returns the parents of a commit; `None` if there is no such commit, or it is malformed.
    pub(super) fn parents(&self, commit: ObjectId) -> Result<Option<Vec<ObjectId>>> {
        let object = self.odb.read(commit)?;
        let Some(object) = object.filter(|object| object.kind == ObjectKind::Commit) else {
            return Ok(None);
        };
        let grafts = match self.grafts.get() {
            Some(grafts) => grafts,
            None => {
                let read = self.repository.grafts()?;
                self.grafts.get_or_init(|| read)
            }
        };
        Ok(match grafts.parents(commit) {
            Some(parents) => Some(parents.to_vec()),
            None => commit_parents(&object.data, self.odb.format()),
        })
    }

    /// Returns the tree that a commit names in its content.
    pub(super) fn tree_of(&self, commit: &[u8]) -> Option<ObjectId> {
        let hex = header_lines(commit).next()?.strip_prefix(b"tree ")?;
        self.full_id(hex)
    }

    /// Resolves `:/text`, and `:path` with or without a stage before the path.
    pub(super) fn leading_colon(&self, expression: &[u8]) -> Result<Option<ObjectId>> {
        if let Some(text) = expression.strip_prefix(b":/")
            && !text.is_empty()
        {
            return self.search_from(&self.tips()?, text);
        }
        let (stage, path) = match expression {
            [b':', stage @ b'0'..=b'3', b':', path @ ..] => (stage - b'0', path),
            _ => (0, expression.get(1..).unwrap_or_default()),
        };
        let path = self.absolute_path(path)?;
        let file = self.repository.environment().path("GIT_INDEX_FILE");
        let file = match (file, self.repository.work_tree()) {
            (None, _) => self.repository.git_dir().join("index"),
            (Some(file), Some(top)) => top.join(file),
            (Some(file), None) => file,
        };
        let content = match self.repository.system().read(&file) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("unable to read", &file, error)),
        };
        index::find(&content, &file, self.odb.format(), &path, stage.into())
    }

    /// Returns the commits that `HEAD` and all refs lead to.
    fn tips(&self) -> Result<Vec<ObjectId>> {
        let mut tips = Vec::new();
        let mut add = |oid: ObjectId| -> Result<()> {
            if let Some((ObjectKind::Commit, commit)) = self.through_tags(oid)? {
                tips.push(commit);
            }
            Ok(())
        };
        let mut refs = self.store.refs()?;
        refs.seek_prefix(b"refs/")?;
        while let Some(record) = refs.next()? {
            if let Some(oid) = record.target.oid() {
                add(oid)?;
            }
        }
        if let Some(head) = self.dwim_ref(b"HEAD")? {
            add(head.oid)?;
        }
        Ok(tips)
    }

    /// Returns the youngest commit, of those given and their ancestors, whose message matches.
    pub(super) fn search_from(&self, tips: &[ObjectId], text: &[u8]) -> Result<Option<ObjectId>> {
        // `!-` negates, `!!` is a literal `!`, and any other `!` is reserved.
        let (pattern, negative) = match text {
            [b'!', b'-', rest @ ..] => (rest, true),
            [b'!', rest @ ..] if rest.starts_with(b"!") => (rest, false),
            [b'!', ..] => return Ok(None),
            _ => (text, false),
        };
        let pattern = RegexBuilder::new(&pattern.to_str_lossy())
            .dot_matches_new_line(true)
            .build();
        let Ok(pattern) = pattern else {
            return Ok(None);
        };
        let mut seen = HashSet::new();
        // Among commits of the same second, the one that was queued first comes first.
        let mut queue = BinaryHeap::new();
        let mut queued = usize::MAX;
        let mut push = |queue: &mut BinaryHeap<_>, oid: ObjectId| -> Result<()> {
            if seen.insert(oid)
                && let Some(object) = self.odb.read(oid)?
                && object.kind == ObjectKind::Commit
            {
                queued -= 1;
                queue.push((commit_time(&object.data), queued, oid, object.data));
            }
            Ok(())
        };
        for &tip in tips {
            push(&mut queue, tip)?;
        }
        while let Some((_, _, oid, content)) = queue.pop() {
            let message = content.find("\n\n").and_then(|at| content.get(at + 2..));
            let matches = message.is_some_and(|message| pattern.is_match(&message.to_str_lossy()));
            if matches != negative {
                return Ok(Some(oid));
            }
            for parent in self.parents(oid)?.unwrap_or_default() {
                push(&mut queue, parent)?;
            }
        }
        Ok(None)
    }

    /// Returns the entry at `path` of the tree that `oid` leads to.
    pub(super) fn entry_at(&self, oid: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        let Some((kind, mut oid)) = self.through_tags(oid)? else {
            return Ok(None);
        };
        if kind == ObjectKind::Commit {
            let commit = self.odb.read(oid)?;
            match commit.and_then(|commit| self.tree_of(&commit.data)) {
                Some(tree) => oid = tree,
                None => return Ok(None),
            }
        } else if kind != ObjectKind::Tree {
            return Ok(None);
        }
        let path = self.absolute_path(path)?;
        let mut names = path
            .split_str("/")
            .filter(|name| !name.is_empty())
            .peekable();
        while let Some(name) = names.next() {
            let tree = self.odb.read(oid)?;
            let Some(tree) = tree.filter(|tree| tree.kind == ObjectKind::Tree) else {
                return Ok(None);
            };
            let width = self.odb.format().raw_len();
            let Some((is_tree, entry)) = find_entry(&tree.data, name, width) else {
                return Ok(None);
            };
            if names.peek().is_some() && !is_tree {
                return Ok(None);
            }
            oid = entry;
        }
        Ok(Some(oid))
    }

    /// Returns a path as seen from the top of the work tree.
    fn absolute_path(&self, path: &[u8]) -> Result<BString> {
        let is_relative = path.starts_with(b"./") || path.starts_with(b"../");
        if !is_relative {
            return Ok(path.into());
        }
        let Some(top) = self.repository.work_tree() else {
            return Err(Error::new(
                ErrorKind::Misuse,
                "relative path syntax can't be used outside working tree",
            ));
        };
        let prefix = self.prefix.split_str("/");
        let mut names: Vec<&[u8]> = prefix.filter(|name| !name.is_empty()).collect();
        for name in path.split_str("/") {
            match name {
                b"" | b"." => {}
                b".." => {
                    if names.pop().is_none() {
                        let (path, top) = (shown(path), top.display());
                        return Err(Error::new(
                            ErrorKind::Misuse,
                            format!("'{path}' is outside repository at '{top}'"),
                        ));
                    }
                }
                name => names.push(name),
            }
        }
        Ok(bstr::join("/", names).into())
    }
}

impl Hint {
    /// Returns whether an object is of the kind that is meant.
    pub(super) fn admits(self, revisions: &Revisions<'_>, oid: ObjectId) -> Result<bool> {
        let kind = revisions.kind(oid)?;
        let through_tags = |wanted: &[ObjectKind]| -> Result<bool> {
            let peeled = revisions.through_tags(oid)?;
            Ok(peeled.is_some_and(|(kind, _)| wanted.contains(&kind)))
        };
        match self {
            Hint::Any => Ok(true),
            Hint::Commit => Ok(kind == Some(ObjectKind::Commit)),
            Hint::Tree => Ok(kind == Some(ObjectKind::Tree)),
            Hint::Blob => Ok(kind == Some(ObjectKind::Blob)),
            Hint::Committish => through_tags(&[ObjectKind::Commit]),
            Hint::Treeish => through_tags(&[ObjectKind::Commit, ObjectKind::Tree]),
        }
    }
}

/// Returns the lines before the message.
fn header_lines(commit: &[u8]) -> impl Iterator<Item = &[u8]> {
    commit.lines().take_while(|line| !line.is_empty())
}

/// Finds a name in the content of a tree; tells whether it is a tree itself.
fn find_entry(mut tree: &[u8], wanted: &[u8], width: usize) -> Option<(bool, ObjectId)> {
    while !tree.is_empty() {
        let (mode, rest) = tree.split_once_str(" ")?;
        let (name, rest) = rest.split_once_str("\0")?;
        let (raw, rest) = rest.split_at_checked(width)?;
        if name == wanted {
            return Some((mode == b"40000", ObjectId::from_bytes(raw)?));
        }
        tree = rest;
    }
    None
}
