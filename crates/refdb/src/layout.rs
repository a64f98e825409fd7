//! Where a repository keeps its refs: which directory belongs to which name.
//!
//! The main worktree's directory is the common one; a linked worktree has
//! `<common>/worktrees/<id>` for its per-worktree refs. `extensions.refStorage` may move all refs
//! to another base directory, whose inner layout is the same.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use refdb_names::internals::name_from_disk;
use refdb_names::name::{WorktreeName, worktree_name};
use refdb_names::{RefName, TargetRef};

use crate::error::{Error, ErrorKind, Result};
use crate::system::{FileKind, System, bytes_to_path, is_absent};

/// What the file HEAD says in a repository whose refs are tables: enough for programs that do not know
/// tables to take it for a repository.
pub const HEAD_OF_TABLES: &[u8] = b"ref: refs/heads/.invalid\n";
/// What stands there in the place of `refs/heads`, so that nobody makes a branch that is a file.
pub const HEADS_OF_TABLES: &[u8] = b"this repository uses the reftable format\n";
/// Where such a HEAD points to.
pub(crate) const TARGET_OF_TABLES: &[u8] = b"refs/heads/.invalid";

/// The file in the directory of the repository that says what a transaction of several steps is to do, until that is done.
pub const JOURNAL: &str = "refdb.journal";

/// Returns whether a ref is what stands in the place of HEAD where refs are tables.
pub(crate) fn is_of_tables(target: TargetRef<'_>) -> bool {
    matches!(target, TargetRef::Symbolic(target) if target.as_bytes() == TARGET_OF_TABLES)
}

/// The directories of one repository, seen from one of its worktrees.
///
/// ```
/// use refdb::layout::Layout;
/// let layout = Layout::linked("/repo/.git/worktrees/w", "/repo/.git");
/// assert!(layout.is_linked());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    common: PathBuf,
    // `None` in the main worktree.
    worktree: Option<PathBuf>,
    // `None` where the common directory is not looked at.
    objects: Option<PathBuf>,
    // Whether there need not be any refs.
    may_be_missing: bool,
    // Whether the objects are somewhere else than the refs.
    is_apart: bool,
}

impl Layout {
    /// The layout of a repository's main worktree, or of a bare repository.
    pub fn main(git_dir: impl Into<PathBuf>) -> Self {
        let common = git_dir.into();
        Layout {
            objects: Some(common.join("objects")),
            common,
            worktree: None,
            may_be_missing: false,
            is_apart: false,
        }
    }

    /// The layout of a linked worktree with its own directory and the common one.
    pub fn linked(git_dir: impl Into<PathBuf>, common_dir: impl Into<PathBuf>) -> Self {
        Layout {
            worktree: Some(git_dir.into()),
            ..Layout::main(common_dir)
        }
    }

    /// The layout of a linked worktree's own directory, as if there were no other.
    pub fn alone(git_dir: impl Into<PathBuf>) -> Self {
        Layout {
            objects: None,
            ..Layout::main(git_dir)
        }
    }

    /// Says where the objects are, if not in the common directory.
    pub fn with_objects(mut self, dir: &Path) -> Self {
        self.is_apart = dir.parent() != Some(&self.common);
        self.objects = Some(dir.to_owned());
        self
    }

    /// Says that nobody claims that there are refs.
    pub fn unclaimed(mut self) -> Self {
        self.may_be_missing = true;
        self
    }

    /// Returns whether refs that are missing altogether are no loss.
    pub(crate) fn may_be_missing(&self) -> bool {
        self.may_be_missing
    }

    /// Returns whether the refs may be kept outside of the repository, where no file stands for what a
    /// migration took away.
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Returns where the objects are, if the refs in `base` are those of the whole repository.
    pub(crate) fn objects_beside(&self, base: &Path) -> Option<&Path> {
        self.objects.as_deref().filter(|_| base == self.common)
    }

    /// Returns whether this is the view of a linked worktree.
    pub fn is_linked(&self) -> bool {
        self.worktree.is_some()
    }

    /// Returns the directory of shared refs, and of the main worktree's own.
    pub fn common_dir(&self) -> &Path {
        &self.common
    }

    /// Returns the directory of the current worktree's own refs.
    pub fn worktree_dir(&self) -> &Path {
        self.worktree.as_deref().unwrap_or(&self.common)
    }

    /// Returns where `name` is kept: the directory, and the name within it.
    pub(crate) fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>) {
        if !self.is_linked() && name.as_bytes().starts_with(b"refs/") {
            // In the main worktree these are all together, as nearly every name is.
            return (Place::Common, name);
        }
        let class = worktree_name(name.as_bytes());
        let place = match class {
            WorktreeName::Shared(_) | WorktreeName::Main(_) => Place::Common,
            WorktreeName::Current(_) if self.is_linked() => Place::Worktree,
            WorktreeName::Current(_) => Place::Common,
            WorktreeName::Linked { id, .. } => {
                let dir = self.common.join("worktrees").join(bytes_to_path(id));
                if self.worktree.as_deref() == Some(&dir) {
                    Place::Worktree
                } else {
                    Place::Other(dir)
                }
            }
        };
        (place, name_from_disk(class.bare()))
    }

    /// Refuses names of another worktree where a link leads to it, or to where its ref or its reflog is: they are
    /// somebody else's. (A worktree that is worked in was found by the caller.)
    ///
    /// # Errors
    /// `Repository` for a link, `Io`.
    pub(crate) fn assert_own_folders<'n>(
        &self,
        system: &dyn System,
        names: impl Iterator<Item = RefName<'n>>,
    ) -> Result<()> {
        let mut seen = None;
        for name in names.filter(|name| name.as_bytes().starts_with(b"worktrees/")) {
            let (Place::Other(dir), bare) = self.locate(name) else {
                continue;
            };
            let mut link = None;
            if seen.as_ref() != Some(&dir) {
                link = link_to_worktree(system, &dir)?;
            }
            let bare = bytes_to_path(bare.as_bytes());
            for base in [dir.join(bare), dir.join("logs").join(bare)] {
                let folders = base.ancestors().skip(1).take_while(|it| *it != dir);
                link = link.map_or_else(|| first_link(system, folders), |it| Ok(Some(it)))?;
            }
            if let Some(link) = link {
                let what = "is a symbolic link: nothing is written for another worktree through it";
                let message = format!("'{}' {what}", link.display());
                return Err(Error::new(ErrorKind::Repository, message));
            }
            seen = Some(dir);
        }
        Ok(())
    }

    /// Returns whether all names are kept in the common directory as they are; `false` tells nothing.
    pub(crate) fn keeps_together(&self, names: &[RefName<'_>]) -> bool {
        let mut names = names.iter();
        !self.is_linked() && names.all(|name| name.as_bytes().starts_with(b"refs/"))
    }

    /// Returns the place of a place among all, which is the same whichever worktree it is seen from:
    /// the common directory comes first.
    pub(crate) fn rank<'a>(&'a self, place: &'a Place) -> Option<&'a OsStr> {
        match place {
            Place::Common => None,
            Place::Worktree => self.worktree_dir().file_name(),
            Place::Other(dir) => dir.file_name(),
        }
    }

    /// Returns which of two refs is to be locked first. The order is the same for all processes:
    /// it is that of the files, whichever worktree they are seen from and by whatever name.
    pub(crate) fn lock_order(&self, low: RefName<'_>, high: RefName<'_>) -> Ordering {
        if self.keeps_together(&[low, high]) {
            return low.cmp(&high);
        }
        self.place_of(low).cmp(&self.place_of(high))
    }

    /// As [`Layout::lock_order`], where names that differ in case are the same file.
    pub(crate) fn lock_order_ignoring_case(&self, low: RefName<'_>, high: RefName<'_>) -> Ordering {
        let folded = |name| {
            let (rank, bare): (Option<&[u8]>, &[u8]) = self.place_of(name);
            (
                rank.map(<[u8]>::to_ascii_lowercase),
                bare.to_ascii_lowercase(),
            )
        };
        folded(low).cmp(&folded(high))
    }

    /// Returns the rank of the place where a name is kept, and the name within it.
    fn place_of<'a>(&'a self, name: RefName<'a>) -> (Option<&'a [u8]>, &'a [u8]) {
        let class = worktree_name(name.as_bytes());
        let rank = match class {
            WorktreeName::Shared(_) | WorktreeName::Main(_) => None,
            WorktreeName::Current(_) => {
                let own = self.worktree.as_deref().and_then(Path::file_name);
                own.map(OsStr::as_bytes)
            }
            WorktreeName::Linked { id, .. } => Some(id),
        };
        (rank, class.bare())
    }

    /// Returns the directory of a place.
    pub fn dir<'a>(&'a self, place: &'a Place) -> &'a Path {
        match place {
            Place::Common => &self.common,
            Place::Worktree => self.worktree_dir(),
            Place::Other(dir) => dir,
        }
    }
}

/// Returns the link by which a linked worktree's own directory, or what is written in there, belongs to somebody else.
///
/// # Errors
/// `Io` when that cannot be found out.
pub fn link_to_worktree(system: &dyn System, dir: &Path) -> Result<Option<PathBuf>> {
    let below = ["refs", "logs", "reftable"].map(|folder| dir.join(folder));
    let paths = dir.parent().into_iter().chain([dir]);
    first_link(system, paths.chain(below.iter().map(PathBuf::as_path)))
}

/// Returns the first path at which there is a link.
fn first_link<'p>(
    system: &dyn System,
    mut paths: impl Iterator<Item = &'p Path>,
) -> Result<Option<PathBuf>> {
    paths
        .find_map(|path| match system.lstat(path) {
            Ok(stat) => (stat.kind == FileKind::Symlink).then(|| Ok(path.to_owned())),
            Err(error) if is_absent(&error) => None,
            Err(error) => Some(Err(Error::io("cannot read", path, error))),
        })
        .transpose()
}

/// Which of a repository's ref directories a name belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The common directory: shared refs and the main worktree's own.
    Common,
    /// The directory of the current, linked worktree.
    Worktree,
    /// The directory of another linked worktree.
    Other(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_worktree_keeps_its_own_refs() {
        let layout = Layout::linked("/r/worktrees/w", "/r");
        let locate = |name: &'static str| layout.locate(name_from_disk(name.as_bytes()));
        assert_eq!(locate("HEAD").0, Place::Worktree);
        assert_eq!(locate("refs/heads/main").0, Place::Common);
        assert_eq!(locate("main-worktree/HEAD"), (Place::Common, RefName::HEAD));
        assert_eq!(locate("worktrees/w/HEAD"), (Place::Worktree, RefName::HEAD));
        assert_eq!(
            locate("worktrees/v/HEAD").0,
            Place::Other("/r/worktrees/v".into())
        );
    }

    #[test]
    fn locks_have_one_order_for_all_worktrees() {
        let main = [
            "HEAD",
            "refs/bisect/bad",
            "refs/heads/main",
            "worktrees/v/HEAD",
            "worktrees/w/HEAD",
            "worktrees/w/refs/bisect/bad",
        ];
        let linked = [
            "main-worktree/HEAD",
            "main-worktree/refs/bisect/bad",
            "refs/heads/main",
            "worktrees/v/HEAD",
            "HEAD",
            "refs/bisect/bad",
        ];
        let (here, there) = (Layout::main("/r"), Layout::linked("/r/worktrees/w", "/r"));
        let is_sorted = |layout: &Layout, names: &[&'static str]| {
            let names: Vec<_> = names
                .iter()
                .map(|name| name_from_disk(name.as_bytes()))
                .collect();
            names.is_sorted_by(|low, high| layout.lock_order(*low, *high).is_lt())
                && names.is_sorted_by(|&low, &high| {
                    let (low, high) = (layout.locate(low).0, layout.locate(high).0);
                    layout.rank(&low) <= layout.rank(&high)
                })
        };
        assert!(is_sorted(&here, &main));
        assert!(is_sorted(&there, &linked));
        let (upper, lower) = (name_from_disk(b"refs/B"), name_from_disk(b"refs/a"));
        assert!(here.lock_order(upper, lower).is_lt());
        assert!(here.lock_order_ignoring_case(lower, upper).is_lt());
    }
}
