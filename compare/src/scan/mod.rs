//! `compare ranges`: tens of thousands of byte ranges of one large file, as the scan of a Parquet
//! file requests them. Each contestant reads all of them into buffers of its own, once; what counts
//! is the time until the last one has been read, and what that costs.

pub mod file;
pub mod list;
mod work;

pub use work::Work;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a scan reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Scan {
    /// The file with the list of ranges, which is too long for an argument.
    pub list: PathBuf,
    /// Bytes of all ranges.
    pub bytes: u64,
    /// Check every byte. The figures then mean nothing.
    pub whole: bool,
}
