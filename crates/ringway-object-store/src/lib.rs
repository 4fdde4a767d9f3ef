//! A drop-in for [`object_store`](https://docs.rs/object_store)'s `LocalFileSystem`, and a reader
//! of Parquet files, whose I/O goes through [`ringway`].
//!
//! The crate supports two releases of object_store and of parquet, since data engines follow their
//! releases months later: each has a module with the same items, behind a feature of its name.
// One source serves each release; only the types in its signatures differ.
#![allow(clippy::duplicate_mod)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod dir_lock;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod error;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod etag;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod open;
#[cfg(any(feature = "parquet_59", feature = "parquet_60"))]
mod parquet_source;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod ranges;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod read_ahead;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod staged_file;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod staging;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod stream;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod write_error;

#[cfg(feature = "object_store_0_13")]
pub mod object_store_0_13;
#[cfg(feature = "object_store_0_14")]
pub mod object_store_0_14;
#[cfg(feature = "parquet_59")]
pub mod parquet_59;
#[cfg(feature = "parquet_60")]
pub mod parquet_60;

#[cfg(feature = "object_store_0_14")]
#[doc(inline)]
pub use object_store_0_14::RingwayFileSystem;
#[cfg(feature = "parquet_60")]
#[doc(inline)]
pub use parquet_60::ParquetReader;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
pub use read_ahead::ReadAhead;
