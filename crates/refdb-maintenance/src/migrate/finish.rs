//! After the switch: the old stores are put away, and nothing is left that looks like them.
//!
//! Every step can be done again: a process that died in the middle is finished by the next migration.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use refdb::error::Message;
use refdb::internals::{
    Entry, FREEZE, NewLog, bytes_to_path, is_absent, is_frozen, maintained, name_from_disk,
    remove_empty_tree,
};
use refdb::layout::{HEAD_OF_TABLES, HEADS_OF_TABLES};
use refdb::name::is_root_ref;
use refdb::system::FileKind;
use refdb::{Error, ErrorKind, Expected, LogOrder, RefFormat, RefName, Result, Store, Target};

use super::Context;
use super::folder::{self, Folder, Journal};
use super::locked::Locked;
use super::moving::{self, again, busy, free};
use super::others::Others;
use super::place::Place;
use super::switch;

/// How often a place is taken that others take as well.
const ATTEMPTS: usize = 100;

/// For how long others are kept from making the old places anew, when others were seen to write:
/// processes that read the old configuration have written by then, or failed to.
const SETTLE: Duration = Duration::from_millis(1500);

/// How long processes are waited for that were there at the switch, when others were seen to write,
/// and when not.
const WAIT_MAX: Duration = Duration::from_secs(15);
const WAIT_MAX_ALONE: Duration = Duration::from_secs(2);

/// What is told where the list of what was locked is gone, or a stack was written all the same.
const UNKNOWN: &str = "locks of the migration, or its list of them, were removed: what somebody has written since the \
                       switch may be missing. The old refs are kept in 'refdb-kept': compare";

/// Puts the old stores away. Returns what processes that do not know of the new format wrote where it could not be
/// carried over.
///
/// `is_live` says that the migration itself does so, and not whoever cleans up after it.
///
/// When all is done, the journal says so: whoever finished it again would bring back what was carried over and has
/// been deleted meanwhile.
pub(super) fn finish(
    context: &Context,
    folder: &Folder,
    places: &[Place],
    journal: Journal,
    is_live: bool,
) -> Result<Vec<Message>> {
    let system = context.system.as_ref();
    let old = folder.old();
    let mut warnings = Vec::new();
    for dir in [old.clone(), old.join("worktrees")] {
        if !folder::exists(system, &dir)? {
            context.create_dir(&dir)?;
        }
    }
    for place in places {
        let old = old.join(&place.below);
        if !folder::exists(system, &old)? {
            context.create_dir(&old)?;
        }
        match journal.to {
            RefFormat::Files => finish_files(context, place, &old)?,
            RefFormat::Reftable => finish_reftable(context, place, &old)?,
        }
    }
    if !journal.is_swept {
        let locked = Locked::read(context, folder)?;
        let mut is_unknown = locked.is_none();
        for place in places {
            let old = old.join(&place.below);
            match (journal.to, &locked) {
                (RefFormat::Files, locked) => {
                    sweep_stacks(context, place, &old, &mut warnings)?;
                    if let Some(locked) = locked {
                        is_unknown |= !locked.has_tables(context, place, &old)?;
                    }
                }
                (RefFormat::Reftable, Some(locked)) => {
                    // Of what ended in the middle, locks may be gone for other reasons.
                    let all_locked = sweep(context, place, &old, locked, &mut warnings)?;
                    is_unknown |= is_live && !all_locked;
                }
                (RefFormat::Reftable, None) => {}
            }
        }
        if is_unknown {
            warnings.push(UNKNOWN.into());
        }
        let swept = Journal {
            is_swept: true,
            keep: journal.keep || is_unknown,
            has_more: journal.has_more || is_unknown,
            ..journal
        };
        folder.write_journal(context, swept)?;
    }
    Ok(warnings)
}

/// Returns those of the places that have refs in the new format, and what there is to be told of others: a worktree that
/// a process of the old format adds in the very moment of the switch has no stack.
pub(super) fn with_refs(
    context: &Context,
    places: Vec<Place>,
    to: RefFormat,
) -> Result<(Vec<Place>, Vec<Message>)> {
    let (mut found, mut told) = (Vec::new(), Vec::new());
    for place in places {
        let has_stack = || folder::exists(context.system.as_ref(), &place.dir.join("reftable"));
        if place.is_common() || to == RefFormat::Files || has_stack()? {
            found.push(place);
            continue;
        }
        let text = format!(
            "the worktree of '{}' was added in the moment of the switch, and its HEAD is in the old format: remove it, \
             and add it again",
            place.dir.display()
        );
        told.push(text.into());
    }
    Ok((found, told))
}

/// Takes away what kept processes of the old format from making its places anew, when there are none
/// any more: `others` were there at the switch, and `is_live` says whether there may be more. Returns
/// what there is to be told about those that did not end.
pub(super) fn settle(
    context: &Context,
    places: &[Place],
    to: RefFormat,
    is_live: bool,
    others: Others,
) -> Result<Option<String>> {
    if to == RefFormat::Files {
        return Ok(None);
    }
    if is_live {
        context.system.sleep(SETTLE);
    }
    let longest = if is_live { WAIT_MAX } else { WAIT_MAX_ALONE };
    let left = others.wait(context.system.as_ref(), longest);
    remove_all_barriers(context, places, to)?;
    if left.is_empty() {
        return Ok(None);
    }
    let pids: Vec<String> = left.iter().map(u32::to_string).collect();
    Ok(Some(format!(
        "processes that may have opened the repository before the switch still run: {}; what they \
         write to other refs than branches from now on is lost",
        pids.join(", ")
    )))
}

/// Takes away what kept processes of the old format from making its places anew.
pub(super) fn remove_all_barriers(
    context: &Context,
    places: &[Place],
    to: RefFormat,
) -> Result<()> {
    let places = places.iter().filter(|_| to == RefFormat::Reftable);
    places
        .into_iter()
        .try_for_each(|place| remove_barriers(context, place))
}

/// Puts away a stack; its lock goes with it, so that it is never to be had again.
fn finish_files(context: &Context, place: &Place, old: &Path) -> Result<()> {
    match put_away(context, &place.dir.join("reftable"), old, "reftable") {
        Err(error) if moving::is_needed(&error) => {
            moving::put_stack_away(context, &place.dir.join("reftable"), old)?;
        }
        done => done?,
    }
    // That of a worktree that was made meanwhile.
    switch::remove_stub(context, place)
}

/// Puts away loose and packed refs and reflogs. A link that leads nowhere takes the place of each
/// directory, so that no process that takes the refs for files makes it anew.
fn finish_reftable(context: &Context, place: &Place, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    let refs = place.dir.join("refs");
    context.have_refs_dir(&refs)?;
    put_barred_away(context, &place.dir, old, "logs")?;
    let mut has_stub = false;
    for entry in folder::list(system, &refs)? {
        if entry.name != b"heads" {
            let item = Path::new("refs").join(bytes_to_path(&entry.name));
            put_barred_away(context, &place.dir, old, item)?;
        } else if entry.kind == FileKind::File {
            has_stub = true;
        }
    }
    if context.is_elsewhere() {
        put_barred_away(context, &place.dir, old, "refs/heads")?;
    } else if !has_stub {
        put_heads_away(context, &place.dir, old)?;
    }
    put_away(context, &place.dir.join("packed-refs"), old, "packed-refs")?;
    for entry in folder::list(system, &place.dir)? {
        if entry.kind == FileKind::Directory || !is_root_ref(&entry.name) {
            continue;
        }
        let path = place.dir.join(bytes_to_path(&entry.name));
        if entry.name != b"HEAD" || context.is_elsewhere() {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            put_away(context, &path, old, &name)?;
        } else if system.read(&path).ok().as_deref() != Some(HEAD_OF_TABLES) {
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
    context.write(&stub, HEAD_OF_TABLES)?;
    context.rename(&stub, head)
}

/// Moves something into `old` under a name that is free, if it is there.
fn put_away(context: &Context, path: &Path, old: &Path, name: &str) -> Result<()> {
    let system = context.system.as_ref();
    if !folder::exists(system, path)? || is_frozen(system, path) {
        return Ok(());
    }
    context.rename(path, &free(context, old, Path::new(name))?)
}

/// Puts a directory away, and a link in its place that leads nowhere.
fn put_barred_away(
    context: &Context,
    dir: &Path,
    old: &Path,
    item: impl AsRef<Path>,
) -> Result<()> {
    let (system, item) = (context.system.as_ref(), item.as_ref());
    let path = dir.join(item);
    for _ in 0..ATTEMPTS {
        if is_frozen(system, &path) || !folder::exists(system, &path)? {
            return Ok(());
        }
        let barrier = free(context, old, Path::new("new"))?;
        system
            .symlink(Path::new(FREEZE), &barrier)
            .map_err(|error| Error::io("unable to create", &barrier, error))?;
        replace(context, &barrier, &path, old, item)?;
    }
    Err(busy(&path))
}

/// Puts the directory of branches away, and in its place the file that is there for good.
fn put_heads_away(context: &Context, dir: &Path, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    let item = Path::new("refs/heads");
    let heads = dir.join(item);
    for _ in 0..ATTEMPTS {
        if system
            .lstat(&heads)
            .is_ok_and(|stat| stat.kind == FileKind::File)
        {
            return Ok(());
        }
        let stub = free(context, old, Path::new("new"))?;
        context.write(&stub, HEADS_OF_TABLES)?;
        replace(context, &stub, &heads, old, item)?;
    }
    Err(busy(&heads))
}

/// Gives what is called `new` the name `path`, and what had that name one in `old`. Where the system
/// can do it in one step, no other process finds the name free.
fn replace(context: &Context, new: &Path, path: &Path, old: &Path, item: &Path) -> Result<()> {
    let system = context.system.as_ref();
    if folder::exists(system, path)? && !is_frozen(system, path) {
        match system.exchange(new, path) {
            Ok(()) => return context.rename(new, &free(context, old, item)?),
            Err(error) if is_absent(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                moving::put_away(context, path, old, item)?;
            }
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(Error::io("unable to replace", path, error));
            }
            Err(_) => match context.rename(path, &free(context, old, item)?) {
                Err(error) if moving::is_needed(&error) => {
                    moving::put_away(context, path, old, item)?;
                }
                renamed => renamed?,
            },
        }
    }
    match system.rename(new, path) {
        // Others were faster, and what they made is put away as well.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            folder::remove_if_there(system, new)
        }
        renamed => renamed.map_err(|error| Error::io("unable to replace", path, error)),
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
        match system.read_link(&path) {
            Ok(text) if text == Path::new(FREEZE) => folder::remove_if_there(system, &path)?,
            Err(error) if is_absent(&error) => {}
            // No link at all.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(Error::io("unable to read", &path, error)),
            Ok(_) => {}
        }
    }
    if context.is_elsewhere() {
        // Nothing has to look like a repository there.
        remove_empty_tree(system, &refs);
    }
    Ok(())
}

/// Carries over refs that others made in the last moment before the old store was put away: new names
/// in directories that had refs already. All other names were locked; returns whether they are still, with what they
/// lock: whoever takes a lock away may have written that ref since it was copied.
fn sweep(
    context: &Context,
    place: &Place,
    old: &Path,
    locked: &Locked,
    warnings: &mut Vec<Message>,
) -> Result<bool> {
    let mut all_locked = true;
    for number in 0.. {
        let old = again(old, number);
        if !folder::exists(context.system.as_ref(), &old)? {
            break;
        }
        // What was made anew was not locked, whatever its name is.
        let locked = Some(locked).filter(|_| number == 0);
        let is_new = |name: &[u8]| locked.is_none_or(|locked| !locked.has(place, name));
        all_locked &= sweep_one(context, place, &old, &is_new, warnings)?;
    }
    Ok(all_locked)
}

fn sweep_one(
    context: &Context,
    place: &Place,
    old: &Path,
    is_new: &dyn Fn(&[u8]) -> bool,
    warnings: &mut Vec<Message>,
) -> Result<bool> {
    let mut found = Vec::new();
    let all_locked = new_names(context, &old.join("refs"), b"refs", is_new, &mut found)?;
    if found.is_empty() {
        return Ok(all_locked);
    }
    // Directories are listed in any order; logs are replaced in that of their names.
    found.sort();
    let source = context.store(old, RefFormat::Files)?;
    let target = context.store(&place.dir, RefFormat::Reftable)?;
    carry_over(&source, &target, found, warnings)?;
    Ok(all_locked)
}

/// As [`sweep`], for stacks that others made in the last moment where the old one had been. One that
/// is not whole is of somebody who could not finish.
fn sweep_stacks(
    context: &Context,
    place: &Place,
    old: &Path,
    warnings: &mut Vec<Message>,
) -> Result<()> {
    for old in moving::late_stacks(context, old)? {
        let source = context.store(&old, RefFormat::Reftable)?;
        let found = match names(&source) {
            Err(error) if is_not_whole(&error) => continue,
            found => found?,
        };
        let target = context.store(&place.dir, RefFormat::Files)?;
        carry_over(&source, &target, found, warnings)?;
    }
    Ok(())
}

/// Returns whether a failure is that of what is not whole: whoever was writing it could not finish. What cannot be read
/// for any other reason is not taken for that.
fn is_not_whole(error: &Error) -> bool {
    error.kind() != ErrorKind::Io || error.io_kind() == Some(io::ErrorKind::NotFound)
}

fn names(store: &Store) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut refs = store.refs()?;
    while let Some(record) = refs.next()? {
        names.push(record.name.as_bytes().to_vec());
    }
    Ok(names)
}

/// Carries over those of the refs that the new store does not have, with their reflogs.
fn carry_over(
    source: &Store,
    target: &Store,
    found: Vec<Vec<u8>>,
    warnings: &mut Vec<Message>,
) -> Result<()> {
    let mut late = Vec::new();
    let mut logs = Vec::new();
    let mut twice = |name: RefName<'_>, target: &Target| {
        let text = format!(
            "'{name}' was written in both formats at the same time; in the old one it was {target:?}"
        );
        warnings.push(text.into());
    };
    for name in found {
        let name = name_from_disk(&name);
        let value = match source.read(name) {
            Ok(None) => continue,
            Err(error) if is_not_whole(&error) => continue,
            Ok(Some(value)) => value,
            Err(error) => return Err(error),
        };
        match target.read(name)? {
            None => {
                let entries = source.log(name, LogOrder::OldestFirst)?;
                logs.extend(entries.map(|entries| NewLog {
                    name: name.to_owned(),
                    entries: Some(entries),
                    only_new: true,
                }));
                late.push((name.to_owned(), value.target));
            }
            Some(other) if other.target == value.target => {}
            Some(_) => twice(name, &value.target),
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    // The new store is in use: what others have written to it meanwhile stays. Logs come first:
    // whoever does this again after a crash goes by what refs are missing.
    if !logs.is_empty() {
        maintained(target).replace_logs(&logs)?;
    }
    let mut transaction = target.transaction().batch();
    for (name, to) in &late {
        super::changes::add(&mut transaction, name, Some(to), Expected::Missing)?;
    }
    for rejection in transaction.commit()?.rejections {
        if let Some((name, to)) = late.get(rejection.index) {
            twice(name.as_name(), to);
        }
    }
    Ok(())
}

/// Finds loose refs that are new. Returns whether every other one has its lock beside it.
fn new_names(
    context: &Context,
    dir: &Path,
    name: &[u8],
    is_new: &dyn Fn(&[u8]) -> bool,
    found: &mut Vec<Vec<u8>>,
) -> Result<bool> {
    let entries = folder::list(context.system.as_ref(), dir)?;
    let locks: HashSet<&[u8]> = (entries.iter())
        .filter_map(|entry| entry.name.strip_suffix(b".lock"))
        .collect();
    let mut all_locked = true;
    for entry in &entries {
        let full = [name, b"/", &entry.name].concat();
        match Entry::of_name(&entry.name) {
            _ if entry.kind == FileKind::Directory => {
                let path = dir.join(bytes_to_path(&entry.name));
                all_locked &= new_names(context, &path, &full, is_new, found)?;
            }
            Entry::Ref if entry.kind == FileKind::File => match is_new(&full) {
                true => found.push(full),
                false => all_locked &= locks.contains(entry.name.as_slice()),
            },
            _ => {}
        }
    }
    Ok(all_locked)
}
