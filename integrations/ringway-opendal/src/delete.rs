//! Deleting objects and directories.

use crate::disk::Disk;
use crate::error::failed;
use opendal_core::Result;
use opendal_core::raw::{OpDelete, oio};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct FsDeleter {
    pub(crate) disk: Arc<Disk>,
}

impl oio::OneShotDelete for FsDeleter {
    async fn delete_once(&self, key: String, args: OpDelete) -> Result<()> {
        let path = self.disk.path(&key)?;
        let parent = path.parent().map(Path::to_owned);
        let (disk, recursive) = (self.disk.clone(), args.recursive());
        let is_dir_key = key.ends_with('/');
        let removal = move || match remove(&path, is_dir_key, recursive) {
            Ok(Removed::Dir) => {
                disk.dirs.forget();
                Ok(true)
            }
            Ok(removed) => Ok(removed == Removed::File),
            // What is not there needs no deletion.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        };
        let removed = self.disk.engine.call(removal).await.map_err(failed("remove"))?;
        if removed { self.disk.sync_names(parent.as_deref()).await } else { Ok(()) }
    }
}

#[derive(PartialEq, Eq)]
enum Removed {
    File,
    Dir,
    Nothing,
}

/// Blocks.
fn remove(path: &Path, is_dir_key: bool, recursive: bool) -> io::Result<Removed> {
    // A symbolic link is removed, not what it leads to.
    let found = std::fs::symlink_metadata(path)?;
    match (found.is_dir(), recursive) {
        (true, true) => std::fs::remove_dir_all(path).map(|()| Removed::Dir),
        (true, false) => std::fs::remove_dir(path).map(|()| Removed::Dir),
        // There is no directory of this name.
        (false, _) if is_dir_key && !found.is_symlink() => Ok(Removed::Nothing),
        (false, _) => std::fs::remove_file(path).map(|()| Removed::File),
    }
}
