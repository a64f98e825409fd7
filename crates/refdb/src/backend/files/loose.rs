//! One loose ref: a file that holds an object id or `ref: <name>`, or a symbolic link.
//!
//! Invariants:
//! 1. A link whose text is a ref name is a symref and is never followed, nor is a barrier; any other link is.
//! 2. No content makes the reader fail: what is neither an id nor a symref is [`Loose::Broken`].

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use refdb_names::internals::name_from_disk;
use refdb_names::name::{FormatOptions, is_well_formed};
use refdb_names::{ObjectFormat, ObjectId, RefName, Target};
use rustix::io::Errno;

use crate::commit::entries;
use crate::reflog::is_space;
use crate::system::{FileKind, System};

/// A file longer than this is no ref, whatever it starts with.
const LEN_MAX: usize = 1 << 20;

/// How often a file that vanishes between two calls is looked for again.
const ATTEMPTS: usize = 3;

/// What there is at the path of a loose ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loose {
    /// Nothing.
    Missing,
    /// A directory: no ref, but perhaps refs below it.
    Directory,
    /// A ref.
    Found(Target),
    /// Something that is no ref.
    Broken,
}

/// Reads the loose ref at `path`.
///
/// # Errors
/// Those of the system, `NotADirectory` among them when a parent of `path` is a file.
pub(super) fn read(system: &dyn System, path: &Path, format: ObjectFormat) -> io::Result<Loose> {
    for _ in 0..ATTEMPTS {
        let mut stat = match system.lstat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loose::Missing),
            stat => stat?,
        };
        if stat.kind == FileKind::Symlink {
            match read_link(system, path) {
                Ok(Link::Ref(target)) => return Ok(Loose::Found(target)),
                Ok(Link::Barrier) => return Ok(Loose::Missing),
                Ok(Link::Other) => {}
                // Replaced by something else meanwhile.
                Err(error) if changed(&error) => continue,
                Err(error) => return Err(error),
            }
            stat = match system.stat(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loose::Missing),
                // A circle of links leads to no file either, and keeps nobody from the other refs.
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    return Ok(Loose::Missing);
                }
                stat => stat?,
            };
        }
        match stat.kind {
            FileKind::Directory => return Ok(Loose::Directory),
            FileKind::File => {}
            _ => return Ok(Loose::Broken),
        }
        match read_content(system, path, format) {
            Ok(found) => return Ok(found),
            Err(error) if changed(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Loose::Missing)
}

/// Reads the loose ref at `path`, which a listing said to be a regular file.
pub(super) fn read_listed(
    system: &dyn System,
    path: &Path,
    format: ObjectFormat,
) -> io::Result<Loose> {
    match read_content(system, path, format) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Loose::Missing),
        Err(_) => read(system, path, format),
        found => found,
    }
}

/// Reads a file, of which no more is kept than a ref can have.
fn read_content(system: &dyn System, path: &Path, format: ObjectFormat) -> io::Result<Loose> {
    let content = system.read_at_most(path, LEN_MAX + 1)?;
    if content.len() > LEN_MAX {
        return Ok(Loose::Broken);
    }
    Ok(parse(&content, format).map_or(Loose::Broken, Loose::Found))
}

fn changed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory
    )
}

/// What a link in the place of a ref is.
enum Link {
    /// A symref.
    Ref(Target),
    /// A barrier of a transaction: there is no ref, whatever it leads to.
    Barrier,
    /// The way to a file.
    Other,
}

fn read_link(system: &dyn System, path: &Path) -> io::Result<Link> {
    let text = system.read_link(path)?;
    if entries::bars(&text) {
        return Ok(Link::Barrier);
    }
    let text = text.as_os_str().as_bytes();
    let is_ref = text.starts_with(b"refs/") && is_well_formed(text, FormatOptions::FULL);
    Ok(match is_ref {
        true => Link::Ref(Target::Symbolic(name_from_disk(text).to_owned())),
        false => Link::Other,
    })
}

/// Returns the symref that the link at `path` is; `None` if it is none.
pub fn read_symlink(system: &dyn System, path: &Path) -> io::Result<Option<Target>> {
    Ok(match read_link(system, path)? {
        Link::Ref(target) => Some(target),
        Link::Barrier | Link::Other => None,
    })
}

/// Returns what the content of a loose ref says; `None` if it is no ref.
pub fn parse(content: &[u8], format: ObjectFormat) -> Option<Target> {
    let end = content.iter().rposition(|&byte| !is_space(byte))?;
    let content = content.get(..=end)?;
    if let Some(rest) = content.strip_prefix(b"ref:") {
        // Without a target it is a symref to the name without bytes: it leads nowhere, and can be
        // deleted and written like any other symref.
        let start = rest.iter().position(|&byte| !is_space(byte));
        let target = start.map_or(&b""[..], |start| &rest[start..]);
        // Zeros are what a power failure leaves; the name before them may be cut short.
        if target.contains(&0) {
            return None;
        }
        return Some(Target::Symbolic(name_from_disk(target).to_owned()));
    }
    let (hex, rest) = content.split_at_checked(format.hex_len())?;
    if rest.first().is_some_and(|&byte| !is_space(byte)) {
        return None;
    }
    ObjectId::from_hex(hex).map(Target::Direct)
}

/// Returns the content of the loose ref that holds `oid`.
pub(super) fn direct(oid: ObjectId) -> Vec<u8> {
    let mut content = Vec::with_capacity(oid.format().hex_len() + 1);
    oid.push_hex(&mut content);
    content.push(b'\n');
    content
}

/// Returns the content of the loose ref that is a symref to `target`.
pub(super) fn symbolic(target: RefName<'_>) -> Vec<u8> {
    [b"ref: ", target.as_bytes(), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::OsSystem;

    const HEX: &[u8] = b"89abcdef0123456789abcdef0123456789abcdef";

    fn target(content: &[u8]) -> Option<Target> {
        parse(content, ObjectFormat::Sha1)
    }

    fn symref(name: &[u8]) -> Option<Target> {
        Some(Target::Symbolic(name_from_disk(name).to_owned()))
    }

    #[test]
    fn an_id_may_be_followed_by_space_and_anything() {
        let id = Some(Target::Direct(ObjectId::from_hex(HEX).unwrap()));
        for tail in [
            &b""[..],
            b"\n",
            b" junk",
            b"\t\tbranch 'x' of y\nmore\n",
            b" \r\n",
        ] {
            assert_eq!(target(&[HEX, tail].concat()), id, "{tail:?}");
        }
        assert_eq!(target(&HEX.to_ascii_uppercase()), id);
    }

    #[test]
    fn what_is_no_ref() {
        let long = [HEX, b"X"].concat();
        let zero = [HEX, b"\0\n"].concat();
        for content in [
            &b""[..],
            b"\n \n",
            &HEX[..39],
            &long,
            &zero,
            b"zz",
            b"ref: refs/heads/main\0\n",
            b"ref: refs/heads/ma\0in\n",
            b"ref: refs/heads/main\n\0",
            b"ref: \0",
        ] {
            assert_eq!(target(content), None, "{content:?}");
        }
        assert_eq!(parse(HEX, ObjectFormat::Sha256), None);
    }

    #[test]
    fn a_barrier_is_no_ref_even_where_it_leads_to_one() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let (barrier, link) = ("refdb-locked-0123456789abcdef", "other");
        for name in [barrier, link] {
            std::fs::write(at(name), HEX).unwrap();
            std::os::unix::fs::symlink(name, at(&format!("to-{name}"))).unwrap();
        }
        let read = |name| {
            read(
                &OsSystem::new(),
                &at(&format!("to-{name}")),
                ObjectFormat::Sha1,
            )
        };
        assert_eq!(read(barrier).unwrap(), Loose::Missing);
        assert_eq!(read(link).unwrap(), Loose::Found(target(HEX).unwrap()));
    }

    #[test]
    fn a_symref_needs_no_space() {
        assert_eq!(
            target(b"ref: refs/heads/main\n"),
            symref(b"refs/heads/main")
        );
        assert_eq!(target(b"ref:refs/x"), symref(b"refs/x"));
        assert_eq!(target(b"ref: \n"), symref(b""));
        assert_eq!(target(b"ref:\t \n refs/x y \n"), symref(b"refs/x y"));
    }
}
