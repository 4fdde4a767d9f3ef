//! One version of a file: an object store that reads a file as it was listed, or fails.

use crate::prefetch::Prefetch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use ringway::fs::File;
use ringway_object_store::object_store_0_13::RingwayFileSystem;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A store whose reads of one file fail with `Precondition` if the file is no longer the one that
/// was listed. The file is opened once, by the first read of ranges; reading the chunks of a row
/// group prefetches the next one. Everything else is the store's.
#[derive(Debug)]
pub(crate) struct Version {
    store: Arc<RingwayFileSystem>,
    listed: ObjectMeta,
    file: OnceCell<File>,
    prefetch: Prefetch,
}

impl Version {
    pub(crate) fn new(
        store: Arc<RingwayFileSystem>,
        listed: ObjectMeta,
        prefetch: Prefetch,
    ) -> Self {
        Self { store, listed, file: OnceCell::new(), prefetch }
    }

    /// The listed file, open.
    async fn file(&self) -> Result<&File> {
        let opened = self.file.get_or_try_init(|| async {
            let (file, meta) = self.store.open(&self.listed.location).await?;
            match &self.listed.e_tag {
                Some(listed) if meta.e_tag.as_ref() != Some(listed) => Err(self.replaced()),
                _ => Ok(file),
            }
        });
        opened.await
    }

    fn replaced(&self) -> Error {
        let source = "the file has changed since it was listed";
        Error::Precondition { path: self.path(), source: source.into() }
    }

    fn unreadable(&self, source: std::io::Error) -> Error {
        let text = format!("Unable to read data from file {}: {source}", self.path());
        let source = std::io::Error::new(source.kind(), text);
        Error::Generic { store: "RingwayFileSystem", source: source.into() }
    }

    fn path(&self) -> String {
        let location = &self.listed.location;
        let path = self.store.path_to_filesystem(location);
        path.map_or_else(|_| location.to_string(), |path| path.display().to_string())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Version {
    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        if *location == self.listed.location && options.if_match.is_none() {
            options.if_match.clone_from(&self.listed.e_tag);
        }
        self.store.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if *location != self.listed.location {
            return self.store.get_ranges(location, ranges).await;
        }
        let file = self.file().await?;
        let blocks = file.read_ranges_each(ranges, self.store.coalesce()).await;
        let blocks = blocks.map_err(|error| self.unreadable(error))?;
        let mut bytes = Vec::with_capacity(blocks.len());
        for (block, range) in blocks.into_iter().zip(ranges) {
            let block = block.map_err(|error| self.unreadable(error))?;
            if (block.len() as u64) < range.end - range.start {
                // It was written to in place: its metadata has changed with its length.
                return Err(self.replaced());
            }
            bytes.push(block.into());
        }
        self.prefetch.start(file, &self.listed, ranges);
        Ok(bytes)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
