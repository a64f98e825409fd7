//! After the switch: the old stores are put away, and nothing is left that looks like them.
//!
//! Every step can be done again: a process that died in the middle is finished by the next migration.

use std::path::Path;

use super::folder::{self, Folder};
use super::place::Place;
use super::{Context, switch};
use crate::backend::RefFormat;
use crate::backend::bulk::{BARRIER, Frozen};
use crate::error::{Error, Result};
use crate::name::{RefName, is_root_ref};
use crate::system::{FileKind, bytes_to_path};

/// Puts the old stores away. `frozen` are their locks, which processes still wait for that do not
/// know of the new format; returns what they wrote where it could not be carried over.
pub(super) fn finish(
    context: &Context,
    folder: &Folder,
    places: &[Place],
    to: RefFormat,
    frozen: &[Box<dyn Frozen>],
) -> Result<Vec<String>> {
    let system = context.system.as_ref();
    let old = folder.old();
    let mut warnings = Vec::new();
    for dir in [old.clone(), old.join("worktrees")] {
        if !folder::exists(system, &dir)? {
            context.create_dir(&dir)?;
        }
    }
    for (at, place) in places.iter().enumerate() {
        let old = old.join(&place.below);
        if !folder::exists(system, &old)? {
            context.create_dir(&old)?;
        }
        match to {
            RefFormat::Files => finish_files(context, place, &old)?,
            RefFormat::Reftable => {
                finish_reftable(context, place, &old)?;
                if let Some(frozen) = frozen.get(at) {
                    sweep(context, place, &old, frozen.as_ref(), &mut warnings)?;
                }
            }
        }
    }
    if to == RefFormat::Reftable {
        for place in places {
            remove_barriers(context, place)?;
        }
    }
    Ok(warnings)
}

/// Puts away a stack; its lock goes with it, so that it is never to be had again.
fn finish_files(context: &Context, place: &Place, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    put_away(context, &place.dir.join("reftable"), old, "reftable")?;
    if !place.is_common() {
        let heads = place.dir.join("refs/heads");
        if system
            .lstat(&heads)
            .is_ok_and(|stat| stat.kind == FileKind::File)
        {
            folder::remove_if_there(system, &heads)?;
        }
    }
    Ok(())
}

/// Puts away loose and packed refs and reflogs. A link that leads nowhere takes the place of each
/// directory, so that no process that takes the refs for files makes it anew.
fn finish_reftable(context: &Context, place: &Place, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    let refs = place.dir.join("refs");
    let old_refs = old.join("refs");
    for dir in [&refs, &old_refs] {
        if !folder::exists(system, dir)? {
            context.create_dir(dir)?;
        }
    }
    if put_away(context, &place.dir.join("logs"), old, "logs")? {
        bar(context, &place.dir.join("logs"))?;
    }
    let mut has_stub = false;
    for entry in folder::list(system, &refs)? {
        let path = refs.join(bytes_to_path(&entry.name));
        if is_barrier(context, &path) {
            continue;
        }
        if entry.name == b"heads" && entry.kind == FileKind::File {
            has_stub = true;
            continue;
        }
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        put_away(context, &path, &old_refs, &name)?;
        if entry.name != b"heads" {
            bar(context, &path)?;
        }
    }
    if !has_stub {
        let stub = old.join("heads.stub");
        folder::remove_if_there(system, &stub)?;
        context.write(&stub, switch::HEADS_STUB)?;
        context.rename(&stub, &refs.join("heads"))?;
    }
    put_away(context, &place.dir.join("packed-refs"), old, "packed-refs")?;
    for entry in folder::list(system, &place.dir)? {
        if entry.kind == FileKind::Directory || !is_root_ref(&entry.name) {
            continue;
        }
        let path = place.dir.join(bytes_to_path(&entry.name));
        if entry.name != b"HEAD" {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            put_away(context, &path, old, &name)?;
        } else if system.read(&path).ok().as_deref() != Some(switch::HEAD_STUB) {
            replace_head(context, &path, old)?;
        }
    }
    Ok(())
}

/// Replaces HEAD, which must be there at every moment, by the stub; what it said is kept.
fn replace_head(context: &Context, head: &Path, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    let copy = old.join("HEAD");
    folder::remove_if_there(system, &copy)?;
    let kept = system.hard_link(head, &copy);
    if kept.is_err() {
        let content = system
            .read(head)
            .map_err(|error| Error::io("unable to read", head, error))?;
        context.write(&copy, &content)?;
    }
    let stub = old.join("HEAD.stub");
    folder::remove_if_there(system, &stub)?;
    context.write(&stub, switch::HEAD_STUB)?;
    context.rename(&stub, head)
}

/// Moves something into `old` under a name that is free; returns whether it was there.
fn put_away(context: &Context, path: &Path, old: &Path, name: &str) -> Result<bool> {
    let system = context.system.as_ref();
    if !folder::exists(system, path)? || is_barrier(context, path) {
        return Ok(false);
    }
    let mut to = old.join(name);
    for number in 1_u32.. {
        if !folder::exists(system, &to)? {
            break;
        }
        to = old.join(format!("{name}.{number}"));
    }
    context.rename(path, &to)?;
    Ok(true)
}

fn is_barrier(context: &Context, path: &Path) -> bool {
    let text = context.system.read_link(path);
    text.is_ok_and(|text| text == Path::new(BARRIER))
}

fn bar(context: &Context, path: &Path) -> Result<()> {
    match context.system.symlink(Path::new(BARRIER), path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::io("unable to create", path, error))
        }
        // Somebody was faster, and is met by the sweep.
        _ => Ok(()),
    }
}

fn remove_barriers(context: &Context, place: &Place) -> Result<()> {
    let system = context.system.as_ref();
    let refs = place.dir.join("refs");
    let mut paths = vec![place.dir.join("logs")];
    for entry in folder::list(system, &refs)? {
        paths.push(refs.join(bytes_to_path(&entry.name)));
    }
    for path in paths {
        if is_barrier(context, &path) {
            folder::remove_if_there(system, &path)?;
        }
    }
    Ok(())
}

/// Carries over refs that others made in the last moment before the old store was put away: new names
/// in directories that had refs already. All other names were locked.
fn sweep(
    context: &Context,
    place: &Place,
    old: &Path,
    frozen: &dyn Frozen,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let mut found = Vec::new();
    new_names(context, &old.join("refs"), b"refs", frozen, &mut found)?;
    if found.is_empty() {
        return Ok(());
    }
    let source = context.store(old, RefFormat::Files)?;
    let target = context.store(&place.dir, RefFormat::Reftable)?;
    let mut late = std::collections::BTreeMap::new();
    for name in found {
        let name = RefName::from_disk(&name);
        let Ok(Some(value)) = source.read(name) else {
            // Not whole: whoever was writing it could not finish.
            continue;
        };
        match target.read(name)? {
            None => {
                late.insert(name.to_owned(), Some(value.target));
            }
            Some(other) if other.target == value.target => {}
            Some(_) => warnings.push(format!(
                "'{name}' was made in both formats at the same time; the old one is lost: {:?}",
                value.target
            )),
        }
    }
    super::changes::write_refs(&target, &late)
}

/// Finds loose refs whose names were not locked.
fn new_names(
    context: &Context,
    dir: &Path,
    name: &[u8],
    frozen: &dyn Frozen,
    found: &mut Vec<Vec<u8>>,
) -> Result<()> {
    for entry in folder::list(context.system.as_ref(), dir)? {
        let full = [name, b"/", &entry.name].concat();
        match entry.kind {
            FileKind::Directory => {
                let dir = dir.join(bytes_to_path(&entry.name));
                new_names(context, &dir, &full, frozen, found)?;
            }
            FileKind::File if !entry.name.ends_with(b".lock") && !frozen.holds(&full) => {
                found.push(full);
            }
            _ => {}
        }
    }
    Ok(())
}
