//! Refs as Arrow columns.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use refdb_arrow::{ArrowArrayStream, Selection, Table};
use refdb_git::Repository;

use crate::failure::detached;

/// Refs as columns, for whatever takes Arrow's data: `pyarrow.table(columns)`, `polars.DataFrame(columns)`.
///
/// The columns are `name` (binary), `oid` (fixed-size binary), `symref` (binary), `peeled` (fixed-size
/// binary) and `broken` (boolean). They are read when they are taken, each time anew.
#[pyclass(frozen, module = "refdb")]
pub(crate) struct Columns {
    pub(crate) repository: Arc<Repository>,
    pub(crate) selection: Selection,
}

#[pymethods]
impl Columns {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // There is one schema; whoever asks for another one converts.
        drop(requested_schema);
        stream(py, &self.repository, &self.selection)
    }
}

/// Reads refs into a stream of columns, in a capsule that frees what nobody took.
pub(crate) fn stream<'py>(
    py: Python<'py>,
    repository: &Repository,
    selection: &Selection,
) -> PyResult<Bound<'py, PyCapsule>> {
    let read = || Table::read(repository.store(), selection).map(Table::into_stream);
    let stream: ArrowArrayStream = detached(py, read)?;
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
