//! Streams: sequential reads with read-ahead, sequential writes with write-behind, and ranges.
//!
//! [`Reader`] and [`Writer`] depend on no runtime. The traits of tokio and of `futures-io` are
//! implemented in `tokio.rs` and `futures.rs`, for files too.

#[cfg(feature = "futures")]
mod blocks;
mod eager;
#[cfg(feature = "futures")]
mod futures;
mod ranges;
mod read_ahead;
mod reader;
#[cfg(feature = "tokio")]
mod tokio;
mod write_behind;
mod writer;

#[cfg(feature = "futures")]
pub use blocks::Blocks;
pub(crate) use eager::Eager;
pub use ranges::{RangeRead, RangeStream};
pub use reader::Reader;
pub use writer::Writer;

use crate::align::MAX_OFFSET;
use crate::fs::File;
use ringway_core::errno;
use std::io;

/// The default size of a chunk.
const DEFAULT_CHUNK: usize = 256 << 10;
/// The largest chunk: one request can transfer it, and offsets cannot overflow.
const MAX_CHUNK: usize = 1 << 30;
/// The default number of chunks in flight.
const DEFAULT_DEPTH: usize = 4;
/// The most chunks in flight: the default limit of transfers of an engine.
const MAX_DEPTH: usize = 256;

/// The size of a chunk for this file, from the requested 1 to [`MAX_CHUNK`] bytes: whole
/// blocks.
fn chunk_for(file: &File, bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(block_of(file))
}

/// The block size for writes to this file: 1 byte, except for direct I/O.
fn block_of(file: &File) -> u64 {
    if file.is_direct() { u64::from(file.offset_align().max(1)) } else { 1 }
}

/// The end of the chunk that contains the byte at `offset`. Chunks begin and end at multiples of
/// their size, so all but the first and the last are whole blocks and pages.
fn end_of_chunk(offset: u64, chunk: u64) -> u64 {
    (offset / chunk + 1).saturating_mul(chunk)
}

/// Streams read and write at offsets, which pipes and terminals do not support.
fn has_offsets(file: &File) -> io::Result<()> {
    if file.is_storage() { Ok(()) } else { Err(io::Error::from_raw_os_error(errno::ESPIPE)) }
}

/// Checks that a file can have this offset.
pub(crate) fn checked(offset: Option<u64>) -> io::Result<u64> {
    let outside = || {
        io::Error::new(io::ErrorKind::InvalidInput, "seek before the beginning or beyond i64::MAX")
    };
    offset.filter(|offset| *offset <= MAX_OFFSET).ok_or_else(outside)
}
