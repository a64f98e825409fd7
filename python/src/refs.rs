//! Single refs, and going through many.

use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use refdb::{RefRecord, Result, Target};

use crate::convert::{given, to_str};
use crate::failure::detached;

/// So many refs are read at once.
const BATCH: usize = 1024;

/// One ref.
#[pyclass(frozen, eq, module = "refdb")]
#[derive(PartialEq)]
pub(crate) struct Ref(refdb::Ref);

impl Ref {
    pub(crate) fn new(found: refdb::Ref) -> Self {
        Ref(found)
    }
}

#[pymethods]
impl Ref {
    /// The full name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        to_str(py, self.0.name.as_bytes())
    }

    /// The full name, as bytes.
    #[getter]
    fn name_bytes(&self) -> &[u8] {
        self.0.name.as_bytes()
    }

    /// The object, as hexadecimal digits; None for a symref and a broken ref.
    #[getter]
    fn oid(&self) -> Option<String> {
        let oid = self.0.target.oid().filter(|oid| !oid.is_null());
        oid.map(|oid| oid.to_string())
    }

    /// The name that a symref names; None for any other ref.
    #[getter]
    fn symref<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        match &self.0.target {
            Target::Symbolic(name) => to_str(py, name.as_bytes()).map(Some),
            Target::Direct(_) => Ok(None),
        }
    }

    /// What an annotated tag peels to, where that is stored.
    #[getter]
    fn peeled(&self) -> Option<String> {
        self.0.peeled.map(|oid| oid.to_string())
    }

    /// Whether the value could not be read.
    #[getter]
    fn broken(&self) -> bool {
        self.0.broken
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.name(py)?.repr()?;
        Ok(match (self.symref(py)?, self.oid()) {
            (Some(symref), _) => format!("Ref({name}, symref={})", symref.repr()?),
            (None, Some(oid)) => format!("Ref({name}, oid='{oid}')"),
            (None, None) => format!("Ref({name}, broken=True)"),
        })
    }
}

/// A cursor that several threads may take from, and what was read beforehand.
struct Ahead<T> {
    refs: refdb::Refs,
    ahead: IntoIter<T>,
    is_over: bool,
}

/// Refs in the order of their names, of which each is handed out once.
pub(crate) struct Source<T>(Mutex<Ahead<T>>);

impl<T: Send> Source<T> {
    pub(crate) fn new(refs: refdb::Refs) -> Self {
        let (ahead, is_over) = (Vec::new().into_iter(), false);
        Source(Mutex::new(Ahead {
            refs,
            ahead,
            is_over,
        }))
    }

    /// Returns the next one, made by `make`.
    fn next(&self, py: Python<'_>, make: fn(RefRecord<'_>) -> T) -> PyResult<Option<T>> {
        // What is ready needs no file, and nobody waits who has the lock.
        if let Ok(mut source) = self.0.try_lock()
            && let Some(next) = source.ahead.next()
        {
            return Ok(Some(next));
        }
        detached(py, || {
            let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            source.next(make)
        })
    }
}

impl<T> Ahead<T> {
    fn next(&mut self, make: fn(RefRecord<'_>) -> T) -> Result<Option<T>> {
        if let Some(next) = self.ahead.next() {
            return Ok(Some(next));
        }
        let mut batch = Vec::new();
        while !self.is_over && batch.len() < BATCH {
            match self.refs.next()? {
                Some(record) => batch.push(make(record)),
                None => self.is_over = true,
            }
        }
        self.ahead = batch.into_iter();
        Ok(self.ahead.next())
    }
}

/// Goes through names.
#[pyclass(frozen, module = "refdb")]
pub(crate) struct Names {
    pub(crate) source: Source<Vec<u8>>,
    pub(crate) as_bytes: bool,
}

#[pymethods]
impl Names {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = self
            .source
            .next(py, |record| record.name.as_bytes().to_vec())?;
        next.map(|name| given(py, &name, self.as_bytes)).transpose()
    }
}

/// Goes through refs, each with its name or alone.
#[pyclass(frozen, module = "refdb")]
pub(crate) struct Refs {
    pub(crate) source: Source<refdb::Ref>,
    pub(crate) is_named: bool,
}

#[pymethods]
impl Refs {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(found) = self.source.next(py, |record| record.to_ref())? else {
            return Ok(None);
        };
        let name = self
            .is_named
            .then(|| to_str(py, found.name.as_bytes()))
            .transpose()?;
        let found = Bound::new(py, Ref(found))?;
        Ok(Some(match name {
            Some(name) => PyTuple::new(py, [name.as_any(), found.as_any()])?.into_any(),
            None => found.into_any(),
        }))
    }
}
