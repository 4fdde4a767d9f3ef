//! A drop-in for [`object_store`](https://docs.rs/object_store)'s `LocalFileSystem`, and a reader
//! of Parquet files, whose I/O goes through [`ringway`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let folder = dir.path();
//! use object_store::{ObjectStoreExt, path::Path};
//! use ringway_object_store::RingwayFileSystem;
//! let store = RingwayFileSystem::new_with_prefix(folder)?; // was: LocalFileSystem
//! store.put(&Path::from("orders/1.csv"), "id,price\n7,9.90\n".into()).await?;
//! let text = store.get(&Path::from("orders/1.csv")).await?.bytes().await?;
//! assert!(text.starts_with(b"id,price"));
//! # Ok(()) }
//! ```
//!
//! The crate supports two releases of object_store and of parquet, since data engines follow their
//! releases months later: each has a module with the same items, behind a feature of its name. The
//! items at the root are those for the newest releases.
//!
//! | feature | default | |
//! |---|---|---|
//! | `object_store_0_14` | yes | [`RingwayFileSystem`] for object_store 0.14 |
//! | `object_store_0_13` | no | for object_store 0.13, which DataFusion 55 uses |
//! | `parquet_60` | no | `ParquetReader` for parquet 60 |
//! | `parquet_59` | no | for parquet 59, which DataFusion 55 uses |
//!
//! # Differences
//!
//! Results, metadata (with the ETag), variants of errors and their texts are those of
//! `LocalFileSystem` of the same release, except:
//!
//! | | `LocalFileSystem` | `RingwayFileSystem` |
//! |---|---|---|
//! | the store's name in errors | `LocalFileSystem` | `RingwayFileSystem` |
//! | payload of `get` | `GetResultPayload::File` | `Stream`; `File` of some [`with_file_payload`] |
//! | chunks of a stream | 8 KiB | one up to 8 MiB, above that 256 KiB read ahead: [`ReadAhead`] |
//! | `get_ranges` | one range after the other | one submission, coalesced: `with_coalesce` |
//! | a file shortened while it is streamed | endless empty chunks | the error of `bytes` |
//! | `get_ranges` of a backwards or huge range | panics | an error |
//! | a FIFO | waits for a writer | an empty object |
//! | a modification time that `DateTime` cannot hold | panics | the nearest that it can |
//! | `complete` after a part that failed or was dropped | an object with a hole | an error |
//! | modification time of an object that is put | of the kernel's last tick | of a precise clock |
//! | `put_part` after `abort` | writes to the staged file | an error |
//! | a put where no file can be created, as in `/proc` | never ends | an error |
//! | a put that cannot be renamed, as onto a directory | leaves its staged file | removes it |
//! | `Unable to copy data` and `Unable to rename file` | | name the file |
//! | `PutMode::Update` | not implemented | compares the ETag; atomic against other updates |
//! | `copy` | another name of the same file | a file of its own, sharing data on XFS and btrfs |
//! | a copy of a file with `S_ISUID` or `S_ISGID` | has them, and its owner | has neither |
//! | `copy` between two names of one file | leaves a hidden `PATH#N` | as between two files |
//! | `rename` between two names of one file | leaves the old name | removes it |
//! | a last part of 254 or 255 bytes | made by `copy_if_not_exists` only | by no write |
//! | a dropped write | may replace what is written later | does not, within a store |
//! | `with_fsync` | since 0.14, for new directories | with both, for all above an object |
//! | `list` after an error | ends, in tokio | goes on with what is left |
//! | outside tokio | blocks the thread | does not block, also in `list` |
//!
//! [`with_file_payload`]: RingwayFileSystem::with_file_payload
// One source serves each release; only the types in its signatures differ.
#![allow(clippy::duplicate_mod)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(
    feature = "object_store_0_13",
    feature = "object_store_0_14",
    feature = "parquet_59",
    feature = "parquet_60"
))]
mod advice;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
mod local;
#[cfg(any(feature = "parquet_59", feature = "parquet_60"))]
mod parquet_source;

/// The programs in the README compile.
#[cfg(all(doctest, feature = "object_store_0_14", feature = "parquet_60"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "object_store_0_13")]
pub mod object_store_0_13;
#[cfg(feature = "object_store_0_14")]
pub mod object_store_0_14;
#[cfg(feature = "parquet_59")]
pub mod parquet_59;
#[cfg(feature = "parquet_60")]
pub mod parquet_60;

/// For the options that take its types, and for its statistics.
pub use ringway;

#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
pub use local::ranges::read_ranges;
#[cfg(any(feature = "object_store_0_13", feature = "object_store_0_14"))]
pub use local::read_ahead::ReadAhead;
#[cfg(feature = "object_store_0_14")]
#[doc(inline)]
pub use object_store_0_14::RingwayFileSystem;
#[cfg(feature = "parquet_60")]
#[doc(inline)]
pub use parquet_60::ParquetReader;
