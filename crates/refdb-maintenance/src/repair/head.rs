//! What `HEAD` was, as far as its reflog and the branches tell.

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::{ObjectId, RefFormat, RefNameBuf, Result, Target};
use refdb_git::internals::GITS_FOLDER;

use super::Plan;

/// What is said of a `HEAD` of which nobody knows what it was, as a file and in a stack.
const UNKNOWN: &str = "nobody knows which branch it was on: write it by hand, as in \
                       echo 'ref: refs/heads/<branch>' >HEAD";
const UNKNOWN_OF_TABLES: &str = "nobody knows which branch HEAD was on: set it by hand in that worktree, as in \
                                 'refdb symbolic-ref HEAD refs/heads/<branch>'";

/// An entry of a reflog, as far as it is needed here.
pub(super) struct Entry {
    pub(super) new: ObjectId,
    pub(super) message: BString,
}

/// Returns the branch that these entries, oldest first, leave `HEAD` on; `None` if they do not say,
/// and an empty name if it is on none.
pub(super) fn branch_of(entries: &[Entry]) -> Option<Vec<u8>> {
    for entry in entries.iter().rev() {
        let message = entry.message.as_bytes();
        if let Some(moved) = message.strip_prefix(b"checkout: moving from ") {
            let at = moved.rfind(b" to ").map_or(moved.len(), |at| at + 4);
            let to = moved.get(at..).unwrap_or_default();
            return Some([b"refs/heads/", to].concat());
        }
        if let Some(renamed) = message.strip_prefix(b"Branch: renamed ") {
            let at = renamed.rfind(b" to ").map_or(renamed.len(), |at| at + 4);
            return Some(renamed.get(at..).unwrap_or_default().to_vec());
        }
        // Others may write a message that begins with the word.
        let of_git = ["rebase (", "rebase -", "rebase finished"];
        if of_git
            .iter()
            .any(|start| message.starts_with(start.as_bytes()))
        {
            let to = message.split_once_str(" returning to ");
            return Some(to.map_or_else(Vec::new, |(_, name)| name.to_vec()));
        }
    }
    None
}

impl Plan<'_> {
    /// Returns what `HEAD` was, by its reflog, oldest entry first; `None` if nothing tells. `value`
    /// gives what a branch holds.
    pub(super) fn head_was(
        &mut self,
        entries: &[Entry],
        value: &dyn Fn(&[u8]) -> Option<ObjectId>,
    ) -> Result<Option<Target>> {
        let symbolic = |name: &[u8]| RefNameBuf::new(name).ok().map(Target::Symbolic);
        let ids: Vec<ObjectId> = entries.iter().map(|entry| entry.new).collect();
        let last = self.newest(b"HEAD", &ids)?;
        if let Some(branch) = branch_of(entries) {
            if is_well_formed(&branch, FormatOptions::FULL) && value(&branch).is_some() {
                return Ok(symbolic(&branch));
            }
            return Ok(last.map(Target::Direct));
        }
        let config = self.repository.config();
        let configured = config.get("init.defaultBranch").and_then(|entry| {
            let value = entry.value()?;
            Some([b"refs/heads/", value.as_bytes()].concat())
        });
        let mut usual = vec![b"refs/heads/main".to_vec(), b"refs/heads/master".to_vec()];
        usual.extend(configured);
        usual.retain(|name| is_well_formed(name, FormatOptions::FULL));
        usual.sort();
        usual.dedup();
        usual.retain(|name| match (last, value(name)) {
            (Some(last), Some(value)) => last == value,
            (None, value) => value.is_some(),
            (Some(_), None) => false,
        });
        match (usual.as_slice(), last) {
            ([name], _) => Ok(symbolic(name)),
            (_, last) => Ok(last.map(Target::Direct)),
        }
    }

    /// Notes what was made of a damaged `HEAD`, which nobody can be certain about.
    pub(super) fn note_head(&mut self, path: &std::path::Path, found: Option<&Target>) {
        match found {
            None => {
                let dir = path.parent().unwrap_or(path);
                let entries = self.repository.system().read_dir(dir).unwrap_or_default();
                let mut names = entries.iter().map(|entry| entry.name.as_bstr());
                // Git has removed all refs, and could not put the new ones into their place.
                let gits = names.find(|name| name.starts_with(GITS_FOLDER.as_bytes()));
                let unknown = match self.repository.ref_format() {
                    RefFormat::Files => UNKNOWN,
                    RefFormat::Reftable => UNKNOWN_OF_TABLES,
                };
                let what = gits.map_or(unknown.to_owned(), |name| {
                    format!("{unknown}; a migration by Git that failed has left refs in '{name}'")
                });
                self.note(path, &what);
            }
            Some(Target::Symbolic(name)) => {
                let name = name.as_bytes().as_bstr();
                self.note(
                    path,
                    &format!("HEAD was put on '{name}': see whether that is right"),
                );
            }
            Some(Target::Direct(oid)) => {
                let what = format!("HEAD was put on {oid} and no branch, as its reflog says last");
                self.note(path, &what);
            }
        }
    }
}
