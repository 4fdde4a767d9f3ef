//! Opening files, and functions on whole files. Those of `ringway.os` are in `os.rs`.

use crate::answer::Answer;
use crate::engine::Engine;
use crate::errors::os_error;
use crate::file::{File as PyFile, read_all};
use crate::raw::Memory;
use crate::system::{self, adopt, reference};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use ringway::fs::{File, OpenOptions};
use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ACCESS: c_int = libc::O_RDONLY | libc::O_WRONLY | libc::O_RDWR;

/// The options of `open(2)` that these flags stand for.
fn options(flags: i32, mode: u32, direct: bool, dont_cache: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    let access = flags & ACCESS;
    options
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(flags & libc::O_APPEND != 0)
        .truncate(flags & libc::O_TRUNC != 0)
        .create(flags & libc::O_CREAT != 0)
        .create_new(flags & libc::O_EXCL != 0)
        .mode(mode)
        .direct(direct)
        .dont_cache(dont_cache);
    let known = ACCESS | libc::O_APPEND | libc::O_TRUNC | libc::O_CREAT | libc::O_EXCL;
    options.custom_flags(flags & !known);
    options
}

/// Names of more than a path's bytes would be cut by the kernel.
pub fn checked(path: PathBuf) -> PyResult<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(PyValueError::new_err("embedded null byte"));
    }
    Ok(path)
}

/// Runs a system call on the engine's threads.
pub fn call(
    py: Python<'_>,
    engine: &Engine,
    path: Py<PyAny>,
    work: impl FnOnce() -> io::Result<Answer> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&path), async move { inner.call(work).await })
}

/// Opens a file: `(File, stat)`. The flags are those of `open(2)`.
///
/// Errors: those of `open(2)`; IsADirectoryError.
// The parameters are those of Python's function.
#[allow(clippy::too_many_arguments)]
#[pyfunction]
pub fn open(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    flags: i32,
    mode: u32,
    direct: bool,
    dont_cache: bool,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, shared) = (checked(path)?, engine.shared.clone());
    let mut options = options(flags, mode, direct, dont_cache);
    options.engine(&shared.engine);
    let file_name = name_of(py, &name);
    engine.shared.start(py, Some(&name), async move {
        let (file, metadata) = options.open_with_metadata(&path).await?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Answer::File { file, metadata, shared, name: file_name })
    })
}

/// The name that errors of a file's operations have: its path. A descriptor is no name.
fn name_of(py: Python<'_>, name: &Py<PyAny>) -> Option<Py<PyAny>> {
    let name = name.bind(py);
    (!name.is_instance_of::<PyInt>()).then(|| name.clone().unbind())
}

/// Uses a descriptor: itself, or a duplicate. Errors: EBADF, EMFILE.
#[pyfunction]
pub fn open_fd(
    py: Python<'_>,
    engine: &Engine,
    fd: c_int,
    own: bool,
    dont_cache: bool,
    name: Py<PyAny>,
) -> PyResult<PyFile> {
    let shared = Arc::clone(&engine.shared);
    let adopted = adopt(fd, own, &shared.engine);
    let (file, number) = adopted.map_err(|error| os_error(py, &error, Some(&name)))?;
    let file = file.with_dont_cache(dont_cache);
    Ok(PyFile::new(file, number, shared, name_of(py, &name)))
}

/// `fstat(2)` of a descriptor.
#[pyfunction]
pub fn stat_fd(py: Python<'_>, engine: &Engine, fd: c_int, name: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&name), async move {
        let file = File::from_fd(reference(fd)?, &inner);
        Ok(Answer::Metadata(file.metadata().await?))
    })
}

/// Follows symbolic links at the end of a path, also to what does not exist yet.
#[pyfunction]
pub fn resolve(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    /// As many links as the kernel follows.
    const LINKS: usize = 40;
    let mut path = checked(path)?;
    call(py, engine, name, move || {
        for _ in 0..LINKS {
            match std::fs::read_link(&path) {
                Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
                Err(_) => return Ok(Answer::of(path.into_os_string())),
            }
        }
        Err(io::Error::from_raw_os_error(system::ELOOP))
    })
}

/// Replaces a file's content, or creates it, atomically and durably.
#[pyfunction]
pub fn write_atomic(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    data: &Bound<'_, PyAny>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, memory) = (checked(path)?, Memory::pin(data, false)?);
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&name), async move {
        inner.fs().write_atomic(path, memory.into_buffer()).await?;
        Ok(Answer::Nothing)
    })
}

/// Writes a directory's entries to the device.
#[pyfunction]
pub fn sync_dir(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, inner) = (checked(path)?, engine.shared.engine.clone());
    engine.shared.start(py, Some(&name), async move {
        inner.fs().sync_dir(path).await?;
        Ok(Answer::Nothing)
    })
}

/// Opens a file, reads it whole, and closes it.
#[pyfunction]
pub fn read_file(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, inner) = (checked(path)?, engine.shared.engine.clone());
    engine.shared.start(py, Some(&name), async move {
        let mut options = OpenOptions::new();
        options.read(true).engine(&inner);
        let (file, metadata) = options.open_with_metadata(&path).await?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        read_all(&file, 0, metadata.len()).await
    })
}
