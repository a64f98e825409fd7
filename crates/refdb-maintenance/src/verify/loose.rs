//! Git's checks of loose refs, in the order in which the directories list them.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use bstr::ByteSlice;
use refdb::error::{Message, Role, io_text};
use refdb::internals::{Entry, Tree, bytes_to_path, is_absent, is_space};
use refdb::name::{FormatOptions, is_root_ref, is_well_formed};
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};
use refdb_git::Repository;
use refdb_git::internals::real_path;
use refdb_git::repository::Worktree;

use super::{Event, MessageId, Report, Severity, c_string, is_of_one, name_prefix, packed};

/// The check of one worktree's refs.
struct Check<'a, 'r> {
    system: &'a dyn System,
    format: ObjectFormat,
    report: &'a mut Report<'r>,
    /// The directory that symbolic links are seen from: that of the worktree that runs the check,
    /// whatever worktree is checked, as in Git.
    base: &'a Path,
    /// What stands before the names of this worktree.
    prefix: Vec<u8>,
}

/// Checks the refs of a worktree: below `refs/`, then root refs, then packed-refs.
pub(super) fn check(
    repository: &Repository,
    worktree: &Worktree,
    report: &mut Report<'_>,
) -> Result<()> {
    let layout = repository.worktree_layout(worktree)?;
    let dir = layout.worktree_dir();
    let mut check = Check {
        system: repository.system().as_ref(),
        format: repository.object_format(),
        report,
        base: repository.git_dir(),
        prefix: name_prefix(worktree),
    };
    let refs = dir.join("refs");
    if worktree.id.is_none() {
        // A linked worktree need not have it.
        let is_there = check.system.read_dir(&refs);
        is_there.map_err(|error| Error::io("cannot open directory", &refs, error))?;
    }
    check.tree(&refs)?;
    check.root_refs(dir)?;
    if worktree.id.is_none() {
        packed::check(check.system, dir, check.format, check.report)?;
    }
    Ok(())
}

impl Check<'_, '_> {
    /// Checks the refs below `refs/`.
    fn tree(&mut self, dir: &Path) -> Result<()> {
        for leaf in Tree::new(self.system, dir, b"refs/") {
            let leaf = match leaf {
                Err((dir, error)) if is_of_one(&error) => {
                    self.unlisted(&dir, &error);
                    continue;
                }
                leaf => {
                    leaf.map_err(|(dir, error)| Error::io("cannot open directory", &dir, error))?
                }
            };
            match Entry::of_leaf(self.system, &leaf) {
                // Git does not know it for one.
                Entry::Barrier => {}
                Entry::Lock | Entry::NewValue if !leaf.last_name().starts_with(b".") => {}
                _ => {
                    let full = [self.prefix.as_slice(), &leaf.name].concat();
                    self.one(&full, &leaf.path, leaf.kind)?;
                }
            }
        }
        Ok(())
    }

    /// Reports a directory that is passed over. Git does not get as far as to open it where its path is too long.
    fn unlisted(&mut self, dir: &Path, error: &io::Error) {
        let what = match error.kind() {
            io::ErrorKind::InvalidFilename => format!("failed to stat '{}'", dir.display()),
            _ => format!("error opening directory '{}/'", dir.display()),
        };
        self.report.unread(Severity::Warning, dir, &what, error);
    }

    /// Returns what a file holds, or how reading it failed; of anything else nothing is read. `None` if not even what
    /// it is can be found out: that is reported.
    fn read(&mut self, path: &Path, kind: FileKind) -> Option<io::Result<Vec<u8>>> {
        let read = match kind {
            FileKind::File => self.system.read(path),
            _ => Ok(Vec::new()),
        };
        if kind == FileKind::File && read.is_ok() {
            return Some(read);
        }
        match self.system.lstat(path) {
            Err(error) if is_of_one(&error) && !is_absent(&error) => {
                let what = format!("failed to stat '{}'", path.display());
                let (report, severity) = (&mut *self.report, Severity::Warning);
                report.unread(severity, path, &what, &error);
                None
            }
            _ => Some(read),
        }
    }

    /// Checks the root refs of a worktree, up to the first error: Git's way.
    fn root_refs(&mut self, dir: &Path) -> Result<()> {
        let entries = self.system.read_dir(dir);
        let entries = entries.map_err(|error| Error::io("cannot open directory", dir, error))?;
        for entry in entries {
            let path = dir.join(bytes_to_path(&entry.name));
            if !is_root_ref(&entry.name) || !self.is_file(&path, entry.kind) {
                continue;
            }
            let full = [self.prefix.as_slice(), &entry.name].concat();
            if self.one(&full, &path, FileKind::File)? {
                break;
            }
        }
        Ok(())
    }

    fn is_file(&self, path: &Path, kind: FileKind) -> bool {
        match kind {
            FileKind::File => true,
            FileKind::Symlink => {
                let stat = self.system.stat(path);
                stat.is_ok_and(|stat| stat.kind == FileKind::File)
            }
            _ => false,
        }
    }

    /// Checks one ref; returns whether it has an error.
    fn one(&mut self, name: &[u8], path: &Path, kind: FileKind) -> Result<bool> {
        let Some(read) = self.read(path, kind) else {
            return Ok(false);
        };
        (self.report.on)(Event::Ref(name.as_bstr()));
        let bare = name.strip_prefix(self.prefix.as_slice()).unwrap_or(name);
        let mut bad = false;
        if !is_root_ref(bare) && !is_well_formed(name, FormatOptions::FULL) {
            let id = MessageId::BadRefName;
            bad |= self.report.find(name, id, "invalid refname format");
        }
        bad |= match kind {
            FileKind::Symlink => self.link(name, path)?,
            FileKind::File => match read {
                Ok(content) => self.content(name, &content),
                Err(error) if is_absent(&error) => false,
                Err(error) if is_of_one(&error) => {
                    let what = format!("cannot read ref file '{}'", path.display());
                    self.report.unread(Severity::Error, path, &what, &error);
                    true
                }
                Err(error) => return Err(Error::io("cannot read ref file", path, error)),
            },
            _ => {
                let id = MessageId::BadRefFiletype;
                self.report.find(name, id, "unexpected file type")
            }
        };
        Ok(bad)
    }

    /// Checks a symbolic link, whose target counts as that of a symref.
    fn link(&mut self, name: &[u8], path: &Path) -> Result<bool> {
        let id = MessageId::SymlinkRef;
        let text = "use deprecated symbolic link for symref";
        let bad = self.report.find(name, id, text);
        let text = match self.system.read_link(path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(bad),
            Err(error) => return Err(Error::io("cannot read symbolic link", path, error)),
        };
        let parent = path.parent().unwrap_or(Path::new("."));
        let target = self.real(&parent.join(text))?;
        let base = self.real(self.base)?;
        let target = target.strip_prefix(&base).unwrap_or(&target);
        let target = target.as_os_str().as_bytes().to_vec();
        Ok(bad | self.referent(name, &target))
    }

    fn real(&self, path: &Path) -> Result<PathBuf> {
        real_path(self.system, path).map_err(|error| {
            let place = self.first_missing(path);
            let text = format!("Invalid path '{}': {}", place.display(), io_text(&error));
            let message = Message::from(text).of(&place, Role::InTheWay);
            Error::new(ErrorKind::Io, message).with_source(error)
        })
    }

    /// Returns how far a path leads, and the first name in it that leads nowhere.
    fn first_missing(&self, path: &Path) -> PathBuf {
        let mut resolved = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::ParentDir => {
                    resolved.pop();
                }
                Component::Normal(name) => {
                    let next = resolved.join(name);
                    resolved = match real_path(self.system, &next) {
                        Ok(real) if self.system.lstat(&real).is_ok() => real,
                        _ => return next,
                    };
                }
                _ => {}
            }
        }
        resolved
    }

    /// Checks what a file holds.
    fn content(&mut self, name: &[u8], content: &[u8]) -> bool {
        let text = c_string(content);
        if let Some(rest) = text.strip_prefix(b"ref:") {
            let start = rest.iter().position(|&byte| !is_space(byte));
            let target = rest.get(start.unwrap_or(rest.len())..).unwrap_or_default();
            return self.symref(name, target);
        }
        let (hex, rest) = text
            .split_at_checked(self.format.hex_len())
            .unwrap_or_default();
        let oid = ObjectId::from_hex(hex);
        let Some(oid) = oid.filter(|_| rest.first().is_none_or(|&byte| is_space(byte))) else {
            let end = content.iter().rposition(|&byte| !is_space(byte));
            let shown = content.get(..end.map_or(0, |end| end + 1));
            let shown = c_string(shown.unwrap_or_default());
            return self.report.find(name, MessageId::BadRefContent, shown);
        };
        match rest {
            b"" => self.missing_newline(name),
            b"\n" if oid.is_null() => {
                let text = format!("points to invalid object ID '{oid}'");
                self.report.find(name, MessageId::BadRefOid, text)
            }
            b"\n" => false,
            rest => {
                let text = [b"has trailing garbage: '", rest, b"'"].concat();
                self.report.find(name, MessageId::TrailingRefContent, text)
            }
        }
    }

    fn missing_newline(&mut self, name: &[u8]) -> bool {
        let id = MessageId::RefMissingNewline;
        self.report.find(name, id, "misses LF at the end")
    }

    /// Checks what stands behind `ref:` in a file.
    fn symref(&mut self, name: &[u8], text: &[u8]) -> bool {
        let end = text.iter().rposition(|&byte| !is_space(byte));
        let target = text.get(..end.map_or(0, |end| end + 1)).unwrap_or_default();
        let behind = text.len() - target.len();
        let mut bad = false;
        if behind == 0 || !text.ends_with(b"\n") {
            bad |= self.missing_newline(name);
        }
        if behind > 1 {
            let id = MessageId::TrailingRefContent;
            let text = "has trailing whitespaces or newlines";
            bad |= self.report.find(name, id, text);
        }
        bad | self.referent(name, target)
    }

    fn referent(&mut self, name: &[u8], target: &[u8]) -> bool {
        let bare = name.strip_prefix(self.prefix.as_slice()).unwrap_or(name);
        referent(self.report, name, bare, target)
    }
}

/// Checks the name that the symref `name` points to.
pub(super) fn referent(report: &mut Report<'_>, name: &[u8], bare: &[u8], target: &[u8]) -> bool {
    let quoted = |before: &str| [before.as_bytes(), b" '", target, b"'"].concat();
    if bare == b"HEAD" && !target.starts_with(b"refs/heads/") {
        let text = quoted("HEAD points to non-branch");
        if report.find(name, MessageId::BadHeadTarget, text) {
            return true;
        }
    }
    if is_root_ref(target) {
        return false;
    }
    if !is_well_formed(target, FormatOptions::FULL) {
        let text = quoted("points to invalid refname");
        if report.find(name, MessageId::BadReferentName, text) {
            return true;
        }
    }
    if !target.starts_with(b"refs/") && !target.starts_with(b"worktrees/") {
        let text = quoted("points to non-ref target");
        return report.find(name, MessageId::SymrefTargetIsNotARef, text);
    }
    false
}
