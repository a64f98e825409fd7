//! The state of a ref store: every ref as it is stored, and every reflog entry.
//!
//! 1. Symrefs are kept as they are, dangling ones included; nothing is resolved.
//! 2. The reader of the `reftable` format is Git itself: the stack is copied and migrated to
//!    `files`. What Git does not migrate is not seen: root refs that it does not know by name.
//!    Reflogs that are in the way of refs are read from the tables.
//!
//! ```
//! use refdb_testkit::{repo::Repo, state::Target, Format};
//!
//! let repo = Repo::init(Format::REFTABLE_SHA1);
//! let state = repo.state();
//! assert_eq!(state.refs["HEAD".as_bytes()], Target::Symbolic("refs/heads/main".into()));
//! ```

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use bstr::{BStr, BString, ByteSlice};

use crate::cache;
use crate::files;
use crate::format::RefFormat;
use crate::oracle::git;

/// What a ref points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An object, in hexadecimal digits.
    Direct(String),
    /// Another ref.
    Symbolic(BString),
}

/// An entry of a reflog.
#[derive(Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The value before, zero if there was none.
    pub old: String,
    /// The value after, zero if it was deleted.
    pub new: String,
    /// Name and address, as `Name <address>`.
    pub committer: BString,
    /// Seconds since 1970.
    pub time: u64,
    /// Such as `+0200`.
    pub zone: String,
    /// Without the line feed.
    pub message: BString,
}

/// All refs and reflogs of one store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The refs by name.
    pub refs: BTreeMap<BString, Target>,
    /// The entries of each reflog, oldest first. An empty one exists without entries.
    pub logs: BTreeMap<BString, Vec<LogEntry>>,
}

impl LogEntry {
    /// Reads a line of a reflog file; `None` if it is not one.
    pub fn parse(line: &BStr) -> Option<LogEntry> {
        let (head, message) = line.split_once_str("\t").unwrap_or((line, b""));
        let (old, rest) = head.split_once_str(" ")?;
        let (new, rest) = rest.split_once_str(" ")?;
        let (committer, rest) = rest.rsplit_once_str("> ")?;
        let (time, zone) = rest.split_once_str(" ")?;
        Some(LogEntry {
            old: old.to_str().ok()?.to_owned(),
            new: new.to_str().ok()?.to_owned(),
            committer: [committer, b">"].concat().into(),
            time: time.to_str().ok()?.parse().ok()?,
            zone: zone.to_str().ok()?.to_owned(),
            message: message.into(),
        })
    }

    /// Keeps a line that is no entry.
    pub(crate) fn raw(line: &BStr) -> LogEntry {
        LogEntry {
            old: String::new(),
            new: String::new(),
            committer: BString::default(),
            time: 0,
            zone: String::new(),
            message: line.to_owned(),
        }
    }
}

impl State {
    /// Reads the store that lies in `dir`: a repository's folder, or a linked worktree's below
    /// `worktrees`, whose own refs alone are then seen.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn read(dir: &Path) -> State {
        let stack = dir.join("reftable");
        // A stack that a migration puts away file by file loses its list first.
        if stack.join("tables.list").is_file() {
            State::read_stack(dir, &stack)
        } else {
            files::read(dir)
        }
    }

    /// Returns the entries of a reflog, none if there is no such reflog.
    pub fn log(&self, name: impl AsRef<[u8]>) -> &[LogEntry] {
        let key: &BStr = name.as_ref().into();
        self.logs.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns what differs, line by line: `-` is in this state only, `+` in the other only. Empty
    /// if they are equal.
    pub fn difference(&self, other: &State) -> String {
        let lines = |state: &State| -> Vec<String> {
            let refs = state.refs.iter().map(|(name, target)| match target {
                Target::Direct(id) => format!("{name} {id}"),
                Target::Symbolic(target) => format!("{name} -> {target}"),
            });
            let logs = state.logs.iter().flat_map(|(name, entries)| {
                let line = move |(i, entry)| format!("log of {name}, entry {i}: {entry:?}");
                let all = entries.iter().enumerate().map(line);
                all.chain([format!("log of {name}: {} entries", entries.len())])
            });
            refs.chain(logs).collect()
        };
        let (ours, theirs) = (lines(self), lines(other));
        let only = |one: &[String], other: &[String], sign: char| -> String {
            let missing = one.iter().filter(|line| !other.contains(line));
            missing.map(|line| format!("{sign} {line}\n")).collect()
        };
        only(&ours, &theirs, '-') + &only(&theirs, &ours, '+')
    }

    /// Has Git write a copy of the stack out as files.
    fn read_stack(dir: &Path, stack: &Path) -> State {
        let copy = tempfile::tempdir().expect("a folder for the copy");
        let copy = copy.path();
        cache::copy(stack, &copy.join("reftable")).expect("the stack can be copied");
        for folder in ["objects", "refs"] {
            fs::create_dir(copy.join(folder)).expect("the copy can be written");
        }
        let common = fs::read_to_string(dir.join("commondir")).unwrap_or_else(|_| ".".to_owned());
        let config = dir.join(common.trim_end()).join("config");
        let config = fs::read_to_string(config).expect("a repository has a configuration");
        // Of the rest nothing is needed, and some of it may make no sense.
        let objects = if config.contains("sha256") {
            "sha256"
        } else {
            "sha1"
        };
        let config = format!(
            "[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = {objects}\n\
             refStorage = reftable\n"
        );
        fs::write(copy.join("config"), config).expect("the copy can be written");
        for (file, text) in [
            ("HEAD", "ref: refs/heads/.invalid\n"),
            ("refs/heads", "stub\n"),
        ] {
            fs::write(copy.join(file), text).expect("the copy can be written");
        }
        let run = || git(copy).arg("--git-dir=.");
        let migrate = |more: &[&str]| {
            let migrate = ["refs", "migrate", "--ref-format=files", "--dry-run"];
            let out = run().args(migrate).args(more).run();
            let said = out.stdout.to_str_lossy().into_owned();
            let path = said.split('\'').nth(1).filter(|_| out.status.success());
            path.map(|path| files::read(&copy.join(path)))
        };
        let mut state = migrate(&[]).unwrap_or_else(|| {
            let mut state = migrate(&["--no-reflog"]).expect("Git says where the result is");
            state.logs = crate::stack::logs(stack);
            state
        });
        for name in run().args(["reflog", "list"]).run().ok().lines() {
            state.logs.entry(name.into()).or_default();
        }
        state
    }
}

impl Target {
    /// Returns the object id of a direct ref.
    pub fn id(&self) -> Option<&str> {
        match self {
            Target::Direct(id) => Some(id.borrow()),
            Target::Symbolic(_) => None,
        }
    }
}

impl fmt::Debug for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogEntry {
            old,
            new,
            committer,
            time,
            zone,
            message,
        } = self;
        write!(f, "{old} {new} {committer} {time} {zone} {message:?}")
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "refs:")?;
        for (name, target) in &self.refs {
            match target {
                Target::Direct(id) => writeln!(f, "  {name} {id}")?,
                Target::Symbolic(target) => writeln!(f, "  {name} -> {target}")?,
            }
        }
        writeln!(f, "reflogs:")?;
        for (name, entries) in &self.logs {
            writeln!(f, "  {name}")?;
            for entry in entries {
                writeln!(f, "    {entry:?}")?;
            }
        }
        Ok(())
    }
}

/// Tells the ref format of the store in `dir`.
pub fn ref_format(dir: &Path) -> RefFormat {
    if dir.join("reftable").is_dir() {
        RefFormat::Reftable
    } else {
        RefFormat::Files
    }
}
