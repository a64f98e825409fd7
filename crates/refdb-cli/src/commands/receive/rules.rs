//! What a repository refuses, in Git's words and in Git's order: names, `receive.deny*`, the hook `update`.
//!
//! Git leaves all of it to whoever takes the commands.

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, is_per_worktree, is_well_formed};
use refdb::objects::{ObjectKind, Objects};
use refdb::{ObjectId, RefName, Target};
use refdb_git::Repository;

use super::Asked;
use crate::failure::{Result, say};

/// What `receive.denyCurrentBranch` and its like say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deny {
    Unsaid,
    Ignore,
    Warn,
    Refuse,
}

/// What is refused here.
pub(super) struct Rules<'c> {
    repository: &'c Repository,
    /// What stands before the names that clients know.
    namespace: BString,
    deletes: bool,
    rewinds: bool,
    delete_current: Deny,
    current: Deny,
    /// What HEAD leads to.
    head: Option<BString>,
}

impl<'c> Rules<'c> {
    pub(super) fn of(repository: &'c Repository) -> Result<Rules<'c>> {
        let config = repository.config();
        let said = |key: &str| Ok::<bool, refdb::Error>(config.boolean(key)?.unwrap_or(false));
        let head = repository.store().read(RefName::HEAD)?;
        Ok(Rules {
            repository,
            namespace: repository.namespace()?,
            deletes: said("receive.denydeletes")?,
            rewinds: said("receive.denynonfastforwards")?,
            delete_current: deny(repository, "receive.denydeletecurrent")?,
            current: deny(repository, "receive.denycurrentbranch")?,
            head: head.and_then(|head| match head.target {
                Target::Symbolic(name) => Some(name.as_bytes().into()),
                Target::Direct(_) => None,
            }),
        })
    }

    /// Returns the name of a ref in the store.
    pub(super) fn full_name(&self, name: &[u8]) -> Vec<u8> {
        [self.namespace.as_slice(), name].concat()
    }

    /// Returns why a command is refused, if it is. The hook `update` is asked last.
    pub(super) fn refusal(&self, asked: &Asked) -> Result<Option<&'static str>> {
        let name = asked.name.as_bstr();
        let form = match asked.new.is_null() {
            true => FormatOptions::ONE_LEVEL,
            false => FormatOptions::FULL,
        };
        let is_fine = |below: &[u8]| is_well_formed(below, form);
        if !name.strip_prefix(b"refs/").is_some_and(is_fine) {
            return refuse(
                "funny refname",
                format!("refusing to update funny ref '{name}' remotely"),
            );
        }
        if is_per_worktree(name) {
            return refuse(
                "per-worktree ref",
                format!("'{name}' is of one worktree, and is kept in no store"),
            );
        }
        let is_head = self
            .head
            .as_ref()
            .is_some_and(|head| *head == self.full_name(name));
        if is_head && !asked.new.is_null() && !self.repository.is_bare() {
            match self.current {
                Deny::Ignore => {}
                Deny::Warn => say("warning", b"updating the current branch"),
                Deny::Refuse | Deny::Unsaid => {
                    let text = format!("refusing to update checked out branch: {name}");
                    return refuse("branch is currently checked out", text);
                }
            }
        }
        if let Some(refusal) = self.refused_objects(asked)? {
            return Ok(Some(refusal));
        }
        if asked.new.is_null() {
            if let Some(refusal) = self.refused_deletion(asked, is_head)? {
                return Ok(Some(refusal));
            }
        } else if let Some(refusal) = self.refused_rewind(asked)? {
            return Ok(Some(refusal));
        }
        let id = |oid: ObjectId| BString::from(oid.to_string());
        let args = [name.to_owned(), id(asked.old), id(asked.new)];
        if !self.repository.run_hooks("update", &args, b"")? {
            return refuse("hook declined", format!("hook declined to update {name}"));
        }
        Ok(None)
    }

    fn refused_objects(&self, asked: &Asked) -> Result<Option<&'static str>> {
        let (new, odb) = (asked.new, self.repository.odb());
        if !new.is_null() && odb.kind(new)?.is_none() {
            return refuse(
                "bad pack",
                format!("unpack should have generated {new}, but I can't find it!"),
            );
        }
        Ok(None)
    }

    fn refused_deletion(&self, asked: &Asked, is_head: bool) -> Result<Option<&'static str>> {
        let name = asked.name.as_bstr();
        if asked.old.is_null() {
            say("warning", b"deleting a non-existent ref");
            return Ok(None);
        }
        if self.deletes && name.starts_with(b"refs/heads/") {
            return refuse(
                "deletion prohibited",
                format!("denying ref deletion for {name}"),
            );
        }
        match self.delete_current {
            Deny::Warn if is_head => say("warning", b"deleting the current branch"),
            Deny::Refuse | Deny::Unsaid if is_head => {
                return refuse(
                    "deletion of the current branch prohibited",
                    format!("refusing to delete the current branch: {name}"),
                );
            }
            _ => {}
        }
        Ok(None)
    }

    fn refused_rewind(&self, asked: &Asked) -> Result<Option<&'static str>> {
        let (name, old, new) = (asked.name.as_bstr(), asked.old, asked.new);
        if !self.rewinds || old.is_null() || !name.starts_with(b"refs/heads/") {
            return Ok(None);
        }
        for oid in [old, new] {
            if self.repository.odb().kind(oid)? != Some(ObjectKind::Commit) {
                return refuse("bad ref", format!("bad objects for {name}"));
            }
        }
        let mut graph = self.repository.graph()?;
        let (old, new) = (graph.commit(old)?, graph.commit(new)?);
        match graph.is_ancestor(old, new)? {
            true => Ok(None),
            false => refuse(
                "non-fast-forward",
                format!("denying non-fast-forward {name} (you should pull first)"),
            ),
        }
    }
}

fn refuse(reason: &'static str, text: String) -> Result<Option<&'static str>> {
    say("error", text.as_bytes());
    Ok(Some(reason))
}

fn deny(repository: &Repository, key: &str) -> Result<Deny> {
    let config = repository.config();
    let Some(entry) = config.get(key) else {
        return Ok(Deny::Unsaid);
    };
    let word = entry.value().map(|value| value.to_ascii_lowercase());
    Ok(match word.as_deref() {
        None | Some(b"ignore") => Deny::Ignore,
        Some(b"warn") => Deny::Warn,
        // There is no work tree that could be updated along with it.
        Some(b"refuse" | b"updateinstead") => Deny::Refuse,
        Some(_) => match config.boolean(key)? {
            Some(true) => Deny::Refuse,
            _ => Deny::Ignore,
        },
    })
}
