//! Where the objects are, and how work on them runs.

use crate::config::Durability;
use crate::dirs::Dirs;
use crate::error::failed;
use crate::metadata::is_gone;
use opendal_core::{Error, ErrorKind, Result};
use ringway::Engine;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) engine: Engine,
    pub(crate) root: PathBuf,
    /// The directory of files that are being written, unless that is the object's.
    pub(crate) staging: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) dirs: Dirs,
    /// A file without a name can be given one.
    pub(crate) has_proc: bool,
}

impl Disk {
    /// Blocks.
    pub(crate) fn new(
        engine: Engine,
        root: PathBuf,
        staging: Option<PathBuf>,
        durability: Durability,
    ) -> Self {
        let dirs = Dirs::new(&root, durability == Durability::Full);
        let has_proc = Path::new("/proc/self/fd").exists();
        Self { engine, root, staging, durability, dirs, has_proc }
    }

    /// The path of an object or a directory. Errors: NotFound for a key that leads out of the root.
    pub(crate) fn path(&self, key: &str) -> Result<PathBuf> {
        let mut path = self.root.clone();
        for part in Path::new(key.trim_end_matches('/')).components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::CurDir => {}
                _ => return Err(Error::new(ErrorKind::NotFound, "the key leads out of the root")),
            }
        }
        Ok(path)
    }

    /// As [`path`](Self::path), for an object that is to be written: the root is none
    /// (IsADirectory).
    pub(crate) fn target(&self, key: &str) -> Result<PathBuf> {
        match self.path(key)? {
            path if path == self.root => {
                Err(Error::new(ErrorKind::IsADirectory, "the key is that of the root"))
            }
            path => Ok(path),
        }
    }

    /// Runs blocking work on a thread of the engine: to its end, if it has started.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        step: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.engine.call(work).await.map_err(failed(step))
    }

    /// After a name in this directory has changed: makes that durable, if wanted.
    pub(crate) async fn sync_names(self: &Arc<Self>, dir: Option<&Path>) -> Result<()> {
        let Some(dir) = dir.filter(|_| self.durability == Durability::Full) else {
            return Ok(());
        };
        match self.engine.fs().sync_dir(dir).await {
            // It was removed since, and the names in it with it.
            Err(error) if is_gone(&error) => return Ok(()),
            synced => synced.map_err(failed("sync the directory"))?,
        }
        let (disk, dir) = (self.clone(), dir.to_owned());
        self.call("sync the directories above", move || disk.dirs.sync_above(&dir)).await
    }
}
