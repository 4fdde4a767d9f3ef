//! Streams: a file read or written from one end to the other, with chunks on their way before they
//! are asked for.
//!
//! [`Reader`] and [`Writer`] know no runtime and no trait; `tokio.rs` and `futures.rs` beside them
//! lend them to the traits of either.

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
pub use ranges::{RangeRead, RangeStream};
pub use reader::Reader;
pub use writer::Writer;

use crate::align::LARGEST_OFFSET;
use crate::fs::File;
use rustix::io::Errno;
use std::io;

/// Bytes of a chunk where nothing is said.
const CHUNK: usize = 256 << 10;
/// The largest chunk: as much as one request transfers, and nowhere near the end of all offsets.
const LARGEST_CHUNK: usize = 1 << 30;
/// Chunks on their way where nothing is said.
const DEPTH: usize = 4;
/// The most chunks on their way: as many transfers as an engine has in flight where nothing is
/// said.
const DEEPEST: usize = 256;

/// What a chunk of so many bytes, 1 to [`LARGEST_CHUNK`], is for this file: whole blocks.
fn chunk_for(file: &File, bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(block_of(file))
}

/// Bytes of the blocks that the file is written in: of one byte, but for direct I/O.
fn block_of(file: &File) -> u64 {
    if file.is_direct() { u64::from(file.alignment().offset_align.max(1)) } else { 1 }
}

/// Where the chunk ends that has the byte at `offset`: chunks begin and end at multiples of their
/// size, so that all but the first and the last are whole blocks and pages.
fn end_of_chunk(offset: u64, chunk: u64) -> u64 {
    (offset / chunk + 1).saturating_mul(chunk)
}

/// A stream says itself where it reads and writes, which a pipe or a terminal cannot be told.
fn has_offsets(file: &File) -> io::Result<()> {
    if file.is_storage() { Ok(()) } else { Err(Errno::SPIPE.into()) }
}

/// An offset that a file can have.
fn checked(offset: Option<u64>) -> io::Result<u64> {
    let outside = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "seek to before the beginning or beyond i64::MAX",
        )
    };
    offset.filter(|offset| *offset <= LARGEST_OFFSET).ok_or_else(outside)
}
