//! The log with group commit.

use crate::answer::Answer;
use crate::engine::Shared;
use crate::errors::os_error;
use crate::file::File;
use crate::raw::Memory;
use pyo3::prelude::*;
use std::sync::Arc;

/// A log at the end of a file: records of many tasks share writes and syncs.
#[pyclass(frozen, module = "ringway._ringway")]
pub struct Log {
    log: ringway::LogWriter,
    shared: Arc<Shared>,
    name: Option<Py<PyAny>>,
}

#[pymethods]
impl Log {
    /// Appends to a file from the offset `end` on.
    #[new]
    fn new(py: Python<'_>, file: &File, end: u64) -> PyResult<Self> {
        let log = ringway::LogWriter::new(file.inner()?, end);
        let log = log.map_err(|error| os_error(py, &error, file.name()))?;
        let name = file.name().map(|name| name.clone_ref(py));
        Ok(Self { log, shared: Arc::clone(file.shared()), name })
    }

    /// Appends a record. The result is its offset, when it is durable.
    fn append(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (log, memory) = (self.log.clone(), Memory::pin(record, false)?);
        self.shared.start(py, self.name.as_ref(), async move {
            Ok(Answer::Count(log.append(memory.into_buffer()).await?))
        })
    }
}
