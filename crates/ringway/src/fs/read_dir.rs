//! Listing directories.

use super::File;
use super::path::{Fs, stat};
use crate::Engine;
use ringway_core::op::{self, FileType, Metadata};
use rustix::fs::{AtFlags, RawDir};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

/// Lists the entries of a directory, in no particular order, without `.` and `..`.
///
/// Entries are read as they are requested, some hundreds at a time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let mut entries = ringway::fs::read_dir("/etc").await?;
/// while let Some(entry) = entries.next_entry().await? {
///     println!("{:?} {:?}", entry.file_name(), entry.file_type().await?);
/// }
/// # Ok(()) }
/// ```
///
/// Errors: those of `open(2)`, such as NotADirectory and NotFound.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    Engine::global()?.fs().read_dir(path).await
}

impl Fs<'_> {
    /// [`read_dir`] on this engine.
    pub async fn read_dir(self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let root = path.as_ref().to_owned();
        let file = self.open_dir(&root).await?;
        Ok(ReadDir {
            dir: Arc::new(OpenDir { file, root }),
            entries: VecDeque::new(),
            reading: None,
            is_over: false,
        })
    }
}

/// The entries of a directory. From [`read_dir`].
pub struct ReadDir {
    dir: Arc<OpenDir>,
    entries: VecDeque<RawEntry>,
    /// A batch in flight. It is kept here, so that a dropped future loses no entry.
    reading: Option<Pin<Box<dyn Reading>>>,
    is_over: bool,
}

trait Reading: Future<Output = io::Result<VecDeque<RawEntry>>> + Send {}

impl<F: Future<Output = io::Result<VecDeque<RawEntry>>> + Send> Reading for F {}

/// The directory that its entries share.
struct OpenDir {
    file: File,
    root: PathBuf,
}

/// What `getdents64(2)` reports of an entry.
struct RawEntry {
    name: OsString,
    ino: u64,
    kind: Option<FileType>,
}

/// The size of the buffer for one call.
const BATCH: usize = 32 << 10;

impl ReadDir {
    /// Returns the next entry; `None` after the last one.
    ///
    /// Entries that are created or removed meanwhile may or may not be listed. If the future is
    /// dropped, no entry is lost: the next call returns it.
    ///
    /// Errors: those of `getdents64(2)`; after an error there are no more entries.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        while self.entries.is_empty() && !self.is_over {
            let reading = self.reading.get_or_insert_with(|| {
                let dir = self.dir.file.clone();
                Box::pin(async move {
                    let core = dir.core().clone();
                    dir.engine().call(move || batch(&core)).await
                })
            });
            let read = reading.await;
            self.reading = None;
            self.is_over = !read.as_ref().is_ok_and(|entries| !entries.is_empty());
            self.entries = read?;
        }
        let entry = self.entries.pop_front();
        Ok(entry.map(|entry| DirEntry { dir: Arc::clone(&self.dir), entry }))
    }
}

/// Reads the next entries; none at the end.
fn batch(dir: &ringway_core::File) -> io::Result<VecDeque<RawEntry>> {
    let mut buffer = vec![MaybeUninit::uninit(); BATCH];
    let mut entries = VecDeque::new();
    // A batch may consist of `.` and `..` only.
    while entries.is_empty() {
        let mut raw = RawDir::new(dir, &mut buffer);
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

/// Some file systems do not report the type.
fn kind(kind: rustix::fs::FileType) -> Option<FileType> {
    (kind != rustix::fs::FileType::Unknown).then(|| FileType::from_mode(kind.as_raw_mode()))
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.dir.root).finish()
    }
}

/// An entry of a directory. From [`ReadDir::next_entry`]. It keeps the directory open.
pub struct DirEntry {
    dir: Arc<OpenDir>,
    entry: RawEntry,
}

impl DirEntry {
    /// Returns the path given to [`read_dir`], joined with the entry's name.
    pub fn path(&self) -> PathBuf {
        self.dir.root.join(&self.entry.name)
    }

    /// Returns the entry's name, without the directory.
    pub fn file_name(&self) -> OsString {
        self.entry.name.clone()
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.entry.ino
    }

    /// Returns the type of the file; symbolic links are not followed. Most file systems report it
    /// together with the name; otherwise this calls [`metadata`](Self::metadata).
    ///
    /// Errors: as for [`metadata`](Self::metadata).
    pub async fn file_type(&self) -> io::Result<FileType> {
        match self.entry.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata().await?.file_type()),
        }
    }

    /// Returns the metadata; symbolic links are not followed. The entry is looked up in the
    /// directory that was listed, even if that has been moved.
    ///
    /// Errors: those of `statx(2)`: NotFound if it has been removed.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let dir = &self.dir.file;
        let flags = AtFlags::SYMLINK_NOFOLLOW.bits() as i32;
        stat(dir.engine(), op::statx_at(dir.core(), &self.entry.name, flags)).await
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
