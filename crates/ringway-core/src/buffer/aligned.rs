//! A buffer for direct I/O: its address is a multiple of what the device asks for.

use crate::device::DirectIo;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed memory at an aligned address; a slice of bytes in every other respect.
///
/// From 128 KiB on it is mapped from the kernel, which zeroes each page when it is first used:
/// making such a buffer takes the same time whatever its length, and what is never used takes no
/// memory.
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
    /// `len` zeroed bytes at a multiple of `align`. A program that has no memory left for it ends;
    /// see [`try_new`](Self::try_new).
    ///
    /// # Panics
    ///
    /// When `align` is no power of two, or `len` is more than an address space can hold.
    pub fn new(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len, align)
            .unwrap_or_else(|_| panic!("no buffer of {len} bytes can be aligned to {align}"));
        Self::zeroed(layout).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// As [`new`](Self::new), where the memory may be more than there is.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when it cannot be had; `InvalidInput` when `align` is no power of two.
    pub fn try_new(len: usize, align: usize) -> io::Result<Self> {
        if !align.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self::zeroed(layout).ok_or(io::ErrorKind::OutOfMemory)?)
    }

    fn zeroed(layout: Layout) -> Option<Self> {
        let first = if layout.size() == 0 {
            // Dangling, but aligned: nobody reads or writes zero bytes.
            std::ptr::without_provenance_mut(layout.align())
        } else if is_mapped(layout) {
            map(layout.size())?
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        };
        Some(Self { first: NonNull::new(first)?, layout })
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
        // SAFETY: `zeroed` allocated and zeroed `size` bytes at `first`, and they are this value's
        // alone until drop.
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
            if is_mapped(self.layout) {
                // SAFETY: `first` came from `map` with this very size, nobody refers to it any
                // more, and it is unmapped once.
                unsafe { libc::munmap(self.first.as_ptr().cast(), self.layout.size()) };
            } else {
                // SAFETY: `first` came from `alloc_zeroed` with this very layout, and is freed
                // once.
                unsafe { dealloc(self.first.as_ptr(), self.layout) }
            }
        }
    }
}

/// From so many bytes on, memory is mapped: the allocator would zero it, which takes as long as to
/// read into it.
const MAPPED: usize = 128 << 10;
/// The smallest page there is on Linux: mappings are aligned to it.
const PAGE: usize = 4096;

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED && layout.align() <= PAGE
}

/// Fresh pages, or `None`.
fn map(len: usize) -> Option<*mut u8> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, where the kernel finds room for it, touches no memory that is in use.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    (first != libc::MAP_FAILED).then_some(first.cast())
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
        fn it_is_aligned_zeroed_and_writable(
            len in prop_oneof![0usize..20_000, MAPPED - 10..MAPPED + 5000],
            shift in 0u32..16,
        ) {
            let mut buffer = AlignedBuffer::new(len, 1 << shift);
            prop_assert_eq!(buffer.as_ptr().addr() % (1 << shift), 0);
            prop_assert_eq!(buffer.len(), len);
            prop_assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(0xa5);
            prop_assert!(buffer.iter().all(|byte| *byte == 0xa5));
        }
    }

    /// Pages of the buffer that are in memory.
    fn resident(buffer: &AlignedBuffer) -> usize {
        let mut pages = vec![0u8; buffer.len().div_ceil(PAGE)];
        // SAFETY: the mapping is the buffer's, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(buffer.as_ptr().cast_mut().cast(), buffer.len(), pages.as_mut_ptr())
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn large_memory_is_touched_by_its_user_only() {
        for len in [MAPPED, 64 << 20, 4 << 30] {
            let mut buffer = AlignedBuffer::new(len, PAGE);
            assert_eq!(resident(&buffer), 0, "{len}");
            buffer[len - 1] = 1;
            // Where the kernel has large pages, one of these.
            assert!((1..=512).contains(&resident(&buffer)), "{len}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - PAGE, 1 << 60] {
            assert_eq!(
                AlignedBuffer::try_new(len, PAGE).unwrap_err().kind(),
                io::ErrorKind::OutOfMemory,
                "{len}"
            );
        }
        assert_eq!(AlignedBuffer::try_new(8, 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(AlignedBuffer::try_new(0, 8).unwrap().len(), 0);
    }

    #[test]
    #[should_panic(expected = "can be aligned to 3")]
    fn an_alignment_that_is_none_is_refused() {
        AlignedBuffer::new(8, 3);
    }
}
