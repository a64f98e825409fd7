//! Git's checks of refs by name, and how bad each is: by default, under `--strict`, and as the
//! `fsck.*` variables say.

use bstr::{BStr, ByteSlice};
use refdb::internals::is_space;
use refdb::{Error, ErrorKind, ObjectId, Result};
use refdb_git::Repository;
use refdb_git::repository::config::Scope;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Warning,
    /// Damage.
    Error,
}

/// Makes the enumeration of the checks from one table.
macro_rules! message_ids {
    ($($(#[$doc:meta])* $id:ident $name:literal $default:ident;)+) => {
        /// A check that Git makes on refs, under Git's name for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum MessageId {
            $($(#[$doc])* $id,)+
        }

        impl MessageId {
            const ALL: &'static [MessageId] = &[$(MessageId::$id,)+];

            /// Returns Git's name, as it stands in findings and behind `fsck.`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(MessageId::$id => $name,)+
                }
            }

            const fn default_level(self) -> Level {
                match self {
                    $(MessageId::$id => Level::$default,)+
                }
            }
        }
    };
}

/// What Git sets a check to where nobody sets it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Info,
    Warn,
    Error,
}

message_ids! {
    /// `HEAD` is a symref to something else than a branch.
    BadHeadTarget "badHeadTarget" Error;
    /// A line of packed-refs is no ref.
    BadPackedRefEntry "badPackedRefEntry" Error;
    /// The header of packed-refs is none.
    BadPackedRefHeader "badPackedRefHeader" Error;
    /// A loose ref holds neither an object id nor a symref.
    BadRefContent "badRefContent" Error;
    /// What should be a file is something else.
    BadRefFiletype "badRefFiletype" Error;
    /// A name breaks the rules.
    BadRefName "badRefName" Error;
    /// A ref holds the null id.
    BadRefOid "badRefOid" Error;
    /// A symref points to what is no name of a ref.
    BadReferentName "badReferentName" Error;
    /// A table is not named like one.
    BadReftableTableName "badReftableTableName" Warn;
    /// packed-refs has no content.
    EmptyPackedRefsFile "emptyPackedRefsFile" Info;
    /// A line of packed-refs has no end.
    PackedRefEntryNotTerminated "packedRefEntryNotTerminated" Error;
    /// packed-refs says that it is sorted, and is not.
    PackedRefUnsorted "packedRefUnsorted" Error;
    /// A loose ref does not end with a line feed.
    RefMissingNewline "refMissingNewline" Info;
    /// A symref is a symbolic link.
    SymlinkRef "symlinkRef" Info;
    /// A symref points out of `refs/`.
    SymrefTargetIsNotARef "symrefTargetIsNotARef" Info;
    /// A loose ref goes on behind its content.
    TrailingRefContent "trailingRefContent" Info;
}

/// The checks that Git makes on objects, in lower case: their variables stand beside those of refs
/// and must be known, if only to tell them from mistakes.
const OF_OBJECTS: &[&str] = &[
    "baddate",
    "baddateoverflow",
    "bademail",
    "badfilemode",
    "badgpgsig",
    "badheadercontinuation",
    "badname",
    "badobjectsha1",
    "badparentsha1",
    "badtagname",
    "badtimezone",
    "badtree",
    "badtreesha1",
    "badtype",
    "duplicateentries",
    "emptyname",
    "extraheaderentry",
    "fullpathname",
    "gitattributesblob",
    "gitattributeslarge",
    "gitattributeslinelength",
    "gitattributesmissing",
    "gitattributessymlink",
    "gitignoresymlink",
    "gitmodulesblob",
    "gitmoduleslarge",
    "gitmodulesmissing",
    "gitmodulesname",
    "gitmodulesparse",
    "gitmodulespath",
    "gitmodulessymlink",
    "gitmodulesupdate",
    "gitmodulesurl",
    "hasdot",
    "hasdotdot",
    "hasdotgit",
    "largepathname",
    "mailmapsymlink",
    "missingauthor",
    "missingcommitter",
    "missingemail",
    "missingnamebeforeemail",
    "missingobject",
    "missingspacebeforedate",
    "missingspacebeforeemail",
    "missingtag",
    "missingtagentry",
    "missingtaggerentry",
    "missingtree",
    "missingtype",
    "missingtypeentry",
    "multipleauthors",
    "nulincommit",
    "nulinheader",
    "nullsha1",
    "treenotsorted",
    "unknowntype",
    "unterminatedheader",
    "zeropaddeddate",
    "zeropaddedfilemode",
];

/// The checks that cannot be set to less than an error.
const FATAL: &[&str] = &["nulinheader", "unterminatedheader"];

/// How bad each of Git's checks is in one repository.
#[derive(Clone, Debug)]
pub struct Severities {
    strict: bool,
    /// What was set, the last setting last; `None` silences the check.
    set: Vec<(MessageId, Option<Severity>)>,
}

impl Severities {
    /// Git's own settings; `strict` makes errors of warnings (not of mere information).
    pub fn new(strict: bool) -> Severities {
        Severities {
            strict,
            set: Vec::new(),
        }
    }

    /// Git's own settings, changed by the `fsck.*` variables of the repository.
    ///
    /// `fsck.skipList` is about objects: it is read, so that a mistake in it is told, and has no
    /// bearing on refs, as in Git.
    ///
    /// # Errors
    /// `Config` for a variable that names no check, for a value that is none of `error`, `warn` and
    /// `ignore`, and for a list that cannot be read.
    pub fn from_config(repository: &Repository, strict: bool) -> Result<Severities> {
        let mut severities = Severities::new(strict);
        for entry in repository.config().entries() {
            let Some(name) = entry.key().strip_prefix(b"fsck.") else {
                continue;
            };
            let Some(value) = entry.value() else {
                let missing = refused(format!("missing value for '{}'", entry.key()));
                return Err(missing.with_variable(entry.key()));
            };
            if name == b"skiplist" {
                read_skip_list(repository, value, entry.scope())?;
            } else {
                severities.set(name.as_bstr(), value)?;
            }
        }
        Ok(severities)
    }

    /// Sets the check `name`, in lower case, to `value`.
    fn set(&mut self, name: &BStr, value: &BStr) -> Result<()> {
        let known = MessageId::ALL
            .iter()
            .find(|id| id.name().to_ascii_lowercase().as_bytes() == name.as_bytes());
        let is = |names: &[&str]| {
            names
                .iter()
                .any(|known| known.as_bytes() == name.as_bytes())
        };
        if known.is_none() && !is(OF_OBJECTS) {
            return Err(refused(format!("Unhandled message id: {name}")));
        }
        let mut word = value;
        if name == "largepathname"
            && let Some(colon) = value.find_byte(b':')
        {
            let (before, number) = value.split_at(colon);
            let number = number.get(1..).unwrap_or_default();
            if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
                let number = number.as_bstr();
                return Err(refused(format!(
                    "unable to parse max tree entry len: {number}"
                )));
            }
            word = before.as_bstr();
        }
        let severity = match word.as_bytes() {
            b"error" => Some(Severity::Error),
            b"warn" => Some(Severity::Warning),
            b"ignore" => None,
            _ => return Err(refused(format!("Unknown fsck message type: '{word}'"))),
        };
        if severity != Some(Severity::Error) && is(FATAL) {
            return Err(refused(format!("Cannot demote {name} to {word}")));
        }
        self.set.extend(known.map(|id| (*id, severity)));
        Ok(())
    }

    /// Returns how bad a finding of this check is; `None` if it is not to be told.
    pub fn of(&self, id: MessageId) -> Option<Severity> {
        match self.set.iter().rev().find(|set| set.0 == id) {
            Some((_, severity)) => *severity,
            None => Some(match id.default_level() {
                Level::Error => Severity::Error,
                Level::Warn if self.strict => Severity::Error,
                Level::Warn | Level::Info => Severity::Warning,
            }),
        }
    }
}

/// Reads a list of object ids, each on its line, with comments behind `#`. Behind `:(optional)` it
/// may be missing.
fn read_skip_list(repository: &Repository, value: &BStr, scope: Scope) -> Result<()> {
    let optional = value.strip_prefix(b":(optional)");
    let value = optional.map_or(value, ByteSlice::as_bstr);
    let Some(path) = repository.config().expand_home(value) else {
        return Err(refused(format!("failed to expand user dir in: '{value}'")));
    };
    let stat = repository.system().stat(&path);
    let is_missing = stat.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if optional.is_some() && is_missing {
        return Ok(());
    }
    let content = scope.read(repository.system().as_ref(), &path);
    let content = content.map_err(|_| {
        let path = path.display();
        refused(format!("could not open object name list: {path}"))
    })?;
    for line in content.split(|&byte| byte == b'\n') {
        let text = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let end = text.iter().rposition(|&byte| !is_space(byte));
        let text = end.and_then(|end| text.get(..=end)).unwrap_or_default();
        let oid = ObjectId::from_hex(text);
        if !text.is_empty() && oid.is_none_or(|oid| oid.format() != repository.object_format()) {
            let text = text.as_bstr();
            return Err(refused(format!("invalid object name: {text}")));
        }
    }
    Ok(())
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_makes_errors_of_warnings_unless_they_were_set() {
        let name = MessageId::BadReftableTableName;
        let mut strict = Severities::new(true);
        assert_eq!(Severities::new(false).of(name), Some(Severity::Warning));
        assert_eq!(strict.of(name), Some(Severity::Error));
        assert_eq!(strict.of(MessageId::SymlinkRef), Some(Severity::Warning));
        strict
            .set("badreftabletablename".into(), "warn".into())
            .unwrap();
        assert_eq!(strict.of(name), Some(Severity::Warning));
        strict
            .set("badreftabletablename".into(), "ignore".into())
            .unwrap();
        assert_eq!(strict.of(name), None);
    }

    #[test]
    fn mistakes_in_the_configuration_are_told() {
        let set = |name: &str, value: &str| {
            let error = Severities::new(false).set(name.into(), value.into());
            error.err().map(|error| error.to_string())
        };
        assert_eq!(set("baddate", "ignore"), None);
        assert_eq!(set("largepathname", "warn:10"), None);
        for (name, value, message) in [
            ("foo", "warn", "Unhandled message id: foo"),
            ("badrefoid", "ERROR", "Unknown fsck message type: 'ERROR'"),
            ("nulinheader", "warn", "Cannot demote nulinheader to warn"),
            (
                "largepathname",
                "warn:x",
                "unable to parse max tree entry len: x",
            ),
        ] {
            assert_eq!(set(name, value).as_deref(), Some(message));
        }
    }
}
