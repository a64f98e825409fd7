//! Why a question is not answered: words that programs read, and a text for people.

use refdb::{ErrorKind, Reason};

use crate::failure::{Failure, Words};

/// Why a question has no other answer.
pub(super) enum Trouble {
    /// The question is answered with it, and the next one comes.
    Told {
        /// The word of the protocol.
        kind: &'static str,
        /// For people.
        text: Vec<u8>,
    },
    /// The command ends.
    Ends(Failure),
}

/// The word for refs that are in another format by now.
pub(super) const MOVED: &str = "moved";

impl Trouble {
    /// Says what is wrong with a question.
    pub(super) fn usage(text: impl Into<Vec<u8>>) -> Self {
        let (kind, text) = ("usage", text.into());
        Trouble::Told { kind, text }
    }

    /// Says why an edit cannot be read.
    pub(super) fn of_edit(failure: Failure) -> Self {
        match failure {
            Failure::Fatal(Words { text, .. }) => Trouble::usage(text),
            Failure::Moved(Words { text, .. }) => Trouble::Told { kind: MOVED, text },
            Failure::Error { message, .. } | Failure::Advised { message, .. } => {
                Trouble::usage(message.text)
            }
            Failure::Misconfigured { cause, .. } => Trouble::Told {
                kind: "config",
                text: cause.text,
            },
            other => Trouble::Ends(other),
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Ends(failure)
    }
}

impl From<refdb::InvalidName> for Trouble {
    fn from(error: refdb::InvalidName) -> Self {
        refdb::Error::from(error).into()
    }
}

impl From<refdb::Error> for Trouble {
    fn from(error: refdb::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Interrupted => return Trouble::Ends(Failure::from(error)),
            ErrorKind::Io => "io",
            ErrorKind::Locked => "locked",
            ErrorKind::Corrupt | ErrorKind::PackedRefs => "corrupt",
            ErrorKind::BrokenRef => "broken",
            ErrorKind::InvalidName => "name",
            ErrorKind::Rejected => "rejected",
            ErrorKind::Config | ErrorKind::Date => "config",
            ErrorKind::Hook => "hook",
            ErrorKind::Misuse => "usage",
            ErrorKind::Overtaken => "overtaken",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Moved => MOVED,
            _ => "other",
        };
        let text = Words::from(&error).text;
        Trouble::Told { kind, text }
    }
}

/// Returns the word for why an edit was refused.
pub(super) fn word_of(reason: Reason) -> &'static str {
    match reason {
        Reason::NameConflict => "name-conflict",
        Reason::CreateExists => "exists",
        Reason::NonexistentRef => "missing",
        Reason::IncorrectOldValue => "old-value",
        Reason::InvalidNewValue => "new-value",
        Reason::ExpectedSymref => "not-symref",
        Reason::CaseConflict => "case-conflict",
        _ => "other",
    }
}
