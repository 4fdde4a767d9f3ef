//! One version of a file: an object store that reads a file as it was listed, or fails.

use crate::listing;
use crate::prefetch::Prefetch;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::execution::cache::cache_manager::ListFilesCache;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use ringway::fs::File;
use ringway_object_store::object_store_0_13::RingwayFileSystem;
use ringway_object_store::read_ranges;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The files of all scans of this process. A program may have 1024 open files by default, and a
/// plan thousands of scans that run at the same time (`UNION ALL`).
static OPEN_FILES: OpenFiles = OpenFiles::new(256, 128);

/// How many files may be open at a time.
#[derive(Debug)]
struct OpenFiles {
    /// Until the scan ends.
    kept: Semaphore,
    /// For one read of a scan that cannot keep its file.
    brief: Semaphore,
}

impl OpenFiles {
    const fn new(kept: usize, brief: usize) -> Self {
        Self { kept: Semaphore::const_new(kept), brief: Semaphore::const_new(brief) }
    }
}

/// A store whose reads of one file fail with `Precondition` if the file is no longer the one that
/// was listed. Such a read, and one of a file that is gone, also ends the use of the list, so that
/// the next query makes another. The file is opened once, by the first read of ranges, unless too
/// many are open; reading the chunks of a row group prefetches the next one. Everything else is the
/// store's.
#[derive(Debug)]
pub(crate) struct Version {
    store: Arc<RingwayFileSystem>,
    listed: ObjectMeta,
    /// The lists that DataFusion keeps.
    listings: Option<Arc<ListFilesCache>>,
    kept: OnceLock<(File, SemaphorePermit<'static>)>,
    open_files: &'static OpenFiles,
    prefetch: Prefetch,
}

impl Version {
    pub(crate) fn new(
        store: Arc<RingwayFileSystem>,
        listed: ObjectMeta,
        listings: Option<Arc<ListFilesCache>>,
        prefetch: Prefetch,
    ) -> Self {
        let kept = OnceLock::new();
        Self { store, listed, listings, kept, open_files: &OPEN_FILES, prefetch }
    }

    /// Opens the listed file.
    async fn open(&self) -> Result<File> {
        let opened = self.store.open(&self.listed.location).await;
        let (file, meta) = opened.map_err(|error| self.checked(error))?;
        match &self.listed.e_tag {
            Some(listed) if meta.e_tag.as_ref() != Some(listed) => Err(self.replaced()),
            _ => Ok(file),
        }
    }

    async fn read(&self, file: &File, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let read = read_ranges(file, ranges, self.store.coalesce()).await;
        let had_all = ranges.iter().all(|range| range.end <= self.listed.size);
        read.map_err(|error| match error.kind() {
            // It was written to in place: its metadata has changed with its length.
            ErrorKind::UnexpectedEof if had_all => self.replaced(),
            _ => self.unreadable(error),
        })
    }

    /// The error of an open, which may mean that the file has changed.
    fn checked(&self, error: Error) -> Error {
        match error {
            Error::Precondition { .. } => self.replaced(),
            Error::NotFound { .. } => {
                self.forget_listing();
                error
            }
            error => error,
        }
    }

    fn replaced(&self) -> Error {
        self.forget_listing();
        let source = "the file has changed since it was listed; the next query lists it again";
        Error::Precondition { path: self.path(), source: source.into() }
    }

    fn forget_listing(&self) {
        if let Some(listings) = &self.listings {
            listing::forget(listings.as_ref(), &self.listed);
        }
    }

    fn unreadable(&self, source: io::Error) -> Error {
        let text = format!("Unable to read data from file {}: {source}", self.path());
        let source = io::Error::new(source.kind(), text);
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
        if *location != self.listed.location || options.if_match.is_some() {
            return self.store.get_opts(location, options).await;
        }
        options.if_match.clone_from(&self.listed.e_tag);
        let result = self.store.get_opts(location, options).await;
        result.map_err(|error| self.checked(error))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if *location != self.listed.location {
            return self.store.get_ranges(location, ranges).await;
        }
        let (file, _) = match self.kept.get() {
            Some(kept) => kept,
            None => match self.open_files.kept.try_acquire() {
                Ok(permit) => {
                    let file = self.open().await?;
                    self.kept.get_or_init(|| (file, permit))
                }
                Err(_) => {
                    let _permit = self.open_files.brief.acquire().await;
                    return self.read(&self.open().await?, ranges).await;
                }
            },
        };
        let bytes = self.read(file, ranges).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{drop_cached, is_cached, on_disk};
    use datafusion::execution::runtime_env::RuntimeEnv;
    use object_store::ObjectStoreExt;
    use tempfile::NamedTempFile;

    const LEN: u64 = 2 << 20;
    const PAGE: u64 = 4096;

    /// A file of `LEN` bytes, and its version.
    async fn listed() -> (NamedTempFile, Version) {
        let file = on_disk();
        std::fs::write(file.path(), vec![7; LEN as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        let store = Arc::new(RingwayFileSystem::new());
        let listed = store.head(&Path::from_absolute_path(file.path()).unwrap()).await.unwrap();
        let metadata = RuntimeEnv::default().cache_manager.get_file_metadata_cache();
        (file, Version::new(store, listed, None, Prefetch::new(0, metadata, None)))
    }

    /// As from the store: without advice the kernel reads on after the first pages of a file.
    #[tokio::test]
    async fn no_more_than_the_ranges_is_read() {
        let (file, version) = listed().await;
        if !drop_cached(file.path()).await {
            return;
        }
        let location = &version.listed.location;
        let bytes = version.get_ranges(location, std::slice::from_ref(&(0..PAGE))).await.unwrap();
        assert_eq!(bytes[0][..], [7; PAGE as usize]);
        assert!(!is_cached(file.path(), 2 * PAGE..3 * PAGE).await);
    }

    #[tokio::test]
    async fn only_a_file_that_is_shorter_than_listed_has_changed() {
        let (file, version) = listed().await;
        let location = version.listed.location.clone();
        for beyond in [0..LEN + 1, LEN..LEN + 1, 5..1 << 60, 5..u64::MAX] {
            let error = version.get_ranges(&location, &[0..9, beyond]).await.unwrap_err();
            assert!(matches!(error, Error::Generic { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(file.path().to_str().unwrap()), "{error}");
            assert!(error.contains("the file ends within"), "{error}");
        }
        file.as_file().set_len(LEN - 1).unwrap();
        let error = version.get_ranges(&location, &[0..9, LEN - 9..LEN]).await.unwrap_err();
        assert!(matches!(error, Error::Precondition { .. }), "{error:?}");
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
        assert_eq!(version.get_ranges(&location, &[0..9, 9..18]).await.unwrap()[1][..], [7; 9]);
    }

    /// A scan that cannot keep its file opens it for each read, and compares it each time.
    #[tokio::test]
    async fn open_files_are_limited() {
        let open_files: &OpenFiles = Box::leak(Box::new(OpenFiles::new(1, 1)));
        let read = async |version: &Version| {
            let ranges = [0..9, 20..29];
            Ok::<_, Error>(version.get_ranges(&version.listed.location, &ranges).await?[1].clone())
        };
        let limited = |version| Version { open_files, ..version };
        let (first, keeps) = listed().await;
        let (second, opens) = listed().await;
        let (keeps, opens) = (limited(keeps), limited(opens));
        for version in [&keeps, &opens, &keeps, &opens] {
            assert_eq!(read(version).await.unwrap()[..], [7; 9]);
        }
        for file in [&first, &second] {
            std::fs::remove_file(file.path()).unwrap();
            std::fs::write(file.path(), vec![8; LEN as usize]).unwrap();
        }
        assert_eq!(read(&keeps).await.unwrap()[..], [7; 9]);
        assert!(matches!(read(&opens).await.unwrap_err(), Error::Precondition { .. }));
        let two = futures::future::join(read(&opens), read(&opens)).await;
        assert!(two.0.is_err() && two.1.is_err(), "they wait for each other");
        drop(keeps);
        assert_eq!(open_files.kept.available_permits(), 1);
        assert_eq!(open_files.brief.available_permits(), 1);
    }
}
