//! [`ParquetReader`] for parquet 60.
//!
//! ```
//! use futures_util::TryStreamExt;
//! use parquet::arrow::ParquetRecordBatchStreamBuilder;
//! use parquet::arrow::arrow_reader::ArrowReaderOptions;
//! use parquet::file::metadata::PageIndexPolicy;
//! use ringway_object_store::parquet_60::ParquetReader;
//!
//! async fn rows(path: &str) -> Result<usize, Box<dyn std::error::Error>> {
//!     let reader = ParquetReader::open(path).await?;
//!     let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
//!     let stream = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await?;
//!     let mut stream = stream.with_batch_size(8192).build()?;
//!     let mut rows = 0;
//!     while let Some(batch) = stream.try_next().await? {
//!         rows += batch.num_rows();
//!     }
//!     Ok(rows)
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let error = rows("/nonexistent/orders.parquet").await.unwrap_err();
//! let text = "open of /nonexistent/orders.parquet: No such file or directory (os error 2)";
//! assert_eq!(error.to_string(), text);
//! # }
//! ```

use ::parquet;

#[path = "parquet/reader.rs"]
mod reader;

pub use reader::ParquetReader;
