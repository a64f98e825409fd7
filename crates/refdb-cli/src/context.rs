//! What a command works with: the options before its name and the repository.
//!
//! Everything is opened when it is first asked for, so that a command pays only for what it uses.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::options::Interrupt;
use refdb::system::{FileKind, OsSystem, System};
use refdb::{ErrorKind, ObjectFormat, ObjectId, RefName, Resolved, Store};
use refdb_git::Repository;
use refdb_git::graph::Grafts;
use refdb_git::objects::{ABBREVIATION_MIN, Abbreviations, Odb};
use refdb_git::repository::OpenOptions;
use refdb_git::revision::{Note, Revisions};
use refdb_maintenance::migrate::finish_interrupted;

use crate::failure::{Failure, Result, Words, complain, say, say_error, say_message, show_folder};
use crate::global::Globals;
use crate::interrupt;
use crate::programs::Processes;
use crate::trace;

/// So many folders are looked into for a repository that may have been meant.
const NEARBY_MAX: usize = 200;

/// How many digits of an object id are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Digits {
    /// All of them.
    #[default]
    All,
    /// As many as the configuration asks for.
    Configured,
    /// At least so many, and never fewer than four.
    Least(usize),
}

/// What a command works with.
#[derive(Debug)]
pub(crate) struct Context {
    globals: Globals,
    repository: OnceCell<Repository>,
    grafts: OnceCell<Grafts>,
    abbreviations: OnceCell<Abbreviations>,
    /// What is said later, if anything is.
    held: RefCell<Option<Vec<Note>>>,
}

impl Context {
    /// Remembers the options before the command word, and opens nothing yet.
    pub(crate) fn new(globals: Globals) -> Self {
        Context {
            globals,
            repository: OnceCell::new(),
            grafts: OnceCell::new(),
            abbreviations: OnceCell::new(),
            held: RefCell::new(None),
        }
    }

    /// Returns the options before the command word.
    pub(crate) fn globals(&self) -> &Globals {
        &self.globals
    }

    /// Returns the repository, which is found and opened by the first call.
    pub(crate) fn repository(&self) -> Result<&Repository> {
        self.found().map_err(refused)
    }

    /// Returns the repository, even if its `HEAD` is damaged.
    pub(crate) fn damaged_repository(&self) -> Result<&Repository> {
        self.open(true).map_err(refused)
    }

    /// Fails where the refs are on a place that many machines share: `what` works on those that are kept
    /// here, and `instead` says what to do there.
    pub(crate) fn local_refs_only(
        repository: &Repository,
        what: &str,
        instead: &str,
    ) -> Result<()> {
        match repository.register() {
            None => Ok(()),
            Some(register) => {
                let name = register.name();
                let kept = "works on refs that are kept here";
                let text = format!("{what} {kept}; these are in {name}: {instead}");
                Err(Failure::fatal(text))
            }
        }
    }

    /// Returns the repository; `None` where there is none that may be opened.
    ///
    /// Whatever else stands in the way, such as configuration that makes no sense, is a failure.
    pub(crate) fn repository_if_any(&self) -> Result<Option<&Repository>> {
        match self.found() {
            Err(error) => match error.kind() {
                ErrorKind::Repository | ErrorKind::NoRepository | ErrorKind::BareRepository => {
                    Ok(None)
                }
                ErrorKind::Unsupported => {
                    say_error("warning", &error);
                    Ok(None)
                }
                _ => Err(refused(error)),
            },
            Ok(found) => Ok(Some(found)),
        }
    }

    /// Returns the repository, or why it cannot be opened.
    pub(crate) fn found(&self) -> refdb::Result<&Repository> {
        self.open(false)
    }

    fn open(&self, damaged: bool) -> refdb::Result<&Repository> {
        if let Some(repository) = self.repository.get() {
            return Ok(repository);
        }
        let globals = &self.globals;
        let mut options = OpenOptions::new()
            .bare(globals.bare)
            .no_replace_objects(globals.no_replace_objects)
            .damaged(damaged)
            .programs(Arc::new(Processes))
            .interrupt(Interrupt::new(interrupt::came));
        if let Some(dir) = &globals.git_dir {
            options = options.git_dir(dir);
        }
        if let Some(dir) = &globals.work_tree {
            options = options.work_tree(dir);
        }
        if let Some(namespace) = &globals.namespace {
            options = options.namespace(namespace.clone());
        }
        for argument in &globals.config {
            options = options.config(argument);
        }
        for argument in &globals.config_env {
            options = options.config_env(argument)?;
        }
        let repository = options.discover(Path::new(""))?;
        for warning in repository.warnings() {
            say("warning", warning.as_bytes());
        }
        let repository = self.repository.get_or_init(|| repository);
        trace::opened(repository);
        let path = repository.common_dir().as_os_str().as_bytes().to_vec();
        show_folder(path, self.shown_git_dir(repository).into_bytes());
        clear_up(repository);
        Ok(repository)
    }

    /// Returns the repository's directory as Git shows it: as it was named, or as it is called from
    /// the top of the work tree.
    pub(crate) fn shown_git_dir(&self, repository: &Repository) -> String {
        let (git_dir, common_dir) = (repository.git_dir(), repository.common_dir());
        let named = self.globals.git_dir.clone();
        let named = named.or_else(|| repository.environment().path("GIT_DIR"));
        let is_moved = repository.environment().get("GIT_WORK_TREE").is_some()
            || self.globals.work_tree.is_some();
        let shown = match named {
            Some(named) if git_dir == common_dir && !is_moved => named,
            Some(_) => common_dir.to_owned(),
            None if git_dir != common_dir => common_dir.to_owned(),
            None => match repository.work_tree() {
                Some(top) if top.join(".git") == common_dir => ".git".into(),
                _ => match std::env::current_dir() {
                    Ok(dir) if dir == common_dir => ".".into(),
                    Ok(dir) if dir.join(".git") == common_dir => ".git".into(),
                    _ => common_dir.to_owned(),
                },
            },
        };
        shown.display().to_string()
    }

    /// Names files of the repository in a message as Git does: as seen from the top of the work
    /// tree.
    pub(crate) fn as_seen_from_the_top(&self, failure: Failure) -> Failure {
        let shortened = |mut words: Words| {
            if !words.are_whole
                && let Some((dir, shown)) = self.dir_in_messages()
            {
                let dir = [dir.as_os_str().as_bytes(), b"/"].concat();
                words.text = words.text.replace(dir, format!("{shown}/"));
            }
            words
        };
        match failure {
            Failure::Fatal(message) => Failure::Fatal(shortened(message)),
            Failure::Misconfigured { cause, place } => Failure::Misconfigured {
                cause: shortened(cause),
                place: shortened(place),
            },
            Failure::Advised { message, hint } => Failure::Advised {
                message: shortened(message),
                hint,
            },
            Failure::Error { message, code } => Failure::Error {
                message: shortened(message),
                code,
            },
            other => other,
        }
    }

    /// Returns the directory that messages name, and how it is shown.
    fn dir_in_messages(&self) -> Option<(PathBuf, String)> {
        if let Some(repository) = self.repository.get() {
            let shown = self.shown_git_dir(repository);
            return Some((repository.common_dir().to_owned(), shown));
        }
        // It could not be opened, but it was found.
        let is_named = self.globals.git_dir.is_some() || std::env::var_os("GIT_DIR").is_some();
        let here = std::env::current_dir().ok().filter(|_| !is_named)?;
        let system = OsSystem::new();
        let is_dir = |dir: &PathBuf| {
            let stat = system.stat(dir);
            stat.is_ok_and(|stat| stat.kind == FileKind::Directory)
        };
        let mut dirs = here.ancestors().map(|dir| dir.join(".git"));
        Some((dirs.find(is_dir)?, ".git".to_owned()))
    }

    /// Returns the refs of the repository.
    pub(crate) fn store(&self) -> Result<&Store> {
        Ok(self.repository()?.store())
    }

    /// Returns the objects of the repository.
    pub(crate) fn odb(&self) -> Result<&Odb> {
        Ok(self.repository()?.odb())
    }

    /// Returns the commits that are taken to have other parents than they name.
    pub(crate) fn grafts(&self) -> Result<&Grafts> {
        let repository = self.repository()?;
        if let Some(grafts) = self.grafts.get() {
            return Ok(grafts);
        }
        let grafts = repository.grafts()?;
        Ok(self.grafts.get_or_init(|| grafts))
    }

    /// Returns the object format of the repository.
    pub(crate) fn object_format(&self) -> Result<ObjectFormat> {
        Ok(self.repository()?.object_format())
    }

    /// Prepares to resolve revision expressions, whose paths are relative to where we are.
    fn revisions(&self) -> Result<Revisions<'_>> {
        let repository = self.repository()?;
        let here = std::env::current_dir().ok();
        let prefix = here.as_deref().zip(repository.work_tree());
        let prefix = prefix.and_then(|(here, top)| here.strip_prefix(top).ok());
        let prefix = prefix.map_or(&b""[..], |prefix| prefix.as_os_str().as_bytes());
        Ok(Revisions::new(repository).prefix(prefix))
    }

    /// Returns the object that a revision expression names.
    ///
    /// A full-length id is taken as it stands: neither a ref nor the object is looked up.
    pub(crate) fn object_id(&self, expression: &[u8]) -> Result<Option<ObjectId>> {
        let repository = self.repository()?;
        if expression.len() == repository.object_format().hex_len()
            && let Some(oid) = ObjectId::from_hex(expression)
        {
            return Ok(Some(oid));
        }
        self.named_object(expression)
    }

    /// Returns the object that a revision expression names; warns where a ref is spelled like the
    /// id that is meant.
    pub(crate) fn named_object(&self, expression: &[u8]) -> Result<Option<ObjectId>> {
        let revisions = self.revisions()?.check_object_names(true);
        let resolved = revisions.resolve(expression);
        self.say_notes(&revisions);
        Ok(resolved?)
    }

    /// Returns the commit that an object is, or leads to through tags; says why if it is none.
    pub(crate) fn commit_of(&self, oid: ObjectId) -> Result<Option<ObjectId>> {
        let revisions = self.revisions()?;
        let commit = revisions.commit(oid);
        self.say_notes(&revisions);
        Ok(commit?)
    }

    /// Returns the object that a revision expression names, without a word about it; `None` also
    /// for what is no expression.
    pub(crate) fn find_object(&self, expression: &[u8]) -> Result<Option<ObjectId>> {
        let revisions = self.revisions()?;
        Ok(revisions.resolve(expression).unwrap_or_default())
    }

    /// Returns `name` with what stands for another ref, such as `@{upstream}`, replaced by that.
    pub(crate) fn expand_ref(&self, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.revisions()?.expand_ref(name)?.into())
    }

    /// Returns the shortest name that still means `name`, unless a later rule makes it mean
    /// something else as well.
    pub(crate) fn shorten(&self, name: RefName<'_>) -> Result<Vec<u8>> {
        let short = Revisions::new(self.repository()?).shorten(name.as_bytes(), false)?;
        Ok(short.into())
    }

    /// Returns whether names that could mean several refs are told, and avoided.
    pub(crate) fn warns_of_ambiguous_refs(&self) -> Result<bool> {
        let config = self.repository()?.config();
        Ok(config.boolean("core.warnambiguousrefs")?.unwrap_or(true))
    }

    /// Appends an object id to `out`, with so many digits, or more where it takes more to name no
    /// other object.
    pub(crate) fn push_oid(&self, oid: ObjectId, digits: Digits, out: &mut Vec<u8>) -> Result<()> {
        let least = match digits {
            Digits::All => {
                oid.push_hex(out);
                return Ok(());
            }
            Digits::Configured => self.repository()?.abbreviation()?,
            Digits::Least(least) => Some(least.max(ABBREVIATION_MIN)),
        };
        let len = self.abbreviations()?.len(oid, least)?;
        let start = out.len();
        oid.push_hex(out);
        out.truncate(start + len);
        Ok(())
    }

    fn abbreviations(&self) -> Result<&Abbreviations> {
        if let Some(known) = self.abbreviations.get() {
            return Ok(known);
        }
        let found = self.odb()?.abbreviations()?;
        Ok(self.abbreviations.get_or_init(|| found))
    }

    /// Returns whether we are in the work tree, so that names can be those of files of it.
    pub(crate) fn is_in_work_tree(&self) -> Result<bool> {
        let repository = self.repository()?;
        let Ok(here) = std::env::current_dir() else {
            return Ok(false);
        };
        Ok(repository.is_in_work_tree(&here))
    }

    /// Returns whether we are in a folder of the work tree below its top.
    pub(crate) fn is_below_top(&self) -> Result<bool> {
        let top = self.repository()?.work_tree();
        let is_top = std::env::current_dir().is_ok_and(|here| Some(here.as_path()) == top);
        Ok(!is_top && self.is_in_work_tree()?)
    }

    /// Says what came up while a revision expression was resolved, or keeps it if that is to be said later.
    pub(crate) fn say_notes(&self, revisions: &Revisions<'_>) {
        let notes = revisions.notes();
        match &mut *self.held.borrow_mut() {
            Some(held) => held.extend(notes),
            None => notes.iter().for_each(say_note),
        }
    }

    /// Keeps what comes up from now on: perhaps another program will answer, and say it.
    pub(crate) fn hold_notes(&self) {
        self.held.borrow_mut().get_or_insert_default();
    }

    /// Says what was kept, and keeps nothing from now on.
    pub(crate) fn say_held_notes(&self) {
        let held = self.held.take().unwrap_or_default();
        held.iter().for_each(say_note);
    }

    /// Returns the branches that are checked out, each with the path of its worktree.
    pub(crate) fn checked_out(&self) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
        let repository = self.repository()?;
        let mut branches = HashMap::new();
        for worktree in repository.worktrees()? {
            let Some(store) = repository.worktree_store_if_any(&worktree)? else {
                continue;
            };
            // HEAD may lead through further symrefs: the last ref is the one checked out.
            let head = resolve_listed(&store, RefName::HEAD)?;
            if let Some(branch) = head.map(|head| head.name)
                && branch.as_bytes().starts_with(b"refs/heads/")
            {
                let path = worktree.path.as_os_str().as_bytes().to_vec();
                // Of several worktrees with one branch Git shows the last; the main one is the first.
                branches.insert(branch.as_bytes().to_vec(), path);
            }
        }
        Ok(branches)
    }
}

fn say_note(note: &Note) {
    match note {
        Note::Warning(text) => say("warning", text.as_bytes()),
        Note::Error(text) => say("error", text.as_bytes()),
        Note::Hint(text) => say("hint", text.as_bytes()),
        Note::Text(text) => complain(&format!("{text}\n")),
    }
}

/// Told of what comes up on the way, with its severity.
pub(crate) type Tell<'t> = dyn FnMut(&'static str, String) + 't;

/// Follows a symref that a listing meets: one that leads to a broken ref is left out like any other
/// that leads nowhere. The broken ref itself is told where the listing meets it.
pub(crate) fn resolve_listed(store: &Store, name: RefName<'_>) -> Result<Option<Resolved>> {
    match store.resolve(name) {
        Err(error) if error.kind() == ErrorKind::BrokenRef => Ok(None),
        resolved => Ok(resolved?),
    }
}

/// Clears up after a migration that was killed, so that its locks are in nobody's way.
fn clear_up(repository: &Repository) {
    match finish_interrupted(repository) {
        Ok(told) => told.iter().for_each(|one| say_message("warning", one)),
        // Who may not write reads what there is, and that is whole.
        Err(error) if may_not_write(&error) => {}
        Err(error) => {
            let what = "a migration that was interrupted cannot be cleared up";
            say_error("warning", &error.context(what));
        }
    }
}

fn may_not_write(error: &refdb::Error) -> bool {
    use std::io::ErrorKind as Io;
    let kind = error.io_kind();
    matches!(kind, Some(Io::PermissionDenied | Io::ReadOnlyFilesystem))
}

/// Returns a repository in a folder below this one, for whoever stands beside it. Nobody looks for one
/// where nobody reads the answer.
fn nearby() -> Option<PathBuf> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let system = OsSystem::new();
    let mut entries = system.read_dir(Path::new(".")).ok()?;
    entries.retain(|entry| entry.kind == FileKind::Directory);
    entries.sort_by(|low, high| low.name.cmp(&high.name));
    let is_one = |path: &PathBuf| {
        let has = |name: &str| system.stat(&path.join(name)).is_ok();
        has(".git") || (has("HEAD") && has("objects") && has("refs"))
    };
    let entries = entries.iter().take(NEARBY_MAX);
    let mut paths = entries.map(|entry| PathBuf::from(OsStr::from_bytes(&entry.name)));
    paths.find(is_one)
}

/// Returns the failure of opening a repository, with what can be done about it.
fn refused(error: refdb::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NoRepository => {
            let hint = match nearby() {
                Some(path) => format!("there is one in '{0}': refdb -C '{0}' ...", path.display()),
                None => {
                    "go into a repository, or name one with -C <path> or --git-dir=<path>".into()
                }
            };
            return Failure::Advised {
                message: Words::from(&error),
                hint,
            };
        }
        ErrorKind::BareRepository => {
            "name it with --git-dir=<path>, or set safe.bareRepository to `all`"
        }
        ErrorKind::Unsupported => {
            "this version knows repositories of the versions 0 and 1 with refs in `files` or \
             `reftable`; a newer one may know more"
        }
        _ => return Failure::from(error),
    };
    Failure::Advised {
        message: Words::from(&error),
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_goes_by_the_kind_whatever_the_words() {
        let hint = |kind| match refused(refdb::Error::new(kind, "other words")) {
            Failure::Advised { hint, .. } => hint,
            Failure::Fatal(words) => String::from_utf8(words.text).expect("text"),
            other => panic!("{other:?}"),
        };
        assert!(hint(ErrorKind::NoRepository).contains("--git-dir"));
        assert!(hint(ErrorKind::BareRepository).contains("safe.bareRepository"));
        assert!(hint(ErrorKind::Unsupported).contains("0 and 1"));
        assert_eq!(hint(ErrorKind::Repository), "other words");
    }
}
