//! Decorations: the refs that lead to a commit, as they are shown beside it.

use std::collections::HashMap;

use refdb::name::is_per_worktree;
use refdb::objects::{Objects, Peeled};
use refdb::{ObjectId, RefName};
use refdb_git::Repository;

use crate::context::{Context, resolve_listed};
use crate::failure::Result;
use crate::pager::somebody_looks;

/// What is shown of the names of refs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Decorate {
    /// Nothing is shown.
    #[default]
    No,
    /// Without the part that tells of what kind a ref is.
    Short,
    /// The whole name.
    Full,
}

impl Decorate {
    /// Short where somebody looks, none where a program reads.
    pub(super) fn on_terminals() -> Decorate {
        match somebody_looks() {
            true => Decorate::Short,
            false => Decorate::No,
        }
    }

    /// What `log.decorate` says.
    pub(super) fn configured(repository: &Repository) -> Decorate {
        let config = repository.config();
        match config.get("log.decorate").map(|entry| entry.value()) {
            None => Decorate::on_terminals(),
            Some(Some(setting)) if setting == "auto" => Decorate::on_terminals(),
            Some(Some(setting)) if setting == "full" => Decorate::Full,
            Some(Some(setting)) if setting == "short" => Decorate::Short,
            Some(_) => match config.boolean("log.decorate") {
                Ok(Some(true)) => Decorate::Short,
                _ => Decorate::No,
            },
        }
    }
}

/// The refs of each commit, in the order in which they are shown.
pub(super) struct Decorations {
    names: HashMap<ObjectId, Vec<Vec<u8>>>,
}

impl Decorations {
    /// Reads all refs.
    pub(super) fn read(context: &Context, style: Decorate) -> Result<Decorations> {
        let store = context.store()?;
        let mut names: HashMap<ObjectId, Vec<Vec<u8>>> = HashMap::new();
        let head = resolve_listed(store, RefName::HEAD)?;
        let branch = head.filter(|head| head.name.as_bytes().starts_with(b"refs/heads/"));
        let branch = branch.map(|head| head.name);
        let mut listed = Vec::new();
        let mut refs = store.refs()?;
        refs.seek_prefix(b"refs/")?;
        while let Some(record) = refs.next()? {
            if !record.broken && !is_per_worktree(record.name.as_bytes()) {
                listed.push(record.name.to_owned());
            }
        }
        let shown = |name: &[u8]| match style {
            Decorate::Full => name.to_vec(),
            Decorate::No | Decorate::Short => short(name).to_vec(),
        };
        // The last one is shown first, but for HEAD.
        for name in listed.iter().rev() {
            let Some(tag) = kind(name.as_bytes()) else {
                continue;
            };
            if branch.as_ref() == Some(name) {
                continue;
            }
            let Some(end) = resolve_listed(store, name.as_name())? else {
                continue;
            };
            let mut text = tag.as_bytes().to_vec();
            text.extend(shown(name.as_bytes()));
            if let Peeled::To(peeled) = context.odb()?.peel(end.oid)? {
                names.entry(peeled).or_default().push(text);
            } else {
                names.entry(end.oid).or_default().push(text);
            }
        }
        if let Some(end) = store.resolve(RefName::HEAD)? {
            let mut text = b"HEAD".to_vec();
            if let Some(branch) = &branch {
                text.extend_from_slice(b" -> ");
                text.extend(shown(branch.as_bytes()));
            }
            names.entry(end.oid).or_default().insert(0, text);
        }
        Ok(Decorations { names })
    }

    /// Appends the refs of a commit between `before` and `after`, or nothing if there are none.
    pub(super) fn push(&self, oid: ObjectId, before: &str, after: &str, out: &mut Vec<u8>) {
        let Some(names) = self.names.get(&oid) else {
            return;
        };
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(&names.join(b", ".as_slice()));
        out.extend_from_slice(after.as_bytes());
    }
}

/// Returns what stands before a name of this kind; `None` for refs that are not shown.
fn kind(name: &[u8]) -> Option<&'static str> {
    if name.starts_with(b"refs/tags/") {
        return Some("tag: ");
    }
    let is_shown = name.starts_with(b"refs/heads/")
        || name.starts_with(b"refs/remotes/")
        || name == b"refs/stash";
    is_shown.then_some("")
}

fn short(name: &[u8]) -> &[u8] {
    ["refs/heads/", "refs/tags/", "refs/remotes/"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix.as_bytes()))
        .unwrap_or(name)
}
