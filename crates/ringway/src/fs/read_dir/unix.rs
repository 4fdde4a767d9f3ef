//! Reads a directory with `readdir(3)`, on systems of the Unix family other than Linux.

use super::{BATCH, RawEntry};
use crate::fs::File;
use ringway_core::File as CoreFile;
use ringway_core::op::FileType;
use rustix::fs::Dir;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A directory that is being read, with its position.
#[derive(Clone)]
pub(super) struct Listing(Arc<(CoreFile, Mutex<Option<Dir>>)>);

impl Listing {
    pub(super) fn new(dir: &File, _: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new((dir.core().clone(), Mutex::new(None)))))
    }

    /// Reads the next entries; none at the end.
    pub(super) fn batch(&self) -> io::Result<VecDeque<RawEntry>> {
        let (core, dir) = &*self.0;
        let mut dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = match &mut *dir {
            Some(dir) => dir,
            // Nobody else lists this open directory, whose duplicate has its position. (To open
            // it once more would take the permission to search it.)
            none => none.insert(Dir::new(core.with_std(std::fs::File::try_clone)?)?),
        };
        let mut entries = VecDeque::new();
        while entries.len() < BATCH
            && let Some(entry) = dir.read()
        {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let name = OsStr::from_bytes(name).to_owned();
                entries.push_back(RawEntry {
                    name,
                    ino: entry.ino(),
                    kind: kind(entry.file_type()),
                });
            }
        }
        Ok(entries)
    }
}

/// Some file systems do not report the type.
fn kind(kind: rustix::fs::FileType) -> Option<FileType> {
    (kind != rustix::fs::FileType::Unknown)
        .then(|| FileType::from_mode(u32::from(kind.as_raw_mode())))
}
