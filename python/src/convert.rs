//! Names and ids, between Python and refdb.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use refdb::ObjectId;

/// A name, or another text: given as `str`, in which surrogates stand for bytes that are no UTF-8, or as
/// `bytes`.
#[derive(Clone, Debug)]
pub(crate) struct Text(pub(crate) Vec<u8>);

impl FromPyObject<'_, '_> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Text(bytes.as_bytes().to_vec()));
        }
        let Ok(text) = object.cast::<PyString>() else {
            return Err(PyTypeError::new_err("a name is str or bytes"));
        };
        if let Ok(text) = text.to_str() {
            return Ok(Text(text.as_bytes().to_vec()));
        }
        let encoded = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
        Ok(Text(encoded.extract()?))
    }
}

/// Returns bytes as `str`, with surrogates for what is no UTF-8.
pub(crate) fn to_str<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    // Python looks for itself what is UTF-8, and goes through them once.
    if let Ok(text) = PyString::from_bytes(py, bytes) {
        return Ok(text);
    }
    let decoded = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(decoded.cast_into::<PyString>()?)
}

/// Returns bytes as a caller wants them.
pub(crate) fn given<'py>(
    py: Python<'py>,
    bytes: &[u8],
    as_bytes: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match as_bytes {
        true => Ok(PyBytes::new(py, bytes).into_any()),
        false => Ok(to_str(py, bytes)?.into_any()),
    }
}

/// An id: hexadecimal digits as `str` or `bytes`, or 20 or 32 raw bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(pub(crate) ObjectId);

impl FromPyObject<'_, '_> for Id {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Text(text) = object.extract()?;
        let is_bytes = object.is_instance_of::<PyBytes>();
        let raw = ObjectId::from_bytes(&text).filter(|_| is_bytes);
        match raw.or_else(|| ObjectId::from_hex(&text)) {
            Some(id) => Ok(Id(id)),
            None => Err(PyValueError::new_err(
                "an id has 40 or 64 hexadecimal digits, or 20 or 32 raw bytes",
            )),
        }
    }
}
