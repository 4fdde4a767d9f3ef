//! Reads byte ranges of a Parquet file, with errors that name the file and the range. It knows
//! nothing of the format, so it serves each release of parquet.

use crate::advice::expect_random_reads;
use bytes::Bytes;
use ringway::fs::File;
use ringway::{Block, Coalesce};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file and how to read it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    /// For error messages.
    pub(crate) path: Option<Arc<Path>>,
    pub(crate) size: Option<u64>,
    pub(crate) coalesce: Coalesce,
}

impl Source {
    pub(crate) fn new(file: File) -> Self {
        expect_random_reads(&file);
        Self { file, path: None, size: None, coalesce: Coalesce::default() }
    }

    /// Opens a file with the global engine.
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let opened = File::open(path).await;
        let file = opened.map_err(|error| SourceError::io("open", Some(path.into()), error))?;
        Ok(Self { path: Some(path.into()), ..Self::new(file) })
    }

    /// The size of the file.
    pub(crate) async fn size(&self) -> io::Result<u64> {
        if let Some(size) = self.size {
            return Ok(size);
        }
        let metadata = match self.file.metadata().await {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            metadata => metadata,
        };
        Ok(metadata.map_err(|error| self.error("size", error))?.len())
    }

    /// Reads a range, all of it.
    pub(crate) async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let block = self.file.read(range.clone()).await;
        self.whole(&range, block)
    }

    /// Reads ranges, all of each, in one submission.
    pub(crate) async fn read_all(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let blocks = self.file.read_ranges_each(ranges, self.coalesce).await;
        let blocks = blocks.map_err(|error| self.error("read ranges", error))?;
        ranges.iter().zip(blocks).map(|(range, block)| self.whole(range, block)).collect()
    }

    /// The bytes of a range, or an error if the file ended within it.
    fn whole(&self, range: &Range<u64>, block: io::Result<Block>) -> io::Result<Bytes> {
        let Range { start, end } = range;
        let block = block.map_err(|error| self.error(format!("read {start}..{end}"), error))?;
        if block.len() as u64 == end.saturating_sub(*start) {
            return Ok(block.into());
        }
        let text = format!("the file ends at {}", start.saturating_add(block.len() as u64));
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, text);
        Err(self.error(format!("read {start}..{end}"), error))
    }

    fn error(&self, operation: impl Into<String>, error: io::Error) -> io::Error {
        SourceError::io(operation, self.path.clone(), error)
    }
}

/// The operation and the file of an I/O error.
#[derive(Debug)]
struct SourceError {
    operation: String,
    path: Option<Arc<Path>>,
    source: io::Error,
}

impl SourceError {
    /// An error of the same kind. It keeps the original, with its errno, as its source.
    fn io(operation: impl Into<String>, path: Option<Arc<Path>>, source: io::Error) -> io::Error {
        io::Error::new(source.kind(), Self { operation: operation.into(), path, source })
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operation)?;
        if let Some(path) = &self.path {
            write!(f, " of {}", path.display())?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
