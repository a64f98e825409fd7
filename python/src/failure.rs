//! Errors of refdb as exceptions, which the package defines.

use std::ffi::OsStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use refdb::error::Remedy;
use refdb::{Error, ErrorKind};

use crate::transaction::Rejection;

static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Returns the exception that an error is.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|failure| failure)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let errors = ERRORS.get_or_try_init(py, || {
        PyModule::import(py, "refdb._errors").map(Bound::unbind)
    })?;
    let exception = errors
        .bind(py)
        .getattr(class_of(error))?
        .call1((error.to_string(),))?;
    let path = error.message().path().map(AsRef::<OsStr>::as_ref);
    exception.setattr("path", path)?;
    exception.setattr("line", error.line())?;
    exception.setattr(
        "remedy",
        match error.message().remedy() {
            Some(Remedy::Repair) => Some("repair"),
            Some(Remedy::RemoveLocks) => Some("remove-locks"),
            Some(Remedy::GiveUp) => Some("give-up"),
            _ => None,
        },
    )?;
    let refused = error.rejection().map(Rejection::of);
    exception.setattr("rejections", refused.into_iter().collect::<Vec<_>>())?;
    Ok(PyErr::from_value(exception))
}

fn class_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Rejected if error.message().is_held() => "Locked",
        ErrorKind::Rejected => "Rejected",
        ErrorKind::Locked => "Locked",
        ErrorKind::Corrupt | ErrorKind::PackedRefs => "Corrupt",
        ErrorKind::BrokenRef => "BrokenRef",
        ErrorKind::InvalidName => "InvalidName",
        ErrorKind::Io => "IoError",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::Config | ErrorKind::Date => "ConfigError",
        ErrorKind::NoRepository | ErrorKind::BareRepository | ErrorKind::Repository => {
            "RepositoryError"
        }
        ErrorKind::Misuse => "Misuse",
        ErrorKind::Moved => "Moved",
        _ => "Error",
    }
}

/// Does work while other threads have Python.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> refdb::Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| raised(py, &error))
}
