//! `compare ranges`: tens of thousands of byte ranges of one large file, as the scan of a Parquet
//! file requests them. Each contestant reads all of them into buffers of its own, once; what counts
//! is the time until the last one has been read, and what that costs.

pub mod file;
pub mod list;
mod work;

pub use work::{Scan, Work};
