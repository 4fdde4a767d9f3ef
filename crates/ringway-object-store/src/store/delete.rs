//! Deleting objects: `delete_stream`, which `LocalFileSystem` does.

use super::error::renamed;
use super::file_system::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, Result};
use super::relocate::in_place;
use crate::local::staged_file::call;
use crate::local::write_error::Action;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::future::ready;

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
        let (_interest, ticket) = self.turns.ticket();
        let file = path.clone();
        let delete = move || {
            let _turn = ticket.turn(&[&file])?;
            let deleted = local.delete_stream(stream::once(ready(Ok(deleted))).boxed());
            Ok(in_place(deleted.map_ok(drop).try_collect::<()>()))
        };
        let done = call(self.used_engine()?, Action::Delete, &path, delete).await?;
        done.map_err(renamed).map(|()| location)
    }
}
