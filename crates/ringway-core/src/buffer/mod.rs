//! Buffers: memory that an operation owns from its push to its completion.

mod aligned;
mod arena;
mod gauge;
mod spare;

pub use aligned::AlignedBuffer;
pub(crate) use aligned::MIN_PAGE;
pub use arena::{Arena, ArenaBuffer};
pub use gauge::MemoryGauge;
pub use spare::SpareCapacity;

use std::fmt;
use std::ops::{Bound, RangeBounds};

/// Memory of the caller's own type (a page of a buffer pool, a mapping, a frame) as a buffer.
///
/// # Safety
///
/// While the value lives, even if it moves, [`as_ptr`](Self::as_ptr) and [`len`](Self::len) must
/// return the same values, and that memory must be valid and initialised. If
/// [`writable`](Self::writable) is true, nobody else may read or write it.
pub unsafe trait CustomBuffer: Send + Sync + 'static {
    /// The address of the first byte.
    fn as_ptr(&self) -> *const u8;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the kernel may write to the memory.
    fn writable(&self) -> bool;

    /// Converts back to the caller's own type, after the completion.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync>;
}

/// A custom buffer without bytes.
impl Default for Box<dyn CustomBuffer> {
    fn default() -> Self {
        struct Empty;

        // SAFETY: the pointer is not null and aligned, and no byte behind it is used.
        unsafe impl CustomBuffer for Empty {
            fn as_ptr(&self) -> *const u8 {
                std::ptr::NonNull::dangling().as_ptr()
            }

            fn len(&self) -> usize {
                0
            }

            fn writable(&self) -> bool {
                true
            }

            fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
                self
            }
        }

        Box::new(Empty)
    }
}

/// A buffer of any type that operations accept, and the part of it that they use.
///
/// Buffers are made with `From`. `TryFrom` returns the original buffer, always in whole:
///
/// ```
/// use ringway_core::Buffer;
/// let buffer = Buffer::from(vec![0u8; 4096]).slice(512..1024);
/// assert_eq!(buffer.len(), 512);
/// assert_eq!(Vec::try_from(buffer).unwrap().len(), 4096);
/// ```
pub struct Buffer {
    storage: BufferStorage,
    start: usize,
    len: usize,
}

enum BufferStorage {
    Vec(Vec<u8>),
    Boxed(Box<[u8]>),
    #[cfg(feature = "bytes")]
    Bytes(bytes::Bytes),
    #[cfg(feature = "bytes")]
    BytesMut(bytes::BytesMut),
    Aligned(AlignedBuffer),
    ArenaBuffer(ArenaBuffer),
    Custom(Box<dyn CustomBuffer>),
}

impl Buffer {
    /// Wraps memory of the caller's own type.
    pub fn custom(buffer: Box<dyn CustomBuffer>) -> Self {
        let len = buffer.len();
        Self { storage: BufferStorage::Custom(buffer), start: 0, len }
    }

    #[inline]
    fn whole(storage: BufferStorage) -> Self {
        let mut buffer = Self { storage, start: 0, len: 0 };
        buffer.len = buffer.storage().len();
        buffer
    }

    /// Restricts reads and writes to this part of the buffer. The range is relative to the current
    /// part.
    ///
    /// # Panics
    ///
    /// If the range is not within the current part.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        assert!(
            start <= end && end <= self.len,
            "range {start}..{end} of a buffer of {} bytes",
            self.len
        );
        Self { start: self.start + start, len: end - start, ..self }
    }

    /// The number of bytes in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no bytes are in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if it is a vector with capacity and without bytes. A read into it would read nothing,
    /// which looks like the end of the file, so it is refused.
    #[inline]
    pub fn has_only_spare_capacity(&self) -> bool {
        self.len == 0 && self.storage().is_empty() && self.memory_size() > 0
    }

    /// The bytes of memory that the buffer owns, whether in use or not.
    pub fn memory_size(&self) -> usize {
        match &self.storage {
            BufferStorage::Vec(vec) => vec.capacity(),
            #[cfg(feature = "bytes")]
            BufferStorage::BytesMut(bytes) => bytes.capacity(),
            _ => self.storage().len(),
        }
    }

    /// The bytes in use.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.storage()[self.start..self.start + self.len]
    }

    /// Whether the bytes may be changed.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        match &self.storage {
            #[cfg(feature = "bytes")]
            BufferStorage::Bytes(_) => false,
            BufferStorage::Custom(custom) => custom.writable(),
            _ => true,
        }
    }

    /// The bytes in use, to be changed; `None` if the buffer is read-only (`Bytes`, or a custom
    /// buffer that is not writable).
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let (start, end) = (self.start, self.start + self.len);
        let all: &mut [u8] = match &mut self.storage {
            BufferStorage::Vec(vec) => vec,
            BufferStorage::Boxed(boxed) => boxed,
            #[cfg(feature = "bytes")]
            BufferStorage::Bytes(_) => return None,
            #[cfg(feature = "bytes")]
            BufferStorage::BytesMut(bytes) => bytes,
            BufferStorage::Aligned(aligned) => aligned,
            BufferStorage::ArenaBuffer(block) => block,
            BufferStorage::Custom(custom) if custom.writable() => {
                // SAFETY: the implementor of `CustomBuffer` guarantees `len` initialised bytes at
                // `as_ptr` while the value lives, and that nobody else accesses writable ones;
                // `&mut self` makes this the only borrow.
                unsafe { std::slice::from_raw_parts_mut(custom.as_ptr().cast_mut(), custom.len()) }
            }
            BufferStorage::Custom(_) => return None,
        };
        Some(&mut all[start..end])
    }

    /// The address of the first byte in use.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }

    /// The address of the first byte in use, for writing; `None` if the buffer is read-only.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        self.as_mut_slice().map(<[u8]>::as_mut_ptr)
    }

    #[inline]
    fn storage(&self) -> &[u8] {
        match &self.storage {
            BufferStorage::Vec(vec) => vec,
            BufferStorage::Boxed(boxed) => boxed,
            #[cfg(feature = "bytes")]
            BufferStorage::Bytes(bytes) => bytes,
            #[cfg(feature = "bytes")]
            BufferStorage::BytesMut(bytes) => bytes,
            BufferStorage::Aligned(aligned) => aligned,
            BufferStorage::ArenaBuffer(block) => block,
            // SAFETY: the implementor of `CustomBuffer` guarantees `len` initialised bytes at
            // `as_ptr` while the value lives, and that nobody else writes to them.
            BufferStorage::Custom(custom) => unsafe {
                std::slice::from_raw_parts(custom.as_ptr(), custom.len())
            },
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.storage {
            BufferStorage::Vec(_) => "Vec",
            BufferStorage::Boxed(_) => "Box",
            #[cfg(feature = "bytes")]
            BufferStorage::Bytes(_) => "Bytes",
            #[cfg(feature = "bytes")]
            BufferStorage::BytesMut(_) => "BytesMut",
            BufferStorage::Aligned(_) => "AlignedBuffer",
            BufferStorage::ArenaBuffer(_) => "ArenaBuffer",
            BufferStorage::Custom(_) => "custom",
        };
        write!(f, "Buffer({kind}, {}..{})", self.start, self.start + self.len)
    }
}

/// Implements `From` and `TryFrom` for one type of buffer.
macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl From<$type> for Buffer {
            #[inline]
            fn from(storage: $type) -> Self {
                Self::whole(BufferStorage::$variant(storage))
            }
        }

        impl TryFrom<Buffer> for $type {
            type Error = Buffer;

            /// Returns the whole buffer; an error returns a buffer of another type.
            #[inline]
            fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
                match buffer.storage {
                    BufferStorage::$variant(storage) => Ok(storage),
                    storage => Err(Buffer { storage, ..buffer }),
                }
            }
        }
    };
}

kind!(Vec<u8>, Vec);
kind!(Box<[u8]>, Boxed);
#[cfg(feature = "bytes")]
kind!(bytes::Bytes, Bytes);
#[cfg(feature = "bytes")]
kind!(bytes::BytesMut, BytesMut);
kind!(AlignedBuffer, Aligned);
kind!(ArenaBuffer, ArenaBuffer);
kind!(Box<dyn CustomBuffer>, Custom);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_converts_back_to_its_type() {
        let buffer = Buffer::from(vec![1u8, 2, 3, 4]).slice(1..).slice(..2);
        assert_eq!((buffer.as_slice(), buffer.memory_size()), (&[2, 3][..], 4));
        let buffer = Box::<[u8]>::try_from(buffer).unwrap_err();
        assert_eq!(Vec::try_from(buffer).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "range 1..5 of a buffer of 4 bytes")]
    fn a_range_outside_the_buffer_panics() {
        let _ = Buffer::from(vec![0u8; 4]).slice(1..5);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4 bytes")]
    fn an_end_beyond_usize_panics() {
        let _ = Buffer::from(vec![0u8; 4]).slice(..=usize::MAX);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4 bytes")]
    fn a_start_beyond_usize_panics() {
        let _ = Buffer::from(vec![0u8; 4]).slice((Bound::Excluded(usize::MAX), Bound::Unbounded));
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn shared_bytes_are_read_only() {
        assert!(Buffer::from(bytes::Bytes::from_static(b"x")).as_mut_ptr().is_none());
        assert!(Buffer::from(bytes::BytesMut::zeroed(1)).as_mut_ptr().is_some());
    }

    struct Frame(Box<[u8]>, bool);

    // SAFETY: a boxed slice's bytes do not move with the box, and nobody else has them.
    unsafe impl CustomBuffer for Frame {
        fn as_ptr(&self) -> *const u8 {
            self.0.as_ptr()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn writable(&self) -> bool {
            self.1
        }
        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
            self
        }
    }

    #[test]
    fn a_custom_buffer_converts_back() {
        let mut buffer = Buffer::custom(Box::new(Frame(vec![7; 8].into(), true)));
        assert!(buffer.as_mut_ptr().is_some());
        let custom = Box::<dyn CustomBuffer>::try_from(buffer).unwrap();
        assert_eq!(custom.into_any().downcast::<Frame>().unwrap().0.len(), 8);
        assert!(Buffer::custom(Box::new(Frame(Box::default(), false))).as_mut_ptr().is_none());
    }
}
