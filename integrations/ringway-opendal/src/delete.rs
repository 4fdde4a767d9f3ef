//! Deleting objects and directories.

use crate::disk::Disk;
use crate::error::failed;
use crate::metadata::is_gone;
use opendal_core::Result;
use opendal_core::raw::{OpDelete, oio};
use std::io;
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
            Ok(is_dir) => {
                if is_dir {
                    disk.dirs.forget();
                }
                Ok(())
            }
            // What is not there needs no deletion.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        };
        self.disk.engine.call(removal).await.map_err(failed("remove"))?;
        // Also if there was nothing: a deletion before this one may not have come to its sync.
        self.disk.sync_names(parent.as_deref()).await
    }
}

/// Returns whether it was a directory. Blocks.
fn remove(path: &Path, is_dir_key: bool, recursive: bool) -> io::Result<bool> {
    // A symbolic link is removed, not what it leads to.
    let found = std::fs::symlink_metadata(path)?;
    match (found.is_dir(), recursive) {
        (true, true) => std::fs::remove_dir_all(path)?,
        (true, false) => std::fs::remove_dir(path)?,
        // There is no directory of this name.
        (false, _) if is_dir_key && !found.is_symlink() => {}
        (false, _) => std::fs::remove_file(path)?,
    }
    Ok(found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::test::{Descriptors, alone, disk};
    use opendal_core::raw::oio::OneShotDelete;

    /// A deletion is repeated if its sync has failed. Then there is nothing to delete.
    #[test]
    fn a_repeated_deletion_is_durable() {
        alone("delete::tests::a_repeated_deletion_is_durable", async {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join("object"), "x").unwrap();
            let deleter = FsDeleter { disk: disk(root.path(), Durability::Full) };
            let all = Descriptors::exhaust();
            for _ in 0..2 {
                let deleted = deleter.delete_once("object".to_owned(), OpDelete::new()).await;
                assert!(deleted.unwrap_err().is_temporary());
                assert!(!root.path().join("object").exists());
            }
            drop(all);
            for key in ["object", "missing/object"] {
                deleter.delete_once(key.to_owned(), OpDelete::new()).await.unwrap();
            }
        });
    }
}
