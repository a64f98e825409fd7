//! Edits: what a transaction is asked to do to one ref.

use std::borrow::Cow;

use bstr::BStr;
use refdb_names::ObjectId;

use crate::reflog::{Signature, is_space};

/// One edit of a transaction.
///
/// It takes names as [`RefName`](crate::RefName), or as bytes that nobody has looked at: [`Transaction::add`]
/// checks them, more strictly where the ref gets a value than where it loses one.
///
/// [`Transaction::add`]: crate::Transaction::add
///
/// ```
/// use refdb::{Edit, Expected, ObjectFormat, ObjectId, RefName};
/// let name = RefName::new("refs/heads/topic").unwrap();
/// let oid = ObjectId::from_hex(&[b'1'; 40]).unwrap();
/// let edit = Edit::update(name, oid).expecting(Expected::Missing).message(b"branch: created");
/// assert_eq!(edit.name(), "refs/heads/topic");
/// ```
#[derive(Clone, Debug)]
pub struct Edit<'a> {
    pub(crate) name: Cow<'a, BStr>,
    pub(crate) change: Change<'a>,
    pub(crate) expected: Expected<'a>,
    /// Whether a symref is followed and the ref at its end changed.
    pub(crate) deref: bool,
    pub(crate) create_log: bool,
    pub(crate) skip_log: bool,
    pub(crate) skip_object_check: bool,
    pub(crate) message: Cow<'a, [u8]>,
    /// Whether the message is stored as it is.
    pub(crate) is_spaced: bool,
}

/// What an edit does, as callers say it.
///
/// The entry is in a box, because it is rare and as large as all the rest of an edit together.
pub type Change<'a> = ChangeOf<ObjectId, Cow<'a, BStr>, Box<LogEdit>>;

/// What an edit does, whatever stands for an object, for a name and for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOf<O, N, L> {
    /// The ref is to name this object. The null id deletes.
    Update(O),
    /// The ref is to be a symref to this name.
    Symbolic(N),
    /// The ref and its reflog are to go.
    Delete,
    /// Nothing changes: only the expectation is checked.
    Verify,
    /// An entry is added to the reflog; the ref stays as it is.
    Log(L),
}

impl<O, N, L> ChangeOf<O, N, L> {
    /// Says the same with others in place of the object, the name and the entry.
    #[inline]
    pub(super) fn map<P, M, K>(
        self,
        object: impl FnOnce(O) -> P,
        name: impl FnOnce(N) -> M,
        entry: impl FnOnce(L) -> K,
    ) -> ChangeOf<P, M, K> {
        match self {
            ChangeOf::Update(it) => ChangeOf::Update(object(it)),
            ChangeOf::Symbolic(it) => ChangeOf::Symbolic(name(it)),
            ChangeOf::Delete => ChangeOf::Delete,
            ChangeOf::Verify => ChangeOf::Verify,
            ChangeOf::Log(it) => ChangeOf::Log(entry(it)),
        }
    }
}

/// An entry that is added to a reflog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEdit {
    /// The old value of the entry.
    pub old: ObjectId,
    /// The new value of the entry.
    pub new: ObjectId,
    /// Who is named in the entry; the store's committer if `None`.
    pub who: Option<Signature>,
}

/// What the ref is expected to hold, as it is found under its lock; as callers say it.
pub type Expected<'a> = ExpectedOf<ObjectId, Cow<'a, BStr>>;

/// What the ref is expected to hold, whatever stands for an object and for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedOf<O, N> {
    /// Anything or nothing.
    Any,
    /// The ref does not exist.
    Missing,
    /// The ref exists, whatever it holds. A symref that is followed has to end at one; one that is not
    /// followed need not lead anywhere.
    Exists,
    /// The ref resolves to this object.
    Oid(O),
    /// The ref is a symref to exactly this name.
    Symbolic(N),
}

impl<O, N> ExpectedOf<O, N> {
    /// Says the same with others in place of the object and the name.
    #[inline]
    pub(super) fn map<P, M>(
        self,
        object: impl FnOnce(O) -> P,
        name: impl FnOnce(N) -> M,
    ) -> ExpectedOf<P, M> {
        match self {
            ExpectedOf::Any => ExpectedOf::Any,
            ExpectedOf::Missing => ExpectedOf::Missing,
            ExpectedOf::Exists => ExpectedOf::Exists,
            ExpectedOf::Oid(it) => ExpectedOf::Oid(object(it)),
            ExpectedOf::Symbolic(it) => ExpectedOf::Symbolic(name(it)),
        }
    }
}

impl<'a> Edit<'a> {
    #[inline]
    fn new(name: Cow<'a, BStr>, change: Change<'a>) -> Self {
        Edit {
            name,
            change,
            expected: Expected::Any,
            deref: true,
            create_log: false,
            skip_log: false,
            skip_object_check: false,
            message: Cow::Borrowed(b""),
            is_spaced: false,
        }
    }

    /// Sets a ref to an object id, creating it if need be; the null id deletes it.
    #[inline]
    pub fn update(name: impl Into<Cow<'a, BStr>>, new: ObjectId) -> Self {
        Edit::new(name.into(), Change::Update(new))
    }

    /// Makes a ref a symref to `target`.
    pub fn symbolic(name: impl Into<Cow<'a, BStr>>, target: impl Into<Cow<'a, BStr>>) -> Self {
        Edit::new(name.into(), Change::Symbolic(target.into()))
    }

    /// Deletes a ref and its reflog; a missing ref is fine unless a value is expected.
    #[inline]
    pub fn delete(name: impl Into<Cow<'a, BStr>>) -> Self {
        Edit::new(name.into(), Change::Delete)
    }

    /// Checks what a ref holds and changes nothing.
    pub fn verify(name: impl Into<Cow<'a, BStr>>, expected: Expected<'a>) -> Self {
        Edit::new(name.into(), Change::Verify).expecting(expected)
    }

    /// Adds an entry to a reflog, making the reflog if need be.
    pub fn log(name: impl Into<Cow<'a, BStr>>, old: ObjectId, new: ObjectId) -> Self {
        let who = None;
        let change = Change::Log(Box::new(LogEdit { old, new, who }));
        Edit {
            deref: false,
            create_log: true,
            ..Edit::new(name.into(), change)
        }
    }

    /// Says who is named in the entry of [`Edit::log`] and when it was.
    pub fn signed(mut self, signature: Signature) -> Self {
        if let Change::Log(entry) = &mut self.change {
            entry.who = Some(signature);
        }
        self
    }

    /// Requires the ref to hold something when it is locked.
    #[inline]
    pub fn expecting(mut self, expected: Expected<'a>) -> Self {
        self.expected = expected;
        self
    }

    /// Changes a symref itself and not the ref at its end.
    #[inline]
    pub fn no_deref(mut self) -> Self {
        self.deref = false;
        self
    }

    /// Gives the reason that the reflog records. Runs of white space become one space, as with Git.
    #[inline]
    pub fn message(mut self, message: impl Into<Cow<'a, [u8]>>) -> Self {
        self.message = message.into();
        self
    }

    /// As [`Edit::message`], and each character of white space becomes one space, but for those at the ends.
    ///
    /// ```
    /// # use refdb::{Edit, RefName};
    /// let edit = Edit::delete(RefName::HEAD).spaced_message(b"first line\n  second line\n");
    /// ```
    pub fn spaced_message(mut self, message: &[u8]) -> Self {
        let as_space = |byte: &u8| if is_space(*byte) { b' ' } else { *byte };
        self.message = message
            .trim_ascii()
            .iter()
            .map(as_space)
            .collect::<Vec<u8>>()
            .into();
        self.is_spaced = true;
        self
    }

    /// Makes a reflog even where the configuration asks for none.
    #[inline]
    pub fn create_log(mut self) -> Self {
        self.create_log = true;
        self
    }

    /// Brings no entry: neither for the reflog of the ref, nor for those of symrefs that lead to it. A
    /// reflog still goes with its ref.
    pub fn skip_log(mut self) -> Self {
        self.skip_log = true;
        self
    }

    /// Takes the new value without looking for its object.
    pub fn skip_object_check(mut self) -> Self {
        self.skip_object_check = true;
        self
    }

    /// Returns the name of the ref that the edit is about.
    pub fn name(&self) -> &BStr {
        self.name.as_ref()
    }

    /// Returns whether the edit touches nothing but a reflog.
    pub fn is_log_only(&self) -> bool {
        matches!(self.change, Change::Log(_))
    }

    /// Returns what the edit does.
    pub fn change(&self) -> &Change<'a> {
        &self.change
    }

    /// Returns what the ref is expected to hold.
    pub fn expected(&self) -> &Expected<'a> {
        &self.expected
    }

    /// Turns borrowed names and messages into owned ones.
    pub fn into_owned(self) -> Edit<'static> {
        let owned = |name: Cow<'_, BStr>| Cow::Owned(name.into_owned());
        Edit {
            name: owned(self.name),
            change: self.change.map(|oid| oid, owned, |entry| entry),
            expected: self.expected.map(|oid| oid, owned),
            message: Cow::Owned(self.message.into_owned()),
            is_spaced: self.is_spaced,
            deref: self.deref,
            create_log: self.create_log,
            skip_log: self.skip_log,
            skip_object_check: self.skip_object_check,
        }
    }
}
