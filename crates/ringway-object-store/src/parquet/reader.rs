//! [`ParquetReader`]: reads a Parquet file through a ringway file, without an object store.

use super::parquet::arrow::arrow_reader::ArrowReaderOptions;
use super::parquet::arrow::async_reader::AsyncFileReader;
use super::parquet::errors::{ParquetError, Result};
use super::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use ringway::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Reads a Parquet file.
#[derive(Clone, Debug)]
pub struct ParquetReader {
    file: File,
    size: u64,
}

impl ParquetReader {
    /// Reads this file.
    pub async fn new(file: File) -> std::io::Result<Self> {
        let size = file.metadata().await?.len();
        Ok(Self { file, size })
    }
}

impl AsyncFileReader for ParquetReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let block = self.file.read_exact(range).await.map_err(external)?;
            Ok(block.into())
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.size;
            let metadata = ParquetMetaDataReader::new().load_and_finish(self, size).await?;
            Ok(Arc::new(metadata))
        }
        .boxed()
    }
}

fn external(error: std::io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
