//! A reader of [Vortex](https://docs.rs/vortex) files on [ringway].
//!
//! Vortex reads a local file with a `pread` on a thread of the runtime's pool for each range. This
//! reader gives it the ranges through ringway's engine: all that Vortex asks for at a time is in
//! flight at once, on io_uring, Linux AIO or threads, as the system allows; what is cached is read
//! in place.
//!
//! - [`OpenWithRingway`]: opens a file by its path, instead of `open_path`.
//! - [`RingwayFileSystem`]: the files of Vortex's data sources of many files.
//! - [`RingwayReadAt`]: the reader itself, for any way of opening a file.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> vortex::error::VortexResult<()> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("numbers.vortex");
//! use ringway_vortex::OpenWithRingway;
//! use vortex::VortexSessionDefault;
//! use vortex::array::{IntoArray, stream::ArrayStreamExt};
//! use vortex::buffer::buffer;
//! use vortex::file::{OpenOptionsSessionExt, WriteOptionsSessionExt};
//! use vortex::session::VortexSession;
//! let session = VortexSession::default();
//! let numbers = buffer![1u64, 2, 3].into_array();
//! let mut file = tokio::fs::File::create(&path).await?;
//! session.write_options().write(&mut file, numbers.to_array_stream()).await?;
//!
//! let file = session.open_options().open_path_with_ringway(path).await?; // was: open_path
//! assert_eq!(file.scan()?.into_array_stream()?.read_all().await?.len(), 3);
//! # Ok(()) }
//! ```

mod error;
mod file_system;
mod memory;
mod open;
mod read_at;

pub use file_system::RingwayFileSystem;
pub use open::OpenWithRingway;
pub use read_at::RingwayReadAt;

/// The program in the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/vortex.md")]
struct Page;
