//! What an error says, and what it is about.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use refdb_names::internals::owned_from_disk;
use refdb_names::{RefName, RefNameBuf};

/// The text of an error for a person, and what it is about for a program.
///
/// It can be read as a text. What a program shows in its own way (a path, a way out) it takes from
/// the fields.
///
/// ```
/// use refdb::error::{Message, Remedy};
/// let message = Message::from("tables.list: the last line is not terminated");
/// assert!(message.starts_with("tables.list"));
/// assert_eq!(message.remedy(), None::<Remedy>);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub(super) text: String,
    name: Option<RefNameBuf>,
    path: Option<PathBuf>,
    pub(super) role: Role,
    remedy: Option<Remedy>,
    is_held: bool,
}

/// What the path of a message is to its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A file that could not be read or written, or is damaged.
    #[default]
    File,
    /// The place of a ref or of a reflog that something keeps from being made, changed or removed.
    Place,
    /// A file in the way, which a person may have to remove: the whole path is of use.
    InTheWay,
    /// The file `packed-refs`, which cannot be read: no packed ref is known.
    PackedRefs,
}

/// What can be done about an error beside what its kind says. The message leaves it to the caller to
/// say how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// The refs are damaged: a deep check tells all that is wrong, a repair mends what can be mended.
    Repair,
    /// The refs on a place that machines share are damaged: a check of the store tells all that is wrong, a
    /// repair of the store mends what can be mended.
    RepairStore,
    /// A lock was made by a process of which nobody can tell whether it runs: if it does not, a
    /// repair that removes locks finishes what it began.
    RemoveLocks,
    /// A transaction that was committed cannot be finished: what keeps it from that can be removed, or a
    /// repair gives up what cannot be done of it.
    GiveUp,
    /// An object is replaced in a circle, so that none is read for it: one of the refs below `refs/replace/` that say so
    /// can be deleted.
    EndReplacement,
}

impl Message {
    /// Says which path the message is about, and what that is to its reader.
    pub fn of(mut self, path: &Path, role: Role) -> Self {
        self.path = Some(path.to_owned());
        self.role = role;
        self
    }

    /// Says which ref is in the way.
    pub(crate) fn naming(mut self, existing: &[u8]) -> Self {
        self.name = Some(owned_from_disk(existing.to_vec()));
        self
    }

    /// Adds what can be done.
    pub fn with(mut self, remedy: impl Into<Option<Remedy>>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Says that what is in the way is a lock that somebody holds.
    pub(crate) fn held(mut self) -> Self {
        self.is_held = true;
        self
    }

    /// Puts words before the text; it stays about the same.
    pub(crate) fn after(self, words: impl fmt::Display) -> Self {
        Message {
            text: Message::from(format!("{words}{}", self.text)).text,
            ..self
        }
    }

    /// Returns the ref that is in the way of the one that was to be changed.
    pub fn name(&self) -> Option<RefName<'_>> {
        self.name.as_ref().map(RefNameBuf::as_name)
    }

    /// Returns the path that the message is about. It stands in the text as it is displayed.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns what the path is to the reader.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns whether what is in the way is a lock that somebody holds, so that the same may come off
    /// later. An edit that is refused for it has no [`Reason`](crate::Reason) of its own.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns what can be done.
    pub fn remedy(&self) -> Option<Remedy> {
        self.remedy
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        #[cfg(any(test, feature = "rewording"))]
        let text = rewording::apply(text);
        Message {
            text,
            ..Message::default()
        }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Message::from(text.to_owned())
    }
}

impl Deref for Message {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T: AsRef<str> + ?Sized> PartialEq<T> for Message {
    fn eq(&self, text: &T) -> bool {
        self.text == text.as_ref()
    }
}

#[cfg(any(test, feature = "rewording"))]
pub use rewording::reword;

/// For tests: every message in other words, so that whoever looks for words in one is found out.
#[cfg(any(test, feature = "rewording"))]
mod rewording {
    use std::sync::OnceLock;

    static WORDS: OnceLock<fn(&str) -> String> = OnceLock::new();

    /// Replaces the text of every message that this process makes from now on.
    pub fn reword(with: fn(&str) -> String) {
        // The first one stays.
        let _ = WORDS.set(with);
    }

    pub(super) fn apply(text: String) -> String {
        WORDS.get().map_or(text.clone(), |with| with(&text))
    }
}
