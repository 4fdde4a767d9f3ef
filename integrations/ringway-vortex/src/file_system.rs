//! Vortex's interface of a file system, over a directory.

use crate::RingwayReadAt;
use crate::error::failed;
use crate::read_at::uri;
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use ringway::Engine;
use ringway::fs::ReadDir;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vortex_error::{VortexError, VortexResult};
use vortex_io::VortexReadAt;
use vortex_io::filesystem::{FileListing, FileSystem};

/// The files below a directory, for Vortex's sources of many files (`MultiFileDataSource`).
///
/// Paths are relative to the directory, whether or not they begin with a slash. Those of a listing
/// begin with its prefix, as it was given. A glob may begin with a slash, but finds nothing if its
/// first name has a wildcard, as in `/*`: Vortex then asks for a listing without a prefix, whose
/// paths do not match.
///
/// Symbolic links to files are files, with the size of what they lead to. Listings leave out what
/// Vortex cannot open: links to directories and to nothing, devices, pipes, and names that are not
/// UTF-8. An entry that cannot be looked up for another reason, such as EACCES, is an error. A
/// prefix that does not exist has no files.
///
/// The directory is no boundary: `..` and symbolic links lead out of it.
#[derive(Clone, Debug)]
pub struct RingwayFileSystem {
    engine: Engine,
    root: PathBuf,
}

impl RingwayFileSystem {
    /// The files below `root`. For `MultiFileDataSource`, which takes the first slash away from
    /// its globs, `/` stands for all local files.
    pub fn new(root: impl Into<PathBuf>, engine: &Engine) -> Self {
        Self { engine: engine.clone(), root: root.into() }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key.trim_start_matches('/'))
    }
}

#[async_trait]
impl FileSystem for RingwayFileSystem {
    fn list(&self, prefix: &str) -> BoxStream<'_, VortexResult<FileListing>> {
        let below = vec![prefix.to_owned()];
        let walk = Walk { fs: self, below, dir: String::new(), open: None };
        stream::try_unfold(walk, |mut walk| async move {
            walk.next().await.map(|next| next.map(|listing| (listing, walk)))
        })
        .boxed()
    }

    async fn head(&self, path: &str) -> VortexResult<Option<FileListing>> {
        let full = self.path(path);
        match self.engine.fs().metadata(&full).await {
            Ok(found) if found.is_file() => {
                Ok(Some(FileListing { path: path.to_owned(), size: Some(found.len()) }))
            }
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed(format_args!("stat {}", full.display()), error)),
        }
    }

    async fn open_read(&self, path: &str) -> VortexResult<Arc<dyn VortexReadAt>> {
        let full = self.path(path);
        let opened = self.engine.open(&full).await;
        let file =
            opened.map_err(|error| failed(format_args!("open {}", full.display()), error))?;
        Ok(Arc::new(RingwayReadAt::new(file, uri(&full))))
    }

    async fn delete(&self, path: &str) -> VortexResult<()> {
        let full = self.path(path);
        let removed = self.engine.fs().remove_file(&full).await;
        removed.map_err(|error| failed(format_args!("remove {}", full.display()), error))
    }
}

/// A listing.
struct Walk<'a> {
    fs: &'a RingwayFileSystem,
    /// Directories to be listed.
    below: Vec<String>,
    /// The directory that is being listed, and its entries.
    dir: String,
    open: Option<ReadDir>,
}

impl Walk<'_> {
    async fn next(&mut self) -> VortexResult<Option<FileListing>> {
        while self.open.is_some() || self.open_next().await? {
            let Some(entries) = &mut self.open else { continue };
            let entry = entries.next_entry().await;
            let entry = entry.map_err(|error| unlisted(&self.fs.path(&self.dir), error))?;
            let Some(entry) = entry else {
                self.open = None;
                continue;
            };
            let Ok(name) = entry.file_name().into_string() else { continue };
            let full = entry.path();
            let Some(kind) = found(&full, entry.file_type().await)? else { continue };
            let slash = if self.dir.is_empty() || self.dir.ends_with('/') { "" } else { "/" };
            let path = format!("{}{slash}{name}", self.dir);
            if kind.is_dir() {
                self.below.push(path);
                continue;
            }
            if let Some(file) = found(&full, self.fs.engine.fs().metadata(&full).await)?
                && file.is_file()
            {
                return Ok(Some(FileListing { path, size: Some(file.len()) }));
            }
        }
        Ok(None)
    }

    /// Opens the next directory; false if there are no more.
    async fn open_next(&mut self) -> VortexResult<bool> {
        while let Some(dir) = self.below.pop() {
            let full = self.fs.path(&dir);
            match self.fs.engine.fs().read_dir(&full).await {
                Ok(entries) => {
                    (self.dir, self.open) = (dir, Some(entries));
                    return Ok(true);
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(unlisted(&full, error)),
            }
        }
        Ok(false)
    }
}

/// What was looked up for a listing, or `None` if it has been removed since or is a link that leads
/// nowhere.
fn found<T>(path: &Path, result: io::Result<T>) -> VortexResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) || is_circular(&error) => Ok(None),
        Err(error) => Err(failed(format_args!("stat {}", path.display()), error)),
    }
}

fn unlisted(dir: &Path, error: io::Error) -> VortexError {
    failed(format_args!("list {}", dir.display()), error)
}

/// Whether nothing has the name.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether symbolic links lead back to themselves, or on and on.
fn is_circular(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
