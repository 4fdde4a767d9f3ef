//! Reads a directory with the standard library, on Windows.

use super::{BATCH, RawEntry};
use crate::fs::File;
use ringway_core::op::FileType;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A directory that is being read, with its position. It is opened by its path once more.
#[derive(Clone)]
pub(super) struct Listing(Arc<(PathBuf, Mutex<Option<std::fs::ReadDir>>)>);

impl Listing {
    pub(super) fn new(_: &File, path: &Path) -> io::Result<Self> {
        // The working directory may change before the directory is read.
        Ok(Self(Arc::new((std::path::absolute(path)?, Mutex::new(None)))))
    }

    /// Reads the next entries; none at the end.
    pub(super) fn batch(&self) -> io::Result<VecDeque<RawEntry>> {
        let (path, dir) = &*self.0;
        let mut dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = match &mut *dir {
            Some(dir) => dir,
            none => none.insert(std::fs::read_dir(path)?),
        };
        dir.take(BATCH)
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type().ok().map(kind);
                Ok(RawEntry { name: entry.file_name(), kind })
            })
            .collect()
    }
}

/// The types that Windows has, as in `stat(2)`.
fn kind(kind: std::fs::FileType) -> FileType {
    FileType::from_mode(match () {
        () if kind.is_symlink() => 0o120_000,
        () if kind.is_dir() => 0o040_000,
        () => 0o100_000,
    })
}
