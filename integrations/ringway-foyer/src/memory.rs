//! foyer's buffers as ringway's.

use foyer_storage::{IoB, IoBuf, IoBufMut, IoSliceMut};
use ringway::CustomBuffer;
use std::any::Any;

/// The buffer of one operation.
pub(crate) enum Memory {
    Read(Box<dyn IoBufMut>),
    Write(Box<dyn IoBuf>),
}

impl Memory {
    fn parts(&self) -> (*mut u8, usize) {
        match self {
            Self::Read(buffer) => buffer.as_raw_parts(),
            Self::Write(buffer) => buffer.as_raw_parts(),
        }
    }

    pub(crate) fn into_iob(self) -> Box<dyn IoB> {
        match self {
            Self::Read(buffer) => buffer.into_iob(),
            Self::Write(buffer) => buffer.into_iob(),
        }
    }

    /// The buffer that an operation returns.
    pub(crate) fn returned(memory: Box<dyn CustomBuffer>) -> Box<dyn IoB> {
        match memory.into_any().downcast::<Self>() {
            Ok(memory) => memory.into_iob(),
            // In a forked child: the parent has it.
            Err(_) => Box::new(IoSliceMut::new(0)),
        }
    }
}

// SAFETY: foyer hands the bytes out as a slice, so they are valid, and initialised as far as any
// code can tell. The box is not touched until the operation returns it, so address and length stay
// the same. A buffer to read into is owned by the box alone: `IoBufMut` hands it out as a mutable
// slice.
unsafe impl CustomBuffer for Memory {
    fn as_ptr(&self) -> *const u8 {
        self.parts().0
    }

    fn len(&self) -> usize {
        self.parts().1
    }

    fn writable(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send + Sync> {
        self
    }
}
