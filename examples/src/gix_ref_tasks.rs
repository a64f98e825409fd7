//! The tasks with gix-ref, in `files`.

use gix_hash::ObjectId;
use gix_lock::acquire::Fail;
use gix_ref::transaction::{PreviousValue, RefEdit};
use gix_ref::{FullName, Target, file::Store};

use crate::Result;

/// Open a repository.
pub fn open(git_dir: &std::path::Path) -> Result<Store> {
    let options = gix_ref::store::init::Options::default();
    Ok(Store::at_opts(
        git_dir.to_owned(),
        gix_hash::Kind::Sha1,
        options,
    ))
}

/// Returns who is named in reflogs: the library reads no configuration.
fn committer() -> gix_actor::SignatureRef<'static> {
    gix_actor::SignatureRef {
        name: "A".into(),
        email: "a@example.org".into(),
        time: "1700000000 +0000",
    }
}

/// Carries edits out.
fn carry_out(store: &Store, edits: Vec<RefEdit>) -> Result<()> {
    let fail = Fail::Immediately;
    let prepared = store.transaction().prepare(edits, fail, fail)?;
    prepared.commit(committer())?;
    Ok(())
}

/// Which branch is checked out?
pub fn checked_out(store: &Store) -> Result<Option<String>> {
    let head = store.try_find("HEAD")?;
    Ok(match head.map(|head| head.target) {
        Some(Target::Symbolic(branch)) => Some(branch.to_string()),
        _ => None,
    })
}

/// Which commit is a branch at?
pub fn tip(store: &Store, name: &str) -> Result<Option<String>> {
    // A symref has to be followed by the caller.
    let found = store.try_find(name)?;
    Ok(found.and_then(|found| found.target.try_id().map(|id| id.to_string())))
}

/// List all branches, with what they lead to.
pub fn branches(store: &Store) -> Result<Vec<(String, String)>> {
    let platform = store.iter()?;
    let mut list = Vec::new();
    for reference in platform.prefixed("refs/heads/".try_into()?)? {
        let reference = reference?;
        if let Some(id) = reference.target.try_id() {
            list.push((reference.name.to_string(), id.to_string()));
        }
    }
    Ok(list)
}

/// Create a branch, unless it exists.
pub fn create(store: &Store, name: &str, id: &str) -> Result<bool> {
    let (name, id) = (
        FullName::try_from(name)?,
        ObjectId::from_hex(id.as_bytes())?,
    );
    let edit = RefEdit::update(name, id, PreviousValue::MustNotExist, "branch: created");
    // That it exists, and that the disk is full, are errors alike.
    Ok(carry_out(store, vec![edit]).is_ok())
}

/// Move a branch, if it is still where it was seen.
pub fn advance(store: &Store, name: &str, from: &str, to: &str) -> Result<bool> {
    let [from, to] = [from, to].map(|id| ObjectId::from_hex(id.as_bytes()));
    let expected = PreviousValue::MustExistAndMatch(Target::Object(from?));
    let edit = RefEdit::update(FullName::try_from(name)?, to?, expected, "push");
    Ok(carry_out(store, vec![edit]).is_ok())
}

/// Delete a branch with its reflog.
pub fn delete(store: &Store, name: &str) -> Result<()> {
    let edit = RefEdit::delete(FullName::try_from(name)?, PreviousValue::Any);
    carry_out(store, vec![edit])
}

/// Create several tags, all or none: unless the process dies meanwhile.
pub fn several(store: &Store, names: &[&str], id: &str) -> Result<bool> {
    let id = ObjectId::from_hex(id.as_bytes())?;
    let mut edits = Vec::new();
    for name in names {
        let name = FullName::try_from(*name)?;
        edits.push(RefEdit::update(name, id, PreviousValue::MustNotExist, ""));
    }
    Ok(carry_out(store, edits).is_ok())
}

/// Rename a branch; its reflog is lost, as there is no call for it.
pub fn rename(store: &Store, from: &str, to: &str) -> Result<()> {
    let id = store
        .find(from)?
        .target
        .try_into_id()
        .map_err(|_| "a symref")?;
    let seen = PreviousValue::MustExistAndMatch(Target::Object(id));
    let (from, to) = (FullName::try_from(from)?, FullName::try_from(to)?);
    let new = RefEdit::update(to, id, PreviousValue::MustNotExist, "branch: renamed");
    carry_out(store, vec![new, RefEdit::delete(from, seen)])
}

/// Check another branch out, as far as HEAD is concerned.
pub fn switch(store: &Store, name: &str) -> Result<()> {
    let target = Target::Symbolic(FullName::try_from(name)?);
    let head = FullName::try_from("HEAD")?;
    carry_out(
        store,
        vec![RefEdit::update(
            head,
            target,
            PreviousValue::Any,
            "checkout",
        )],
    )
}

/// Where has a branch been, and why? The newest entry comes first.
pub fn history(store: &Store, name: &str) -> Result<Vec<(String, String)>> {
    let mut buffer = vec![0; 4096];
    let mut list = Vec::new();
    for line in store
        .reflog_iter_rev(name, &mut buffer)?
        .into_iter()
        .flatten()
    {
        let line = line?;
        list.push((line.new_oid.to_string(), line.message.to_string()));
    }
    Ok(list)
}
