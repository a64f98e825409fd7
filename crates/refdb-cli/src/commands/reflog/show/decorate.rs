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
        let head = head.filter(|head| head.name.as_bytes().starts_with(b"refs/heads/"));
        // A branch that is a tag is shown as one, beside HEAD.
        let branch = match head {
            Some(head) if !leads_to(context, head.oid)?.1 => Some(head.name),
            _ => None,
        };
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
            if !is_shown(name.as_bytes()) || branch.as_ref() == Some(name) {
                continue;
            }
            let Some(end) = resolve_listed(store, name.as_name())? else {
                continue;
            };
            let (end, is_tag) = leads_to(context, end.oid)?;
            let is_tag = is_tag || name.as_bytes().starts_with(b"refs/tags/");
            let text = [mark(is_tag), &shown(name.as_bytes())].concat();
            names.entry(end).or_default().push(text);
        }
        if let Some(end) = store.resolve(RefName::HEAD)? {
            let (end, is_tag) = leads_to(context, end.oid)?;
            let mut text = [mark(is_tag), b"HEAD"].concat();
            if let Some(branch) = &branch {
                text.extend_from_slice(b" -> ");
                text.extend(shown(branch.as_bytes()));
            }
            names.entry(end).or_default().insert(0, text);
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

/// Returns the object beside which a ref is shown, and whether it leads there through tags.
fn leads_to(context: &Context, oid: ObjectId) -> Result<(ObjectId, bool)> {
    Ok(match context.odb()?.peel(oid)? {
        Peeled::To(end) => (end, true),
        Peeled::Itself | Peeled::Nowhere | Peeled::Missing => (oid, false),
    })
}

/// Returns what stands before a name.
fn mark(is_tag: bool) -> &'static [u8] {
    if is_tag { b"tag: " } else { b"" }
}

fn is_shown(name: &[u8]) -> bool {
    name == b"refs/stash"
        || ["refs/heads/", "refs/tags/", "refs/remotes/"]
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
}

fn short(name: &[u8]) -> &[u8] {
    ["refs/heads/", "refs/tags/", "refs/remotes/"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix.as_bytes()))
        .unwrap_or(name)
}
