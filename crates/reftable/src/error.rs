//! The one error type of this crate.
//!
//! What the caller should do follows from the [`ErrorKind`]; the text is for people and names the
//! place in the file where there is one.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// The result of every operation that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by what the caller can do about it.
///
/// ```
/// use reftable::{ErrorKind, Table};
/// let error = Table::open(b"not a table".as_slice()).err().unwrap();
/// assert_eq!(error.kind(), ErrorKind::Corrupt);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are no valid table: restore the file, or verify the repository.
    Corrupt,
    /// A record does not fit a block: write with a larger block size, or refuse the record.
    EntryTooLarge,
    /// The caller broke a rule of this interface, such as the order of records.
    Misuse,
    /// The sink of a writer failed; the cause is the error's source.
    Io,
}

/// An error of this crate: its kind, the file offset it concerns, and what is wrong there.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    offset: Option<u64>,
    message: Cow<'static, str>,
    source: Option<io::Error>,
    table: Option<Box<str>>,
}

impl Error {
    #[cold]
    pub(crate) fn corrupt(offset: u64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, Some(offset), message.into(), None)
    }

    #[cold]
    pub(crate) fn too_large(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::EntryTooLarge, None, message.into(), None)
    }

    #[cold]
    pub(crate) fn misuse(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Misuse, None, message.into(), None)
    }

    fn new(
        kind: ErrorKind,
        offset: Option<u64>,
        message: Cow<'static, str>,
        source: Option<io::Error>,
    ) -> Self {
        Error(Box::new(Inner {
            kind,
            offset,
            message,
            source,
            table: None,
        }))
    }

    /// Says which table the error concerns, unless that has been said.
    pub(crate) fn in_table(mut self, label: &str) -> Self {
        if !label.is_empty() {
            self.0.table.get_or_insert_with(|| label.into());
        }
        self
    }

    /// Forgets the label, for a caller that names the table in a way of its own.
    #[must_use]
    pub fn without_table(mut self) -> Self {
        self.0.table = None;
        self
    }

    /// Returns the label of the table that the error concerns, if it has one
    /// ([`Table::labelled`](crate::Table::labelled)).
    #[must_use]
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }

    /// Returns what the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns what is wrong, without the place and the kind: for those who tell these in a way of their
    /// own, and for small programs, into which printing would bring more than reading a table does.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the file offset in bytes that the error concerns, if it concerns one.
    ///
    /// For a fault inside a compressed block this is where the block starts.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::new(
            ErrorKind::Io,
            None,
            "cannot write the table".into(),
            Some(source),
        )
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(table) = &inner.table {
            write!(f, "{table}: ")?;
        }
        match inner.kind {
            ErrorKind::Corrupt => write!(f, "corrupt reftable: {}", inner.message)?,
            ErrorKind::EntryTooLarge => write!(f, "entry too large: {}", inner.message)?,
            ErrorKind::Misuse => write!(f, "misuse of the reftable interface: {}", inner.message)?,
            ErrorKind::Io => f.write_str(&inner.message)?,
        }
        if let Some(offset) = inner.offset {
            write!(f, " (at offset {offset})")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
