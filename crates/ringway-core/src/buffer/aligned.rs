//! A buffer for direct I/O: its address is a multiple of what the device asks for.

use crate::device::DirectIo;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed memory at an aligned address; a slice of bytes in every other respect.
///
/// ```
/// # use ringway_core::{AlignedBuffer, File};
/// # fn main() -> std::io::Result<()> {
/// # let file = File::open("/etc/passwd")?;
/// let buffer = AlignedBuffer::for_direct(file.direct_io(), 4096);
/// assert_eq!(buffer.len(), 4096);
/// # Ok(()) }
/// ```
pub struct AlignedBuffer {
    first: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuffer {
    /// `len` zeroed bytes at a multiple of `align`.
    ///
    /// # Panics
    ///
    /// When `align` is no power of two, or `len` is more than an address space can hold.
    pub fn new(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len, align)
            .unwrap_or_else(|_| panic!("no buffer of {len} bytes can be aligned to {align}"));
        if len == 0 {
            // Dangling, but aligned: nobody reads or writes zero bytes.
            let first = NonNull::new(std::ptr::without_provenance_mut(align)).unwrap_or(NonNull::dangling());
            return Self { first, layout };
        }
        // SAFETY: the layout's size is not zero.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { first, layout }
    }

    /// `len` zeroed bytes, aligned as direct I/O on that file wants them.
    pub fn for_direct(direct: DirectIo, len: usize) -> Self {
        Self::new(len, (direct.memory_align.max(1) as usize).next_power_of_two())
    }

    /// Bytes that the address is a multiple of, as asked for.
    pub fn align(&self) -> usize {
        self.layout.align()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` allocated and zeroed `size` bytes at `first`, and they are this value's alone until drop.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow the only one.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `first` came from `alloc_zeroed` with this very layout, and is freed once.
            unsafe { dealloc(self.first.as_ptr(), self.layout) }
        }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes, aligned to {})", self.layout.size(), self.layout.align())
    }
}

// SAFETY: the memory is owned by the value alone, like a `Box<[u8]>`'s.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read it.
unsafe impl Sync for AlignedBuffer {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_aligned_zeroed_and_writable(len in 0usize..20_000, shift in 0u32..16) {
            let mut buffer = AlignedBuffer::new(len, 1 << shift);
            prop_assert_eq!(buffer.as_ptr().addr() % (1 << shift), 0);
            prop_assert_eq!(buffer.len(), len);
            prop_assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(0xa5);
            prop_assert!(buffer.iter().all(|byte| *byte == 0xa5));
        }
    }

    #[test]
    #[should_panic(expected = "can be aligned to 3")]
    fn an_alignment_that_is_none_is_refused() {
        AlignedBuffer::new(8, 3);
    }
}
