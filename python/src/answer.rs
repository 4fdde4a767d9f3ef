//! Results of operations, and what they are in Python.

use crate::engine::Shared;
use crate::file::File;
use crate::raw::Memory;
use crate::system::{self, Number};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ringway::fs::Metadata;
use std::sync::Arc;

/// The result of an operation.
pub enum Answer {
    Nothing,
    Count(u64),
    /// The first bytes of `bytes` that was filled.
    Bytes(Memory, usize),
    /// `bytes` that were filled, and those behind them: the file is longer than expected.
    More(Memory, Vec<u8>),
    /// Those of each range.
    All(Vec<Answer>),
    Counts(Vec<u64>),
    /// An open file, with its metadata and the path in its errors.
    File {
        file: ringway::fs::File,
        metadata: Metadata,
        shared: Arc<Shared>,
        name: Option<Py<PyAny>>,
    },
    Metadata(Metadata),
    /// What makes any other object.
    Other(Make),
}

type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

impl Answer {
    /// A value that Python has an object for.
    pub fn of(value: impl for<'py> IntoPyObject<'py> + Send + 'static) -> Self {
        Self::Other(Box::new(|py| value.into_py_any(py)))
    }

    /// Errors: MemoryError.
    pub fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Count(count) => count.into_py_any(py),
            Self::Bytes(memory, len) => Ok(memory.into_bytes(py, len)),
            Self::More(memory, more) => {
                let len = memory.len();
                (memory.into_bytes(py, len), PyBytes::new(py, &more)).into_py_any(py)
            }
            Self::All(answers) => {
                let objects = answers.into_iter().map(|answer| answer.into_object(py));
                objects.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
            }
            Self::Counts(counts) => counts.into_py_any(py),
            Self::File { file, metadata, shared, name } => {
                let file = File::new(file, Number::new(), shared, name);
                (file, stat(py, &metadata)?).into_py_any(py)
            }
            Self::Metadata(metadata) => stat(py, &metadata)?.into_py_any(py),
            Self::Other(make) => make(py),
        }
    }
}

/// The numbers of an `os.stat_result`.
fn stat<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, system::stat(metadata))
}
