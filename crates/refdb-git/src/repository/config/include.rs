//! `include` and `includeIf`: reading further files at the place of the line that names them.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bstr::{BStr, BString, ByteSlice};
use gix_glob::wildmatch::Mode;
use refdb::internals::bytes_to_path;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::sources::read;
use super::{Config, Entry, Source};
use crate::repository::paths::{self, path_to_bytes};

/// How many files may include one another, as in Git.
const DEPTH_MAX: usize = 10;

/// How many files are included in all, those that are not there as well: nine that name the next one
/// ten times come to a billion.
const INCLUDES_MAX: usize = 1_000;

/// How many bytes they have in all: as many as one file that is read may have.
const BYTES_MAX: u64 = 512 << 20;

/// In how many ways one pattern may be tried, and for how long all of them. A `**` in the midst of a pattern stands for
/// any number of directories, so that five of them take longer than anybody waits where a path has a thousand. (Git does
/// not end there either.)
const WAYS_MAX: u64 = 10_000_000;
const LONGEST: Duration = Duration::from_secs(3);

/// What conditional includes are decided by.
#[derive(Clone, Copy)]
pub(crate) struct Conditions<'a> {
    /// The repository's directory, if there is one, as it was found.
    pub(crate) git_dir: Option<&'a Path>,
    /// Finds how that is named from the directory in which the user says to be, which a link may have led to.
    pub(crate) typed: &'a dyn Fn() -> Option<PathBuf>,
    /// Finds the branch that `HEAD` points to, without `refs/heads/`.
    pub(crate) branch: &'a dyn Fn() -> Option<BString>,
}

impl Conditions<'_> {
    /// Outside of any repository: nothing but the remotes' URLs can be asked for.
    pub(crate) fn none() -> Self {
        Conditions {
            git_dir: None,
            typed: &|| None,
            branch: &|| None,
        }
    }
}

/// Adds values to a configuration and follows includes.
pub(super) struct Includer<'a> {
    system: &'a dyn System,
    home: Option<&'a Path>,
    conditions: Conditions<'a>,
    remote_urls: Vec<BString>,
    included: Cell<usize>,
    bytes: Cell<u64>,
    /// How long patterns were tried; `None` once that was too long.
    matching: Cell<Option<Duration>>,
}

impl<'a> Includer<'a> {
    pub(super) fn new(
        system: &'a dyn System,
        home: Option<&'a Path>,
        conditions: Conditions<'a>,
    ) -> Self {
        Includer {
            system,
            home,
            conditions,
            remote_urls: Vec::new(),
            included: Cell::new(0),
            bytes: Cell::new(0),
            matching: Cell::new(Some(Duration::ZERO)),
        }
    }

    /// Takes the URLs of all remotes for the condition `hasconfig`, which is false before.
    pub(super) fn learn_remote_urls(&mut self, config: &Config) {
        // All is read once more.
        self.included.set(0);
        self.bytes.set(0);
        let is_url =
            |entry: &&Entry| entry.key().starts_with(b"remote.") && entry.key().ends_with(b".url");
        let urls = config.entries.iter().filter(is_url);
        self.remote_urls = urls
            .filter_map(|entry| entry.value().map(BStr::to_owned))
            .collect();
    }

    /// Adds the values of a source, which `depth` others led to.
    pub(super) fn add_all(
        &self,
        config: &mut Config,
        source: &Arc<Source>,
        depth: usize,
    ) -> Result<()> {
        source
            .entries()
            .try_for_each(|entry| self.add(config, entry, depth))
    }

    /// Adds one value, and what it includes.
    fn add(&self, config: &mut Config, entry: Entry, depth: usize) -> Result<()> {
        let included = match entry.value() {
            _ if !self.includes(&entry)? => None,
            Some(path) => Some(self.resolve(path, &entry)?),
            None => {
                let what = format!("missing value for '{}'", entry.key());
                return Err(entry.bad_line(what));
            }
        };
        let Some(path) = included else {
            config.entries.push(entry);
            return Ok(());
        };
        let from = Arc::clone(&entry.source);
        config.entries.push(entry);
        self.included.set(self.included.get() + 1);
        if self.included.get() > INCLUDES_MAX {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "more than {INCLUDES_MAX} files are included, the last one '{}'",
                    path.display()
                ),
            ));
        }
        let len = self.system.stat(&path).map_or(0, |stat| stat.len);
        self.bytes.set(self.bytes.get().saturating_add(len));
        if self.bytes.get() > BYTES_MAX {
            let what = format!(
                "more than 512 MiB are included, the last file is '{}'",
                path.display()
            );
            return Err(Error::new(ErrorKind::Config, what));
        }
        let Some(source) = read(self.system, &path, from.scope)? else {
            return Ok(());
        };
        if depth == DEPTH_MAX {
            let from = from.file.as_deref();
            let from = from.unwrap_or(Path::new("the command line"));
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "exceeded maximum include depth ({DEPTH_MAX}) while including\n\t{}\nfrom\n\t{}\n\
                     This might be due to circular includes.",
                    path.display(),
                    from.display()
                ),
            ));
        }
        self.add_all(config, &source, depth + 1)
    }

    /// Returns whether `entry` includes a file, and its condition holds.
    ///
    /// # Errors
    /// `Config` if that takes too long to find out.
    fn includes(&self, entry: &Entry) -> Result<bool> {
        let holds = self.holds(entry);
        match self.matching.get() {
            Some(time) if time <= LONGEST => Ok(holds),
            _ => Err(entry.bad_line("the patterns of conditions have too many '**'")),
        }
    }

    fn holds(&self, entry: &Entry) -> bool {
        if entry.key() == "include.path" {
            return true;
        }
        let condition = entry
            .key()
            .strip_prefix(b"includeif.")
            .and_then(|rest| rest.strip_suffix(b".path"));
        let Some(condition) = condition else {
            return false;
        };
        let file = entry.file();
        if let Some(pattern) = condition.strip_prefix(b"gitdir:") {
            self.is_git_dir(pattern, file, Mode::NO_MATCH_SLASH_LITERAL)
        } else if let Some(pattern) = condition.strip_prefix(b"gitdir/i:") {
            let mode = Mode::NO_MATCH_SLASH_LITERAL | Mode::IGNORE_CASE;
            self.is_git_dir(pattern, file, mode)
        } else if let Some(pattern) = condition.strip_prefix(b"onbranch:") {
            let pattern = with_children(pattern.to_vec());
            (self.conditions.branch)()
                .is_some_and(|branch| self.matches(&pattern, &branch, Mode::NO_MATCH_SLASH_LITERAL))
        } else if let Some(pattern) = condition.strip_prefix(b"hasconfig:remote.*.url:") {
            self.remote_urls
                .iter()
                .any(|url| self.matches(pattern, url, Mode::NO_MATCH_SLASH_LITERAL))
        } else {
            false
        }
    }

    /// Returns whether the repository's directory matches a pattern that stands in `file`.
    fn is_git_dir(&self, pattern: &[u8], file: Option<&Path>, mode: Mode) -> bool {
        let Some(found) = self.conditions.git_dir else {
            return false;
        };
        let real = paths::real(self.system, found).unwrap_or_else(|_| found.to_owned());
        let mut literal = Vec::new();
        let mut pattern = match self.expand_home(pattern.as_bstr()) {
            Some(path) => path_to_bytes(&path).to_vec(),
            None => return false,
        };
        if let Some(rest) = pattern.strip_prefix(b"./") {
            // A file that is a link stands where it leads to.
            let real = file.and_then(|file| paths::real(self.system, file).ok());
            let Some(parent) = real.as_deref().and_then(Path::parent) else {
                return false;
            };
            literal = path_to_bytes(parent).to_vec();
            literal.push(b'/');
            pattern = match rest {
                b"" => b"**".to_vec(),
                rest => rest.to_vec(),
            };
        } else if !pattern.starts_with(b"/") {
            pattern.splice(0..0, *b"**/");
        }
        let pattern = with_children(pattern);
        let is_match = |dir: &Path| {
            let dir = path_to_bytes(dir);
            let starts = dir.get(..literal.len()).is_some_and(|start| {
                start == literal
                    || mode.contains(Mode::IGNORE_CASE) && start.eq_ignore_ascii_case(&literal)
            });
            starts && self.matches(&pattern, dir.get(literal.len()..).unwrap_or_default(), mode)
        };
        is_match(&real)
            || is_match(found)
            || (self.conditions.typed)().is_some_and(|dir| is_match(&dir))
    }

    /// Returns whether a text matches a pattern; no, and notes it, where that would take too long to find out.
    fn matches(&self, pattern: &[u8], text: &[u8], mode: Mode) -> bool {
        let ways = ways(pattern, text);
        let time = self
            .matching
            .get()
            .filter(|time| *time <= LONGEST && ways <= WAYS_MAX);
        let began = Instant::now();
        let is_match =
            time.is_some() && gix_glob::wildmatch(pattern.as_bstr(), text.as_bstr(), mode);
        self.matching.set(time.map(|time| time + began.elapsed()));
        is_match
    }

    fn expand_home(&self, path: &BStr) -> Option<PathBuf> {
        let users = || self.system.read(Path::new(USERS)).unwrap_or_default();
        expand_home(path, self.home, users)
    }

    /// Returns the path of an included file.
    fn resolve(&self, path: &BStr, entry: &Entry) -> Result<PathBuf> {
        let expanded = self.expand_home(path).ok_or_else(|| {
            entry.bad_line(format_args!("could not expand include path '{path}'"))
        })?;
        if expanded.is_absolute() {
            return Ok(expanded);
        }
        match entry.file() {
            Some(file) => Ok(file.parent().unwrap_or(Path::new("")).join(expanded)),
            None => Err(entry.bad_line("relative config includes must come from files")),
        }
    }
}

/// The system's list of users.
pub(super) const USERS: &str = "/etc/passwd";

/// Replaces `~` and `~user` by the home directory; `None` when that is unknown. `users` reads the
/// system's list of users.
pub(super) fn expand_home(
    path: &BStr,
    home: Option<&Path>,
    users: impl FnOnce() -> Vec<u8>,
) -> Option<PathBuf> {
    let Some(rest) = path.strip_prefix(b"~") else {
        return Some(bytes_to_path(path).to_owned());
    };
    let (user, below) = match rest.split_once_str("/") {
        Some((user, below)) => (user, Some(below)),
        None => (rest, None),
    };
    let home = match user {
        b"" => home?.to_owned(),
        user => home_of(user, &users())?,
    };
    Some(match below {
        Some(below) => home.join(bytes_to_path(below)),
        None => home,
    })
}

fn home_of(user: &[u8], users: &[u8]) -> Option<PathBuf> {
    let mut fields = users.lines().map(|line| line.split(|&byte| byte == b':'));
    let mut found =
        fields.find_map(|mut fields| (fields.next() == Some(user)).then_some(fields))?;
    found.nth(4).map(|dir| bytes_to_path(dir).to_owned())
}

/// Returns in how many ways a pattern may have to be tried at most.
fn ways(pattern: &[u8], text: &[u8]) -> u64 {
    let dirs = text.iter().filter(|byte| **byte == b'/').count() as u64 + 1;
    let mut rest = pattern;
    while let Some(behind) = rest.strip_prefix(b"**/") {
        rest = behind;
    }
    let leading = usize::from(rest.len() < pattern.len());
    let rest = rest.strip_suffix(b"**").unwrap_or(rest);
    let stars = leading + rest.windows(2).filter(|two| two == b"**").count();
    dirs.saturating_pow(u32::try_from(stars).unwrap_or(u32::MAX))
}

/// A pattern that ends in a slash means everything below.
fn with_children(mut pattern: Vec<u8>) -> Vec<u8> {
    if pattern.ends_with(b"/") {
        pattern.extend(b"**");
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_as_people_write_them_are_tried() {
        let deep = ["dir"; 40].join("/");
        for pattern in [
            "/work/**",
            "**/org/**/api/**",
            "**/*/**/org/**/services/**/**",
            "**/clients/**/web/**/vendor/**/**",
        ] {
            let found = ways(pattern.as_bytes(), deep.as_bytes());
            assert!(found <= WAYS_MAX, "{pattern}: {found}");
        }
        let endless = "**/a*/".repeat(9);
        assert!(ways(endless.as_bytes(), deep.as_bytes()) > WAYS_MAX);
    }

    #[test]
    fn homes_of_oneself_and_of_others() {
        let users = || b"root:x:0:0:root:/root:/bin/sh\nann:x:1:1::/home/ann:\n".to_vec();
        let expand = |path: &str| expand_home(path.into(), Some(Path::new("/me")), users);
        let is = |path: &str| Some(PathBuf::from(path));
        assert_eq!(expand("a/~b"), is("a/~b"));
        assert_eq!(expand("~"), is("/me"));
        assert_eq!(expand("~/x"), is("/me/x"));
        assert_eq!(expand("~ann/x/y"), is("/home/ann/x/y"));
        assert_eq!(expand("~root"), is("/root"));
        assert_eq!(expand("~nobody/x"), None);
        assert_eq!(expand_home("~/x".into(), None, users), None);
    }
}
