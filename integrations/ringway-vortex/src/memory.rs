//! Memory of a Vortex allocator as ringway's.

use ringway::CustomBuffer;
use std::any::Any;
use vortex_array::memory::BufferAllocatorRef;
use vortex_buffer::{Alignment, ByteBuffer, ByteBufferMut};

/// The buffer of one read. It is of its full length, and initialised: on the task that asks for it.
pub(crate) struct Memory(ByteBufferMut);

impl Memory {
    pub(crate) fn new(allocator: &BufferAllocatorRef, len: usize, alignment: Alignment) -> Self {
        Self(ByteBufferMut::zeroed_aligned_in(len, alignment, allocator.clone()))
    }

    /// The buffer that a read returns.
    pub(crate) fn returned(memory: Box<dyn CustomBuffer>) -> ByteBuffer {
        match memory.into_any().downcast::<Self>() {
            Ok(memory) => memory.0.freeze(),
            // In a forked child: the parent has it.
            Err(_) => ByteBuffer::empty(),
        }
    }
}

// SAFETY: the buffer is owned here alone and not touched until the read returns it, so address and
// length stay the same; `new` has initialised its bytes.
unsafe impl CustomBuffer for Memory {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn writable(&self) -> bool {
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send + Sync> {
        self
    }
}
