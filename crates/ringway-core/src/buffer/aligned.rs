//! A buffer for direct I/O, at an aligned address. Which alignment a file needs is in `device`.

use super::MemoryGauge;
use crate::device::DirectIo;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed memory at an aligned address. It dereferences to a slice of bytes.
///
/// From 4 MiB on, the kernel maps the memory and zeroes each page at its first use. So allocation
/// takes the same time for any larger length, and unused pages take no memory. Below that, memory
/// comes from the program's allocator, and all of it is zeroed at once.
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
    /// What the allocator returned: `first`, or an address before it.
    allocated: NonNull<u8>,
    /// Counts the memory until it is freed.
    gauge: Option<Arc<MemoryGauge>>,
}

/// Where the memory of a buffer comes from.
enum Source {
    /// There are no bytes.
    None,
    /// The allocator, which aligned it.
    Aligned,
    /// The allocator: it is within a longer piece of memory.
    Within,
    /// A mapping of its own.
    Mapped,
}

impl Source {
    fn of(layout: Layout) -> Self {
        match layout.size() {
            0 => Self::None,
            LARGE..MAPPED if layout.align() <= MIN_PAGE => Self::Within,
            MAPPED.. if cfg!(unix) && layout.align() <= MIN_PAGE => Self::Mapped,
            _ => Self::Aligned,
        }
    }
}

impl AlignedBuffer {
    /// Allocates `len` zeroed bytes at a multiple of `align`. Aborts the program if there is not
    /// enough memory; see [`try_new`](Self::try_new).
    ///
    /// # Panics
    ///
    /// If `align` is not a power of two, or `len` exceeds the address space.
    pub fn new(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len, align)
            .unwrap_or_else(|_| panic!("no buffer of {len} bytes can be aligned to {align}"));
        Self::zeroed(layout).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// As [`new`](Self::new), but returns an error if there is not enough memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the memory cannot be allocated; `InvalidInput` if `align` is not a power of
    /// two.
    pub fn try_new(len: usize, align: usize) -> io::Result<Self> {
        if !align.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self::zeroed(layout).ok_or(io::ErrorKind::OutOfMemory)?)
    }

    /// As [`try_new`](Self::try_new), and counts the bytes with a gauge until they are freed.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` if the gauge's limit would be exceeded; those of `try_new`.
    pub fn try_counted(len: usize, align: usize, gauge: &Arc<MemoryGauge>) -> io::Result<Self> {
        if !gauge.try_add(len) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        match Self::try_new(len, align) {
            Ok(mut buffer) => {
                buffer.gauge = Some(Arc::clone(gauge));
                Ok(buffer)
            }
            Err(error) => {
                gauge.subtract(len);
                Err(error)
            }
        }
    }

    /// Whether this gauge counts the memory.
    pub fn is_counted_by(&self, gauge: &Arc<MemoryGauge>) -> bool {
        self.gauge.as_ref().is_some_and(|own| Arc::ptr_eq(own, gauge))
    }

    fn zeroed(layout: Layout) -> Option<Self> {
        let allocated = match Source::of(layout) {
            // Dangling but aligned: zero bytes are never read or written.
            Source::None => std::ptr::without_provenance_mut(layout.align()),
            // SAFETY: the layout's size is not zero.
            Source::Aligned => unsafe { alloc_zeroed(layout) },
            // SAFETY: as above.
            Source::Within => unsafe { alloc_zeroed(around(layout)) },
            Source::Mapped => map(layout.size())?,
        };
        let allocated = NonNull::new(allocated)?;
        let skipped = allocated.align_offset(layout.align());
        assert!(skipped == 0 || skipped + layout.size() <= around(layout).size());
        // SAFETY: only memory that is longer than the layout by its alignment can be misaligned.
        // The assertion says that the result is within it.
        let first = unsafe { allocated.add(skipped) };
        Some(Self { first, layout, allocated, gauge: None })
    }

    /// Allocates `len` zeroed bytes with the alignment that direct I/O on a file needs.
    pub fn for_direct(direct: DirectIo, len: usize) -> Self {
        Self::new(len, (direct.memory_align.max(1) as usize).next_power_of_two())
    }

    /// The alignment that was requested.
    pub fn align(&self) -> usize {
        self.layout.align()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `zeroed` allocated and zeroed `size` bytes at `first`; this value owns them until
        // it is dropped.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let allocated = self.allocated.as_ptr();
        match Source::of(self.layout) {
            Source::None => {}
            // SAFETY: `alloc_zeroed` returned the address for this layout, and it is freed once.
            Source::Aligned => unsafe { dealloc(allocated, self.layout) },
            // SAFETY: as above.
            Source::Within => unsafe { dealloc(allocated, around(self.layout)) },
            // SAFETY: `map` returned the address for this size, no reference to it is left, and it
            // is unmapped once.
            Source::Mapped => unsafe { unmap(allocated, self.layout.size()) },
        }
        if let Some(gauge) = &self.gauge {
            gauge.subtract(self.layout.size());
        }
    }
}

/// From this size on, memory is mapped: the allocator would zero all of it, used or not. Below it,
/// mapping costs more than zeroing: two system calls that lock the address space, a page fault for
/// each page, and an interrupt of every processor that runs the program when the pages go.
const MAPPED: usize = 4 << 20;
/// From this size on, the alignment is made here, within a piece of memory that is longer by a
/// page. glibc maps each large piece that it has to align itself, and unmaps it again.
const LARGE: usize = 64 << 10;
/// The smallest page size on Linux: mappings are aligned to it.
pub(crate) const MIN_PAGE: usize = 4096;

/// What to request of the allocator to have a buffer of this layout within it.
fn around(layout: Layout) -> Layout {
    let len = layout.size() + layout.align();
    Layout::from_size_align(len, 1).expect("buffers that are not mapped are far below the limit")
}

/// Fresh pages, or `None`.
#[cfg(unix)]
fn map(len: usize) -> Option<*mut u8> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    (first != libc::MAP_FAILED).then_some(first.cast())
}

/// # Safety
///
/// [`map`] returned `first` for this length, and no reference to the memory is left.
#[cfg(unix)]
unsafe fn unmap(first: *mut u8, len: usize) {
    // SAFETY: the caller promised it.
    unsafe { libc::munmap(first.cast(), len) };
}

/// There is only the allocator.
#[cfg(not(unix))]
fn map(_: usize) -> Option<*mut u8> {
    None
}

#[cfg(not(unix))]
unsafe fn unmap(_: *mut u8, _: usize) {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes, aligned to {})", self.layout.size(), self.layout.align())
    }
}

// SAFETY: the value owns its memory, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read it.
unsafe impl Sync for AlignedBuffer {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_is_aligned_zeroed_and_writable(
            len in prop_oneof![
                20 => 0usize..20_000,
                5 => LARGE - 10..LARGE + 5000,
                1 => MAPPED - 10..MAPPED + 5000,
            ],
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
    #[cfg(unix)]
    fn resident(buffer: &AlignedBuffer) -> usize {
        let mut pages = vec![0u8; buffer.len().div_ceil(MIN_PAGE)];
        // SAFETY: the mapping is the buffer's, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                buffer.as_ptr().cast_mut().cast(),
                buffer.len(),
                pages.as_mut_ptr().cast(),
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    // (Windows does not report which pages are in memory.)
    #[cfg(unix)]
    #[test]
    fn large_buffers_are_not_touched_when_they_are_made() {
        for len in [MAPPED, 64 << 20, 4 << 30] {
            let mut buffer = AlignedBuffer::new(len, MIN_PAGE);
            assert_eq!(resident(&buffer), 0, "{len}");
            buffer[len - 1] = 1;
            // Where the kernel has huge pages, a whole one.
            assert!((1..=512).contains(&resident(&buffer)), "{len}");
        }
    }

    #[test]
    fn impossible_sizes_and_alignments_are_errors() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - MIN_PAGE, 1 << 60] {
            assert_eq!(
                AlignedBuffer::try_new(len, MIN_PAGE).unwrap_err().kind(),
                io::ErrorKind::OutOfMemory,
                "{len}"
            );
        }
        assert_eq!(AlignedBuffer::try_new(8, 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(AlignedBuffer::try_new(0, 8).unwrap().len(), 0);
    }

    #[test]
    #[should_panic(expected = "can be aligned to 3")]
    fn an_invalid_alignment_panics() {
        AlignedBuffer::new(8, 3);
    }
}
