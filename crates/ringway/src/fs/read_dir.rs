//! What a directory holds.

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

/// The entries of a directory, in no particular order, without `.` and `..`.
///
/// They are read as they are asked for, some hundred at a time.
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
/// Errors: those of `open(2)`: NotADirectory, NotFound ...
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    Engine::global()?.fs().read_dir(path).await
}

impl Fs<'_> {
    /// [`read_dir`] on this engine.
    pub async fn read_dir(self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let root = path.as_ref().to_owned();
        let dir = self.open_dir(&root).await?;
        Ok(ReadDir {
            shared: Arc::new(Shared { dir, root }),
            entries: VecDeque::new(),
            reading: None,
            over: false,
        })
    }
}

/// The entries of a directory: from [`read_dir`].
pub struct ReadDir {
    shared: Arc<Shared>,
    entries: VecDeque<Found>,
    /// A batch on its way. It is kept here, so that no entry is lost with a future that is dropped.
    reading: Option<Pin<Box<dyn Reading>>>,
    over: bool,
}

trait Reading: Future<Output = io::Result<VecDeque<Found>>> + Send {}

impl<F: Future<Output = io::Result<VecDeque<Found>>> + Send> Reading for F {}

/// What all entries of a directory know.
struct Shared {
    dir: File,
    root: PathBuf,
}

/// What `getdents64(2)` says of an entry.
struct Found {
    name: OsString,
    ino: u64,
    kind: Option<FileType>,
}

/// The kernel's entries for one call.
const BATCH: usize = 32 << 10;

impl ReadDir {
    /// The next entry; `None` behind the last.
    ///
    /// Entries that are made or removed meanwhile may come or not. Dropped, the future loses no
    /// entry: the next call gives the one that this would have given.
    ///
    /// Errors: those of `getdents64(2)`; after one there are no more entries.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        while self.entries.is_empty() && !self.over {
            let reading = self.reading.get_or_insert_with(|| {
                let dir = self.shared.dir.clone();
                Box::pin(async move {
                    let core = dir.core().clone();
                    dir.engine().call(move || batch(&core)).await
                })
            });
            let read = reading.await;
            self.reading = None;
            self.over = !read.as_ref().is_ok_and(|entries| !entries.is_empty());
            self.entries = read?;
        }
        let found = self.entries.pop_front();
        Ok(found.map(|found| DirEntry { shared: Arc::clone(&self.shared), found }))
    }
}

/// The next entries: none at the end.
fn batch(dir: &ringway_core::File) -> io::Result<VecDeque<Found>> {
    let mut buffer = vec![MaybeUninit::uninit(); BATCH];
    let mut entries = VecDeque::new();
    // A batch may be `.` and `..` alone.
    while entries.is_empty() {
        let mut raw = RawDir::new(dir, &mut buffer);
        let mut any = false;
        while let Some(entry) = raw.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // It has been removed: it holds nothing, as std has it.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            };
            any = true;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let name = OsStr::from_bytes(name).to_owned();
                entries.push_back(Found { name, ino: entry.ino(), kind: kind(entry.file_type()) });
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

/// Some file systems do not say.
fn kind(kind: rustix::fs::FileType) -> Option<FileType> {
    (kind != rustix::fs::FileType::Unknown).then(|| FileType::from_mode(kind.as_raw_mode()))
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.shared.root).finish()
    }
}

/// An entry of a directory: from [`ReadDir::next_entry`]. It keeps the directory open.
pub struct DirEntry {
    shared: Arc<Shared>,
    found: Found,
}

impl DirEntry {
    /// The path that [`read_dir`] was given, and the entry's name.
    pub fn path(&self) -> PathBuf {
        self.shared.root.join(&self.found.name)
    }

    /// The entry's name, without the directory.
    pub fn file_name(&self) -> OsString {
        self.found.name.clone()
    }

    /// The number of its inode.
    pub fn ino(&self) -> u64 {
        self.found.ino
    }

    /// What kind of file it is; symbolic links are not followed. Most file systems have said it
    /// with the name; where not, this is [`metadata`](Self::metadata).
    ///
    /// Errors: as for [`metadata`](Self::metadata).
    pub async fn file_type(&self) -> io::Result<FileType> {
        match self.found.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata().await?.file_type()),
        }
    }

    /// Its metadata; symbolic links are not followed. It is looked up in the directory that was
    /// read, even if that has been moved.
    ///
    /// Errors: those of `statx(2)`: NotFound when it has been removed.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let dir = &self.shared.dir;
        let flags = AtFlags::SYMLINK_NOFOLLOW.bits() as i32;
        stat(dir.engine(), op::statx_at(dir.core(), &self.found.name, flags)).await
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
