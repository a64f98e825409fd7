//! How a program that Git starts sees the repository: the folder that it runs in, and the words in
//! which it is told where the repository is.
//!
//! Git moves to the top of the work tree before it does anything, and says where the repository is
//! only where that cannot be found out from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::BString;
use refdb::system::System;

use super::discover::Found;
use super::paths::{self, path_to_bytes};

/// What a program sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The folder that the program runs in.
    pub(super) dir: PathBuf,
    /// The directory that all worktrees share, seen from there.
    pub(super) common_dir: PathBuf,
    /// `GIT_DIR`, where it is set.
    pub(super) exported: Option<PathBuf>,
    /// `GIT_PREFIX`: where the user stood below the folder, with a `/` behind it.
    pub(super) prefix: BString,
    /// Whether `GIT_IMPLICIT_WORK_TREE` says no.
    pub(super) no_implicit_work_tree: bool,
    /// `GIT_WORK_TREE` as it was named, by an option or a variable.
    pub(super) named_work_tree: Option<PathBuf>,
}

/// Where a repository was found, and what was said about it.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) system: Arc<dyn System>,
    /// Where the user stands.
    pub(super) start: PathBuf,
    /// The directory of the repository as it was named, if it was.
    pub(super) named: Option<PathBuf>,
    pub(super) found: Found,
    pub(super) git_dir: PathBuf,
    pub(super) common_dir: PathBuf,
    /// The top of the work tree.
    pub(super) work_tree: Option<PathBuf>,
    /// The top of the work tree as it was named.
    pub(super) named_work_tree: Option<PathBuf>,
    /// Whether the configuration names a work tree.
    pub(super) configured_work_tree: bool,
    /// Whether the configuration says that there is no work tree.
    pub(super) claims_bare: bool,
    /// Whether the command line says so.
    pub(super) asked_bare: bool,
}

impl Setting {
    /// Returns what a program sees.
    pub(super) fn view(&self) -> View {
        let work_tree_is_known = self.named_work_tree.is_some() || self.configured_work_tree;
        match &self.found {
            Found::Explicit => {
                let named = self.named.as_deref().unwrap_or(&self.start);
                self.explicit(self.unless_gitfile(named), self.asked_bare)
            }
            Found::DotGit { parent, gitfile } => {
                let at_top = self.start == *parent;
                let shown = match gitfile {
                    Some(_) => self.git_dir.to_owned(),
                    None if at_top || !(work_tree_is_known || self.claims_bare) => ".git".into(),
                    None => self.real(&self.git_dir),
                };
                if work_tree_is_known {
                    return self.explicit(shown, false);
                }
                if self.claims_bare {
                    return self.seen(&self.start, Some(&shown), shown.clone(), false);
                }
                let exported = gitfile.is_some().then_some(shown.as_path());
                self.seen(parent, exported, shown.clone(), false)
            }
            Found::Bare => {
                let at_top = self.start == self.git_dir;
                let shown = if at_top {
                    PathBuf::from(".")
                } else {
                    self.git_dir.to_owned()
                };
                if work_tree_is_known {
                    return self.explicit(shown, true);
                }
                self.seen(&self.start, Some(&shown), shown.clone(), true)
            }
        }
    }

    /// A gitfile is named by nobody but its user: programs get the directory that it leads to.
    fn unless_gitfile(&self, named: &Path) -> PathBuf {
        let plain = paths::absolute(&self.start, named);
        if plain == self.git_dir {
            named.to_owned()
        } else {
            self.git_dir.to_owned()
        }
    }

    /// The repository is named, and so its work tree may be anywhere.
    fn explicit(&self, git_dir: PathBuf, no_implicit: bool) -> View {
        let start = self.real(&self.start);
        match self.work_tree.as_deref().map(|top| self.real(top)) {
            Some(top) if start != top && start.starts_with(&top) => {
                let git_dir = self.real(&paths::absolute(&self.start, &git_dir));
                self.seen(&top, Some(&git_dir), git_dir.clone(), no_implicit)
            }
            _ => {
                let view = self.seen(&self.start, Some(&git_dir), git_dir.clone(), no_implicit);
                View {
                    prefix: BString::default(),
                    ..view
                }
            }
        }
    }

    fn seen(
        &self,
        dir: &Path,
        exported: Option<&Path>,
        git_dir: PathBuf,
        no_implicit_work_tree: bool,
    ) -> View {
        let below = self.start.strip_prefix(dir).unwrap_or(Path::new(""));
        let mut prefix = BString::from(path_to_bytes(below));
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let common_dir = if self.git_dir == self.common_dir {
            // Without the `./` that joining would leave.
            git_dir.components().as_path().to_owned()
        } else {
            self.common_dir.to_owned()
        };
        View {
            dir: dir.to_owned(),
            common_dir: if common_dir == Path::new(".") {
                PathBuf::new()
            } else {
                common_dir
            },
            exported: exported.map(Path::to_owned),
            prefix,
            no_implicit_work_tree,
            named_work_tree: self.named_work_tree.clone(),
        }
    }

    fn real(&self, path: &Path) -> PathBuf {
        paths::real(self.system.as_ref(), path).unwrap_or_else(|_| path.to_owned())
    }
}
