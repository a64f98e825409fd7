//! The way to a file below a directory, on which no link is followed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};

use super::{NEAR_FLAGS, Near, OsSystem};
use crate::system::System;
use crate::system::beneath::{Below, Narrow};

impl Narrow for OsSystem {
    type Root = Arc<OwnedFd>;

    fn root(&self, path: &Path) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.open_as(path, NEAR_FLAGS, 0)?.into()))
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
            #[cfg(test)]
            step_by_step: self.step_by_step,
        }))
    }
}

impl OsSystem {
    /// Opens a directory below another one without following a link on the way.
    fn dir_beneath(&self, root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
        let flags = NEAR_FLAGS | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        #[cfg(test)]
        let at_once = !self.step_by_step;
        #[cfg(not(test))]
        let at_once = true;
        #[cfg(target_os = "linux")]
        if at_once {
            use rustix::fs::ResolveFlags;
            use rustix::io::Errno;
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
                // An old kernel, or a sandbox that knows no such call.
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {}
                opened => return Ok(opened?),
            }
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
