//! Reading the loose refs whose locks are held.
//!
//! Nobody else creates or removes a ref whose lock is held here, so that one listing of a directory
//! answers for all the names in it that are not there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use refdb_names::RefName;

use super::apart::{bar_one, is_shared};
use super::forwards::Forwards;
use super::loose::{self, Loose};
use super::packed::Snapshot;
use super::session::{FilesSession, Held};
use super::{Files, unpeeled};
use crate::backend::{Refusal, Value};
use crate::error::{Reason, io_text};
use crate::system::beside::both;
use crate::system::dirs::{middle, parent};
use crate::system::{FileKind, bytes_to_path, remove_empty_tree};

/// From so many names in one directory on, it is listed.
const LIST_MIN: usize = 64;

/// A directory is listed if it has about so many entries for each name, at most. Their number is
/// guessed from the directory's own length.
const ENTRIES_PER_NAME_MAX: u64 = 8;
const BYTES_PER_ENTRY: u64 = 32;

/// What there is beside the lock of a name. Of most there is nothing, so that this is kept small.
pub(super) enum Current {
    /// A loose ref.
    Found(Box<Value>),
    /// No loose ref: packed-refs has to be asked.
    NotLoose,
    /// Something that cannot be read.
    Refused(Box<Refusal>),
}

/// What is in a directory, beside locks; `None` if it was not listed.
type Listing = Option<HashMap<Vec<u8>, FileKind>>;

impl FilesSession {
    /// Reads the loose refs of all locks from the one at `first` on. The places of those that are not
    /// in `packed` either are barred instead, if it is given and as far as nothing is there: that asks
    /// the same, and new names of a batch need it anyway.
    pub(super) fn read_loose(&mut self, first: usize, packed: Option<&Snapshot>) -> Vec<Current> {
        let files = &self.files;
        let locks = self.held.get_mut(first..).unwrap_or_default();
        let read = |locks| read_all(files, locks, packed.map(NewPlaces::unless_in));
        let Some(middle) = middle(locks.iter().map(|held| held.name.as_bytes())) else {
            return read(locks);
        };
        let (first, second) = locks.split_at_mut(middle);
        let (mut found, others) = both(|| read(first), || read(second));
        found.extend(others);
        found
    }
}

/// The places of refs that seem to be new.
struct NewPlaces<'s> {
    packed: Forwards<'s>,
    barred: Option<PathBuf>,
    /// Whether the last one that was looked at was there: then the next one will be, most likely, and is read.
    was_there: bool,
}

impl<'s> NewPlaces<'s> {
    fn unless_in(packed: &'s Snapshot) -> Self {
        let packed = Forwards::over(packed);
        NewPlaces {
            packed,
            barred: None,
            was_there: false,
        }
    }

    /// Bars the place of a ref, if it seems to be new and nothing is there.
    fn bar(&mut self, files: &Files, held: &mut Held) -> bool {
        let is_new = matches!(self.packed.find_ref(files.bare(&held.name)), Ok(None));
        let is_barred = is_new && is_shared(held.name.as_name());
        let is_barred = is_barred && bar_one(held, self.barred.as_deref()).is_ok();
        if is_barred && self.barred.is_none() {
            self.barred = Some(held.path.clone());
        }
        is_barred
    }
}

fn read_all(files: &Files, locks: &mut [Held], mut new: Option<NewPlaces<'_>>) -> Vec<Current> {
    let mut found = Vec::with_capacity(locks.len());
    let mut rest = locks;
    loop {
        // What is locked as a whole has no file, and of names above others nothing is asked.
        let is_unread = |held: &&Held| held.bar.is_some() || held.is_nested;
        let barred = rest.iter().take_while(is_unread).count();
        found.extend(std::iter::repeat_with(|| Current::NotLoose).take(barred));
        rest = rest.get_mut(barred..).unwrap_or_default();
        let Some(dir) = rest.first().and_then(|held| parent(&held.path)) else {
            break;
        };
        let same = rest
            .iter()
            .take_while(|held| parent(&held.path) == Some(dir) && !held.is_nested)
            .count();
        let listing = list(files, bytes_to_path(dir), same);
        let (run, after) = std::mem::take(&mut rest).split_at_mut(same);
        for held in run {
            if listing.is_none()
                && let Some(new) = &mut new
                && !new.was_there
                && new.bar(files, held)
            {
                found.push(Current::NotLoose);
                continue;
            }
            let read = read(files, &held.path, &listing);
            if let Some(new) = &mut new {
                new.was_there = matches!(read, Ok(Loose::Found(_)));
            }
            let name = held.name.as_name();
            found.push(match read {
                Ok(Loose::Found(target)) => {
                    held.loose = true;
                    Current::Found(Box::new(unpeeled(target)))
                }
                Ok(Loose::Missing) => Current::NotLoose,
                Ok(Loose::Directory) => {
                    held.blocked = !remove_empty_tree(files.system.as_ref(), &held.path);
                    Current::NotLoose
                }
                Ok(Loose::Broken) => unable_to_resolve(name, "reference broken"),
                Err(error) => unable_to_resolve(name, &io_text(&error)),
            });
        }
        rest = after;
    }
    found
}

fn unable_to_resolve(name: RefName<'_>, why: &str) -> Current {
    Current::Refused(Box::new(Refusal {
        reason: Reason::Generic,
        message: format!("unable to resolve reference '{name}': {why}").into(),
    }))
}

/// Lists a directory, if that is less work than to ask for each of `count` names in it.
fn list(files: &Files, dir: &Path, count: usize) -> Listing {
    // Where names that differ are one, a listing does not tell whether a name exists.
    if count < LIST_MIN || files.options.ignore_case {
        return None;
    }
    let entries_guessed = files.system.lstat(dir).ok()?.len / BYTES_PER_ENTRY;
    if entries_guessed > ENTRIES_PER_NAME_MAX.saturating_mul(count as u64) {
        return None;
    }
    let entries = files.system.read_dir(dir).ok()?.into_iter();
    let refs = entries.filter(|entry| !entry.name.ends_with(b".lock"));
    Some(refs.map(|entry| (entry.name, entry.kind)).collect())
}

fn read(files: &Files, path: &Path, listing: &Listing) -> std::io::Result<Loose> {
    let (system, format) = (files.system.as_ref(), files.options.object_format);
    let Some(listing) = listing else {
        return files.loose(path);
    };
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    match listing.get(name) {
        None => Ok(Loose::Missing),
        Some(FileKind::File) => loose::read_listed(system, path, format),
        Some(_) => files.loose(path),
    }
}
