//! Listing: `list` and its siblings, which `LocalFileSystem` does. It would block a thread outside
//! tokio; here it runs on threads of the engine, a part at a time.

use super::error::renamed;
use super::file_system::RingwayFileSystem;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{ListResult, ObjectMeta, ObjectStore, Result};
use super::relocate::in_place;
use crate::local::staged_file::call;
use crate::local::write_error::Action;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use std::path::Path as FilePath;

/// Objects that one call lists.
const PART: usize = 1024;

/// What is left to list.
enum Rest {
    /// All of it: nothing has been read.
    All {
        local: LocalFileSystem,
        prefix: Option<Path>,
        offset: Option<Path>,
    },
    Some(BoxStream<'static, Result<ObjectMeta>>),
    None,
}

impl Rest {
    /// Lists the next part. Blocks: outside tokio, a stream of `LocalFileSystem` is always ready.
    fn next(self) -> (Vec<Result<ObjectMeta>>, Self) {
        let mut rest = match self {
            Self::All { local, prefix, offset } => match offset {
                Some(offset) => local.list_with_offset(prefix.as_ref(), &offset),
                None => local.list(prefix.as_ref()),
            },
            Self::Some(rest) => rest,
            Self::None => return (Vec::new(), Self::None),
        };
        let mut part = Vec::new();
        while part.len() < PART {
            match in_place(rest.next().map(Ok)) {
                Ok(Some(object)) => part.push(object),
                Ok(None) => return (part, Self::None),
                Err(error) => {
                    part.push(Err(error));
                    return (part, Self::None);
                }
            }
        }
        (part, Self::Some(rest))
    }
}

impl RingwayFileSystem {
    pub(super) fn list_objects(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let (prefix, offset) = (prefix.cloned(), offset.cloned());
        let all = Rest::All { local: self.local.clone(), prefix, offset };
        let parts = stream::unfold((store, all), |(store, rest)| async {
            if matches!(rest, Rest::None) {
                return None;
            }
            let (part, rest) = match store.on_thread(|| rest.next()).await {
                Ok(listed) => listed,
                Err(error) => (vec![Err(error)], Rest::None),
            };
            Some((stream::iter(part), (store, rest)))
        });
        parts.flatten().map(|object| object.map_err(renamed)).boxed()
    }

    pub(super) async fn list_one_level(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (local, prefix) = (self.local.clone(), prefix.cloned());
        let list = move || in_place(local.list_with_delimiter(prefix.as_ref()));
        self.on_thread(list).await?.map_err(renamed)
    }

    /// Runs blocking work on a thread of the engine.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let root = FilePath::new("");
        Ok(call(self.used_engine()?, Action::Metadata, root, || Ok(work())).await?)
    }
}
