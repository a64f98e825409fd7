//! What readers are to see while a transaction is committed and not finished.
//!
//! A transaction of several steps is committed when its journal is there. If its process ends then,
//! somebody finishes it; whoever may not, or cannot tell whether the process runs, reads the new
//! values from where the journal says they are. So nobody sees a half of it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use refdb_names::name::is_per_worktree;
use refdb_names::{RefName, RefNameBuf, Target, internals::owned_from_disk};

use super::loose::Loose;
use super::overlay::LooseRef;
use super::packed::{PackedRefs, Snapshot};
use super::{Files, log, loose_value, may_be_path, unpeeled};
use crate::backend::Value;
use crate::commit::{Becomes, Place, View};
use crate::error::{OrIo, Result};
use crate::layout::{self, Layout};
use crate::system::{ReadFile, Stat};

impl Files {
    /// Returns what a journal calls the loose ref `name`, which is the file at `path`.
    pub(super) fn spot(&self, name: RefName<'_>, path: &Path) -> Place {
        Place::of_ref(&self.layout, name, path)
    }

    /// Returns what a journal calls the reflog of `name`, which is the file at `path`.
    pub(super) fn log_spot(&self, name: RefName<'_>, path: &Path) -> Place {
        Place::of_log(&self.layout, name, path)
    }

    /// Reads one ref as readers are to see it, without following symrefs.
    pub(super) fn read_seen(
        &self,
        name: RefName<'_>,
        view: Option<&View>,
    ) -> Result<Option<Value>> {
        let Some(view) = view.filter(|_| may_be_path(name)) else {
            return self.read(name);
        };
        let (place, path) = self.path(name)?;
        let becomes = view.of_place(&self.spot(name, &path))?;
        if let Some(Becomes::Content(path)) = &becomes
            && let Some(target) = self.read_new(path)?
        {
            return Ok(Some(unpeeled(target)));
        }
        let bare = self.layout.locate(name).1.as_bytes();
        let is_common = place == layout::Place::Common;
        if becomes == Some(Becomes::Nothing) && !is_common {
            // What a worktree has for itself is never packed.
            return Ok(None);
        }
        let is_packed = becomes == Some(Becomes::Nothing) && is_common;
        if is_packed || is_common && view.of_place(&Place::Packed)?.is_some() {
            if !is_packed && let Some(found) = self.read_loose(name)? {
                return Ok(Some(found));
            }
            return self.packed_seen(Some(view))?.find_ref(bare);
        }
        self.read(name)
    }

    /// Reads the new content of a ref; `None` if it is in its place by now.
    fn read_new(&self, path: &Path) -> Result<Option<Target>> {
        match log::if_there(self.loose(path)).or_io("unable to read", path)? {
            Some(Loose::Found(target)) => Ok(Some(target)),
            _ => Ok(None),
        }
    }

    /// Reads one loose ref; `None` if there is none.
    fn read_loose(&self, name: RefName<'_>) -> Result<Option<Value>> {
        let (_, path) = self.path(name)?;
        let found = log::if_there(self.loose(&path)).or_io("unable to read", &path)?;
        loose_value(found.unwrap_or(Loose::Missing), name)
    }

    /// Returns the packed refs as readers are to see them.
    pub(super) fn packed_seen(&self, view: Option<&View>) -> Result<Arc<Snapshot>> {
        let is_there = |path: &Path| -> Result<bool> {
            Ok(self
                .system
                .find(path)
                .or_io("unable to look at", path)?
                .is_some())
        };
        let becomes = view.map_or(Ok(None), |view| view.of_place(&Place::Packed))?;
        if let Some(Becomes::Content(path)) = becomes
            && is_there(&path)?
        {
            let format = self.options.object_format;
            let new = PackedRefs::new(Arc::clone(&self.system), path.clone(), format);
            let snapshot = new.snapshot()?;
            // In its place by now, it may have been missed.
            if is_there(&path)? {
                return Ok(snapshot);
            }
        }
        self.packed.snapshot()
    }

    /// As [`Files::log_exists`], as readers are to see it.
    pub(super) fn log_exists_seen(&self, name: RefName<'_>, view: Option<&View>) -> Result<bool> {
        match self.log_becomes(name, view)? {
            Some(Becomes::Nothing) => Ok(false),
            Some(_) => Ok(true),
            None => self.log_exists(name),
        }
    }

    /// As [`Files::log_names`], as readers are to see them.
    pub(super) fn log_names_seen(&self, view: Option<&View>) -> Result<Vec<RefNameBuf>> {
        let Some(view) = view else {
            return self.log_names();
        };
        let here = Names::new(&self.layout);
        // Read before the directories are, as what is `coming`.
        let mut stays = BTreeMap::new();
        for place in view.places() {
            if let Place::Log(full) = place
                && let Some(name) = here.here(full.as_bytes())
                && let Some(becomes) = view.of_place(place)?
            {
                stays.insert(name, !matches!(becomes, Becomes::Nothing));
            }
        }
        let mut names = self.log_names()?;
        names.retain(|name| !stays.contains_key(name.as_bytes()));
        let new = stays.into_iter().filter(|(_, stays)| *stays);
        names.extend(new.map(|(name, _)| owned_from_disk(name)));
        log::sort_as_files(&mut names);
        Ok(names)
    }

    /// Returns what becomes of the reflog of `name` by a transaction that is committed.
    pub(super) fn log_becomes(
        &self,
        name: RefName<'_>,
        view: Option<&View>,
    ) -> Result<Option<Becomes>> {
        let Some(view) = view.filter(|_| may_be_path(name)) else {
            return Ok(None);
        };
        let path = self.log_path(name)?;
        view.of_place(&self.log_spot(name, &path))
    }
}

/// A file with lines behind its first `len` bytes that are not written yet.
pub(super) struct Longer {
    file: Option<Box<dyn ReadFile>>,
    len: u64,
    lines: Bytes,
}

impl Longer {
    /// # Errors
    /// Those of looking how long the file is, if all of it counts.
    pub(super) fn new(
        mut file: Option<Box<dyn ReadFile>>,
        len: u64,
        lines: Bytes,
    ) -> io::Result<Self> {
        let len = match &mut file {
            Some(file) if len == u64::MAX => file.len()?,
            _ => len,
        };
        Ok(Longer { file, len, lines })
    }
}

impl ReadFile for Longer {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (own, behind) = buffer.split_at_mut(left.min(buffer.len()));
        if !own.is_empty() {
            let count = match &mut self.file {
                Some(file) => file.read_at(offset, own)?,
                None => 0,
            };
            // A file that is shorter than it was ends there.
            if count < own.len() {
                return Ok(count);
            }
        }
        // Who reads takes less than what was asked for as the end: the lines follow at once.
        let at = usize::try_from(offset.saturating_sub(self.len)).unwrap_or(usize::MAX);
        let lines = self.lines.get(at..).unwrap_or_default();
        let count = lines.len().min(behind.len());
        if let (Some(to), Some(from)) = (behind.get_mut(..count), lines.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(own.len() + count)
    }

    fn stat(&self) -> io::Result<Stat> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&mut self) -> io::Result<u64> {
        Ok(self.len + self.lines.len() as u64)
    }
}

/// The names by which a worktree sees what a journal names.
struct Names {
    is_linked: bool,
    /// What the journal puts before names of this worktree, if it is a linked one.
    own: Vec<u8>,
}

impl Names {
    fn new(layout: &Layout) -> Names {
        let own = layout.worktree_dir().file_name().unwrap_or_default();
        Names {
            is_linked: layout.is_linked(),
            own: [b"worktrees/", own.as_bytes(), b"/"].concat(),
        }
    }

    /// Returns the name of what a journal names, unless it is another worktree's.
    fn here<'n>(&self, full: &'n [u8]) -> Option<&'n [u8]> {
        if !self.is_linked {
            return (!full.starts_with(b"worktrees/")).then_some(full);
        }
        match full.strip_prefix(&*self.own) {
            Some(name) => Some(name),
            None => (!full.starts_with(b"worktrees/") && !is_per_worktree(full)).then_some(full),
        }
    }
}

/// What a transaction that is committed and not finished makes of loose refs: new values, and `None`
/// for those that go.
pub(super) type Coming = Vec<(Vec<u8>, Option<Target>)>;

/// Reads what a transaction that is committed and not finished makes of the loose refs whose names start
/// with `prefix`. To be read before these are: what is in its place by then is found there, and what was
/// seen once is not followed by what was before it.
pub(super) fn coming(files: &Files, view: &View, prefix: &[u8]) -> Result<Coming> {
    let names = Names::new(&files.layout);
    let mut coming = Vec::new();
    for place in view.places() {
        let Place::Ref(full) = place else { continue };
        let name = names.here(full.as_bytes());
        let Some(name) = name.filter(|name| name.starts_with(prefix)) else {
            continue;
        };
        match view.of_place(place)? {
            Some(Becomes::Content(path)) => {
                let new = files.read_new(&path)?;
                coming.extend(new.map(|target| (name.to_vec(), Some(target))));
            }
            Some(Becomes::Nothing) => coming.push((name.to_vec(), None)),
            _ => {}
        }
    }
    Ok(coming)
}

/// Puts among loose refs, which are sorted, what is coming.
pub(super) fn put_in(coming: Coming, refs: &mut Vec<LooseRef>) {
    let coming: BTreeMap<_, _> = coming.into_iter().collect();
    refs.retain(|found| !coming.contains_key(&found.name));
    let new = coming.into_iter().filter(|(_, target)| target.is_some());
    refs.extend(new.map(|(name, target)| LooseRef { name, target }));
    refs.sort_by(|a, b| a.name.cmp(&b.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::System;
    use refdb_simulation::SimSystem;

    #[test]
    fn a_file_and_the_lines_behind_it_are_read_as_one() {
        let system = SimSystem::new(1);
        let path = Path::new("/file");
        let written = system
            .create_new(path, 0o666)
            .unwrap()
            .write_all(b"one\ntwo, cut");
        written.unwrap();
        let all = b"one\nthree\nfour\n";
        let lines = Bytes::from_static(b"three\nfour\n");
        let mut longer = Longer::new(Some(system.open(path).unwrap()), 4, lines).unwrap();
        assert_eq!(longer.len().unwrap(), all.len() as u64);
        for offset in 0..=all.len() + 1 {
            for len in 0..all.len() + 2 {
                let mut buffer = vec![0; len];
                let count = longer.read_at(offset as u64, &mut buffer).unwrap();
                let rest = all.get(offset..).unwrap_or_default();
                let expected = &rest[..rest.len().min(len)];
                assert_eq!(&buffer[..count], expected, "{len} bytes from {offset} on");
            }
        }
    }
}
