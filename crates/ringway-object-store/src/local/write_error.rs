//! The errors of writes, with the texts of `LocalFileSystem`. It leaves the path out of some of
//! them; here each has its path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) type Result<T> = std::result::Result<T, WriteError>;

/// Why a write failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// A step of the write failed.
    Io { action: Action, path: PathBuf, source: io::Error },
    /// The object to be copied does not exist.
    NotFound { path: PathBuf, source: io::Error },
    /// An object could not be copied.
    Copy { from: PathBuf, to: PathBuf, source: io::Error },
    /// An object is to be created and exists.
    AlreadyExists { path: PathBuf, source: io::Error },
    /// An object is to be updated, and is not the expected one.
    Precondition { path: PathBuf, reason: String },
    /// An object is to be updated, and the expected ETag is missing.
    MissingETag,
    /// The upload was completed or aborted before.
    Aborted,
    /// An upload is to be completed, and this many of its parts are not written.
    Unfinished { path: PathBuf, parts: usize },
}

/// What could not be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    CopyData,
    CreateDir,
    CreateFile,
    Delete,
    Metadata,
    Open,
    Rename,
    Sync,
    Lock,
}

impl Action {
    /// The error of this step, for this path. For `map_err`.
    pub(crate) fn failed(self, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
        move |source| WriteError::Io { action: self, path: path.to_owned(), source }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CopyData => "copy data to file",
            Self::CreateDir => "create dir",
            Self::CreateFile => "create file",
            Self::Delete => "delete file",
            Self::Metadata => "access metadata for",
            Self::Open => "open file",
            Self::Rename => "rename file",
            Self::Sync => "sync data to disk for",
            Self::Lock => "lock directory",
        })
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { action, path, source } => {
                write!(f, "Unable to {action} {}: {source}", path.display())
            }
            Self::NotFound { .. } => f.write_str("NotFound"),
            Self::Copy { from, to, source } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "Unable to copy file from {from} to {to}: {source}")
            }
            Self::AlreadyExists { .. } => f.write_str("AlreadyExists"),
            Self::Precondition { reason, .. } => f.write_str(reason),
            Self::MissingETag => f.write_str("ETag required for conditional update"),
            Self::Aborted => f.write_str("Upload aborted"),
            Self::Unfinished { path, parts } => {
                write!(f, "Unable to complete {}: {parts} parts are not written", path.display())
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. }
            | Self::NotFound { source, .. }
            | Self::Copy { source, .. }
            | Self::AlreadyExists { source, .. } => Some(source),
            _ => None,
        }
    }
}
