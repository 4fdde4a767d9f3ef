//! The buffer of a reader, aligned to a page for direct I/O. It is a type of its own so that the
//! buffer traits of several runtimes can be implemented for it.

use ringway::AlignedBuffer;
use std::ops::{Deref, DerefMut};

/// A buffer at an address that is a multiple of 4096. Moving the value does not move its bytes.
pub struct Buffer(AlignedBuffer);

impl Buffer {
    /// A buffer of `len` bytes.
    pub fn new(len: usize) -> Self {
        Self(aligned(len))
    }

    /// The same, without touching its pages: the kernel provides each at its first use.
    pub fn untouched(len: usize) -> Self {
        Self(AlignedBuffer::new(len, 4096))
    }
}

/// The same, as ringway's own type. The bytes are written, so the kernel has provided every page
/// before the measurement starts.
pub fn aligned(len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len, 4096);
    buffer.fill(1);
    buffer
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
