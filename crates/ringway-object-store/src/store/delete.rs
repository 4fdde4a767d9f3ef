//! Deleting objects: `delete_stream`, which `LocalFileSystem` does.

use super::error::renamed;
use super::file_system::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, Result};
use super::relocate::in_place;
use crate::dir_lock::LockKind;
use crate::locked::call_locked;
use crate::write_error::Action;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::future::ready;
use std::path::Path as FilePath;

/// How many objects are deleted at the same time, as by `LocalFileSystem`.
const AT_ONCE: usize = 10;

impl RingwayFileSystem {
    pub(super) fn delete_objects(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .map(move |location| {
                let store = store.clone();
                async move { store.delete_object(location?).await }
            })
            .buffered(AT_ONCE)
            .boxed()
    }

    async fn delete_object(&self, location: Path) -> Result<Path> {
        let path = self.path_to_filesystem(&location)?;
        let (local, deleted) = (self.local.clone(), location.clone());
        let dirs = path.parent().map(FilePath::to_owned).into_iter().collect();
        // Without a lock only updates are refused.
        let delete = move |(), _locked| {
            let deleted = local.delete_stream(stream::once(ready(Ok(deleted))).boxed());
            Ok(in_place(deleted.map_ok(drop).try_collect::<()>()))
        };
        let engine = self.used_engine()?;
        let lock = (LockKind::Shared, dirs);
        let done = call_locked(engine, Action::Delete, &path, lock, || Ok(()), delete).await?;
        done.map_err(renamed).map(|()| location)
    }
}
