//! Who owns a repository: `safe.directory` and `safe.bareRepository`.
//!
//! A repository is configuration, and configuration starts programs. One that another user owns
//! is opened only if the caller's own configuration names it as safe.

use std::path::Path;

use bstr::{BStr, ByteSlice};
use refdb::internals::bytes_to_path;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::config::{Config, GlobalFiles, Override, Sources};
use super::discover::{Found, Location, is_implicitly_bare};
use super::environment::Environment;
use super::paths::{self, path_to_bytes};

/// Refuses a repository that was found, and not named, if it is not the caller's own.
pub(super) fn check(
    system: &dyn System,
    environment: &Environment,
    global: &GlobalFiles,
    overrides: &[Override],
    location: &Location,
) -> Result<()> {
    let (gitfile, worktree) = match &location.found {
        Found::Explicit => return Ok(()),
        Found::DotGit { parent, gitfile } => (gitfile.as_deref(), Some(parent.as_path())),
        Found::Bare => (None, None),
    };
    let protected = || Sources::read_protected(system, environment, global, overrides);
    let git_dir = location.git_dir.as_path();
    if location.found == Found::Bare && !is_implicitly_bare(git_dir) {
        let config = protected()?;
        let key = "safe.barerepository";
        let entries = config.entries().iter().filter(|entry| entry.key() == key);
        for entry in entries {
            if !matches!(entry.value(), Some(value) if value == "explicit" || value == "all") {
                return Err(entry.senseless());
            }
        }
        if config.string(key) == Some(b"explicit".as_bstr()) {
            return Err(Error::new(
                ErrorKind::BareRepository,
                format!(
                    "cannot use bare repository '{}' (safe.bareRepository is 'explicit')",
                    git_dir.display()
                ),
            ));
        }
    }
    let mut paths = [gitfile, worktree, Some(git_dir)].into_iter().flatten();
    let suspect = environment
        .boolean("GIT_TEST_ASSUME_DIFFERENT_OWNER")?
        .unwrap_or(false);
    if !suspect && paths.all(|path| is_own(system, environment, path)) {
        return Ok(());
    }
    let dir = worktree.unwrap_or(git_dir);
    if is_declared_safe(system, &protected()?, dir) {
        return Ok(());
    }
    let shown = dir.display();
    Err(Error::new(
        ErrorKind::Repository,
        format!(
            "detected dubious ownership in repository at '{shown}'\nTo add an exception for this \
             directory, call:\n\n\tgit config --global --add safe.directory {shown}"
        ),
    ))
}

/// Returns whether a bare repository that was found lies in somebody's work tree, as a clone may
/// bring one: nothing that it says is to change anything. Where nobody can look, it does.
pub(super) fn is_in_work_tree(system: &dyn System, git_dir: &Path) -> bool {
    let mut above = git_dir.ancestors().skip(1);
    !is_implicitly_bare(git_dir)
        && above.any(|dir| !matches!(system.find(&dir.join(".git")), Ok(None)))
}

/// Returns whether the user owns `path`; root also owns what belongs to whoever called `sudo`.
fn is_own(system: &dyn System, environment: &Environment, path: &Path) -> bool {
    let Ok(stat) = system.lstat(path) else {
        return false;
    };
    let user = rustix::process::geteuid().as_raw();
    if stat.uid == user {
        return true;
    }
    let caller = (user == 0).then(|| environment.get("SUDO_UID")).flatten();
    let caller = caller.and_then(|id| id.to_str()?.parse::<u32>().ok());
    caller == Some(stat.uid)
}

/// Returns whether `safe.directory` names `dir`. The last entry that speaks of it decides only in
/// that an empty one forgets those before it.
fn is_declared_safe(system: &dyn System, config: &Config, dir: &Path) -> bool {
    let real_dir = paths::real(system, dir).unwrap_or_else(|_| dir.to_owned());
    let mut safe = false;
    for entry in config.all("safe.directory") {
        match entry.value() {
            None => safe = false,
            Some(value) if value.is_empty() => safe = false,
            Some(value) if value == "*" => safe = true,
            Some(value) => safe |= names(system, config, value, &real_dir),
        }
    }
    safe
}

/// Returns whether one value of `safe.directory` names `dir`.
fn names(system: &dyn System, config: &Config, value: &BStr, dir: &Path) -> bool {
    let Some(path) = config.expand_home(value) else {
        return false;
    };
    let bytes = path_to_bytes(&path);
    let (base, below) = match bytes.strip_suffix(b"/*") {
        Some(base) => (bytes_to_path(base), true),
        None => (path.as_path(), false),
    };
    if !path.is_absolute() {
        return false;
    }
    let base = paths::real(system, base).unwrap_or_else(|_| base.to_owned());
    if below {
        dir != base && dir.starts_with(&base)
    } else {
        dir == base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::system::OsSystem;

    fn is_safe(values: &[&str], dir: &str) -> bool {
        let mut content = String::from("[safe]\n");
        for value in values {
            content.push_str(&format!("directory = {value}\n"));
        }
        let config = Config::parse(content.as_bytes()).unwrap();
        is_declared_safe(&OsSystem::new(), &config, Path::new(dir))
    }

    #[test]
    fn values_of_safe_directory() {
        assert!(!is_safe(&[], "/no/such/repo"));
        assert!(is_safe(&["/no/such/repo"], "/no/such/repo"));
        assert!(is_safe(&["*"], "/no/such/repo"));
        assert!(!is_safe(&["*", ""], "/no/such/repo"));
        assert!(is_safe(&["/no/such/*"], "/no/such/repo"));
        assert!(!is_safe(&["/no/such/*"], "/no/suchrepo"));
        assert!(!is_safe(&["/no/such/*"], "/no/such"));
        assert!(!is_safe(&["no/such/repo"], "/no/such/repo"));
    }
}
