//! What a change concerns, by typed names: a ref, a reflog, packed-refs, a list of tables.
//!
//! A journal is read by whoever comes next, and may have been made by anybody. It names no paths: every
//! name passes the rules for names, and where it lies follows from the repository alone.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::internals::owned_from_disk;
use refdb_names::name::{FormatOptions, is_per_worktree, is_safe, is_well_formed};
use refdb_names::{RefName, RefNameBuf};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::system::dirs::is_path_in;
use crate::system::{FileKind, Stat, System, bytes_to_path, if_there, joined};

/// Something that a change can concern. Names are those of the main worktree: a ref of the linked
/// worktree `w` is `worktrees/w/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The file of a loose ref.
    Ref(RefNameBuf),
    /// The file of the reflog of a ref.
    Log(RefNameBuf),
    /// `packed-refs`.
    Packed,
    /// The list of tables of the main worktree, or of the linked one with this id.
    List(Option<Vec<u8>>),
    /// A file that no rule for names finds: of a ref outside of `refs/`, as Git allows it. No journal
    /// names it, so that a crash can leave it as it was.
    Outside(PathBuf),
}

impl Place {
    /// Returns the place of the loose ref `name` as a worktree sees it, which is the file at `path`.
    pub(crate) fn of_ref(layout: &Layout, name: RefName<'_>, path: &Path) -> Place {
        let named = common_name(layout, name).map(Place::Ref);
        named.unwrap_or_else(|| Place::Outside(path.to_owned()))
    }

    /// As [`Place::of_ref`], of the reflog.
    pub(crate) fn of_log(layout: &Layout, name: RefName<'_>, path: &Path) -> Place {
        let named = common_name(layout, name).map(Place::Log);
        named.unwrap_or_else(|| Place::Outside(path.to_owned()))
    }

    /// Returns the place of the list of tables at `path` in the worktree whose directory is `base`.
    pub(crate) fn of_list(common_dir: &Path, base: &Path, path: &Path) -> Place {
        if base == common_dir {
            return Place::List(None);
        }
        match worktree_id(common_dir, base) {
            Some(id) => Place::List(Some(id.to_vec())),
            None => Place::Outside(path.to_owned()),
        }
    }

    /// Reads a place as [`Place::write`] writes it; `None` if it does not pass the rules.
    pub(super) fn read(word: &[u8], name: &[u8]) -> Option<Place> {
        let place = match word {
            b"ref" => Place::Ref(owned_from_disk(name.to_vec())),
            b"log" => Place::Log(owned_from_disk(name.to_vec())),
            b"packed-refs" => Place::Packed,
            b"list" if name.is_empty() => Place::List(None),
            b"list" => Place::List(Some(name.to_vec())),
            _ => return None,
        };
        place.is_sound().then_some(place)
    }

    /// Returns the word and the name by which a place is written, if it can be.
    pub(super) fn write(&self) -> Option<(&'static [u8], &[u8])> {
        Some(match self {
            Place::Ref(name) => (b"ref", name.as_bytes()),
            Place::Log(name) => (b"log", name.as_bytes()),
            Place::Packed => (b"packed-refs", b""),
            Place::List(id) => (b"list", id.as_deref().unwrap_or_default()),
            Place::Outside(_) => return None,
        })
    }

    fn is_sound(&self) -> bool {
        match self {
            Place::Ref(name) | Place::Log(name) => is_sound(name.as_bytes()),
            Place::Packed => true,
            Place::Outside(_) => false,
            Place::List(id) => id.as_deref().is_none_or(is_worktree_id),
        }
    }
}

/// Returns the worktree that a name starts with, and the rest.
fn split(name: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let parts = || {
        let rest = name.strip_prefix(b"worktrees/")?;
        let slash = rest.iter().position(|&byte| byte == b'/')?;
        Some((rest.get(..slash)?, rest.get(slash + 1..)?))
    };
    match parts() {
        Some((id, bare)) => (Some(id), bare),
        None => (None, name),
    }
}

/// Returns whether a worktree can have that id: the name of one folder.
fn is_worktree_id(id: &[u8]) -> bool {
    !id.is_empty() && !id.starts_with(b".") && !id.contains(&b'/') && !id.contains(&0)
}

fn worktree_id<'d>(common_dir: &Path, dir: &'d Path) -> Option<&'d [u8]> {
    let id = dir.strip_prefix(common_dir.join("worktrees")).ok()?;
    Some(id.as_os_str().as_bytes()).filter(|id| is_worktree_id(id))
}

/// Returns whether a name is one of a ref: below `refs/`, or of a root ref.
fn is_sound(name: &[u8]) -> bool {
    let (id, bare) = split(name);
    let is_below = || bare.starts_with(b"refs/") && is_well_formed(bare, FormatOptions::FULL);
    let is_lock = |part: &[u8]| part.ends_with(b".lock");
    // Refs of bad names can be deleted.
    let is_safe = || is_safe(bare) && !bare.split(|&byte| byte == b'/').any(is_lock);
    id.is_none_or(is_worktree_id) && (is_below() || is_safe())
}

fn common_name(layout: &Layout, name: RefName<'_>) -> Option<RefNameBuf> {
    let (place, bare) = layout.locate(name);
    let (dir, bare) = (layout.dir(&place), bare.as_bytes());
    let name = if dir == layout.common_dir() {
        bare.to_vec()
    } else {
        let id = worktree_id(layout.common_dir(), dir)?;
        [b"worktrees/", id, b"/", bare].concat()
    };
    is_sound(&name).then(|| owned_from_disk(name))
}

/// Where the journal of a repository is, and what of the repository it can name.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) dir: PathBuf,
    /// Whether that is another repository, into which `refs` leads.
    is_elsewhere: bool,
    /// Whether `logs`, and `packed-refs`, lead there as well.
    has_logs: bool,
    has_packed: bool,
}

impl Seat {
    /// Finds it. Whoever opens the other repository is to see a journal of what they share; where `refs` lies on
    /// another disk, say, and there is none, it stays with what links do not lead away.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn find(system: &dyn System, common: &Path) -> io::Result<Seat> {
        let own = || Seat {
            dir: common.to_owned(),
            is_elsewhere: false,
            has_logs: true,
            has_packed: true,
        };
        let refs = common.join("refs");
        match system.find(&refs)? {
            Some(stat) if stat.kind == FileKind::Symlink => {}
            _ => return Ok(own()),
        }
        let real = real_path(system, &refs)?;
        let dir = real.parent().unwrap_or(common);
        if system.find(&dir.join("HEAD"))?.is_none() {
            return Ok(own());
        }
        let is_same = |name: &str| -> io::Result<bool> {
            Ok(real_path(system, &common.join(name))? == real_path(system, &dir.join(name))?)
        };
        Ok(Seat {
            is_elsewhere: true,
            has_logs: is_same("logs")?,
            has_packed: is_same("packed-refs")?,
            dir: dir.to_owned(),
        })
    }

    /// Returns whether the journal calls this place of the repository as the repository itself does.
    pub(super) fn names(&self, place: &Place) -> bool {
        let is_shared = |name: &RefNameBuf| name.as_bytes().starts_with(b"refs/");
        match place {
            Place::Outside(_) => false,
            _ if !self.is_elsewhere => true,
            Place::Ref(name) => is_shared(name),
            Place::Log(name) => self.has_logs && is_shared(name),
            Place::Packed => self.has_packed,
            Place::List(_) => false,
        }
    }
}

/// The directories that places are in. `refs`, `logs` and `packed-refs` may be links, which are
/// followed once, as everybody follows them; below them none is.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    common: PathBuf,
    refs: PathBuf,
    logs: PathBuf,
    packed: PathBuf,
    system: Arc<dyn System>,
    is_strict: bool,
    maker: Option<Maker>,
}

/// Who made what is to be finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker {
    pub(super) uid: u32,
    /// The group of a shared repository.
    pub(super) group: Option<u32>,
}

impl Maker {
    /// Returns whether he may make files in a directory anyway.
    fn may_write(self, dir: &Stat) -> bool {
        let is_of_group = self.group == Some(dir.gid) && dir.mode & 0o020 != 0;
        self.uid == 0 || self.uid == dir.uid || is_of_group
    }
}

pub(super) const MAY_NOT_WRITE: &str =
    "a link leads there, and who made the journal may not write there";

/// A place on the disk, and the system to reach it with.
pub(super) struct Spot {
    pub(super) system: Arc<dyn System>,
    pub(super) path: PathBuf,
    /// The directory that stays, whatever becomes of those below it.
    pub(super) floor: PathBuf,
}

impl Roots {
    /// Returns where the places of a repository are, for its own work. `packed` is where packed-refs
    /// is, links followed.
    pub(crate) fn new(system: &Arc<dyn System>, common: &Path, packed: &Path) -> Roots {
        Roots {
            common: common.to_owned(),
            refs: common.join("refs"),
            logs: common.join("logs"),
            packed: packed.to_owned(),
            system: Arc::clone(system),
            is_strict: false,
            maker: None,
        }
    }

    /// Finds where the places of a repository are, for the work that somebody else left: nothing that
    /// lies below the directories leads out of them.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn find(
        system: &Arc<dyn System>,
        common: &Path,
        maker: Option<Maker>,
    ) -> io::Result<Roots> {
        let real = |name: &str| {
            let path = common.join(name);
            match system.lstat(&path) {
                Ok(stat) if stat.kind == FileKind::Symlink => real_path(system.as_ref(), &path),
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(path),
            }
        };
        Ok(Roots {
            refs: real("refs")?,
            logs: real("logs")?,
            packed: real("packed-refs")?,
            common: common.to_owned(),
            system: Arc::clone(system),
            is_strict: true,
            maker,
        })
    }

    /// Returns the system by which the process that makes a change reaches the places.
    pub(super) fn system(&self) -> &dyn System {
        self.system.as_ref()
    }

    /// Returns whether all of them are in the common directory.
    pub(super) fn are_plain(&self) -> bool {
        let inner = [
            (&self.refs, "refs"),
            (&self.logs, "logs"),
            (&self.packed, "packed-refs"),
        ];
        inner
            .iter()
            .all(|(path, name)| **path == self.common.join(name))
    }

    /// Returns where a place is.
    ///
    /// # Errors
    /// Those of opening the directory that it is in.
    pub(super) fn spot(&self, place: &Place) -> io::Result<Spot> {
        let path = self.path(place);
        let parent = self.packed.parent().unwrap_or(&self.common);
        let roots = [&*self.common, &*self.refs, &*self.logs, parent];
        let root = roots.into_iter().find(|root| is_path_in(&path, root));
        let root = root.unwrap_or(&self.common);
        let system = match self.is_strict {
            true => self.beneath(root)?,
            false => Arc::clone(&self.system),
        };
        Ok(Spot {
            system,
            path,
            floor: root.to_owned(),
        })
    }

    /// As [`Roots::spot`], with an error that names the place.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn reach(&self, place: &Place) -> Result<Spot> {
        let spot = self.spot(place);
        spot.map_err(|error| Error::io("unable to reach", &self.path(place), error))
    }

    /// Opens a directory that places are in. Where a link led to it, whoever made what is to be finished
    /// needs to have the right to write there: the link says nothing of that.
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        let system = self.system.beneath(root)?;
        match self.may_write(system.as_ref(), root)? {
            true => Ok(system),
            false => Err(io::Error::other(MAY_NOT_WRITE)),
        }
    }

    fn may_write(&self, system: &dyn System, root: &Path) -> io::Result<bool> {
        Ok(match self.maker {
            Some(maker) if root != self.common => maker.may_write(&system.stat(root)?),
            _ => true,
        })
    }

    /// Returns whether whoever made what is to be finished may write in all directories that links lead to.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn are_makers(&self) -> io::Result<bool> {
        let packed = self.packed.parent().unwrap_or(&self.common);
        for root in [&*self.refs, &*self.logs, packed] {
            if root.starts_with(&self.common) {
                continue;
            }
            if let Some(system) = if_there(self.system.beneath(root))?
                && !self.may_write(system.as_ref(), root)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns where a place is, by what is known without asking.
    pub(crate) fn path(&self, place: &Place) -> PathBuf {
        let base = |id: Option<&[u8]>| match id {
            Some(id) => joined(&self.common.join("worktrees"), id),
            None => self.common.clone(),
        };
        match place {
            Place::Ref(name) => {
                let (id, bare) = split(name.as_bytes());
                match bare.strip_prefix(b"refs/").filter(|_| id.is_none()) {
                    Some(rest) => joined(&self.refs, rest),
                    None => joined(&base(id), bare),
                }
            }
            Place::Log(name) => {
                let (id, bare) = split(name.as_bytes());
                // `worktrees/w/refs/heads/a` is the name of a ref that all worktrees share.
                match id.filter(|_| is_per_worktree(bare)) {
                    None => joined(&self.logs, name.as_bytes()),
                    Some(_) => joined(&base(id).join("logs"), bare),
                }
            }
            Place::Packed => self.packed.clone(),
            Place::List(id) => base(id.as_deref()).join("reftable").join("tables.list"),
            Place::Outside(path) => path.clone(),
        }
    }
}

/// Which directories are plain ones. Places come in the order of their names, or nearly, so that it is enough
/// to know the last one: what a directory shares with that was looked at.
pub(super) struct PlainDirs<'r> {
    roots: &'r Roots,
    /// The directory of the last place, if no link leads to it.
    plain: Vec<u8>,
    /// What was told last: of which kind of place, in which directory.
    last: Option<(&'static [u8], Vec<u8>, bool)>,
}

impl<'r> PlainDirs<'r> {
    pub(super) fn new(roots: &'r Roots) -> Self {
        PlainDirs {
            roots,
            plain: Vec::new(),
            last: None,
        }
    }

    /// Returns whether no link leads to a place from the directory that everybody uses, or no journal names
    /// it anyway. What is not there yet is made as a directory.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn leads_to(&mut self, place: &Place) -> io::Result<bool> {
        let Some((word, name)) = place.write() else {
            return Ok(true);
        };
        let slash = name.iter().rposition(|&byte| byte == b'/');
        let dir = name.get(..slash.unwrap_or(0)).unwrap_or_default();
        if let Some((last_word, last_dir, is_plain)) = &self.last
            && *last_word == word
            && last_dir == dir
        {
            return Ok(*is_plain);
        }
        let path = self.roots.path(place);
        let is_plain = match path.parent() {
            Some(dir) => self.is_plain(dir)?,
            None => false,
        };
        self.last = Some((word, dir.to_vec(), is_plain));
        Ok(is_plain)
    }

    fn is_plain(&mut self, dir: &Path) -> io::Result<bool> {
        let dir = dir.as_os_str().as_bytes();
        let Roots {
            common,
            refs,
            logs,
            packed,
            system,
            ..
        } = self.roots;
        let packed = packed.parent().unwrap_or(common);
        let roots = [common, refs, logs, packed].map(|root| root.as_os_str().as_bytes());
        let roots = roots
            .into_iter()
            .filter(|root| shared_len(root, dir) == root.len());
        let root = roots.map(<[u8]>::len).max().unwrap_or(0);
        let known = root.max(shared_len(&self.plain, dir));
        let rest = dir.get(known..).unwrap_or_default().iter().enumerate();
        let slashes = rest.filter(|(at, byte)| *at > 0 && **byte == b'/');
        let ends = slashes.map(|(at, _)| known + at).chain([dir.len()]);
        for end in ends.filter(|&end| end > known) {
            let found = system.find(bytes_to_path(dir.get(..end).unwrap_or_default()))?;
            match found.map(|stat| stat.kind) {
                Some(FileKind::Directory) => {}
                // A reflog that gets a name below its own, or nothing.
                Some(FileKind::File) | None => break,
                Some(_) => return Ok(false),
            }
        }
        self.plain = dir.to_vec();
        Ok(true)
    }
}

/// Returns how long the path is, of whole components, that two paths have in common.
fn shared_len(one: &[u8], other: &[u8]) -> usize {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let is_end = |path: &[u8]| path.get(same).is_none_or(|&byte| byte == b'/');
    if is_end(one) && is_end(other) {
        return same;
    }
    let start = one.get(..same).unwrap_or_default();
    start.iter().rposition(|&byte| byte == b'/').unwrap_or(0)
}

/// How many links a path may lead through.
const LINKS_MAX: usize = 40;

/// Returns a path without the links that it leads through, and without the `..` in them. What is not there
/// is no link.
///
/// # Errors
/// Those of the system.
fn real_path(system: &dyn System, path: &Path) -> io::Result<PathBuf> {
    let parts = |path: &Path| -> Vec<PathBuf> {
        let parts = path.components().rev();
        parts.map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let (mut real, mut rest, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = rest.pop() {
        if part == Path::new("..") && (real.has_root() || real.file_name().is_some()) {
            real.pop();
            continue;
        }
        // The root takes the place of all that was before it.
        real.push(&part);
        let found = system.find(&real)?;
        if found.is_some_and(|stat| stat.kind == FileKind::Symlink) {
            if links == LINKS_MAX {
                return Err(rustix::io::Errno::LOOP.into());
            }
            links += 1;
            rest.extend(parts(&system.read_link(&real)?));
            real.pop();
        }
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb_names::internals::name_from_disk;
    use refdb_simulation::SimSystem;

    #[test]
    fn only_names_become_places() {
        let good: [(&[u8], &[u8]); 9] = [
            (b"ref", b"refs/heads/main"),
            (b"ref", b"HEAD"),
            (b"ref", b"worktrees/w/HEAD"),
            (b"ref", b"worktrees/w/refs/bisect/bad"),
            (b"log", b"refs/heads/a/b"),
            (b"log", b"worktrees/w/HEAD"),
            (b"packed-refs", b""),
            (b"list", b""),
            (b"list", b"w"),
        ];
        for (word, name) in good {
            let place = Place::read(word, name).expect("a good place");
            assert_eq!(place.write(), Some((word, name)));
        }
        let bad: [(&[u8], &[u8]); 17] = [
            (b"ref", b""),
            (b"ref", b"objects/info/alternates"),
            (b"ref", b"hooks/post-commit"),
            (b"ref", b"/etc/passwd"),
            (b"ref", b"../x"),
            (b"ref", b"refs/../../x"),
            (b"ref", b"refs/heads/a.lock"),
            (b"ref", b"refs//x"),
            (b"ref", b"config"),
            (b"ref", b"worktrees/../refs/x"),
            (b"ref", b"worktrees/w/../x"),
            (b"ref", b"worktrees/w/config"),
            (b"log", b"refs/heads/../../../x"),
            (b"log", b"worktrees/./HEAD"),
            (b"list", b".."),
            (b"list", b"a/b"),
            (b"config", b""),
        ];
        for (word, name) in bad {
            assert_eq!(Place::read(word, name), None, "{:?}", bytes_to_path(name));
        }
    }

    #[test]
    fn places_are_where_everybody_looks() {
        let system: Arc<dyn System> = Arc::new(SimSystem::new(1));
        system.create_dir(Path::new("/r")).unwrap();
        system.create_dir(Path::new("/other")).unwrap();
        system
            .symlink(Path::new("/other/refs"), Path::new("/r/refs"))
            .unwrap();
        let at = |layout: &Layout, name: &str| {
            let roots = Roots::new(&system, Path::new("/r"), Path::new("/r/packed-refs"));
            let name = name_from_disk(name.as_bytes());
            let none = Path::new("/none");
            let file = Place::of_ref(layout, name, none);
            let log = Place::of_log(layout, name, none);
            (roots.path(&file), roots.path(&log))
        };
        let main = Layout::main("/r");
        let linked = Layout::linked("/r/worktrees/w", "/r");
        for (layout, name, file, log) in [
            (&main, "HEAD", "/r/HEAD", "/r/logs/HEAD"),
            (
                &linked,
                "HEAD",
                "/r/worktrees/w/HEAD",
                "/r/worktrees/w/logs/HEAD",
            ),
            (
                &linked,
                "refs/heads/a",
                "/r/refs/heads/a",
                "/r/logs/refs/heads/a",
            ),
            (
                &linked,
                "refs/bisect/a",
                "/r/worktrees/w/refs/bisect/a",
                "/r/worktrees/w/logs/refs/bisect/a",
            ),
            (
                &main,
                "worktrees/v/HEAD",
                "/r/worktrees/v/HEAD",
                "/r/worktrees/v/logs/HEAD",
            ),
            (
                &main,
                "worktrees/v/refs/heads/a",
                "/r/worktrees/v/refs/heads/a",
                "/r/logs/worktrees/v/refs/heads/a",
            ),
        ] {
            assert_eq!(at(layout, name), (file.into(), log.into()), "{name}");
        }
        let roots = Roots::find(&system, Path::new("/r"), None).unwrap();
        let branch = Place::read(b"ref", b"refs/heads/a").unwrap();
        assert_eq!(roots.path(&branch), Path::new("/other/refs/heads/a"));
        let seat = || Seat::find(system.as_ref(), Path::new("/r")).unwrap();
        assert_eq!(seat().dir, Path::new("/r"), "it is no repository");
        system.create_new(Path::new("/other/HEAD"), 0o666).unwrap();
        assert_eq!(seat().dir, Path::new("/other"));
    }

    #[test]
    fn what_is_not_shared_is_not_named() {
        let system = SimSystem::new(1);
        for dir in ["/r", "/other/refs", "/other/logs"] {
            system.create_dir_all(Path::new(dir)).unwrap();
        }
        system.create_new(Path::new("/other/HEAD"), 0o666).unwrap();
        let link = |name: &str| {
            let text = Path::new("../r/./../other").join(name);
            system.symlink(&text, &Path::new("/r").join(name)).unwrap();
        };
        let named = || {
            let seat = Seat::find(&system, Path::new("/r")).unwrap();
            let places: [(&[u8], &[u8]); 6] = [
                (b"ref", b"refs/heads/a"),
                (b"ref", b"HEAD"),
                (b"ref", b"worktrees/w/refs/bisect/a"),
                (b"list", b""),
                (b"log", b"refs/heads/a"),
                (b"packed-refs", b""),
            ];
            places.map(|(word, name)| seat.names(&Place::read(word, name).unwrap()))
        };
        assert_eq!(named(), [true; 6]);
        link("refs");
        assert_eq!(named(), [true, false, false, false, false, false]);
        link("logs");
        assert_eq!(named(), [true, false, false, false, true, false]);
        link("packed-refs");
        assert_eq!(named(), [true, false, false, false, true, true]);
    }

    #[test]
    fn links_are_followed_to_their_end() {
        let system = SimSystem::new(1);
        for dir in ["/a/b", "/c/d"] {
            system.create_dir_all(Path::new(dir)).unwrap();
        }
        for (text, path) in [
            ("/c/d", "/a/away"),
            ("../a/./b/../away/../x", "/c/up"),
            ("circle", "/c/circle"),
        ] {
            system.symlink(Path::new(text), Path::new(path)).unwrap();
        }
        let real = |path: &str| real_path(&system, Path::new(path));
        for (path, end) in [
            ("/a/b", "/a/b"),
            ("/a/away/none", "/c/d/none"),
            ("/c/up", "/c/x"),
            ("/../a", "/a"),
        ] {
            assert_eq!(real(path).unwrap(), Path::new(end), "{path}");
        }
        assert!(real("/c/circle").is_err());
    }
}
