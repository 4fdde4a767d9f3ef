//! An I/O engine for the disk cache of [foyer](https://docs.rs/foyer) on ringway.
//!
//! foyer has two engines: one that runs each `pread` on a thread of tokio's pool, and one on
//! io_uring whose thread never sleeps and that does not start where io_uring is refused. This one
//! reads and writes through ringway's engine: without a thread of its own that polls, on io_uring,
//! Linux AIO or threads, as the system allows. Idle, it uses no CPU.
//!
//! - A write ends when all of it is written, and a read when all of it is read; otherwise it is an
//!   error, with the system's error number.
//! - The buffer belongs to the operation until the kernel is done with it, also if the future is
//!   dropped; so does the file.
//!
//! ```no_run
//! # async fn example() -> foyer::Result<()> {
//! use foyer::{BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder};
//! use ringway_foyer::RingwayIoEngineConfig;
//! let device = FsDeviceBuilder::new("/var/cache/program");
//! let device = device.with_capacity(1 << 30).with_direct(true);
//! let cache: HybridCache<u64, Vec<u8>> = HybridCacheBuilder::new()
//!     .memory(64 << 20)
//!     .storage()
//!     .with_io_engine_config(RingwayIoEngineConfig::new())
//!     .with_engine_config(BlockEngineConfig::new(device.build()?))
//!     .build()
//!     .await?;
//! # let _ = cache;
//! # Ok(()) }
//! ```

mod engine;
mod files;
mod memory;

pub use engine::{RingwayIoEngine, RingwayIoEngineConfig};

/// The program in the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/foyer.md")]
struct Page;
