//! [`ParquetReader`] for parquet 60.

use parquet_60 as parquet;

#[path = "parquet/reader.rs"]
mod reader;

pub use reader::ParquetReader;
