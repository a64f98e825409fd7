//! The way to a file below a directory, on which no link is followed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};

use super::{Near, OsSystem};
use crate::beneath::{Below, Narrow};
use crate::{System, platform};

impl Narrow for OsSystem {
    type Root = Arc<OwnedFd>;

    fn root(&self, path: &Path) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.open_as(path, platform::THROUGH, 0)?.into()))
    }

    fn narrow(
        &self,
        root: &Arc<OwnedFd>,
        paths: &[Below<'_>],
        _no_link: bool,
    ) -> io::Result<Arc<dyn System>> {
        let near = |below: &Below<'_>| {
            let Some(parent) = below.rest.parent() else {
                // The directory itself.
                return Ok::<_, io::Error>(Near {
                    path: below.whole.to_owned(),
                    dir: Arc::clone(root),
                    local: OnceLock::new(),
                });
            };
            let dir = match parent.as_os_str().is_empty() {
                true => Arc::clone(root),
                false => Arc::new(self.dir_beneath(root, parent)?),
            };
            let path = below.whole.parent().unwrap_or(below.whole).to_owned();
            let local = OnceLock::new();
            Ok(Near { path, dir, local })
        };
        let mut nears = paths.iter().map(near);
        Ok(Arc::new(OsSystem {
            near: nears.next().transpose()?,
            other: nears.next().transpose()?,
            strict: true,
            step_by_step: self.step_by_step,
        }))
    }
}

impl OsSystem {
    /// Opens a directory below another one without following a link on the way.
    fn dir_beneath(&self, root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
        let flags = platform::THROUGH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if !self.step_by_step
            && let Some(opened) = platform::open_beneath(root, path, flags)
        {
            return opened;
        }
        let mut dir: Option<OwnedFd> = None;
        for part in path.components() {
            let from = dir.as_ref().unwrap_or(root);
            dir = Some(rustix::fs::openat(
                from,
                part.as_os_str(),
                flags,
                Mode::empty(),
            )?);
        }
        dir.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two paths, the way to the one leads through the directory of the other.
    #[test]
    fn each_of_two_paths_is_followed_from_its_own_directory() {
        let temp = tempfile::tempdir().unwrap();
        let (base, out) = (temp.path().join("base"), temp.path().join("out"));
        for dir in [&base, &base.join("dir"), &out] {
            std::fs::create_dir(dir).unwrap();
        }
        let (file, new) = (base.join("file"), base.join("dir/new"));
        std::fs::write(&file, "content").unwrap();
        let system = OsSystem::new();
        let root = system.root(&base).unwrap();
        let below = |whole| Below {
            whole,
            rest: Path::strip_prefix(whole, &base).unwrap(),
        };
        for paths in [[&file, &new], [&new, &file]] {
            let narrow = system.narrow(&root, &paths.map(|path| below(path)), false);
            let narrow = narrow.unwrap();
            // Somebody exchanges the directory for a link after it was found.
            std::fs::rename(base.join("dir"), base.join("moved")).unwrap();
            std::os::unix::fs::symlink(&out, base.join("dir")).unwrap();
            narrow.hard_link(&file, &new).unwrap();
            assert!(base.join("moved/new").exists());
            assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
            std::fs::remove_file(base.join("dir")).unwrap();
            std::fs::remove_file(base.join("moved/new")).unwrap();
            std::fs::rename(base.join("moved"), base.join("dir")).unwrap();
        }
    }
}
