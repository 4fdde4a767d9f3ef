//! A gauge of memory: the bytes of the buffers that were allocated with it and not freed yet.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes of buffers ([`AlignedBuffer::try_counted`](super::AlignedBuffer::try_counted))
/// from their allocation until they are freed, wherever that happens, and limits them.
///
/// It has cache lines of its own, so gauges of several threads do not slow each other.
///
/// ```
/// use ringway_core::{AlignedBuffer, MemoryGauge};
/// use std::sync::Arc;
/// # fn main() -> std::io::Result<()> {
/// let gauge = Arc::new(MemoryGauge::new(8192));
/// let buffer = AlignedBuffer::try_counted(5000, 4096, &gauge)?;
/// assert_eq!(gauge.bytes(), 5000);
/// let error = AlignedBuffer::try_counted(5000, 4096, &gauge).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
/// drop(buffer);
/// assert_eq!(gauge.bytes(), 0);
/// # Ok(()) }
/// ```
#[repr(align(128))] // Two cache lines, which processors fetch together.
#[derive(Debug)]
pub struct MemoryGauge {
    bytes: AtomicUsize,
    limit: usize,
}

impl MemoryGauge {
    /// A gauge for at most `limit` bytes; `usize::MAX` is no limit.
    pub const fn new(limit: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), limit }
    }

    /// The bytes of all buffers that were allocated with this gauge and not freed yet.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes at a time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Adds bytes. Returns false, and changes nothing, if that would exceed the limit.
    pub(super) fn try_add(&self, bytes: usize) -> bool {
        if self.limit == usize::MAX {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            return true;
        }
        let sum = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }

    /// Subtracts bytes that were added.
    pub(super) fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AlignedBuffer, Buffer};
    use super::*;
    use proptest::prelude::*;
    use std::io;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn bytes_are_those_of_the_buffers(
            limit in prop_oneof![Just(usize::MAX), 0usize..300_000],
            steps in proptest::collection::vec((0usize..200_000, any::<bool>()), 0..50),
        ) {
            let gauge = Arc::new(MemoryGauge::new(limit));
            let mut buffers: Vec<Buffer> = Vec::new();
            for (len, allocate) in steps {
                if allocate {
                    match AlignedBuffer::try_counted(len, 1, &gauge) {
                        Ok(buffer) => buffers.push(buffer.into()),
                        Err(error) => {
                            prop_assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
                            prop_assert!(gauge.bytes() + len > limit);
                        }
                    }
                } else if !buffers.is_empty() {
                    buffers.swap_remove(len % buffers.len());
                }
                let sum: usize = buffers.iter().map(Buffer::len).sum();
                prop_assert_eq!(gauge.bytes(), sum);
                prop_assert!(sum <= limit);
            }
        }
    }

    #[test]
    fn a_failed_allocation_is_not_counted() {
        let gauge = Arc::new(MemoryGauge::new(usize::MAX));
        for len in [usize::MAX, 1 << 60] {
            let error = AlignedBuffer::try_counted(len, 4096, &gauge).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
        let error = AlignedBuffer::try_counted(1, 3, &gauge).unwrap_err();
        assert_eq!((error.kind(), gauge.bytes()), (io::ErrorKind::InvalidInput, 0));
    }
}
