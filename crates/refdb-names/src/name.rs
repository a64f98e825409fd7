//! Names of refs: Git's two name rules, and the classes that a name can belong to.
//!
//! A name is bytes, not UTF-8. [`RefName::new`] takes well-formed names (`check-ref-format
//! --allow-onelevel`), and [`RefName::lax`] also those that are only safe (they cannot lead out of the
//! repository), which Git reads and deletes but never creates. A name that came from a cursor may be
//! neither, because disks hold what other programs wrote: such a ref is marked bad.
//!
//! ```
//! use refdb_names::name::{RefName, is_per_worktree, is_root_ref};
//! let name = RefName::new("refs/heads/topic").unwrap();
//! assert_eq!(name.as_bytes(), b"refs/heads/topic");
//! assert!(RefName::new("refs/heads/two..dots").is_err());
//! assert!(RefName::lax("refs/heads/two..dots").is_ok());
//! assert!(RefName::lax("../config").is_err());
//! assert!(is_root_ref(b"ORIG_HEAD"));
//! assert!(is_per_worktree(b"refs/bisect/bad"));
//! ```

mod class;
pub(crate) mod rules;

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};

use bstr::{BStr, BString, ByteSlice};
use reftable::short;

pub use class::{WorktreeName, is_per_worktree, is_pseudoref, is_root_ref, worktree_name};
pub use rules::{FormatOptions, goes_on_plainly, is_path, is_safe, is_well_formed, normalize};

/// How many symrefs a name is followed through before it counts as unresolvable, as in Git: a
/// chain of four symrefs and the direct ref they end in.
pub const SYMREF_DEPTH_MAX: usize = 5;

/// No ref can have this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(pub BString);

/// The name of a ref, borrowed. Names are sorted by their bytes.
#[derive(Clone, Copy, Eq)]
pub struct RefName<'a>(&'a [u8]);

/// The name of a ref, owned.
#[derive(Clone, Eq)]
pub struct RefNameBuf(Vec<u8>);

impl<'a> RefName<'a> {
    /// `HEAD`: what is checked out in a worktree.
    pub const HEAD: RefName<'static> = RefName(b"HEAD");

    /// Takes `name` as the name of a ref, if it is well-formed; one component is enough.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, InvalidName> {
        let name = name.as_ref();
        match is_well_formed(name, FormatOptions::ONE_LEVEL) {
            true => Ok(RefName(name)),
            false => Err(invalid(name)),
        }
    }

    /// Takes `name` as the name of a ref that another program may have made: a well-formed one, or a
    /// safe one. Such a ref can be read and deleted.
    ///
    /// # Errors
    /// [`InvalidName`]: no ref can have that name.
    pub fn lax(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, InvalidName> {
        let given = RefName(name.as_ref());
        match given.may_exist() {
            true => Ok(given),
            false => Err(invalid(given.0)),
        }
    }

    /// Takes a name that was read from a disk, or that is known to be well-formed, without a check.
    pub(crate) const fn from_disk(name: &'a [u8]) -> Self {
        RefName(name)
    }

    /// Returns the bytes of the name.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the name as a byte string, which prints as text.
    #[inline]
    pub fn as_bstr(self) -> &'a BStr {
        self.0.as_bstr()
    }

    /// Copies the name.
    pub fn to_owned(self) -> RefNameBuf {
        RefNameBuf(self.0.to_vec())
    }

    /// Returns the name by which the ref of this name of another worktree is known: `worktrees/<id>/` or
    /// `main-worktree/` stands before it. Nothing but a per-worktree ref has such a name.
    pub fn of_worktree(self, id: Option<&[u8]>) -> RefNameBuf {
        RefNameBuf(match id {
            Some(id) => [b"worktrees/", id, b"/", self.0].concat(),
            None => [b"main-worktree/", self.0].concat(),
        })
    }

    /// Returns whether the name is well-formed; one component is enough.
    pub fn is_well_formed(self) -> bool {
        is_well_formed(self.0, FormatOptions::ONE_LEVEL)
    }

    /// Returns whether a ref of this name is ever looked for: a well-formed one, or a safe one, which
    /// another program may have made. Any other is the name of no ref, whatever a file says.
    pub fn may_exist(self) -> bool {
        self.is_well_formed() || is_safe(self.0)
    }

    /// Returns whether this name lies below another one: the two cannot both be refs.
    pub fn is_below(self, above: RefName<'_>) -> bool {
        let rest = self.as_bytes().strip_prefix(above.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// Returns whether this is `HEAD`.
    pub fn is_head(self) -> bool {
        self.0 == b"HEAD"
    }
}

impl RefNameBuf {
    /// Takes `name` as the name of a ref, under the rule of [`RefName::new`].
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(name: impl Into<Vec<u8>>) -> Result<Self, InvalidName> {
        let name = name.into();
        RefName::new(&name)?;
        Ok(RefNameBuf(name))
    }

    /// Takes `name` as the name of a ref, under the rule of [`RefName::lax`].
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn lax(name: impl Into<Vec<u8>>) -> Result<Self, InvalidName> {
        let name = name.into();
        RefName::lax(&name)?;
        Ok(RefNameBuf(name))
    }

    /// Takes a name that was read from a disk, or that is known to be well-formed, without a check.
    pub(crate) fn from_disk(name: impl Into<Vec<u8>>) -> Self {
        RefNameBuf(name.into())
    }

    /// Borrows the name.
    #[inline]
    pub fn as_name(&self) -> RefName<'_> {
        RefName(&self.0)
    }

    /// Returns the bytes of the name.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn invalid(name: &[u8]) -> InvalidName {
    InvalidName(name.into())
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid ref format: {}", self.0)
    }
}

impl Error for InvalidName {}

impl PartialEq for RefName<'_> {
    fn eq(&self, other: &Self) -> bool {
        short::same(self.0, other.0)
    }
}

impl Ord for RefName<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        short::compare(self.0, other.0)
    }
}

impl PartialOrd for RefName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for RefName<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialEq for RefNameBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_name() == other.as_name()
    }
}

impl Ord for RefNameBuf {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_name().cmp(&other.as_name())
    }
}

impl PartialOrd for RefNameBuf {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// As the bytes are: maps are asked for names by them.
impl Hash for RefNameBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_name().hash(state);
    }
}

impl<'a> From<&'a RefNameBuf> for RefName<'a> {
    fn from(name: &'a RefNameBuf) -> Self {
        name.as_name()
    }
}

/// An edit takes names as bytes, and a transaction checks them.
impl<'a> From<RefName<'a>> for Cow<'a, BStr> {
    #[inline]
    fn from(name: RefName<'a>) -> Self {
        Cow::Borrowed(name.as_bstr())
    }
}

impl<'a> From<&'a RefNameBuf> for Cow<'a, BStr> {
    fn from(name: &'a RefNameBuf) -> Self {
        name.as_name().into()
    }
}

impl Borrow<[u8]> for RefNameBuf {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RefName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_bstr(), f)
    }
}

impl fmt::Debug for RefName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_bstr(), f)
    }
}

impl fmt::Display for RefNameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_bstr(), f)
    }
}

impl fmt::Debug for RefNameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_bstr(), f)
    }
}
