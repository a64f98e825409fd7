//! The error of the store: a kind that says what to do, and a message that says what is wrong.
//!
//! Absence is not an error (`Ok(None)`), and neither is a refused edit of a batch (a
//! [`Rejection`] in the outcome). What remains is one [`Error`] type whose [`ErrorKind`] tells a
//! caller how to go on.
//!
//! ```
//! use refdb::{ErrorKind, RefName};
//! let error = RefName::new("heads/a b").unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidName);
//! assert_eq!(error.to_string(), "invalid ref format: heads/a b");
//! ```

use std::fmt;
use std::io;
use std::path::Path;

use crate::name::{RefName, RefNameBuf};

/// The result of the store's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was, each with what a caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused a file operation: look at the message; a retry may help.
    Io,
    /// Another process holds a lock: try again later, or raise the lock timeout.
    Locked,
    /// The caller asked it to stop ([`Options::interrupt`](crate::Options::interrupt)): nothing was
    /// changed.
    Interrupted,
    /// A file of the ref store is damaged: `refdb refs verify --deep` tells all that is wrong, and
    /// `refdb refs repair` mends what can be mended.
    Corrupt,
    /// A single ref is unreadable: delete or rewrite it.
    BrokenRef,
    /// A name breaks Git's rules: choose another.
    InvalidName,
    /// An edit was refused: see [`Error::rejection`]; read again and decide anew.
    Rejected,
    /// The repository needs something that this version cannot do.
    Unsupported,
    /// A configuration value is invalid: mend the configuration.
    Config,
    /// There is no repository at the path, or it may not be opened: check path and owner.
    Repository,
    /// A hook refused the transaction, or could not be called: see what it wrote.
    Hook,
    /// The caller asked for something that makes no sense: mend the caller.
    Misuse,
    /// The refs were moved into the other format since the repository was opened: open it again.
    Moved,
}

/// Why an edit was refused, in Git's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The name and that of another ref cannot both exist.
    NameConflict,
    /// The ref was expected not to exist.
    CreateExists,
    /// The ref was expected to exist.
    NonexistentRef,
    /// The ref has another value than the expected one.
    IncorrectOldValue,
    /// The new value is no object, or no commit where one is needed.
    InvalidNewValue,
    /// The ref was expected to be a symref.
    ExpectedSymref,
    /// The name differs only in case from another, on a file system that cannot tell them apart.
    CaseConflict,
    /// Anything that refuses the whole transaction.
    Generic,
}

impl Reason {
    /// Returns the words that `update-ref --batch-updates` prints.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::NameConflict => "refname conflict",
            Reason::CreateExists => "reference already exists",
            Reason::NonexistentRef => "reference does not exist",
            Reason::IncorrectOldValue => "incorrect old value provided",
            Reason::InvalidNewValue => "invalid new value provided",
            Reason::ExpectedSymref => "expected symref but found regular ref",
            Reason::CaseConflict => "reference conflict due to case-insensitive filesystem",
            Reason::Generic => "unknown failure",
        }
    }
}

/// One refused edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The position of the edit in its transaction, as it was added.
    pub index: usize,
    /// The ref that the refusal is about: the edit's own, or the one that its symref points to.
    pub name: RefNameBuf,
    /// Why, as one of Git's reasons.
    pub reason: Reason,
    /// Why, in full.
    pub message: String,
}

/// A failure, with its kind and a message for a person.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    /// What Git does not say: the place and the way out.
    aside: String,
    source: Option<io::Error>,
    rejection: Option<Rejection>,
}

impl Error {
    /// Makes an error of a kind and a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            aside: String::new(),
            source: None,
            rejection: None,
        }))
    }

    /// Makes an error of a failed system call: what was tried, on which path, and the answer.
    pub fn io(operation: &str, path: &Path, source: io::Error) -> Self {
        Error::new(
            ErrorKind::Io,
            format!("{operation} '{}': {}", path.display(), io_text(&source)),
        )
        .with_source(source)
    }

    /// Says that a symref shows that refs are tables by now, which were files.
    pub(crate) fn moved(symref: RefName<'_>) -> Error {
        let what = format!(
            "'{symref}' says that refs are tables: they were migrated to another format; try again"
        );
        Error::new(ErrorKind::Moved, what)
    }

    /// Makes the error of damage in the file at `path`, with the way out.
    pub fn corrupt(path: &Path, what: impl fmt::Display) -> Self {
        Error::damage(format!("{}: {what}", path.display()))
    }

    /// Makes the error of damage of a message that names the file itself.
    pub(crate) fn damage(message: String) -> Self {
        Error::new(ErrorKind::Corrupt, format!("{message}; {WAY_OUT}"))
    }

    /// Makes the error of damage that Git tells in the words of `message`; `place` says more of
    /// where it is.
    pub(crate) fn damage_at(message: String, place: &str) -> Self {
        let mut error = Error::new(ErrorKind::Corrupt, message);
        error.0.aside = format!("{place}; {WAY_OUT}");
        error
    }

    /// Makes the error of a refused edit.
    pub fn rejected(rejection: Rejection) -> Self {
        let mut error = Error::new(ErrorKind::Rejected, rejection.message.clone());
        error.0.rejection = Some(rejection);
        error
    }

    /// Adds the system's own error.
    pub fn with_source(mut self, source: io::Error) -> Self {
        self.0.source = Some(source);
        self
    }

    /// Puts `context` and a colon before the message.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without what this library says beside Git's words, and that.
    pub fn parts(&self) -> (&str, &str) {
        (&self.0.message, &self.0.aside)
    }

    /// Returns the refused edit, when the kind is [`ErrorKind::Rejected`].
    pub fn rejection(&self) -> Option<&Rejection> {
        self.0.rejection.as_ref()
    }

    /// Returns the kind of the system's own error, when there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.0.source.as_ref().map(io::Error::kind)
    }
}

/// What can be done about damage.
const WAY_OUT: &str = "'refdb refs verify --deep' tells all, 'refdb refs repair' mends what can be";

/// Returns what the C library says of an error, without Rust's `(os error N)`.
pub fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
        None => text,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        f.write_str(&self.0.aside)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
