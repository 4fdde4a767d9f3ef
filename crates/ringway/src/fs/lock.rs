//! The error of a lock that may be taken. The locks themselves are methods of the file.

use std::{error, fmt, io};

/// Why [`try_lock`](super::File::try_lock) or [`try_lock_shared`](super::File::try_lock_shared)
/// did not lock the file. It has the variants of `std::fs::TryLockError`, which exists since Rust
/// 1.89 only.
#[derive(Debug)]
pub enum TryLockError {
    /// Locking failed.
    Error(io::Error),
    /// Another open file has it locked.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::WouldBlock => f.write_str("another open file has it locked"),
        }
    }
}

impl error::Error for TryLockError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Error(error) => error.source(),
            Self::WouldBlock => None,
        }
    }
}

impl From<TryLockError> for io::Error {
    fn from(error: TryLockError) -> Self {
        match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}
