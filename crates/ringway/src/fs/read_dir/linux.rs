//! Reads a directory with `getdents64(2)`.

use super::{BATCH, RawEntry};
use crate::fs::File;
use ringway_core::File as CoreFile;
use ringway_core::op::FileType;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory that is being read. The kernel keeps the position.
#[derive(Clone)]
pub(super) struct Listing(CoreFile);

impl Listing {
    pub(super) fn new(dir: &File, _: &Path) -> io::Result<Self> {
        Ok(Self(dir.core().clone()))
    }

    /// Reads the next entries; none at the end.
    pub(super) fn batch(&self) -> io::Result<VecDeque<RawEntry>> {
        let mut buffer = vec![MaybeUninit::uninit(); BATCH];
        let mut entries = VecDeque::new();
        // A batch may consist of `.` and `..` only.
        while entries.is_empty() {
            let mut raw = RawDir::new(&self.0, &mut buffer);
            let mut any = false;
            while let Some(entry) = raw.next() {
                let entry = match entry {
                    Ok(entry) => entry,
                    // The directory was removed; like std, treat it as empty.
                    Err(Errno::NOENT) => break,
                    Err(error) => return Err(error.into()),
                };
                any = true;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    let name = OsStr::from_bytes(name).to_owned();
                    entries.push_back(RawEntry {
                        name,
                        ino: entry.ino(),
                        kind: kind(entry.file_type()),
                    });
                }
                if raw.is_buffer_empty() {
                    break;
                }
            }
            if !any {
                break;
            }
        }
        Ok(entries)
    }
}

/// Some file systems do not report the type.
fn kind(kind: rustix::fs::FileType) -> Option<FileType> {
    (kind != rustix::fs::FileType::Unknown).then(|| FileType::from_mode(kind.as_raw_mode()))
}
