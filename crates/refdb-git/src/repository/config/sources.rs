//! Where configuration files are, and reading them in the order of their precedence.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::BStr;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::include::Includer;
use super::{Conditions, Config, Entry, Override, Scope, Source, command, parse};
use crate::repository::environment::Environment;

/// A configuration file of the repository that was read once, for its format and its values.
#[derive(Debug)]
pub(crate) struct LocalFile(Option<Arc<Source>>);

impl LocalFile {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// `Config` for a line that breaks the grammar, `Io` when it cannot be read.
    pub(crate) fn read(system: &dyn System, path: &Path) -> Result<LocalFile> {
        source(path, Scope::Local, system.read(path)).map(LocalFile)
    }

    /// Returns the values that stand in this file itself, without what it includes.
    pub(crate) fn own_values(&self) -> Config {
        Config {
            entries: self.0.iter().flat_map(Source::entries).collect(),
            ..Config::default()
        }
    }
}

/// The system's and the user's files, read once for all that asks for them.
#[derive(Debug, Default)]
pub(crate) struct GlobalFiles {
    read: OnceCell<Vec<Arc<Source>>>,
}

impl GlobalFiles {
    fn read(&self, system: &dyn System, environment: &Environment) -> Result<&[Arc<Source>]> {
        if let Some(files) = self.read.get() {
            return Ok(files);
        }
        let mut files = Vec::new();
        for (scope, path) in global_files(environment)? {
            let source = match read(system, &path, scope) {
                // Whoever runs as another user may lack the right to read the files of `HOME`.
                Err(error)
                    if scope == Scope::Global
                        && error.io_kind() == Some(io::ErrorKind::PermissionDenied) =>
                {
                    None
                }
                read => read?,
            };
            files.extend(source);
        }
        Ok(self.read.get_or_init(|| files))
    }
}

/// What a configuration is put together from.
pub(crate) struct Sources<'a> {
    /// Where files are read.
    pub(crate) system: &'a dyn System,
    /// The variables that name files and values.
    pub(crate) environment: &'a Environment,
    /// The system's and the user's files.
    pub(crate) global: &'a GlobalFiles,
    /// The values of the command line.
    pub(crate) overrides: &'a [Override],
    /// The repository's file.
    pub(crate) local: Option<&'a LocalFile>,
    /// The worktree's own file.
    pub(crate) worktree: Option<PathBuf>,
    /// What conditional includes are decided by.
    pub(crate) conditions: Conditions<'a>,
}

impl Sources<'_> {
    /// Reads everything.
    ///
    /// # Errors
    /// `Config` for a line that breaks the grammar, or includes without end.
    pub(crate) fn read(self) -> Result<Config> {
        let home = self.environment.path("HOME");
        let mut sources = self.global.read(self.system, self.environment)?.to_vec();
        sources.extend(self.local.and_then(|local| local.0.clone()));
        if let Some(path) = self.worktree {
            sources.extend(read(self.system, &path, Scope::Worktree)?);
        }
        let command = Source {
            scope: Scope::Command,
            file: None,
            variables: command::variables(self.environment, self.overrides)?,
        };

        let mut includer = Includer::new(self.system, home.as_deref(), self.conditions);
        let asks = |entry: Entry| entry.key().starts_with(b"includeif.hasconfig:");
        if sources.iter().flat_map(Source::entries).any(asks) {
            let mut urls = Config::default();
            for source in &sources {
                includer.add_all(&mut urls, source, 0)?;
            }
            includer.learn_remote_urls(&urls);
        }
        let mut config = Config {
            entries: Vec::new(),
            home: home.clone(),
            users: Vec::new(),
        };
        sources.push(Arc::new(command));
        for source in &sources {
            includer.add_all(&mut config, source, 0)?;
        }
        if config.entries.iter().any(|entry| names_user(entry.value())) {
            let users = self.system.read(Path::new(super::include::USERS));
            config.users = users.unwrap_or_default();
        }
        Ok(config)
    }

    /// Reads what a repository itself cannot have written: system, user and command line.
    pub(crate) fn read_protected(
        system: &dyn System,
        environment: &Environment,
        global: &GlobalFiles,
        overrides: &[Override],
    ) -> Result<Config> {
        let sources = Sources {
            system,
            environment,
            global,
            overrides,
            local: None,
            worktree: None,
            conditions: Conditions::none(),
        };
        sources.read()
    }
}

/// Returns whether a value begins like the home directory of another user.
fn names_user(value: Option<&BStr>) -> bool {
    let rest = value.and_then(|value| value.strip_prefix(b"~"));
    rest.is_some_and(|rest| rest.first().is_some_and(|&byte| byte != b'/'))
}

/// Reads a file that a value of that scope names; `None` when there is none.
///
/// # Errors
/// As for [`source`].
pub(super) fn read(system: &dyn System, path: &Path, scope: Scope) -> Result<Option<Arc<Source>>> {
    source(path, scope, scope.read(system, path))
}

/// Returns what the content of the file at `path` says; `None` when there is no such file.
///
/// # Errors
/// `Config` for a line that breaks the grammar, `Io` when it cannot be read: what a repository's own
/// file would have said is not guessed.
fn source(path: &Path, scope: Scope, content: io::Result<Vec<u8>>) -> Result<Option<Arc<Source>>> {
    let content = match content {
        Ok(content) => content,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(Error::io("unable to access", path, error)),
    };
    match parse::parse(&content) {
        Ok(variables) => Ok(Some(Arc::new(Source {
            scope,
            file: Some(path.to_owned()),
            variables,
        }))),
        Err(line) => Err(Error::new(
            ErrorKind::Config,
            format!("bad config line {line} in file {}", path.display()),
        )),
    }
}

/// Returns the system's and the user's files, whether or not they exist.
fn global_files(environment: &Environment) -> Result<Vec<(Scope, PathBuf)>> {
    let mut files = Vec::new();
    if environment.boolean("GIT_CONFIG_NOSYSTEM")? != Some(true) {
        let path = environment.path("GIT_CONFIG_SYSTEM");
        files.push((
            Scope::System,
            path.unwrap_or_else(|| PathBuf::from("/etc/gitconfig")),
        ));
    }
    if let Some(path) = environment.path("GIT_CONFIG_GLOBAL") {
        files.push((Scope::Global, path));
        return Ok(files);
    }
    let home = environment.path("HOME");
    let xdg = environment
        .path("XDG_CONFIG_HOME")
        .filter(|path| !path.as_os_str().is_empty())
        .or_else(|| Some(home.as_ref()?.join(".config")));
    if let Some(xdg) = xdg {
        files.push((Scope::Global, xdg.join("git/config")));
    }
    if let Some(home) = home {
        files.push((Scope::Global, home.join(".gitconfig")));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::ErrorKind;
    use refdb_simulation::{Fault, SimSystem};

    #[test]
    fn only_the_files_of_the_user_may_be_unreadable() {
        let system = SimSystem::new(1);
        system.create_dir_all("/home".as_ref()).unwrap();
        for path in ["/home/.gitconfig", "/config"] {
            system.create_new(path.as_ref(), 0o666).unwrap();
        }
        system.set_fault(Some(Fault {
            persistent: true,
            ..Fault::once(0, io::ErrorKind::PermissionDenied)
        }));
        let error = LocalFile::read(&system, "/config".as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().starts_with("unable to access '/config'"));
        let variables = [("HOME", "/home"), ("GIT_CONFIG_NOSYSTEM", "1")];
        let environment = Environment::from_pairs(variables);
        let config =
            Sources::read_protected(&system, &environment, &GlobalFiles::default(), &[]).unwrap();
        assert!(config.entries().is_empty());
    }
}
