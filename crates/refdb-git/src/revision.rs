//! Revision expressions: from what a person types to one object.
//!
//! `main`, `v1.0^{commit}`, `HEAD~3`, `@{yesterday}`, `topic@{upstream}`, `:/fix`, `HEAD:README`, an
//! abbreviated id, and any mixture of them, with Git's answers.
//!
//! 1. A full hexadecimal id is taken as it stands: no ref of that name is looked for, and no object.
//! 2. Nothing is printed: what Git would say on the side is collected in [`Revisions::notes`].
//! 3. An expression that names nothing is `None`; an error says why a well-formed one cannot be
//!    answered.
//!
//! ```no_run
//! use refdb_git::Repository;
//! use refdb_git::revision::Revisions;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let revisions = Revisions::new(&repository);
//! match revisions.resolve(b"main~2^{tree}")? {
//!     Some(oid) => println!("{oid}"),
//!     None => println!("no such revision"),
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

mod branch;
mod dwim;
mod history;
mod index;
mod reflog;
mod refspec;
mod short;
mod shorten;
mod suffix;
mod tracking;

use std::cell::{OnceCell, RefCell};

use bstr::{BStr, BString, ByteSlice};
use refdb::{Error, ErrorKind, ObjectId, Result, Store};

use crate::graph::Grafts;
use crate::objects::{ObjectKind, Odb};
use crate::repository::Repository;
pub use dwim::Found;
pub use shorten::Shortener;
pub use tracking::{Direction, Tracking};

/// How many suffixes `^{...}` an expression can have: each is resolved within the next.
const PEELS_MAX: usize = 100;

/// What Git says on the side while it resolves an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// `warning: ...`
    Warning(String),
    /// `error: ...`
    Error(String),
    /// `hint: ...`, one line
    Hint(String),
    /// Lines that stand by themselves.
    Text(String),
}

/// Resolves revision expressions of one repository.
pub struct Revisions<'r> {
    repository: &'r Repository,
    store: &'r Store,
    odb: &'r Odb,
    check_object_names: bool,
    prefix: BString,
    notes: RefCell<Vec<Note>>,
    grafts: OnceCell<Grafts>,
}

/// Which kind of object an abbreviated id is meant to name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hint {
    #[default]
    Any,
    Commit,
    /// A commit, or a tag of one.
    Committish,
    Tree,
    /// A tree, a commit, or a tag of one.
    Treeish,
    Blob,
}

impl<'r> Revisions<'r> {
    /// Prepares to resolve expressions of `repository`.
    pub fn new(repository: &'r Repository) -> Self {
        Revisions {
            repository,
            store: repository.store(),
            odb: repository.odb(),
            check_object_names: false,
            prefix: BString::default(),
            notes: RefCell::new(Vec::new()),
            grafts: OnceCell::new(),
        }
    }

    /// Sets whether to look for a ref that is spelled like a full id, and to warn of it.
    pub fn check_object_names(mut self, check: bool) -> Self {
        self.check_object_names = check;
        self
    }

    /// Sets the directory that `<rev>:./path` is relative to, as seen from the top of the work
    /// tree, with a slash at its end.
    pub fn prefix(mut self, prefix: impl Into<BString>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Returns what was said on the side since the last call.
    pub fn notes(&self) -> Vec<Note> {
        self.notes.take()
    }

    /// Returns the object that `expression` names.
    ///
    /// # Errors
    /// `Misuse` for a question without an answer, such as one beyond the end of a reflog; `Corrupt`
    /// or `Io` for the files.
    pub fn resolve(&self, expression: &[u8]) -> Result<Option<ObjectId>> {
        let peels = expression.windows(2).filter(|pair| pair == b"^{");
        if peels.count() > PEELS_MAX {
            return Err(Error::new(
                ErrorKind::Misuse,
                format!("a revision can have no more than {PEELS_MAX} suffixes '^{{...}}'"),
            ));
        }
        if let Some(oid) = self.full_id(expression) {
            if self.check_object_names {
                self.warn_of_object_name(expression)?;
            }
            return Ok(Some(oid));
        }
        if let Some(oid) = self.revision(expression, Hint::Any)? {
            return Ok(Some(oid));
        }
        if expression.first() == Some(&b':') {
            return self.leading_colon(expression);
        }
        match path_separator(expression) {
            None => Ok(None),
            Some(at) => {
                let (revision, path) = expression.split_at(at);
                let Some(oid) = self.revision(revision, Hint::Treeish)? else {
                    return Ok(None);
                };
                self.entry_at(oid, path.get(1..).unwrap_or_default())
            }
        }
    }

    /// Resolves everything but paths and searches: `HEAD~2`, `tag^{}`, `1234abc`.
    fn revision(&self, expression: &[u8], hint: Hint) -> Result<Option<ObjectId>> {
        match suffix::split(expression) {
            Some((front, suffix)) => self.walk(front, suffix),
            None => {
                if let Some((front, peel)) = suffix::split_peel(expression)
                    && let Some(oid) = self.peel(front, expression.as_bstr(), peel)?
                {
                    return Ok(Some(oid));
                }
                if let Some(oid) = self.basic(expression)? {
                    return Ok(Some(oid));
                }
                if let Some(hex) = short::described(expression)
                    && let Some(oid) = self.abbreviated(hex, Hint::Committish)?
                {
                    return Ok(Some(oid));
                }
                self.abbreviated(expression, hint)
            }
        }
    }

    /// Resolves a full id, a ref, or an entry of a reflog.
    fn basic(&self, name: &[u8]) -> Result<Option<ObjectId>> {
        if let Some(oid) = self.full_id(name) {
            return Ok(Some(oid));
        }
        let (name, entry) = match reflog::split(name) {
            reflog::Split::Nothing => (name, None),
            reflog::Split::Entry { name, entry } => (name, Some(entry)),
            reflog::Split::Invalid => return Ok(None),
        };
        if has_empty_component(name) {
            return Ok(None);
        }
        if let Some(oid) = self.detached_prior(name)? {
            return Ok(Some(oid));
        }
        let found = match entry {
            None => self.dwim_ref(name)?,
            Some(_) if name.is_empty() => self.dwim_ref(b"HEAD")?,
            Some(_) => self.dwim_log(name)?,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let is_ambiguous =
            found.is_ambiguous || (self.warns_of_ambiguity()? && self.is_abbreviation(name)?);
        if is_ambiguous {
            self.warn(format!("refname '{}' is ambiguous.", name.as_bstr()));
        }
        match entry {
            None => Ok(Some(found.oid)),
            Some(entry) => self.log_entry(name.as_bstr(), &found, entry),
        }
    }

    /// Reads a full id.
    fn full_id(&self, text: &[u8]) -> Option<ObjectId> {
        ObjectId::from_hex(text).filter(|oid| oid.format() == self.odb.format())
    }

    /// Returns the kind of an object, if it is there.
    fn kind(&self, oid: ObjectId) -> Result<Option<ObjectKind>> {
        Ok(self.odb.header(oid)?.map(|header| header.kind))
    }

    fn warns_of_ambiguity(&self) -> Result<bool> {
        let configured = self.repository.config().boolean("core.warnambiguousrefs")?;
        Ok(configured.unwrap_or(true))
    }

    fn warn(&self, message: String) {
        self.notes.borrow_mut().push(Note::Warning(message));
    }

    /// Warns when a ref is spelled like a full id.
    fn warn_of_object_name(&self, hex: &[u8]) -> Result<()> {
        const ADVICE: &str = "Git normally never creates a ref that ends with 40 hex characters\n\
            because it will be ignored when you just specify 40-hex. These refs\n\
            may be created by mistake. For example,\n\
            \n  git switch -c $br $(git rev-parse ...)\n\n\
            where \"$br\" is somehow empty and a 40-hex ref is created. Please\n\
            examine these refs and maybe delete them. Turn this message off by\n\
            running \"git config set advice.objectNameWarning false\"";
        let config = self.repository.config();
        if !self.warns_of_ambiguity()? || self.dwim_ref(hex)?.is_none() {
            return Ok(());
        }
        self.warn(format!("refname '{}' is ambiguous.", hex.as_bstr()));
        if config.boolean("advice.objectnamewarning")? != Some(false) {
            let text = ADVICE.to_owned();
            self.notes.borrow_mut().push(Note::Text(text));
        }
        Ok(())
    }
}

/// Returns where the path of `<rev>:<path>` is set off: at the first colon outside of braces.
pub fn path_separator(expression: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    expression.iter().position(|&byte| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b':' && depth == 0
    })
}

/// Returns whether a name cannot be a ref's because a component of it is empty, `.` or `..`.
fn has_empty_component(name: &[u8]) -> bool {
    // A name that does not end in a component of its own; dots alone are none.
    let mut empty = true;
    for &byte in name {
        match byte {
            b'/' if empty => return !name.is_empty(),
            b'/' => empty = true,
            b'.' => {}
            _ => empty = false,
        }
    }
    empty && !name.is_empty()
}

/// Returns the text of a byte string for a message.
fn shown(text: &[u8]) -> &BStr {
    text.as_bstr()
}
