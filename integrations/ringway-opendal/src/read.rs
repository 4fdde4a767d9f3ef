//! Reading an object.

use crate::disk::Disk;
use crate::error::{failed, not_found};
use crate::exclusive::Exclusive;
use bytes::Bytes;
use opendal_core::raw::{RpRead, oio};
use opendal_core::{Buffer, BytesRange, Error, ErrorKind, Result};
use ringway::Reader;
use ringway::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The end of the last byte that a file may have.
const MAX_END: u64 = i64::MAX as u64;
/// A stream of at most this length is one read. Also, a range above this length is compared with
/// the object's before memory is allocated for it.
const ONE_READ: u64 = 1 << 20;

/// Reads an object, which is opened once, by the first read. So all reads see the same object, also
/// if it is replaced meanwhile.
pub(crate) struct FsReader {
    disk: Arc<Disk>,
    path: PathBuf,
    file: OnceCell<File>,
}

impl FsReader {
    pub(crate) fn new(disk: Arc<Disk>, path: PathBuf) -> Self {
        Self { disk, path, file: OnceCell::new() }
    }

    async fn file(&self) -> Result<&File> {
        let open = || self.disk.engine.open(&self.path);
        self.file.get_or_try_init(open).await.map_err(not_found("open"))
    }

    /// The range in bytes of the file; no end means that of the file.
    async fn resolve(&self, range: BytesRange) -> Result<(u64, Option<u64>)> {
        match range {
            BytesRange::Range { offset, size: None } => Ok((offset, None)),
            BytesRange::Range { offset, size: Some(size) } => {
                let end = offset.checked_add(size).filter(|end| *end <= MAX_END);
                Ok((offset, Some(end.ok_or_else(|| exceeds(offset, size))?)))
            }
            BytesRange::Suffix { size } => {
                let len = self.len().await?;
                Ok((len.saturating_sub(size), Some(len)))
            }
        }
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.file().await?.metadata().await.map_err(failed("look up"))?.len())
    }

    /// Reads a whole range.
    async fn read_all(&self, start: u64, end: u64) -> Result<Buffer> {
        let file = self.file().await?;
        if end - start > ONE_READ && self.len().await? < end {
            return Err(exceeds(start, end - start));
        }
        let block = file.read(start..end).await.map_err(failed("read"))?;
        if (block.len() as u64) < end - start {
            return Err(exceeds(start, end - start));
        }
        Ok(Bytes::from(block).into())
    }
}

impl oio::Read for FsReader {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        let (start, end) = self.resolve(range).await?;
        let stream: Box<dyn oio::ReadStreamDyn> = match end {
            Some(end) if end - start <= ONE_READ => Box::new(self.read_all(start, end).await?),
            _ => {
                let reader = self.file().await?.reader();
                let reader = reader.range(start..end.unwrap_or(MAX_END));
                Box::new(FsStream { reader: Exclusive::new(reader), start, end })
            }
        };
        Ok((RpRead::default(), stream))
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        let (start, end) = self.resolve(range).await?;
        let end = match end {
            Some(end) => end,
            None => self.len().await?.max(start),
        };
        Ok((RpRead::default(), self.read_all(start, end).await?))
    }
}

/// A range of an object, read ahead.
struct FsStream {
    reader: Exclusive<Reader>,
    start: u64,
    end: Option<u64>,
}

impl oio::ReadStream for FsStream {
    async fn read(&mut self) -> Result<Buffer> {
        let reader = self.reader.get_mut();
        match reader.next_block().await.map_err(failed("read"))? {
            Some(block) => Ok(Bytes::from(block).into()),
            None => match self.end {
                Some(end) if reader.position() < end => Err(exceeds(self.start, end - self.start)),
                _ => Ok(Buffer::new()),
            },
        }
    }
}

fn exceeds(offset: u64, size: u64) -> Error {
    Error::new(ErrorKind::RangeNotSatisfied, "the range ends after the object")
        .with_context("offset", offset)
        .with_context("size", size)
}
