//! Listing directories.

#[cfg(all(target_os = "linux", not(ringway_portable)))]
#[path = "read_dir/linux.rs"]
mod listing;
#[cfg(all(unix, any(not(target_os = "linux"), ringway_portable)))]
#[path = "read_dir/unix.rs"]
mod listing;
#[cfg(windows)]
#[path = "read_dir/windows.rs"]
mod listing;

use super::File;
use super::path::{Fs, stat};
use crate::Engine;
use listing::Listing;
use ringway_core::op::{self, FileType, Metadata};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
            listing: Listing::new(&file, &root)?,
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
    listing: Listing,
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

/// What the system reports of an entry while it lists a directory.
struct RawEntry {
    name: OsString,
    #[cfg(unix)]
    ino: u64,
    kind: Option<FileType>,
}

/// The size of one batch: of the kernel's buffer in bytes on Linux, elsewhere in entries.
const BATCH: usize =
    if cfg!(all(target_os = "linux", not(ringway_portable))) { 32 << 10 } else { 512 };

impl ReadDir {
    /// Returns the next entry; `None` after the last one.
    ///
    /// Entries that are created or removed meanwhile may or may not be listed. If the future is
    /// dropped, no entry is lost: the next call returns it.
    ///
    /// Errors: those of `getdents64(2)`; after an error there are no more entries.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|context| self.poll_next_entry(context)).await
    }

    /// [`next_entry`](Self::next_entry) as a poll, for a stream of your own. If it is pending, the
    /// task of the latest poll is woken.
    ///
    /// Errors: as for [`next_entry`](Self::next_entry).
    pub fn poll_next_entry(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<DirEntry>>> {
        while self.entries.is_empty() && !self.is_over {
            let reading = self.reading.get_or_insert_with(|| {
                let (dir, listing) = (self.dir.file.clone(), self.listing.clone());
                Box::pin(async move { dir.engine().call(move || listing.batch()).await })
            });
            let read = ready!(reading.as_mut().poll(context));
            self.reading = None;
            self.is_over = !read.as_ref().is_ok_and(|entries| !entries.is_empty());
            self.entries = read?;
        }
        let entry = self.entries.pop_front();
        Poll::Ready(Ok(entry.map(|entry| DirEntry { dir: Arc::clone(&self.dir), entry })))
    }
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

    /// Returns the inode number. Not on Windows.
    #[cfg(unix)]
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
        stat(dir.engine(), op::lstat_at(dir.core(), &self.entry.name)).await
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
