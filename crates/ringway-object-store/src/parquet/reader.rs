//! [`ParquetReader`]: reads a Parquet file through a ringway file, without an object store.

use super::parquet::arrow::arrow_reader::ArrowReaderOptions;
use super::parquet::arrow::async_reader::{AsyncFileReader, MetadataSuffixFetch};
use super::parquet::errors::{ParquetError, Result};
use super::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use crate::parquet_source::Source;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use ringway::Coalesce;
use ringway::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The default of [`ParquetReader::with_footer_size_hint`].
const FOOTER_SIZE_HINT: usize = 64 << 10;

/// Reads a Parquet file through a ringway [`File`], without an object store: pass it to
/// `ParquetRecordBatchStreamBuilder::new`. Clones share the open file, and may read at the same
/// time.
///
/// - **Data.** The ranges of a row group (its column chunks, or the pages that a row selection
///   needs if the page index was loaded) are read in one submission, and nearby ranges are
///   [coalesced](Self::with_coalesce). Nothing is copied: the decoder gets the buffers that the
///   kernel filled. They return to the engine's pool when it drops them; until then,
///   `Engine::stats().pool` counts them.
/// - **Metadata.** One read gets the footer, and the page index if it is wanted, when both fit into
///   the [size hint](Self::with_footer_size_hint). Otherwise there is one more read for each of
///   them. Nothing is cached: to read a file several times, load `ArrowReaderMetadata` once.
/// - **Direct I/O** needs no alignment. Open the file with
///   [`OpenOptions::direct`](ringway::fs::OpenOptions::direct).
/// - **Errors.** An I/O error is a `ParquetError::External` with an [`io::Error`], whose text has
///   operation, range, path and errno, and whose source is the original error. A file that ends
///   within a range gives one of kind `UnexpectedEof`. Errors of the format are parquet's own, with
///   the path in front.
/// - **Dropping** a future cancels its reads.
///
/// The reader is a `MetadataFetch` and a `MetadataSuffixFetch` as `&mut ParquetReader`: parquet
/// implements the first for a mutable reference to any `AsyncFileReader`, and requires it for the
/// second.
///
/// The documentation of the module has an example.
#[derive(Clone, Debug)]
pub struct ParquetReader {
    source: Source,
    footer_size_hint: usize,
    page_index: PageIndexPolicy,
}

impl ParquetReader {
    /// Reads a file that is open for reading: buffered or direct, with any engine. Neither blocks
    /// nor reads anything. Errors name the file only [with its path](Self::with_path).
    ///
    /// The kernel is advised to read only what is requested (`POSIX_FADV_RANDOM`). That applies to
    /// all reads of this open file, also those of other clones of it.
    pub fn new(file: File) -> Self {
        Self::with_source(Source::new(file))
    }

    fn with_source(source: Source) -> Self {
        Self { source, footer_size_hint: FOOTER_SIZE_HINT, page_index: PageIndexPolicy::Skip }
    }

    /// Opens a file with the global engine, for buffered reads. Reads nothing yet.
    ///
    /// Errors: those of `open(2)` and of [`Engine::global`](ringway::Engine::global), with the
    /// path. If the future is dropped, no descriptor is left open.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::with_source(Source::open(path.as_ref()).await?))
    }

    /// Names the file in errors. [`open`](Self::open) does this.
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.source.path = Some(path.as_ref().into());
        self
    }

    /// The size of the file in bytes, if it is known. It saves a system call (`statx(2)`) when the
    /// metadata is read. A wrong size makes that fail.
    pub fn with_file_size(mut self, bytes: u64) -> Self {
        self.source.size = Some(bytes);
        self
    }

    /// How many bytes at the end of the file the first read gets. If footer and page index fit, it
    /// is the only read of metadata. Default 64 KiB, which suits some hundred columns; a page index
    /// takes more in a file of many row groups.
    pub fn with_footer_size_hint(mut self, bytes: usize) -> Self {
        self.footer_size_hint = bytes;
        self
    }

    /// Whether to load the page index if the [`ArrowReaderOptions`] do not want it; if they do,
    /// their policy applies. Default: skip it.
    pub fn with_page_index_policy(mut self, policy: PageIndexPolicy) -> Self {
        self.page_index = policy;
        self
    }

    /// When nearby ranges of one request are coalesced into one read. Default:
    /// [`Coalesce::default`].
    pub fn with_coalesce(mut self, coalesce: Coalesce) -> Self {
        self.source.coalesce = coalesce;
        self
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.source.file
    }

    /// Loads the metadata as the options want it.
    async fn load_metadata(
        &mut self,
        options: Option<&ArrowReaderOptions>,
    ) -> Result<ParquetMetaData> {
        let size = self.source.size().await.map_err(external)?;
        let reader = ParquetMetaDataReader::new()
            .with_page_index_policy(self.page_index)
            .with_arrow_reader_options(options)
            .with_prefetch_hint(Some(self.footer_size_hint));
        let path = self.source.path.clone();
        let named = |error| match path {
            Some(path) => with_path(error, &path),
            None => error,
        };
        reader.load_and_finish(self, size).await.map_err(named)
    }
}

impl AsyncFileReader for ParquetReader {
    /// Reads a range in one read.
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { self.source.read(range).await.map_err(external) }.boxed()
    }

    /// Reads ranges in one submission, in which nearby ones are coalesced.
    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { self.source.read_all(&ranges).await.map_err(external) }.boxed()
    }

    /// Reads footer and page index. The size of the file is determined first, unless
    /// [`with_file_size`](Self::with_file_size) gave it.
    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move { self.load_metadata(options).await.map(Arc::new) }.boxed()
    }
}

impl MetadataSuffixFetch for &mut ParquetReader {
    /// Reads the last `suffix` bytes, or the whole file if it is shorter.
    fn fetch_suffix(&mut self, suffix: usize) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let size = self.source.size().await.map_err(external)?;
            let start = size.saturating_sub(suffix as u64);
            self.source.read(start..size).await.map_err(external)
        }
        .boxed()
    }
}

fn external(error: io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// Puts the path in front of an error of the format. I/O errors have it already.
fn with_path(error: ParquetError, path: &Path) -> ParquetError {
    let text = |text| format!("{}: {text}", path.display());
    match error {
        ParquetError::General(error) => ParquetError::General(text(error)),
        ParquetError::EOF(error) => ParquetError::EOF(text(error)),
        ParquetError::NYI(error) => ParquetError::NYI(text(error)),
        error => error,
    }
}
