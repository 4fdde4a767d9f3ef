//! In place of `dir_lock.rs` on Windows, where a directory cannot be locked: conditional updates
//! are refused.

use std::io;
use std::path::Path;

/// The lock of a directory: there is none.
#[derive(Debug)]
pub(crate) enum DirLock {}

impl DirLock {
    /// Errors: Unsupported.
    pub(crate) fn try_take(_: &Path) -> io::Result<Self> {
        let text = "PutMode::Update locks a directory, which Windows does not support";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}
