//! Paths as Git takes them: bytes, made absolute, freed of symbolic links.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use refdb::system::{FileKind, System};

/// How many symbolic links one path may lead through.
const LINKS_MAX: usize = 40;

/// Returns the bytes of a path.
pub(super) fn path_to_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Returns `path` seen from `base`, without `.`; `..` stays, since a link may be before it.
pub(super) fn absolute(base: &Path, path: &Path) -> PathBuf {
    let joined = base.join(path);
    let mut plain = PathBuf::new();
    for component in joined.components() {
        if component != Component::CurDir {
            plain.push(component);
        }
    }
    plain
}

/// Returns the one path of a file that leads through no symbolic link. The last component need
/// not exist.
///
/// # Errors
/// When another component does not exist, or links lead in a circle.
pub fn real(system: &dyn System, path: &Path) -> io::Result<PathBuf> {
    resolve(system, path, false)
}

/// Returns whether two paths do not lead to the same place.
pub(super) fn are_apart(system: &dyn System, one: &Path, other: &Path) -> bool {
    one != other && real(system, one).ok() != real(system, other).ok()
}

/// Does the same as [`real`], where any component may be missing.
pub(super) fn real_or_missing(system: &dyn System, path: &Path) -> io::Result<PathBuf> {
    resolve(system, path, true)
}

fn resolve(system: &dyn System, path: &Path, may_miss: bool) -> io::Result<PathBuf> {
    let mut links = 0;
    let mut resolved = PathBuf::from("/");
    // What is still to be walked, the next component last.
    let mut rest = reversed(&std::path::absolute(path)?);
    while let Some(component) = rest.pop() {
        if component.as_os_str() == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&component);
        let stat = match system.lstat(&next) {
            Ok(stat) => stat,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && (may_miss || rest.is_empty()) =>
            {
                resolved = next;
                continue;
            }
            Err(error) => return Err(error),
        };
        if stat.kind == FileKind::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = system.read_link(&next)?;
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            }
            rest.extend(reversed(&target));
        } else {
            resolved = next;
        }
    }
    Ok(resolved)
}

/// Returns the names in a path, the last one first; `..` is among them.
fn reversed(path: &Path) -> Vec<PathBuf> {
    let names = path
        .components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("..")),
            _ => None,
        });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::system::OsSystem;

    #[test]
    fn links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let root = dir.path().canonicalize().unwrap();
        system.create_dir(&root.join("a")).unwrap();
        system.create_dir(&root.join("a/b")).unwrap();
        system.symlink(Path::new("a/b"), &root.join("l")).unwrap();
        system
            .symlink(Path::new("loop"), &root.join("loop"))
            .unwrap();
        assert_eq!(
            real(&system, &root.join("l/../b")).unwrap(),
            root.join("a/b")
        );
        assert_eq!(
            real(&system, &root.join("l/new")).unwrap(),
            root.join("a/b/new")
        );
        assert!(real(&system, &root.join("no/such")).is_err());
        let missing = real_or_missing(&system, &root.join("l/no/such/../new"));
        assert_eq!(missing.unwrap(), root.join("a/b/no/new"));
        assert!(real(&system, &root.join("loop")).is_err());
    }

    #[test]
    fn absolute_paths() {
        assert_eq!(
            absolute(Path::new("/a"), Path::new("./b/.")),
            Path::new("/a/b")
        );
        assert_eq!(absolute(Path::new("/a"), Path::new("/c")), Path::new("/c"));
    }
}
