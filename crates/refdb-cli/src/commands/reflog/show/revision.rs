//! What stands for revisions on the command line: the reflogs that each adds, or why it adds none.
//!
//! A reflog has no end that a commit could be: what is to be left out is refused, if it is a commit.

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, SYMREF_DEPTH_MAX, is_well_formed};
use refdb::objects::ObjectKind;
use refdb::{ObjectId, RefName, RefNameBuf, Target};
use refdb_git::revision::path_separator;

use super::beyond;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Reads revisions one after the other.
pub(super) struct Reader<'c> {
    pub(super) context: &'c Context,
    /// Whether `--` stands somewhere behind, so that nothing before it is a path.
    pub(super) ends_options: bool,
    /// Whether what follows is to be left out (`--not`).
    pub(super) inverted: bool,
    /// Whose reflogs are walked through.
    pub(super) names: Vec<Vec<u8>>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// One revision or several.
    Revision,
    /// The first of the paths.
    Path,
}

impl Reader<'_> {
    /// Reads an argument that is no option.
    ///
    /// # Errors
    /// Fatal for what is neither a revision nor a path, and for commits that are to be left out.
    pub(super) fn read(&mut self, arg: &[u8]) -> Result<Given> {
        if self.revision(arg)? {
            return Ok(Given::Revision);
        }
        if self.ends_options || arg.starts_with(b"^") {
            let arg = arg.as_bstr();
            return Err(Failure::fatal(format!("bad revision '{arg}'")));
        }
        if arg.starts_with(b"-") {
            let arg = arg.as_bstr();
            let text = format!("option '{arg}' must come before non-option arguments");
            return Err(Failure::fatal(text));
        }
        // Nothing at all is the folder where we are, unless that is the top.
        match is_path(arg) || arg.is_empty() && self.context.is_below_top()? {
            true => Ok(Given::Path),
            false => Err(self.unknown(arg)?),
        }
    }

    /// Adds the reflogs of an option that stands for several refs; `--glob` may have its value
    /// behind it.
    pub(super) fn all_refs(&mut self, arg: &[u8], value: Option<&Vec<u8>>) -> Result<()> {
        let context = self.context;
        let (prefix, glob);
        let (prefix, pattern) = match arg {
            b"--all" => ("refs/", None),
            b"--branches" => ("refs/heads/", None),
            b"--tags" => ("refs/tags/", None),
            b"--remotes" => ("refs/remotes/", None),
            _ => {
                let stuck = |name: &str| arg.strip_prefix(name.as_bytes());
                let below = |prefix: &str, pattern: &[u8]| [prefix.as_bytes(), pattern].concat();
                (prefix, glob) = if let Some(pattern) = stuck("--branches=") {
                    ("refs/heads/", below("refs/heads/", pattern))
                } else if let Some(pattern) = stuck("--tags=") {
                    ("refs/tags/", below("refs/tags/", pattern))
                } else if let Some(pattern) = stuck("--remotes=") {
                    ("refs/remotes/", below("refs/remotes/", pattern))
                } else {
                    let pattern = match stuck("--glob=").or(value.map(Vec::as_slice)) {
                        Some(pattern) => pattern,
                        None => return Err(Failure::fatal("Option '--glob' requires a value")),
                    };
                    match pattern.starts_with(b"refs/") {
                        true => ("refs/", pattern.to_vec()),
                        false => ("refs/", below("refs/", pattern)),
                    }
                };
                (prefix, Some(glob_of(&glob)))
            }
        };
        if pattern.is_none() {
            // Nothing of it is looked at, but it has to make sense.
            context.repository()?.namespace()?;
        }
        let strips = prefix != "refs/";
        let mut refs = context.store()?.refs()?;
        refs.seek_prefix(prefix.as_bytes())?;
        let mut names = Vec::new();
        while let Some(record) = refs.next()? {
            let name = record.name.as_bytes();
            let mode = gix_glob::wildmatch::Mode::empty();
            let fits =
                |pattern: &Vec<u8>| gix_glob::wildmatch(pattern.as_bstr(), name.as_bstr(), mode);
            if !record.broken && pattern.as_ref().is_none_or(fits) {
                names.push(record.name.to_owned());
            }
        }
        if arg == b"--all" {
            names.push(RefName::HEAD.to_owned());
            let repository = context.repository()?;
            let others = repository.worktrees()?.into_iter();
            let others = others.filter(|worktree| worktree.git_dir != repository.git_dir());
            names.extend(others.map(|worktree| {
                let id = worktree.id.as_ref().map(|id| id.as_slice());
                RefName::HEAD.of_worktree(id)
            }));
        }
        let store = context.store()?;
        for name in names {
            if let Ok(Some(end)) = store.resolve(name.as_name())
                && is_commit(context, end.oid)?
            {
                let name = name.as_bytes();
                let shown = name.strip_prefix(prefix.as_bytes()).filter(|_| strips);
                self.add(shown.unwrap_or(name), self.inverted)?;
            }
        }
        Ok(())
    }

    /// Adds what an argument names; returns whether it is a revision at all.
    fn revision(&mut self, arg: &[u8]) -> Result<bool> {
        if arg == b".." && !self.ends_options {
            return Ok(false);
        }
        if self.range(arg)? {
            return Ok(true);
        }
        if let Some(name) = arg.strip_suffix(b"^@")
            && self.parents(name, None, self.inverted)?
        {
            return Ok(true);
        }
        let mut arg = arg;
        if let Some(name) = arg.strip_suffix(b"^!") {
            if !self.parents(name, None, !self.inverted)? {
                return Ok(false);
            }
            // Without parents it is the commit itself that is left.
            arg = name;
        } else if let Some(at) = arg.find("^-") {
            let (name, number) = arg.split_at(at);
            let number = number.get(2..).unwrap_or_default();
            let number = match number {
                b"" => Some(1),
                _ => number.to_str().ok().and_then(|it| it.parse().ok()),
            };
            let Some(number) = number.filter(|it: &usize| *it > 0) else {
                return Ok(false);
            };
            if !self.parents(name, Some(number), !self.inverted)? {
                return Ok(false);
            }
            arg = name;
        }
        let (name, unwanted) = match arg.strip_prefix(b"^") {
            Some(name) => (name, !self.inverted),
            None => (arg, self.inverted),
        };
        let Some(oid) = self.context.named_object(name)? else {
            return Ok(false);
        };
        if !self.ends_options && exists(arg) && self.context.is_in_work_tree()? {
            let shown = arg.as_bstr();
            return Err(Failure::fatal(format!(
                "ambiguous argument '{shown}': both revision and filename\n{}",
                beyond::separate()
            )));
        }
        match self.context.odb()?.header(oid)? {
            None => {
                let before = b"bad object ".as_slice();
                return Err(Failure::fatal([before, name].concat()));
            }
            Some(header) if header.kind == ObjectKind::Commit => self.add(name, unwanted)?,
            Some(_) => {}
        }
        Ok(true)
    }

    /// Adds a commit's reflog.
    ///
    /// # Errors
    /// Fatal if it is to be left out.
    pub(super) fn add(&mut self, name: &[u8], unwanted: bool) -> Result<()> {
        if unwanted {
            let name = match name {
                b"@" => b"HEAD".as_bstr(),
                name => name.as_bstr(),
            };
            return Err(Failure::fatal(format!("cannot walk reflogs for {name}")));
        }
        self.names.push(name.to_vec());
        Ok(())
    }

    /// Reads `a..b` and `a...b`.
    fn range(&mut self, arg: &[u8]) -> Result<bool> {
        let Some((from, to)) = arg.split_once_str("..") else {
            return Ok(false);
        };
        let (to, is_symmetric) = match to.strip_prefix(b".") {
            Some(to) => (to, true),
            None => (to, false),
        };
        let or_head = |name| {
            if name == b"".as_slice() {
                b"HEAD".as_slice()
            } else {
                name
            }
        };
        let (from, to) = (or_head(from), or_head(to));
        let Some(first) = self.context.object_id(from)? else {
            return Ok(false);
        };
        let Some(second) = self.context.object_id(to)? else {
            return Ok(false);
        };
        let kind = |oid| -> Result<_> { Ok(self.context.odb()?.header(oid)?.map(|it| it.kind)) };
        let kinds = [kind(first)?, kind(second)?];
        let shown = arg.as_bstr();
        let refuse = |what: &str| Err(Failure::fatal(format!("Invalid {what} {shown}")));
        if !is_symmetric {
            if kinds.contains(&None) {
                return refuse("revision range");
            }
            for (name, kind, unwanted) in [
                (from, kinds[0], !self.inverted),
                (to, kinds[1], self.inverted),
            ] {
                if kind == Some(ObjectKind::Commit) {
                    self.add(name, unwanted)?;
                }
            }
            return Ok(true);
        }
        let mut commits = Vec::new();
        if !kinds.contains(&None) {
            for oid in [first, second] {
                commits.extend(self.context.commit_of(oid)?);
            }
        }
        let [one, other] = commits[..] else {
            return refuse("symmetric difference expression");
        };
        if let Some(base) = self.merge_base(one, other)? {
            self.add(base.to_string().as_bytes(), !self.inverted)?;
        }
        self.add(from, self.inverted)?;
        self.add(to, self.inverted)?;
        Ok(true)
    }

    fn merge_base(&self, one: ObjectId, other: ObjectId) -> Result<Option<ObjectId>> {
        let mut graph = self.context.repository()?.graph()?;
        let (one, other) = (graph.commit(one)?, graph.commit(other)?);
        let bases = graph.merge_bases(one, &[other])?;
        Ok(bases.first().map(|base| graph.oid(*base)))
    }

    /// Adds the commit once for each of its parents, or for the one of this number; returns whether
    /// there is such a commit.
    fn parents(&mut self, name: &[u8], only: Option<usize>, unwanted: bool) -> Result<bool> {
        let (name, unwanted) = match name.strip_prefix(b"^") {
            Some(name) => (name, !unwanted),
            None => (name, unwanted),
        };
        let Some(oid) = self.context.object_id(name)? else {
            return Ok(false);
        };
        let mut graph = self.context.repository()?.graph()?;
        let Some(commit) = graph.peel(oid)? else {
            return Ok(false);
        };
        let count = graph.parent_count(commit)?;
        if only.is_some_and(|number| number > count) {
            return Ok(false);
        }
        for _ in 0..only.map_or(count, |_| 1) {
            self.add(name, unwanted)?;
        }
        Ok(true)
    }

    /// Returns what is said of an argument that is neither a revision nor a path.
    fn unknown(&self, arg: &[u8]) -> Result<Failure> {
        let shown = arg.as_bstr();
        let is_word = arg.get(1).is_some_and(u8::is_ascii_alphanumeric);
        if !arg.starts_with(b":") || is_word {
            // Git asks a second time, and says a second time what it has to say on the side.
            self.context.object_id(arg)?;
            if let Some(at) = path_separator(arg) {
                let (revision, path) = arg.split_at(at);
                let (revision, path) = (revision.as_bstr(), path.get(1..).unwrap_or_default());
                if revision.is_empty() {
                    // A number of a stage may come first.
                    let path = match path {
                        [b'0'..=b'3', b':', path @ ..] => path,
                        path => path,
                    };
                    let shown = path.as_bstr();
                    return Ok(Failure::fatal(match exists(path) {
                        true => format!("path '{shown}' exists on disk, but not in the index"),
                        false => format!(
                            "path '{shown}' does not exist (neither on disk nor in the index)"
                        ),
                    }));
                }
                if self.context.object_id(revision)?.is_none() {
                    let text = format!("invalid object name '{revision}'.");
                    return Ok(Failure::fatal(text));
                }
                let shown = path.as_bstr();
                return Ok(Failure::fatal(match exists(path) {
                    true => format!("path '{shown}' exists on disk, but not in '{revision}'"),
                    false => format!("path '{shown}' does not exist in '{revision}'"),
                }));
            }
        }
        Ok(Failure::fatal(format!(
            "ambiguous argument '{shown}': unknown revision or path not in the working tree.\n{}",
            beyond::separate()
        )))
    }
}

/// Returns HEAD, whose reflog is shown where no other is named.
pub(super) fn default(context: &Context) -> Result<Vec<Vec<u8>>> {
    if let Some(oid) = context.object_id(b"HEAD")? {
        let header = context.odb()?.header(oid)?;
        let is_other = header.is_some_and(|it| it.kind != ObjectKind::Commit);
        return Ok(if is_other {
            Vec::new()
        } else {
            vec![b"HEAD".to_vec()]
        });
    }
    let mut branch: Option<RefNameBuf> = None;
    let mut depth = 0;
    while depth < SYMREF_DEPTH_MAX {
        let name = branch.as_ref().map_or(RefName::HEAD, RefNameBuf::as_name);
        let found = context.store()?.read(name)?;
        match found.map(|found| found.target) {
            Some(Target::Symbolic(target)) => branch = Some(target),
            _ => break,
        }
        depth += 1;
    }
    // Symrefs without an end lead to no branch.
    branch = branch.filter(|_| depth < SYMREF_DEPTH_MAX);
    let may_be = |name: &RefNameBuf| is_well_formed(name.as_bytes(), FormatOptions::ONE_LEVEL);
    Err(Failure::fatal(match branch.filter(may_be) {
        Some(branch) => {
            let name = branch.as_bytes();
            let name = name.strip_prefix(b"refs/heads/").unwrap_or(name).as_bstr();
            format!("your current branch '{name}' does not have any commits yet")
        }
        None => "your current branch appears to be broken".to_owned(),
    }))
}

/// Returns whether an argument can only be meant as a path: as a pattern, or because it is there.
fn is_path(arg: &[u8]) -> bool {
    let mut bytes = arg.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    if arg.starts_with(b":(") {
        return true;
    }
    let magic: [&[u8]; 3] = [b":/", b":!", b":^"];
    let path = magic.iter().find_map(|magic| arg.strip_prefix(*magic));
    path.is_some_and(<[u8]>::is_empty) || exists(path.unwrap_or(arg))
}

fn exists(path: &[u8]) -> bool {
    let path = BString::from(path);
    path.to_path()
        .is_ok_and(|path| path.symlink_metadata().is_ok())
}

/// Returns a pattern for whole names: one without wildcards stands for all that is below it.
fn glob_of(pattern: &[u8]) -> Vec<u8> {
    let mut pattern = pattern.to_vec();
    if !pattern.iter().any(|byte| b"*?[".contains(byte)) {
        if !pattern.ends_with(b"/") {
            pattern.push(b'/');
        }
        pattern.push(b'*');
    }
    pattern
}

fn is_commit(context: &Context, oid: ObjectId) -> Result<bool> {
    let header = context.odb()?.header(oid)?;
    Ok(header.is_some_and(|header| header.kind == ObjectKind::Commit))
}
