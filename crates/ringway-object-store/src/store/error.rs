//! Converts the causes of errors to object_store's `Error`, with this store's name.

use super::object_store;
use crate::local::error::Error;
use crate::local::write_error::WriteError;

/// The name of the store in errors.
pub(super) const STORE: &str = "RingwayFileSystem";

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { path, source } => {
                Self::NotFound { path: path.to_string_lossy().into_owned(), source: source.into() }
            }
            error => Self::Generic { store: STORE, source: error.into() },
        }
    }
}

impl From<WriteError> for object_store::Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotFound { path, source } => {
                Self::NotFound { path: path.to_string_lossy().into_owned(), source: source.into() }
            }
            WriteError::AlreadyExists { path, source } => Self::AlreadyExists {
                path: path.to_string_lossy().into_owned(),
                source: source.into(),
            },
            WriteError::Precondition { ref path, .. } => Self::Precondition {
                path: path.to_string_lossy().into_owned(),
                source: error.into(),
            },
            error => Self::Generic { store: STORE, source: error.into() },
        }
    }
}

/// Gives an error of the `LocalFileSystem` inside this store's name.
pub(super) fn renamed(error: object_store::Error) -> object_store::Error {
    match error {
        object_store::Error::Generic { source, .. } => {
            object_store::Error::Generic { store: STORE, source }
        }
        error => error,
    }
}
