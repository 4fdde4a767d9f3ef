//! Reading objects: `get_opts` and `get_ranges`.

use super::file_system::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{GetOptions, GetResult, GetResultPayload, ObjectMeta, Result};
use super::{e_tag, get_result, in_turn};
use crate::local::error::Error;
use crate::local::etag::last_modified;
use crate::local::open;
use crate::local::{ranges, stream};
use bytes::Bytes;
use ringway::fs::File;
use ringway_core::errno;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

impl RingwayFileSystem {
    /// Opens an object for reading, with the store's engine and options, and returns it with its
    /// metadata. What is read from the file is this version of the object, even if the object is
    /// replaced. [`read_ranges`](crate::read_ranges) reads it as `get_ranges` does.
    ///
    /// Does not block. If the future is dropped, no descriptor is left open.
    ///
    /// Errors: those of `get`: NotFound for a missing file and for a directory.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("events"), b"12345")?;
    /// use ringway_object_store::RingwayFileSystem;
    /// let store = RingwayFileSystem::new_with_prefix(dir.path())?;
    /// let (file, meta) = store.open(&"events".into()).await?;
    /// assert_eq!(file.read(0..meta.size).await?, b"12345");
    /// # Ok(()) }
    /// ```
    pub async fn open(&self, location: &Path) -> Result<(File, ObjectMeta)> {
        let (file, meta, _) = self.open_object(location).await?;
        Ok((file, meta))
    }

    async fn open_object(&self, location: &Path) -> Result<(File, ObjectMeta, PathBuf)> {
        let path = self.path_to_filesystem(location)?;
        let (file, metadata) = open::open(self.engine.as_ref(), &path, self.direct).await?;
        let file = file.with_dont_cache(self.dont_cache);
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: last_modified(&metadata),
            size: metadata.len(),
            e_tag: Some(e_tag(&metadata)),
            version: None,
        };
        Ok((file, meta, path))
    }

    pub(super) async fn get_object(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let (file, meta, path) = self.open_object(location).await?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|source| Error::InvalidRange { source: Box::new(source) })?,
            None => 0..meta.size,
        };
        let is_for_files = meta.size > self.read_ahead.one_chunk || needs_file(location);
        let gives_file = self.file_payload && options.range.is_none() && is_for_files;
        let payload = if gives_file {
            GetResultPayload::File(open::into_std(file, &path).await?, path)
        } else {
            GetResultPayload::Stream(stream::chunks(file, path, range.clone(), self.read_ahead))
        };
        Ok(get_result(payload, meta, range))
    }

    pub(super) async fn get_object_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let path = self.path_to_filesystem(location)?;
        let (file, found) = open::open_any(self.engine.as_ref(), &path, self.direct).await?;
        if found.file_type().is_fifo() && ranges.iter().any(|range| !range.is_empty()) {
            // A read at an offset is refused, rather than made to wait for a writer.
            return Err(Error::read(&path, io::Error::from_raw_os_error(errno::ESPIPE)).into());
        }
        Ok(ranges::read(&file, &path, ranges, self.coalesce, in_turn).await?)
    }
}

/// Whether an object is of a format that DataFusion reads wrongly from a stream, by its name: of
/// files with several compressed members it decompresses only the first, and it does not recognise
/// every Arrow file.
fn needs_file(location: &Path) -> bool {
    let formats = ["arrow", "bz2", "xz", "zst"];
    let is = |extension| formats.iter().any(|format| format.eq_ignore_ascii_case(extension));
    location.extension().is_some_and(is)
}
