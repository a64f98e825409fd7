//! The configuration of a repository: system, user, repository, worktree and command line, with
//! `include` and `includeIf`.
//!
//! 1. Values stand in the order in which they were read; the last one of a key wins.
//! 2. A file is read through the [`System`] only, and an included file
//!    takes effect at the very place of the line that includes it.
//! 3. A value's meaning is decided when it is asked for, so that a value that nobody asks for
//!    cannot fail.
//!
//! ```
//! use refdb_git::repository::config::Config;
//! let config = Config::parse(b"[core]\n\tbare\n[branch \"x\"]\n\tremote = origin\n").unwrap();
//! assert_eq!(config.boolean("core.bare").unwrap(), Some(true));
//! assert_eq!(config.string("branch.x.remote").unwrap(), "origin");
//! assert_eq!(config.integer("core.abbrev").unwrap(), None);
//! ```

mod command;
pub(crate) mod edit;
mod include;
mod parse;
mod sources;
pub mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use bstr::{BStr, ByteSlice};
pub(crate) use command::Override;
pub(crate) use include::Conditions;
use parse::Variables;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};
pub(crate) use sources::{GlobalFiles, LocalFile, Sources};

/// Which kind of source a value comes from, in rising precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The system's file (`/etc/gitconfig`).
    System,
    /// The user's files.
    Global,
    /// The repository's file.
    Local,
    /// The file of one worktree.
    Worktree,
    /// The command line and the environment.
    Command,
}

impl Scope {
    /// Reads the file that a value of this scope names. One that the user named need not be a file: it
    /// can be a pipe that a shell made, which is waited for. What a repository names was named by
    /// whoever made it, and is a file, or `/dev/null`.
    ///
    /// # Errors
    /// Those of the system, and one for what is no file.
    pub fn read(self, system: &dyn System, path: &Path) -> io::Result<Vec<u8>> {
        match self {
            Scope::Local | Scope::Worktree if path == Path::new("/dev/null") => Ok(Vec::new()),
            Scope::Local | Scope::Worktree => system.read(path),
            Scope::System | Scope::Global | Scope::Command => system.read_stream(path),
        }
    }
}

/// A file, or the command line, and what it says.
#[derive(Debug)]
struct Source {
    scope: Scope,
    file: Option<PathBuf>,
    variables: Variables,
}

impl Source {
    fn entries(self: &Arc<Self>) -> impl Iterator<Item = Entry> {
        let entry = |at| Entry {
            source: Arc::clone(self),
            at,
        };
        (0..self.variables.len()).map(entry)
    }
}

/// One value of the configuration.
#[derive(Clone)]
pub struct Entry {
    source: Arc<Source>,
    /// Which of the source's variables it is.
    at: u32,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}={:?}", self.key(), self.value())
    }
}

impl Entry {
    /// Returns the key: section and variable in lower case.
    pub fn key(&self) -> &BStr {
        self.source.variables.key(self.at)
    }

    /// Returns the value; `None` for a key without `=`.
    pub fn value(&self) -> Option<&BStr> {
        self.source.variables.value(self.at)
    }

    /// Returns where the value comes from.
    pub fn scope(&self) -> Scope {
        self.source.scope
    }

    /// Returns the file that the value stands in, unless it was given on the command line.
    pub fn file(&self) -> Option<&Path> {
        self.source.file.as_deref()
    }

    /// Returns the line of the file on which the value ends, counted from 1; 0 if it stands in no
    /// file.
    pub fn line(&self) -> usize {
        self.source.variables.line(self.at)
    }

    /// Makes the error of a value that makes no sense: what is wrong, and on a line of its own
    /// where the value stands.
    pub(crate) fn unparsable(&self, what: impl fmt::Display) -> Error {
        Error::misconfigured(what, self.place())
    }

    /// Makes the error of a value that is none of those that its key can have.
    pub(crate) fn senseless(&self) -> Error {
        Error::new(ErrorKind::Config, self.place())
    }

    fn place(&self) -> String {
        let (key, line) = (self.key(), self.line());
        match self.file() {
            Some(file) => {
                let file = file.display();
                format!("bad config variable '{key}' in file '{file}' at line {line}")
            }
            None => format!("unable to parse '{key}' from command-line config"),
        }
    }

    /// Makes the error of a line that makes no sense to what reads the configuration line by line.
    fn bad_line(&self, what: impl fmt::Display) -> Error {
        let place = match self.file() {
            Some(file) => format!("bad config line {} in file {}", self.line(), file.display()),
            None => "unable to parse command-line config".to_owned(),
        };
        Error::misconfigured(what, place)
    }
}

/// All values of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    entries: Vec<Entry>,
    home: Option<PathBuf>,
    /// The system's list of users, if a value may name the home directory of one.
    users: Vec<u8>,
}

impl Config {
    /// Reads the text of one file, without regard for what it includes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a line that breaks the grammar.
    pub fn parse(content: &[u8]) -> Result<Config> {
        let variables = parse::parse(content)
            .map_err(|line| Error::new(ErrorKind::Config, format!("bad config line {line}")))?;
        let source = Arc::new(Source {
            scope: Scope::Local,
            file: None,
            variables,
        });
        Ok(Config {
            entries: source.entries().collect(),
            home: None,
            users: Vec::new(),
        })
    }

    /// Returns all values, in rising precedence.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the value of `key` (section and variable in lower case) that counts.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        let key = key.as_bytes();
        self.entries.iter().rev().find(|entry| entry.key() == key)
    }

    /// Returns every value of `key`, in rising precedence.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Entry> {
        let key = key.as_bytes();
        self.entries.iter().filter(move |entry| entry.key() == key)
    }

    /// Returns the value of `key` as it stands; `None` if there is none or it has no `=`.
    pub fn string(&self, key: &str) -> Option<&BStr> {
        self.get(key)?.value()
    }

    /// Returns the value of `key` as a boolean.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is none.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        let value = entry.value().map(|value| value.as_bytes());
        match values::boolean(value) {
            Some(answer) => Ok(Some(answer)),
            None => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "bad boolean config value '{}' for '{}'",
                    entry.value().unwrap_or_default(),
                    entry.key()
                ),
            )),
        }
    }

    /// Returns the value of `key` as a number.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is none, or one beyond 64 bits.
    pub fn integer(&self, key: &str) -> Result<Option<i64>> {
        self.number(key, Ok)
    }

    /// Returns the value of `key` as a number of at most 32 bits, which most of Git's are.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is none, or one beyond 32 bits.
    pub fn small_integer(&self, key: &str) -> Result<Option<i32>> {
        self.number(key, |number| {
            i32::try_from(number).map_err(|_| values::BadNumber::OutOfRange)
        })
    }

    /// Returns the value of `key` as a number that is not negative.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is none.
    pub fn unsigned_integer(&self, key: &str) -> Result<Option<u64>> {
        self.number(key, |number| {
            u64::try_from(number).map_err(|_| values::BadNumber::InvalidUnit)
        })
    }

    fn number<T>(
        &self,
        key: &str,
        narrow: impl FnOnce(i64) -> std::result::Result<T, values::BadNumber>,
    ) -> Result<Option<T>> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        let value = entry.value().unwrap_or_default();
        match values::integer(value).and_then(narrow) {
            Ok(number) => Ok(Some(number)),
            Err(bad) => {
                let place = match entry.file() {
                    Some(file) => format!(" in file {}", file.display()),
                    None => String::new(),
                };
                Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "bad numeric config value '{value}' for '{}'{place}: {}",
                        entry.key(),
                        bad.as_str()
                    ),
                ))
            }
        }
    }

    /// Returns the value of `key` as it stands, where a key alone makes no sense.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the key has no `=`.
    pub fn text(&self, key: &str) -> Result<Option<&BStr>> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        match entry.value() {
            Some(value) => Ok(Some(value)),
            None => Err(entry.unparsable(format_args!("missing value for '{}'", entry.key()))),
        }
    }

    /// Returns the value of `key` as [`Config::text`] does, for a key that Git looks for line by line:
    /// its error names the line and no variable.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the key has no `=`.
    pub fn text_of_line(&self, key: &str) -> Result<Option<&BStr>> {
        let Some(entry) = self.get(key) else {
            return Ok(None);
        };
        match entry.value() {
            Some(value) => Ok(Some(value)),
            None => Err(entry.bad_line(format_args!("missing value for '{}'", entry.key()))),
        }
    }

    /// Returns the value of `key` as a path, with `~` and `~user` replaced by the home directory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the key has no `=`, or the home directory is unknown.
    pub fn path(&self, key: &str) -> Result<Option<PathBuf>> {
        let Some(value) = self.text(key)? else {
            return Ok(None);
        };
        match self.expand_home(value) {
            Some(path) => Ok(Some(path)),
            None => {
                let what = format!("failed to expand user dir in: '{value}'");
                Err(Error::new(ErrorKind::Config, what))
            }
        }
    }

    /// Returns `value` as a path with `~` replaced by the home directory; `None` when that is
    /// unknown.
    pub fn expand_home(&self, value: &BStr) -> Option<PathBuf> {
        include::expand_home(value, self.home.as_deref(), || self.users.clone())
    }
}
