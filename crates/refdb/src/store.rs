//! The store: the refs of one repository, seen from one of its worktrees.
//!
//! ```
//! use refdb::{Edit, Expected, RefName, Store};
//!
//! fn branch_off(store: &Store) -> refdb::Result<()> {
//!     let main = RefName::new("refs/heads/main")?;
//!     if let Some(resolved) = store.resolve(main)? {
//!         let topic = RefName::new("refs/heads/topic")?;
//!         let mut transaction = store.transaction();
//!         transaction.add(Edit::update(topic, resolved.oid).expecting(Expected::Missing))?;
//!         transaction.commit()?;
//!     }
//!     Ok(())
//! }
//! ```

mod logs;

use std::path::PathBuf;
use std::sync::Arc;

use refdb_names::name::is_pseudoref;
use refdb_names::{ObjectId, RefName, RefNameBuf};

pub use crate::backend::Optimize;
use crate::backend::cursor::Cursor;
use crate::backend::files::{FilesBackend, pseudoref};
use crate::backend::maintained::Maintained;
use crate::backend::reftable::ReftableBackend;
use crate::backend::tags::Wanted;
use crate::backend::{Backend, RefFormat, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::hook;
use crate::layout::{Layout, is_of_tables};
use crate::objects::Objects;
use crate::options::Options;
use crate::refs::{Ref, Refs};
use crate::resolve::{End, follow};
use crate::shared::Register;
use crate::system::System;
use crate::transaction::rename::{Rename, Renaming};
use crate::transaction::{self, Commits, Group, Outcome, Prepared, Transaction};

/// The refs of one repository, seen from one of its worktrees.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Arc<dyn Backend>,
    objects: Arc<dyn Objects>,
    options: Arc<Options>,
    system: Arc<dyn System>,
    commits: Arc<Commits>,
    /// Where pseudorefs are, if they are not what the backend reads as a ref of that name.
    pseudorefs: Option<PathBuf>,
}

/// Where a name leads when symrefs are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The last name: the given one unless it is a symref.
    pub name: RefNameBuf,
    /// The object that it names.
    pub oid: ObjectId,
    /// What the object peels to, when that is stored.
    pub peeled: Option<ObjectId>,
}

impl Store {
    /// Opens the refs that `layout` describes.
    ///
    /// # Errors
    /// None so far: nothing is read yet, and no settings are refused.
    pub fn open(
        system: Arc<dyn System>,
        layout: Layout,
        format: RefFormat,
        objects: Arc<dyn Objects>,
        options: Options,
    ) -> Result<Store> {
        if format == RefFormat::Reftable {
            return Ok(Store::of_tables(system, layout, None, objects, options));
        }
        let options = Arc::new(options);
        let system = system.near(layout.common_dir()).unwrap_or(system);
        let backend = FilesBackend::new(Arc::clone(&system), layout, Arc::clone(&options));
        Ok(Store {
            backend: Arc::new(backend),
            objects,
            options,
            system,
            commits: Arc::default(),
            pseudorefs: None,
        })
    }

    /// Opens refs in tables; with a register those of the common directory are where that says.
    fn of_tables(
        system: Arc<dyn System>,
        layout: Layout,
        register: Option<Arc<Register>>,
        objects: Arc<dyn Objects>,
        options: Options,
    ) -> Store {
        let options = Arc::new(options);
        let system = system.near(layout.common_dir()).unwrap_or(system);
        let pseudorefs = Some(layout.worktree_dir().to_owned());
        let (near, settings) = (Arc::clone(&system), Arc::clone(&options));
        Store {
            backend: Arc::new(ReftableBackend::new(near, layout, settings, register)),
            objects,
            options,
            system,
            commits: Arc::default(),
            pseudorefs,
        }
    }

    /// Opens the refs that many machines share, as the main worktree of a repository sees them.
    ///
    /// # Errors
    /// None so far: nothing is read yet, and no settings are refused.
    pub fn open_shared(
        register: Arc<Register>,
        objects: Arc<dyn Objects>,
        options: Options,
    ) -> Result<Store> {
        Store::open_shared_beside(&Layout::main("/nowhere"), register, objects, options)
    }

    /// As [`Store::open_shared`], for a repository that has a place on this machine too. The refs of single
    /// worktrees are there.
    ///
    /// # Errors
    /// `Unsupported` in a linked worktree.
    pub fn open_shared_beside(
        layout: &Layout,
        register: Arc<Register>,
        objects: Arc<dyn Objects>,
        options: Options,
    ) -> Result<Store> {
        if layout.is_linked() {
            let what = "a store that machines share cannot be used from a linked worktree yet";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let (system, layout) = (register.system_shared(), layout.clone());
        let register = Some(register);
        Ok(Store::of_tables(system, layout, register, objects, options))
    }

    /// Returns the format that the refs are kept in.
    pub fn format(&self) -> RefFormat {
        self.backend.format()
    }

    /// Returns what only maintenance asks of it.
    pub(crate) fn maintained(&self) -> &dyn Maintained {
        self.backend.maintained()
    }

    /// Returns what brings the commits of several threads together.
    #[cfg(test)]
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// Returns the same refs beside other objects: those of a host that has an object database of its own.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use refdb::objects::NoObjects;
    /// fn unchecked(store: &refdb::Store) -> refdb::Store {
    ///     store.with_objects(Arc::new(NoObjects))
    /// }
    /// ```
    pub fn with_objects(&self, objects: Arc<dyn Objects>) -> Store {
        let store = self.clone();
        Store { objects, ..store }
    }

    /// Returns the settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the object database that new values are checked against.
    pub fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    /// Reads one ref as it is stored; `None` if there is none.
    ///
    /// # Errors
    /// `BrokenRef` when the ref is there and cannot be read; `Corrupt` or `Io` for the files.
    pub fn read(&self, name: RefName<'_>) -> Result<Option<Ref>> {
        let value = self.value(name)?;
        Ok(value.map(|value| Ref::new(name, value)))
    }

    /// Reads refs as [`Store::read`] does each, and looks only once at what they have in common: each is as it
    /// was at some moment between the call and its end, though not all at the same.
    ///
    /// ```no_run
    /// # fn example(store: &refdb::Store) -> refdb::Result<()> {
    /// let names = ["refs/heads/main", "refs/heads/next"];
    /// let names = names.map(|name| refdb::RefName::new(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
    /// for found in store.read_all(&names) {
    ///     println!("{}", found?.is_some());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// For each name as for [`Store::read`].
    pub fn read_all(&self, names: &[RefName<'_>]) -> Vec<Result<Option<Ref>>> {
        if names.iter().any(|name| is_pseudoref(name.as_bytes())) {
            return names.iter().map(|&name| self.read(name)).collect();
        }
        let each_fails = |error: Error| names.iter().map(|_| Err(error.clone())).collect();
        let mut found = self.backend.read_all(names).unwrap_or_else(each_fails);
        let is_missed = |found: &Result<Option<Value>>| match found {
            Ok(Some(found)) => may_be_left(found),
            _ => true,
        };
        if found.iter().any(is_missed)
            && let Err(error) = self.options.still_there()
        {
            let missed = found.iter_mut().filter(|found| is_missed(found));
            missed.for_each(|found| *found = Err(error.clone()));
        }
        let found = found.into_iter().zip(names);
        let found = found.map(|(found, &name)| Ok(found?.map(|value| Ref::new(name, value))));
        found.collect()
    }

    fn value(&self, name: RefName<'_>) -> Result<Option<Value>> {
        match &self.pseudorefs {
            Some(dir) if is_pseudoref(name.as_bytes()) => {
                pseudoref(self.system.as_ref(), dir, name, self.options.object_format)
            }
            _ => match self.backend.read(name) {
                Ok(Some(found)) if !may_be_left(&found) => Ok(Some(found)),
                missed => self.if_still_there(missed),
            },
        }
    }

    /// Returns what a reader came to who missed something, unless that is because the refs were moved.
    fn if_still_there<T>(&self, missed: Result<T>) -> Result<T> {
        self.options.still_there()?;
        missed
    }

    /// Follows symrefs to an object; `None` if the name, or one that it leads to, does not exist,
    /// is not well-formed, or lies deeper than Git follows.
    ///
    /// # Errors
    /// As for [`Store::read`].
    pub fn resolve(&self, name: RefName<'_>) -> Result<Option<Resolved>> {
        Ok(match follow(name, |name| self.value(name))? {
            End::Object { name, oid, peeled } => Some(Resolved { name, oid, peeled }),
            End::Missing(_) | End::Nowhere => None,
        })
    }

    /// Makes a cursor over all refs that this worktree sees, root refs included.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn refs(&self) -> Result<Refs> {
        self.over(self.backend.cursor())
    }

    fn over(&self, cursor: Result<Box<dyn Cursor>>) -> Result<Refs> {
        match cursor {
            Ok(cursor) => Ok(Refs::over(cursor).watched(self.options.still_there.clone())),
            Err(error) => self.if_still_there(Err(error)),
        }
    }

    /// Makes a cursor over refs among which are all that lead to one of `oids`, if none of these is
    /// a tag: refs that may be passed over unread, because of what is stored beside them or in an
    /// index, are passed over. All symrefs are among them, wherever they lead.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files and the objects.
    pub fn refs_of_objects(&self, oids: &[ObjectId]) -> Result<Refs> {
        let wanted = Wanted::new(oids, true, &self.objects);
        self.over(self.backend.refs_of_objects(&wanted))
    }

    /// Begins a transaction. Nothing is read or locked before it is prepared.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(
            self.backend.as_ref(),
            self.objects.as_ref(),
            &self.options,
            self.system.as_ref(),
            &self.commits,
        )
    }

    /// Begins a group of transactions that are published together; `None` where a hook wants to be
    /// told of each when it happens, and on a [shared place](crate::shared), where each may have to be
    /// tried again.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`], for what keeps every transaction from being written.
    pub fn group(&self) -> Result<Option<Group<'_>>> {
        if !self.takes_several()? {
            return Ok(None);
        }
        let backend = self.backend.as_ref();
        Group::new(backend, &self.options, self.system.as_ref()).map(Some)
    }

    /// Returns whether several transactions may be one: no hook wants to be told of each, and none has to be
    /// tried again.
    fn takes_several(&self) -> Result<bool> {
        let hook = hook::present(self.options.hook.as_deref())?;
        Ok(hook.is_none() && self.backend.tries_again().is_none())
    }

    /// Prepares transactions as one, at the cost of one; `None` if it is not certain that each of them
    /// could be committed, one after the other: a [`Group`] finds out. Nothing is waited for.
    ///
    /// ```no_run
    /// # use refdb::{Edit, RefName};
    /// # fn f(store: &refdb::Store, new: refdb::ObjectId) -> refdb::Result<()> {
    /// let mut transactions = Vec::new();
    /// for name in ["refs/heads/a", "refs/heads/b"] {
    ///     let mut transaction = store.transaction();
    ///     transaction.add(Edit::update(RefName::new(name)?, new))?;
    ///     transactions.push(transaction);
    /// }
    /// match store.prepare_together(&transactions)? {
    ///     Some(prepared) => {
    ///         prepared.commit()?;
    ///     }
    ///     None => {
    ///         for transaction in transactions {
    ///             transaction.commit()?;
    ///         }
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Misuse` for a transaction of another store; `Hook` when it cannot be found out whether there is a
    /// hook, which is to be told of each.
    pub fn prepare_together<'t, 's: 't>(
        &'s self,
        transactions: impl IntoIterator<Item = &'t Transaction<'s>>,
    ) -> Result<Option<Prepared<'s>>> {
        match self.takes_several()? {
            true => self.transaction().together(transactions.into_iter()),
            false => Ok(None),
        }
    }

    /// Does something again for as long as another writer is faster.
    fn until_done<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let (backend, system) = (self.backend.as_ref(), self.system.as_ref());
        transaction::until_not_overtaken(backend, system, || {
            // What is missing must be missing now.
            backend.generation(true)?;
            attempt()
        })
    }

    /// Gives a ref, and its reflog, another name. A ref that has that name is replaced; symrefs to
    /// the old name, HEAD among them, stay as they are.
    ///
    /// # Errors
    /// `Rejected` when there is no such ref ([`Reason::NonexistentRef`](crate::error::Reason)), or when another
    /// ref is in the way of the new name (`NameConflict`); `Misuse` when it is a symref; `Locked` when another
    /// process changes one of the refs; `Corrupt` or `Io` for the files.
    pub fn rename(&self, from: RefName<'_>, to: RefName<'_>, message: &[u8]) -> Result<Outcome> {
        let replaces = Renaming {
            message,
            replaces: true,
            ..Renaming::default()
        };
        self.rename_as(from, to, &replaces)
    }

    /// As [`Store::rename`], to a name that no ref has: that is asked under its lock.
    ///
    /// # Errors
    /// As for [`Store::rename`], and `Rejected` (`CreateExists`) when there is a ref of that name.
    pub fn rename_to_new(
        &self,
        from: RefName<'_>,
        to: RefName<'_>,
        message: &[u8],
    ) -> Result<Outcome> {
        let how = Renaming {
            message,
            ..Renaming::default()
        };
        self.rename_as(from, to, &how)
    }

    /// Copies a ref and its reflog to another name, as [`Store::rename`] gives it another one.
    ///
    /// # Errors
    /// As for [`Store::rename`].
    pub fn copy(&self, from: RefName<'_>, to: RefName<'_>, message: &[u8]) -> Result<Outcome> {
        let copies = Renaming {
            message,
            copies: true,
            replaces: true,
            ..Renaming::default()
        };
        self.rename_as(from, to, &copies)
    }

    /// Gives a ref, and its reflog, another name, as `how` says; symrefs to the old name stay as they are.
    ///
    /// ```no_run
    /// # use refdb::{RefName, Renaming, Signature};
    /// # fn f(store: &refdb::Store, who: Signature) -> refdb::Result<()> {
    /// let how = Renaming { who: Some(who), message: b"renamed", ..Renaming::default() };
    /// let (old, new) = (RefName::new("refs/heads/old")?, RefName::new("refs/heads/new")?);
    /// let _ = store.rename_as(old, new, &how)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Store::rename`], and `Rejected` (`CreateExists`) when there is a ref of that name, unless it is to
    /// be replaced; `Misuse` when the signature has a byte that no reflog can hold.
    pub fn rename_as(
        &self,
        from: RefName<'_>,
        to: RefName<'_>,
        how: &Renaming<'_>,
    ) -> Result<Outcome> {
        let rename = Rename { from, to, how };
        self.until_done(|| transaction::rename::rename(self.transaction(), rename))
    }

    /// Returns the refs whose value, or peeled value, is `oid`, in name order.
    ///
    /// Peeled values are those that are stored beside refs, and of tags without one what the objects say.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files and the objects.
    pub fn refs_by_oid(&self, oid: ObjectId) -> Result<Vec<Ref>> {
        let wanted = Wanted::new(&[oid], false, &self.objects);
        let mut refs = self.over(self.backend.refs_of_objects(&wanted))?;
        let mut found = Vec::new();
        while let Some(record) = refs.next()? {
            if wanted.is_named_by(&record)? {
                found.push(record.to_ref());
            }
        }
        Ok(found)
    }

    /// Packs loose refs, or compacts tables: what `git pack-refs` does.
    ///
    /// # Errors
    /// `Locked` when another process is at it; `Corrupt` or `Io` for the files.
    pub fn optimize(&self, optimize: &Optimize<'_>) -> Result<()> {
        self.backend.optimize(optimize, self.objects.as_ref())
    }
}

/// Returns whether a value may be what a migration has left: the stub in the place of HEAD, or a packed value behind a
/// file that was put away before.
fn may_be_left(found: &Value) -> bool {
    found.packed || is_of_tables(found.target.as_ref())
}
