//! The causes of the store's errors, with the texts that `LocalFileSystem` gives them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file cannot be read. Each release's `object_store::Error` wraps it.
#[derive(Debug)]
pub(crate) enum Error {
    /// There is no such file, or it is a directory.
    NotFound { path: PathBuf, source: io::Error },
    /// The file cannot be opened.
    Open { path: PathBuf, source: io::Error },
    /// Reading failed.
    Read { path: PathBuf, source: io::Error },
    /// The file ends within the range: it has only `expected` bytes of it, of which `actual` were
    /// read.
    OutOfRange { path: PathBuf, expected: u64, actual: u64 },
    /// There is nothing in this range, in any file of this length.
    InvalidRange { source: Box<dyn std::error::Error + Send + Sync> },
    /// There is no engine.
    Engine { source: io::Error },
}

impl Error {
    /// The error for a failed open or a failed request for metadata.
    pub(crate) fn open(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path, source },
            _ => Self::Open { path, source },
        }
    }

    /// The error for a directory, which is no object.
    pub(crate) fn is_directory(path: &Path) -> Self {
        let source = io::Error::new(io::ErrorKind::NotFound, "is directory");
        Self::NotFound { path: path.to_owned(), source }
    }

    /// The error for a failed read.
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    /// The error for a range that begins at or after the end of a file of `length` bytes.
    pub(crate) fn start_too_large(requested: u64, length: u64) -> Self {
        Self::InvalidRange { source: Box::new(RangeError::StartTooLarge { requested, length }) }
    }

    /// The error for a range that ends before it begins.
    pub(crate) fn inconsistent(start: u64, end: u64) -> Self {
        Self::InvalidRange { source: Box::new(RangeError::Inconsistent { start, end }) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { .. } => f.write_str("NotFound"),
            Self::Open { path, source } => {
                write!(f, "Unable to open file {}: {source}", path.display())
            }
            Self::Read { path, source } => {
                write!(f, "Unable to read data from file {}: {source}", path.display())
            }
            Self::OutOfRange { path, expected, actual } => write!(
                f,
                "Out of range of file {}, expected: {expected}, actual: {actual}",
                path.display()
            ),
            Self::InvalidRange { .. } => f.write_str("Requested range was invalid"),
            Self::Engine { source } => write!(f, "Unable to start an I/O engine: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotFound { source, .. }
            | Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Engine { source } => Some(source),
            Self::InvalidRange { source } => Some(source.as_ref()),
            Self::OutOfRange { .. } => None,
        }
    }
}

/// What is wrong with a range. object_store's type for this is not public.
#[derive(Debug)]
enum RangeError {
    StartTooLarge { requested: u64, length: u64 },
    Inconsistent { start: u64, end: u64 },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartTooLarge { requested, length } => write!(
                f,
                "Wanted range starting at {requested}, but object was only {length} bytes long"
            ),
            Self::Inconsistent { start, end } => {
                write!(f, "Range started at {start} and ended at {end}")
            }
        }
    }
}

impl std::error::Error for RangeError {}
