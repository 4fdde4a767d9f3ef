//! Buffers that are given to an operation and come back with its result.

use ringway_core::Buffer;

/// A buffer that an operation may own: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuffer`](crate::AlignedBuffer), with the feature
/// `bytes` also `BytesMut` and (to write from) `Bytes`; and [`Buffer`] itself, of which a part can be used, and which
/// takes a [`CustomBuffer`](crate::CustomBuffer).
///
/// All of its length is read into or written from: `vec![0; 4096]`, not `Vec::with_capacity(4096)`.
pub trait IoBuffer: Into<Buffer> + TryFrom<Buffer> + Send + 'static {}

impl<B: Into<Buffer> + TryFrom<Buffer> + Send + 'static> IoBuffer for B {}

/// The way back to what it was.
pub(crate) fn given_back<B: IoBuffer>(buffer: Buffer) -> B {
    match B::try_from(buffer) {
        Ok(buffer) => buffer,
        // What `B` was made into is of `B`'s kind, and nothing changes a buffer's kind.
        Err(_) => unreachable!("a buffer comes back as what it was"),
    }
}
