//! How record batches become Parquet: row groups of a million rows with a page index, as most
//! writers make them.

use anyhow::Context;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Rows of a row group.
const ROW_GROUP: usize = 1_000_000;

/// How pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Codec {
    /// Snappy, the default of most writers.
    #[default]
    Snappy,
    /// Zstandard at its default level: smaller files, more CPU time.
    Zstd,
}

impl Codec {
    fn compression(self) -> Compression {
        match self {
            Self::Snappy => Compression::SNAPPY,
            Self::Zstd => Compression::ZSTD(ZstdLevel::default()),
        }
    }
}

/// Writes the batches to `path`, a new file. Only one row group at a time is in memory.
///
/// # Errors
///
/// Those of the batches, and of creating and writing the file, with its path.
pub fn write(
    path: &Path,
    codec: Codec,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> anyhow::Result<()> {
    let about = || path.display().to_string();
    let file = File::create_new(path).with_context(about)?;
    write_to(file, codec, batches).with_context(about)?;
    Ok(())
}

/// Writes the batches, and returns the metadata with the page index.
///
/// # Errors
///
/// No batch; those of the batches and of writing.
pub fn write_to(
    sink: impl Write + Send,
    codec: Codec,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> anyhow::Result<ParquetMetaData> {
    let mut batches = batches.peekable();
    let schema = match batches.peek() {
        Some(Ok(batch)) => batch.schema(),
        _ => batches.next().context("no rows")??.schema(),
    };
    let properties = WriterProperties::builder()
        .set_compression(codec.compression())
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .build();
    let mut writer = ArrowWriter::try_new(sink, schema, Some(properties))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    Ok(writer.close()?)
}
