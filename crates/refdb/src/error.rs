//! The error of the store: a kind that says what to do, and a message that says what is wrong.
//!
//! What a caller decides by, and what it shows in its own way, is data: the kind, and what the
//! message is about ([`Message::path`], [`Message::remedy`], [`Error::line`], ...). Nobody has to
//! look for words in a message.
//!
//! Absence is not an error (`Ok(None)`), and neither is a refused edit of a batch (a
//! [`Rejection`] in the outcome). What remains is one [`Error`] type whose [`ErrorKind`] tells a
//! caller how to go on.
//!
//! ```
//! use refdb::{Error, ErrorKind, RefName};
//! let error = Error::from(RefName::new("heads/a b").unwrap_err());
//! assert_eq!(error.kind(), ErrorKind::InvalidName);
//! assert_eq!(error.to_string(), "invalid ref format: heads/a b");
//! ```

mod message;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use refdb_names::{InvalidName, RefName, RefNameBuf};
use rustix::io::Errno;

#[cfg(any(test, feature = "rewording"))]
pub use self::message::reword;
pub use self::message::{Message, Remedy, Role};

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
    /// A file of the ref store, or an object, is damaged or missing: see [`Message::remedy`].
    Corrupt,
    /// A line of packed-refs is none, so that no packed ref can be relied on: as for `Corrupt`.
    PackedRefs,
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
    /// The date in the environment (`GIT_COMMITTER_DATE`) is none: mend it.
    Date,
    /// There is no repository at the path: check the path.
    NoRepository,
    /// The configuration forbids to use a bare repository that was not named: name it.
    BareRepository,
    /// The repository may not be opened: check path and owner.
    Repository,
    /// A hook refused the transaction, or could not be called: see what it wrote.
    Hook,
    /// The caller asked for something that makes no sense: mend the caller.
    Misuse,
    /// Another writer was faster, where no lock keeps it out: nothing was changed. Do it again.
    Overtaken,
    /// Whether it was committed could not be found out, and it may still be: read again.
    Unknown,
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
    pub message: Message,
}

/// A failure, with its kind and a message for a person.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Message,
    cause: Option<String>,
    line: Option<usize>,
    variable: Option<String>,
    source: Option<Arc<io::Error>>,
    rejection: Option<Rejection>,
}

impl Error {
    /// Makes an error of a kind and a message.
    pub fn new(kind: ErrorKind, message: impl Into<Message>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            cause: None,
            line: None,
            variable: None,
            source: None,
            rejection: None,
        }))
    }

    /// Makes an error of a failed system call: what was tried, on which path, and the answer.
    pub fn io(operation: &str, path: &Path, source: io::Error) -> Self {
        let text = format!("{operation} '{}': {}", path.display(), io_text(&source));
        Error::new(ErrorKind::Io, Message::from(text).of(path, Role::File)).with_source(source)
    }

    /// Says that another writer was faster, where no lock kept it out.
    pub(crate) fn overtaken() -> Error {
        let what = "the refs were changed by another writer; try again";
        Error::new(ErrorKind::Overtaken, what)
    }

    /// Says that a symref shows that refs are tables by now, which were files.
    pub(crate) fn moved(symref: RefName<'_>) -> Error {
        let what = format!(
            "'{symref}' says that refs are tables: they were migrated to another format; try again"
        );
        Error::new(ErrorKind::Moved, what)
    }

    /// Makes the error of damage in the file at `path`.
    pub fn corrupt(path: &Path, what: impl fmt::Display) -> Self {
        Error::damage(path, format!("{}: {what}", path.display()))
    }

    /// As [`Error::corrupt`], with what can be done about it; `None` where the text says that, or nobody can.
    pub fn corrupt_with(
        path: &Path,
        what: impl fmt::Display,
        remedy: impl Into<Option<Remedy>>,
    ) -> Self {
        let mut error = Error::corrupt(path, what);
        error.0.message = error.0.message.with(remedy);
        error
    }

    /// Makes the error of damage on a place that machines share, or in an object there.
    pub fn corrupt_store(place: &str, what: impl fmt::Display) -> Self {
        Error::corrupt_with(Path::new(place), what, Remedy::RepairStore)
    }

    /// Makes the error of damage in the file at `path`, which the text names in its own way.
    pub(crate) fn damage(path: &Path, text: String) -> Self {
        let message = Message::from(text).of(path, Role::File);
        Error::new(ErrorKind::Corrupt, message.with(Remedy::Repair))
    }

    /// Makes the error of a line of packed-refs that is none; `line` is its number, where known.
    pub(crate) fn packed_line(path: &Path, text: String, line: Option<usize>) -> Self {
        let mut error = Error::damage(path, text);
        error.0.kind = ErrorKind::PackedRefs;
        error.0.line = line;
        error
    }

    /// Makes the error of a value of the configuration: what is wrong with it, and where it stands.
    pub fn misconfigured(cause: impl fmt::Display, place: impl Into<Message>) -> Self {
        let mut error = Error::new(ErrorKind::Config, place);
        error.0.cause = Some(Message::from(cause.to_string()).text);
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
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Adds the variable of the configuration that the error is about.
    pub fn with_variable(mut self, key: impl fmt::Display) -> Self {
        self.0.variable = Some(key.to_string());
        self
    }

    /// Says what the path of the error is to its reader.
    pub(crate) fn with_role(mut self, role: Role) -> Self {
        self.0.message.role = role;
        self
    }

    /// Puts `context` and a colon before the message.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        match &mut self.0.cause {
            Some(cause) => *cause = format!("{context}: {cause}"),
            None => self.0.message = self.0.message.after(format_args!("{context}: ")),
        }
        self
    }

    /// Puts a line before the message, by which programs know Git's errors.
    pub(crate) fn below(mut self, line: &str) -> Self {
        self.0.message = self.0.message.after(format_args!("{line}\n"));
        self
    }

    /// Adds what can be done.
    pub(crate) fn with_remedy(mut self, remedy: Remedy) -> Self {
        self.0.message = self.0.message.with(remedy);
        self
    }

    /// Returns an error of another kind that says the same.
    pub(crate) fn words_as(&self, kind: ErrorKind) -> Self {
        let mut error = Error::new(kind, self.0.message.clone());
        error.0.cause.clone_from(&self.0.cause);
        error.0.line = self.0.line;
        error
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message, which a [cause](Error::cause) or a [line](Error::line) completes.
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// Returns what is wrong with a value of the configuration, where the message only says where it
    /// stands.
    pub fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// Returns the number of the line that is damaged, from 1.
    pub fn line(&self) -> Option<usize> {
        self.0.line
    }

    /// Returns the variable of the configuration that has no value, where that is all that is wrong.
    pub fn variable(&self) -> Option<&str> {
        self.0.variable.as_deref()
    }

    /// Returns the refused edit, when the kind is [`ErrorKind::Rejected`].
    pub fn rejection(&self) -> Option<&Rejection> {
        self.0.rejection.as_ref()
    }

    /// Returns the kind of the system's own error, when there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.0.source.as_ref().map(|source| source.kind())
    }
}

/// What came of a system call.
pub(crate) trait OrIo<T> {
    /// Makes an error as [`Error::io`] does of a call that failed.
    fn or_io(self, operation: &str, path: &Path) -> Result<T>;
}

impl<T> OrIo<T> for io::Result<T> {
    fn or_io(self, operation: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(operation, path, error))
    }
}

/// Returns what the C library of GNU says of an error, whichever this program has: so does Git. Rust's `(os error N)`
/// is left out.
pub fn io_text(error: &io::Error) -> String {
    let is_it = |said: &&(Errno, &str)| Some(said.0.raw_os_error()) == error.raw_os_error();
    let said = SAID_OTHERWISE.iter().find(is_it);
    match said.filter(|_| cfg!(target_os = "linux")) {
        Some((_, text)) => (*text).to_owned(),
        None => text_of_library(error),
    }
}

fn text_of_library(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// What the C library of the program that users get (musl) says in other words.
const SAID_OTHERWISE: [(Errno, &str); 9] = [
    (Errno::IO, "Input/output error"),
    (Errno::NOMEM, "Cannot allocate memory"),
    (Errno::BUSY, "Device or resource busy"),
    (Errno::XDEV, "Invalid cross-device link"),
    (Errno::MFILE, "Too many open files"),
    (Errno::NAMETOOLONG, "File name too long"),
    (Errno::LOOP, "Too many levels of symbolic links"),
    (Errno::OVERFLOW, "Value too large for defined data type"),
    (Errno::DQUOT, "Disk quota exceeded"),
];

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cause) = &self.0.cause {
            writeln!(f, "{cause}")?;
        }
        f.write_str(&self.0.message)?;
        match self.0.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl From<InvalidName> for Error {
    fn from(error: InvalidName) -> Self {
        Error::new(ErrorKind::InvalidName, error.to_string())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_told_in_the_words_of_gnu() {
        for (errno, text) in SAID_OTHERWISE {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(text_of_library(&error), text);
            assert_eq!(io_text(&error), text);
        }
    }
}
