//! Buffers: memory that an operation owns from push to completion.

mod aligned;
mod arena;
mod spare;

pub use aligned::AlignedBuffer;
pub use arena::{Arena, ArenaBuffer};
pub use spare::SpareCapacity;

use std::fmt;
use std::ops::{Bound, RangeBounds};

/// Memory of the caller's own kind (a page of a buffer pool, a mapping, a frame) as a buffer.
///
/// # Safety
///
/// For as long as the value lives, moved or not, [`as_ptr`](Self::as_ptr) and [`len`](Self::len)
/// must go on giving the same answer, and that memory must be valid and initialised; where
/// [`writable`](Self::writable) is true nobody else may read or write it.
pub unsafe trait CustomBuffer: Send + Sync + 'static {
    /// The first byte.
    fn as_ptr(&self) -> *const u8;

    /// Bytes.
    fn len(&self) -> usize;

    /// True when there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when the kernel may write to it.
    fn writable(&self) -> bool;

    /// The way back from the completion to the caller's own type.
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

/// A buffer of one of the kinds that operations take, with the part of it that they use.
///
/// It is made with `From`, and taken apart with `TryFrom`, which gives the whole buffer back
/// whatever the part:
///
/// ```
/// use ringway_core::Buffer;
/// let buffer = Buffer::from(vec![0u8; 4096]).slice(512..1024);
/// assert_eq!(buffer.len(), 512);
/// assert_eq!(Vec::try_from(buffer).unwrap().len(), 4096);
/// ```
pub struct Buffer {
    storage: Storage,
    start: usize,
    len: usize,
}

enum Storage {
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
    /// Memory of the caller's own kind.
    pub fn custom(buffer: Box<dyn CustomBuffer>) -> Self {
        let len = buffer.len();
        Self { storage: Storage::Custom(buffer), start: 0, len }
    }

    fn whole(storage: Storage) -> Self {
        let mut buffer = Self { storage, start: 0, len: 0 };
        buffer.len = buffer.storage().len();
        buffer
    }

    /// Only this part of it is read into or written from; positions are those of the present part.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the buffer, as slicing does.
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

    /// Bytes of the part in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of the part in use.
    pub fn as_slice(&self) -> &[u8] {
        &self.storage()[self.start..self.start + self.len]
    }

    /// The bytes of the part in use, to be changed; `None` where nobody may write (`Bytes`, a
    /// custom buffer that says so).
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let (start, end) = (self.start, self.start + self.len);
        let all: &mut [u8] = match &mut self.storage {
            Storage::Vec(vec) => vec,
            Storage::Boxed(boxed) => boxed,
            #[cfg(feature = "bytes")]
            Storage::Bytes(_) => return None,
            #[cfg(feature = "bytes")]
            Storage::BytesMut(bytes) => bytes,
            Storage::Aligned(aligned) => aligned,
            Storage::ArenaBuffer(block) => block,
            Storage::Custom(custom) if custom.writable() => {
                // SAFETY: the implementor of `CustomBuffer` vouches for `len` initialised bytes at
                // `as_ptr` for as long as the value lives, and that nobody else reads or writes
                // them where they are writable; `&mut self` makes this the only borrow.
                unsafe { std::slice::from_raw_parts_mut(custom.as_ptr().cast_mut(), custom.len()) }
            }
            Storage::Custom(_) => return None,
        };
        Some(&mut all[start..end])
    }

    /// The first byte of the part in use.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }

    /// The first byte of the part in use, for writing; `None` where nobody may write.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        self.as_mut_slice().map(<[u8]>::as_mut_ptr)
    }

    fn storage(&self) -> &[u8] {
        match &self.storage {
            Storage::Vec(vec) => vec,
            Storage::Boxed(boxed) => boxed,
            #[cfg(feature = "bytes")]
            Storage::Bytes(bytes) => bytes,
            #[cfg(feature = "bytes")]
            Storage::BytesMut(bytes) => bytes,
            Storage::Aligned(aligned) => aligned,
            Storage::ArenaBuffer(block) => block,
            // SAFETY: the implementor of `CustomBuffer` vouches for `len` initialised bytes at
            // `as_ptr` for as long as the value lives, and that nobody else writes to them.
            Storage::Custom(custom) => unsafe {
                std::slice::from_raw_parts(custom.as_ptr(), custom.len())
            },
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.storage {
            Storage::Vec(_) => "Vec",
            Storage::Boxed(_) => "Box",
            #[cfg(feature = "bytes")]
            Storage::Bytes(_) => "Bytes",
            #[cfg(feature = "bytes")]
            Storage::BytesMut(_) => "BytesMut",
            Storage::Aligned(_) => "AlignedBuffer",
            Storage::ArenaBuffer(_) => "ArenaBuffer",
            Storage::Custom(_) => "custom",
        };
        write!(f, "Buffer({kind}, {}..{})", self.start, self.start + self.len)
    }
}

/// `From` and `TryFrom` for one kind of buffer.
macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl From<$type> for Buffer {
            fn from(storage: $type) -> Self {
                Self::whole(Storage::$variant(storage))
            }
        }

        impl TryFrom<Buffer> for $type {
            type Error = Buffer;

            /// The whole buffer; one of another kind is given back.
            fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
                match buffer.storage {
                    Storage::$variant(storage) => Ok(storage),
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
    fn a_buffer_comes_back_as_what_it_was() {
        let buffer = Buffer::from(vec![1u8, 2, 3, 4]).slice(1..).slice(..2);
        assert_eq!(buffer.as_slice(), [2, 3]);
        let buffer = Box::<[u8]>::try_from(buffer).unwrap_err();
        assert_eq!(Vec::try_from(buffer).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "range 1..5 of a buffer of 4 bytes")]
    fn a_range_outside_is_refused() {
        let _ = Buffer::from(vec![0u8; 4]).slice(1..5);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4 bytes")]
    fn the_largest_position_is_outside_too() {
        let _ = Buffer::from(vec![0u8; 4]).slice(..=usize::MAX);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4 bytes")]
    fn there_is_nothing_behind_the_largest_position() {
        let _ = Buffer::from(vec![0u8; 4]).slice((Bound::Excluded(usize::MAX), Bound::Unbounded));
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn shared_bytes_are_not_written_to() {
        assert!(Buffer::from(bytes::Bytes::from_static(b"x")).as_mut_ptr().is_none());
        assert!(Buffer::from(bytes::BytesMut::zeroed(1)).as_mut_ptr().is_some());
    }

    struct Frame(Box<[u8]>, bool);

    // SAFETY: a boxed slice's bytes stay where they are when the box moves, and nobody else has
    // them.
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
    fn a_custom_buffer_finds_its_way_back() {
        let mut buffer = Buffer::custom(Box::new(Frame(vec![7; 8].into(), true)));
        assert!(buffer.as_mut_ptr().is_some());
        let custom = Box::<dyn CustomBuffer>::try_from(buffer).unwrap();
        assert_eq!(custom.into_any().downcast::<Frame>().unwrap().0.len(), 8);
        assert!(Buffer::custom(Box::new(Frame(Box::default(), false))).as_mut_ptr().is_none());
    }
}
