//! Finding a repository: what makes a directory one, gitfiles, linked worktrees, and the walk up
//! from a directory.

use std::io;
use std::path::{Path, PathBuf};

use bstr::{BStr, ByteSlice};
use refdb::error::Message;
use refdb::internals::{bytes_to_path, is_absent, is_space};
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, ObjectId, Result};

use super::environment::Environment;
use super::paths::{self, path_to_bytes};

/// How much of `HEAD` is read to see whether it is one.
const HEAD_LEN_MAX: usize = 256;
/// Gitfiles longer than this are none.
const GITFILE_LEN_MAX: u64 = 1 << 20;

/// So many bytes are too many for a file that names a directory.
pub(super) const PATH_FILE_LEN_MAX: usize = 1 << 20;

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The directory of the current worktree's own state.
    pub(super) git_dir: PathBuf,
    /// The directory that all worktrees share.
    pub(super) common_dir: PathBuf,
    /// How the repository was found.
    pub(super) found: Found,
}

/// How a repository was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was named.
    Explicit,
    /// As `.git` of this directory: a directory, or the gitfile if there is one.
    DotGit {
        /// The directory that has the `.git`.
        parent: PathBuf,
        /// The gitfile.
        gitfile: Option<PathBuf>,
    },
    /// The directory itself is the repository.
    Bare,
}

/// What `.git` is.
enum DotGit {
    /// A file that names the repository's directory.
    File(PathBuf),
    /// A directory.
    Directory,
}

/// What a search needs to know.
pub(super) struct Search<'a> {
    pub(super) system: &'a dyn System,
    pub(super) environment: &'a Environment,
    /// The common directory, if it was named.
    pub(super) common_dir: Option<&'a Path>,
    /// Whether the `HEAD` of a repository may be damaged, or missing.
    pub(super) damaged: bool,
}

impl Search<'_> {
    /// Opens the repository that was named, as seen from `base`.
    pub(super) fn explicit(&self, path: &Path, base: &Path) -> Result<Location> {
        // An empty variable of a script names nothing, and not this directory.
        if path.as_os_str().is_empty() {
            return Err(not_a_repository("not a git repository: ''".to_owned()));
        }
        let named = paths::absolute(base, path);
        // With a slash at its end a file is none.
        let stat = self.system.stat(&base.join(path));
        let is_file = stat.is_ok_and(|stat| stat.kind == FileKind::File);
        let git_dir = match is_file.then(|| self.dot_git(&named)).transpose()? {
            Some(Some(DotGit::File(target))) => target,
            _ => named,
        };
        match self.repository(&git_dir)? {
            Some(common_dir) => Ok(Location {
                git_dir,
                common_dir,
                found: Found::Explicit,
            }),
            None => Err(not_a_repository(format!(
                "not a git repository: '{}'",
                path.display()
            ))),
        }
    }

    /// Walks up from `start`, which is absolute, until a repository is found.
    pub(super) fn walk_up(&self, start: &Path) -> Result<Location> {
        let across = self
            .environment
            .boolean("GIT_DISCOVERY_ACROSS_FILESYSTEM")?
            .unwrap_or(false);
        let ceiling = self.ceiling(start);
        let device = |path: &Path| match self.system.stat(path) {
            Ok(stat) => Ok(stat.dev),
            Err(error) => Err(Error::io("failed to stat", path, error)),
        };
        let start_device = if across { None } else { Some(device(start)?) };
        let mut dir = start;
        loop {
            if let Some(location) = self.at(dir)? {
                return Ok(location);
            }
            let parent = dir
                .parent()
                .filter(|parent| ceiling.as_ref().is_none_or(|ceiling| parent != ceiling));
            let Some(parent) = parent else {
                return Err(not_a_repository(
                    "not a git repository (or any of the parent directories): .git",
                ));
            };
            if let Some(start_device) = start_device
                && device(parent)? != start_device
            {
                return Err(not_a_repository(format!(
                    "not a git repository (or any parent up to mount point {})\nStopping at \
                     filesystem boundary (GIT_DISCOVERY_ACROSS_FILESYSTEM not set).",
                    parent.display()
                )));
            }
            dir = parent;
        }
    }

    /// Returns the repository that `dir` has or is.
    fn at(&self, dir: &Path) -> Result<Option<Location>> {
        let dot_git = dir.join(".git");
        let there = self.dot_git(&dot_git)?;
        if let Some(DotGit::File(git_dir)) = there {
            let Some(common_dir) = self.repository(&git_dir)? else {
                return Err(not_a_repository(format!(
                    "not a git repository: {}",
                    git_dir.display()
                )));
            };
            return Ok(Some(Location {
                git_dir,
                common_dir,
                found: Found::DotGit {
                    parent: dir.to_owned(),
                    gitfile: Some(dot_git),
                },
            }));
        }
        if there.is_some()
            && let Some(common_dir) = self.repository(&dot_git)?
        {
            return Ok(Some(Location {
                git_dir: dot_git,
                common_dir,
                found: Found::DotGit {
                    parent: dir.to_owned(),
                    gitfile: None,
                },
            }));
        }
        let location = self.repository(dir)?.map(|common_dir| Location {
            git_dir: dir.to_owned(),
            common_dir,
            found: Found::Bare,
        });
        Ok(location)
    }

    /// Returns the directory above which, and in which, no repository is looked for.
    ///
    /// An empty entry of the list says that the ones behind it hold no symbolic links.
    fn ceiling(&self, start: &Path) -> Option<PathBuf> {
        let list = self.environment.bytes("GIT_CEILING_DIRECTORIES")?;
        let mut plain = false;
        let mut longest: Option<PathBuf> = None;
        for entry in list.split_str(":") {
            if entry.is_empty() {
                plain = true;
                continue;
            }
            let path = bytes_to_path(entry);
            if !path.is_absolute() {
                continue;
            }
            let path = if plain {
                path.to_owned()
            } else {
                paths::real(self.system, path).unwrap_or_else(|_| path.to_owned())
            };
            let is_longer = longest
                .as_ref()
                .is_none_or(|longest| path.starts_with(longest));
            if start != path && start.starts_with(&path) && is_longer {
                longest = Some(path);
            }
        }
        longest
    }

    /// Returns what is at `path`; `None` if nothing is.
    ///
    /// # Errors
    /// `Repository` when it is neither a gitfile nor a directory.
    fn dot_git(&self, path: &Path) -> Result<Option<DotGit>> {
        match self.system.stat(path) {
            Ok(stat) if stat.kind == FileKind::File && stat.len <= GITFILE_LEN_MAX => {}
            Ok(stat) if stat.kind == FileKind::File => {
                return Err(bad_gitfile(format!(
                    "too large to be a .git file: '{}'",
                    path.display()
                )));
            }
            Ok(stat) if stat.kind == FileKind::Directory => return Ok(Some(DotGit::Directory)),
            // Whoever passed over it would work in the repository around this one.
            Ok(_) => {
                return Err(bad_gitfile(format!(
                    "not a regular file: '{}'",
                    path.display()
                )));
            }
            Err(error) if is_absent(&error) => return Ok(None),
            Err(_) => {
                return Err(bad_gitfile(format!("error reading '{}'", path.display())));
            }
        }
        let content = self
            .system
            .read(path)
            .map_err(|error| Error::io("error opening", path, error))?;
        let Some(target) = content.strip_prefix(b"gitdir: ") else {
            return Err(bad_gitfile(format!(
                "invalid gitfile format: {}",
                path.display()
            )));
        };
        let target = without_line_end(target);
        if target.is_empty() {
            return Err(bad_gitfile(format!(
                "no path in gitfile: {}",
                path.display()
            )));
        }
        // Git reads no further.
        let target = target.split(|&byte| byte == 0).next().unwrap_or_default();
        let parent = path.parent().unwrap_or(Path::new(""));
        let target = parent.join(bytes_to_path(target));
        let git_dir = paths::real(self.system, &target).unwrap_or(target);
        Ok(Some(DotGit::File(git_dir)))
    }

    /// Returns the common directory if `git_dir` is the directory of a repository: it has a
    /// `HEAD` that looks like one, and there are `objects` and `refs`.
    fn repository(&self, git_dir: &Path) -> Result<Option<PathBuf>> {
        let may_be_damaged = self.damaged && self.had_head(git_dir);
        let has_head = match may_be_damaged {
            true => Ok(true),
            false => self.has_head(git_dir),
        };
        if let Ok(false) = has_head {
            return Ok(None);
        }
        let common_dir = match self.common_dir_of(git_dir) {
            // Nothing of it can be read: it is none.
            Err(_) if has_head.is_err() => return Ok(None),
            common_dir => common_dir?,
        };
        let is_dir = |path: &Path| {
            let stat = self.system.stat(path);
            stat.is_ok_and(|stat| stat.kind == FileKind::Directory)
        };
        let objects = self
            .environment
            .path("GIT_OBJECT_DIRECTORY")
            .unwrap_or_else(|| common_dir.join("objects"));
        let is_repository = is_dir(&objects) && is_dir(&common_dir.join("refs"));
        if is_repository && let Err(error) = has_head {
            // Whoever passed over it would work in the repository around this one.
            return Err(Error::io("unable to read", &git_dir.join("HEAD"), error));
        }
        Ok(is_repository.then_some(common_dir))
    }

    /// Returns whether `HEAD` is a symbolic link into `refs/`, a symref into it, or an id.
    ///
    /// # Errors
    /// Those of the system, if it is there and cannot be read.
    fn has_head(&self, git_dir: &Path) -> io::Result<bool> {
        let head = git_dir.join("HEAD");
        // A link to a ref need not lead to a file; one to elsewhere would say which branch another repository is at.
        if let Ok(target) = self.system.read_link(&head) {
            return Ok(path_to_bytes(&target).starts_with(b"refs/"));
        }
        let content = match self.system.read_at_most(&head, HEAD_LEN_MAX) {
            Ok(content) => content,
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::IsADirectory => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        Ok(match content.strip_prefix(b"ref:") {
            Some(target) => {
                let start = target.iter().position(|&byte| !is_space(byte));
                let target = target.get(start.unwrap_or(target.len())..);
                target.unwrap_or_default().starts_with(b"refs/")
            }
            None => [64, 40]
                .iter()
                .filter_map(|&len| content.get(..len))
                .any(|hex| ObjectId::from_hex(hex).is_some()),
        })
    }

    /// Returns whether there is what a repository has beside its `HEAD`, which is damaged or gone.
    fn had_head(&self, git_dir: &Path) -> bool {
        ["HEAD", "config", "commondir"]
            .iter()
            .any(|name| self.system.lstat(&git_dir.join(name)).is_ok())
    }

    /// Returns the common directory of a repository: named, or told by the file `commondir`.
    pub(super) fn common_dir_of(&self, git_dir: &Path) -> Result<PathBuf> {
        if let Some(named) = self.common_dir {
            return Ok(named.to_owned());
        }
        let file = git_dir.join("commondir");
        match self.system.read_at_most(&file, PATH_FILE_LEN_MAX) {
            Ok(content) if content.len() == PATH_FILE_LEN_MAX => {
                let message = format!(
                    "too large to be the name of a directory: {}",
                    file.display()
                );
                Err(Error::new(ErrorKind::Repository, message))
            }
            Ok(content) if content.is_empty() => {
                let message = format!("failed to read {}: it is empty", file.display());
                Err(Error::new(ErrorKind::Repository, message))
            }
            // Git takes what stands before it.
            Ok(content) if content.contains(&0) => {
                let message = format!(
                    "no name of a directory, with a byte of zero in it: {}",
                    file.display()
                );
                Err(Error::new(ErrorKind::Repository, message))
            }
            Ok(content) => {
                let path = bytes_to_path(without_line_end(&content));
                let joined = git_dir.join(path);
                Ok(paths::real(self.system, &joined).unwrap_or(joined))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(git_dir.to_owned())
            }
            Err(error) => Err(Error::io("failed to read", &file, error)),
        }
    }
}

/// Returns whether a bare repository belongs to another's `.git` and is no surprise there: the
/// `.git` itself, a linked worktree's directory, or that of a submodule.
pub(super) fn is_implicitly_bare(git_dir: &Path) -> bool {
    let path = path_to_bytes(git_dir);
    // Every process comes here. A search of many bytes at a time would begin by asking the processor
    // whether it can do that, which takes a virtual machine longer than all else of such a path.
    let holds = |part: &[u8]| path.windows(part.len()).any(|window| window == part);
    path.ends_with(b"/.git") || holds(b"/.git/worktrees/") || holds(b"/.git/modules/")
}

fn without_line_end(line: &[u8]) -> &BStr {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    line.get(..end.map_or(0, |end| end + 1))
        .unwrap_or_default()
        .as_bstr()
}

fn not_a_repository(message: impl Into<Message>) -> Error {
    Error::new(ErrorKind::NoRepository, message)
}

fn bad_gitfile(message: String) -> Error {
    Error::new(ErrorKind::Repository, message)
}
