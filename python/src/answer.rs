//! Results of operations, and what they are in Python.

use crate::engine::Shared;
use crate::file::File;
use crate::raw::Memory;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ringway::fs::{FileType, Metadata};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of an operation.
pub enum Answer {
    Nothing,
    Yes(bool),
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
    Path(PathBuf),
    /// Names in a directory, with their types and inode numbers.
    Entries(Vec<(OsString, Option<char>, u64)>),
    Numbers(Vec<u64>),
}

impl Answer {
    /// Errors: MemoryError.
    pub fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Yes(yes) => yes.into_py_any(py),
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
                (File::new(file, shared, name), stat(py, &metadata)?).into_py_any(py)
            }
            Self::Metadata(metadata) => stat(py, &metadata)?.into_py_any(py),
            Self::Path(path) => path.into_os_string().into_py_any(py),
            Self::Entries(entries) => entries.into_py_any(py),
            Self::Numbers(numbers) => numbers.into_py_any(py),
        }
    }
}

/// The character of a type of file in a listing.
pub fn type_of(kind: FileType) -> char {
    match () {
        () if kind.is_dir() => 'd',
        () if kind.is_file() => 'f',
        () if kind.is_symlink() => 'l',
        () => 'o',
    }
}

/// The numbers of an `os.stat_result`: mode, inode, device, links, user, group, size, the times of
/// access, modification and change in nanoseconds, block size, blocks, device number.
fn stat<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyTuple>> {
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let numbers = [
        i128::from(MetadataExt::mode(metadata)),
        metadata.ino().into(),
        metadata.dev().into(),
        metadata.nlink().into(),
        metadata.uid().into(),
        metadata.gid().into(),
        metadata.size().into(),
        nanoseconds(metadata.atime(), metadata.atime_nsec()),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        metadata.blksize().into(),
        metadata.blocks().into(),
        metadata.rdev().into(),
    ];
    PyTuple::new(py, numbers)
}
