//! [`ParquetReader`] for parquet 59.

use parquet_59 as parquet;

#[path = "parquet/reader.rs"]
mod reader;

pub use reader::ParquetReader;
