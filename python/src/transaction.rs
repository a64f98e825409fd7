//! Transactions: edits that happen together at the end of a `with` block.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bstr::BString;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use refdb::{Edit, Expected, RefName};
use refdb_git::Repository;

use crate::convert::{Id, Text, to_str};
use crate::failure::{detached, raised};
use crate::store::zone;

/// A person and a moment: `(name, email, seconds, zone)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Signature(pub(crate) refdb::Signature);

impl FromPyObject<'_, '_> for Signature {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (name, email, time, zone_given): (Text, Text, u64, i64) = object.extract()?;
        Ok(Signature(refdb::Signature {
            name: name.0.into(),
            email: email.0.into(),
            time,
            zone: zone(zone_given)?,
        }))
    }
}

impl<'py> IntoPyObject<'py> for Signature {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (name, email) = (to_str(py, &self.0.name)?, to_str(py, &self.0.email)?);
        (name, email, self.0.time, self.0.zone).into_pyobject(py)
    }
}

/// One refused edit.
#[pyclass(frozen, module = "refdb")]
pub(crate) struct Rejection {
    /// The position of the edit in its transaction, from 0.
    #[pyo3(get)]
    index: usize,
    name: BString,
    /// Why, in Git's words for it.
    #[pyo3(get)]
    reason: &'static str,
    /// Why, in full.
    #[pyo3(get)]
    message: String,
    /// Whether somebody else holds the lock of the ref, so that the same may be tried again.
    #[pyo3(get)]
    locked: bool,
}

impl Rejection {
    pub(crate) fn of(rejection: &refdb::Rejection) -> Self {
        Rejection {
            index: rejection.index,
            name: rejection.name.as_bytes().into(),
            reason: rejection.reason.as_str(),
            message: rejection.message.to_string(),
            locked: rejection.message.is_held(),
        }
    }
}

#[pymethods]
impl Rejection {
    /// The ref that it is about: the edit's, or the one that its symref leads to.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        to_str(py, &self.name)
    }

    fn __repr__(&self) -> String {
        let Rejection {
            index,
            name,
            reason,
            ..
        } = self;
        format!("Rejection(index={index}, name='{name}', reason='{reason}')")
    }
}

/// Edits that happen together, at the end of its `with` block or by `commit()`.
#[pyclass(frozen, module = "refdb")]
pub(crate) struct Transaction {
    repository: Arc<Repository>,
    committer: Option<Signature>,
    message: Vec<u8>,
    batch: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    edits: Vec<Edit<'static>>,
    is_over: bool,
    rejections: Vec<refdb::Rejection>,
    warnings: Vec<String>,
}

/// What a ref is expected to hold: as Python says it.
enum Old {
    Any,
    Missing,
    Exists,
    Oid(Id),
}

impl FromPyObject<'_, '_> for Old {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Old::Missing);
        }
        // The package's `ANY` and `EXISTS`.
        if let Ok(word) = object.getattr("_refdb_old") {
            return match word.extract::<&str>()? {
                "any" => Ok(Old::Any),
                "exists" => Ok(Old::Exists),
                _ => Err(PyTypeError::new_err("no such expectation")),
            };
        }
        Ok(Old::Oid(object.extract()?))
    }
}

impl Transaction {
    pub(crate) fn new(
        repository: Arc<Repository>,
        committer: Option<Signature>,
        message: Vec<u8>,
        batch: bool,
    ) -> Self {
        Transaction {
            repository,
            committer,
            message,
            batch,
            state: Mutex::default(),
        }
    }

    /// Nobody keeps it for longer than it takes to look.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an edit; returns its position.
    fn add(
        &self,
        mut edit: Edit<'static>,
        old: Old,
        message: Option<Text>,
        deref: bool,
    ) -> PyResult<usize> {
        edit = match old {
            Old::Any => edit,
            Old::Missing => edit.expecting(Expected::Missing),
            Old::Exists => edit.expecting(Expected::Exists),
            Old::Oid(id) => edit.expecting(Expected::Oid(id.0)),
        };
        if let Some(Text(message)) = message {
            edit = edit.message(message);
        }
        if !deref {
            edit = edit.no_deref();
        }
        let mut state = self.state();
        if state.is_over {
            return Err(PyRuntimeError::new_err("the transaction is over"));
        }
        state.edits.push(edit);
        Ok(state.edits.len() - 1)
    }
}

/// Takes the name of a ref that gets a value.
fn strict(py: Python<'_>, name: Text) -> PyResult<BString> {
    RefName::new(&name.0).map_err(|error| raised(py, &error.into()))?;
    Ok(name.0.into())
}

/// Takes the name of a ref that may be there.
fn lax(py: Python<'_>, name: Text) -> PyResult<BString> {
    RefName::lax(&name.0).map_err(|error| raised(py, &error.into()))?;
    Ok(name.0.into())
}

fn owned(name: BString) -> std::borrow::Cow<'static, bstr::BStr> {
    std::borrow::Cow::Owned(name)
}

#[pymethods]
impl Transaction {
    /// Sets a ref to an object. `old` is what it has to hold: `refdb.ANY`, `refdb.EXISTS`, None for a ref
    /// that must not be there, or an id. Symrefs are followed unless `deref` is false. Unless `check` is
    /// false, the object has to be there.
    #[pyo3(signature = (name, new, *, old=Old::Any, message=None, deref=true, create_log=false, check=true))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn update(
        &self,
        py: Python<'_>,
        name: Text,
        new: Id,
        old: Old,
        message: Option<Text>,
        deref: bool,
        create_log: bool,
        check: bool,
    ) -> PyResult<usize> {
        let mut edit = Edit::update(owned(strict(py, name)?), new.0);
        if create_log {
            edit = edit.create_log();
        }
        if !check {
            edit = edit.skip_object_check();
        }
        self.add(edit, old, message, deref)
    }

    /// Makes a ref that must not be there yet.
    #[pyo3(signature = (name, new, *, message=None))]
    fn create(
        &self,
        py: Python<'_>,
        name: Text,
        new: Id,
        message: Option<Text>,
    ) -> PyResult<usize> {
        let edit = Edit::update(owned(strict(py, name)?), new.0);
        self.add(edit, Old::Missing, message, true)
    }

    /// Deletes a ref and its reflog; a missing one is fine unless a value is expected.
    #[pyo3(signature = (name, *, old=Old::Any, message=None, deref=true))]
    fn delete(
        &self,
        py: Python<'_>,
        name: Text,
        old: Old,
        message: Option<Text>,
        deref: bool,
    ) -> PyResult<usize> {
        self.add(Edit::delete(owned(lax(py, name)?)), old, message, deref)
    }

    /// Makes a ref a symref to `target`.
    #[pyo3(signature = (name, target, *, old=Old::Any, message=None))]
    fn symbolic(
        &self,
        py: Python<'_>,
        name: Text,
        target: Text,
        old: Old,
        message: Option<Text>,
    ) -> PyResult<usize> {
        let (name, target) = (strict(py, name)?, strict(py, target)?);
        self.add(
            Edit::symbolic(owned(name), owned(target)),
            old,
            message,
            false,
        )
    }

    /// Checks what a ref holds and changes nothing.
    #[pyo3(signature = (name, old, *, deref=true))]
    fn verify(&self, py: Python<'_>, name: Text, old: Old, deref: bool) -> PyResult<usize> {
        let edit = Edit::verify(owned(lax(py, name)?), Expected::Any);
        self.add(edit, old, None, deref)
    }

    /// Adds an entry to the reflog of a ref, which stays as it is.
    #[pyo3(signature = (name, old, new, *, message=None, committer=None))]
    fn log(
        &self,
        py: Python<'_>,
        name: Text,
        old: Id,
        new: Id,
        message: Option<Text>,
        committer: Option<Signature>,
    ) -> PyResult<usize> {
        let mut edit = Edit::log(owned(strict(py, name)?), old.0, new.0);
        if let Some(Signature(who)) = committer {
            edit = edit.signed(who);
        }
        self.add(edit, Old::Any, message, false)
    }

    /// Commits: every edit is visible and durable when it returns.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let edits = {
            let mut state = self.state();
            if state.is_over {
                return Err(PyRuntimeError::new_err("the transaction is over"));
            }
            state.is_over = true;
            take(&mut state.edits)
        };
        let outcome = detached(py, || {
            let mut transaction = self.repository.store().transaction().message(&self.message);
            if self.batch {
                transaction = transaction.batch();
            }
            if let Some(Signature(who)) = &self.committer {
                transaction = transaction.committer(who.clone())?;
            }
            for edit in edits {
                transaction.add(edit)?;
            }
            transaction.commit()
        })?;
        let mut state = self.state();
        state.rejections = outcome.rejections;
        state.warnings = outcome.afterwards.iter().map(ToString::to_string).collect();
        Ok(())
    }

    /// Gives up: nothing happens.
    fn abort(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.edits.clear();
    }

    /// What a batch refused.
    #[getter]
    fn rejections(&self) -> Vec<Rejection> {
        self.state().rejections.iter().map(Rejection::of).collect()
    }

    /// What failed after the refs were in place.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.state().warnings.clone()
    }

    fn __len__(&self) -> usize {
        self.state().edits.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (kind, exception, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyType>>,
        exception: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        drop((exception, traceback));
        let is_over = self.state().is_over;
        match kind {
            Some(_) => self.abort(),
            None if is_over => (),
            None => self.commit(py)?,
        }
        Ok(false)
    }
}
