//! [`Block`]: the bytes of a pooled read, shared without a copy.

use crate::pool::PooledBuffer;
use ringway_core::Buffer;
use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

/// The bytes of a pooled read. It dereferences to a slice of bytes.
///
/// Clones and [slices](Self::slice) share the memory; nothing is copied. When the last of them is
/// dropped, the memory returns to the pool. So a small slice keeps the memory of the whole read:
/// [`retained`](Self::retained) is its size. [Compact](Self::compact) a small part that you keep
/// for long.
///
/// The memory is at most an eighth larger than the read that it belongs to, and one read may serve
/// several coalesced ranges. With direct I/O it is whole pages. The part of a large buffer that the
/// read does not fill uses no physical memory.
///
/// A block may outlive the engine that read it. With the feature `bytes`, it converts to a
/// `bytes::Bytes` without a copy.
///
/// ```
/// use ringway::Block;
/// let block = Block::from(b"header, body".to_vec());
/// let body = block.slice(8..);
/// drop(block);
/// assert_eq!(body, b"body");
/// assert!(body.starts_with(b"bo"));
/// ```
#[derive(Clone, Default)]
pub struct Block {
    /// `None` in an empty block, which keeps no memory.
    memory: Option<Arc<PooledBuffer>>,
    start: usize,
    len: usize,
}

impl Block {
    /// The first `len` bytes of `memory`, or all of them if there are fewer.
    pub(crate) fn new(memory: PooledBuffer, len: usize) -> Self {
        let len = len.min(memory.len());
        if len == 0 {
            return Self::default();
        }
        Self { memory: Some(Arc::new(memory)), start: 0, len }
    }

    /// Returns a part of the block that shares its memory.
    ///
    /// ```
    /// # use ringway::Block;
    /// let block = Block::from(vec![1, 2, 3, 4]);
    /// assert_eq!(block.slice(1..).slice(..2), [2, 3]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the range does not lie within the block.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let start = match range.0 {
            Bound::Included(start) => start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let len = self[range].len();
        if len == 0 {
            return Self::default();
        }
        Self { memory: self.memory.clone(), start: self.start + start, len }
    }

    /// Returns the bytes of memory that the block keeps in use: those of the whole read it is a
    /// part of. Clones and slices of the same read share them, so their sum counts them several
    /// times; [`PoolStats::in_use`](crate::PoolStats::in_use) counts them once.
    ///
    /// ```
    /// # use ringway::Block;
    /// let block = Block::from(vec![0; 4096]);
    /// assert_eq!(block.slice(..10).retained(), 4096);
    /// ```
    pub fn retained(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.memory_size())
    }

    /// Returns a block of the same bytes that keeps at most `ratio` bytes of memory for each of
    /// them: itself if it does already, otherwise a copy, which belongs to no pool.
    ///
    /// A copy frees memory only if no other clone or slice of the read is kept. A ratio of 2.0
    /// suits small parts of long reads; the memory of a whole read is at most an eighth larger than
    /// its bytes, or a page if that is more. A ratio below 1.0, or NaN, counts as 1.0.
    ///
    /// ```
    /// # use ringway::Block;
    /// let block = Block::from(vec![7; 4096]);
    /// assert_eq!(block.slice(..10).compact(2.0).retained(), 10);
    /// assert_eq!(block.slice(..3000).compact(2.0).retained(), 4096);
    /// ```
    pub fn compact(self, ratio: f64) -> Self {
        // `max` ignores NaN.
        if self.retained() as f64 <= self.len as f64 * ratio.max(1.0) {
            return self;
        }
        Self::from(self.to_vec())
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Some(memory) => &memory[self.start..self.start + self.len],
            None => &[],
        }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Wraps bytes of the caller.
impl From<Vec<u8>> for Block {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::new(PooledBuffer::unpooled(Buffer::from(bytes)), len)
    }
}

/// Converts without a copy. The memory returns to the pool with the last of the `Bytes`.
#[cfg(feature = "bytes")]
impl From<Block> for bytes::Bytes {
    fn from(block: Block) -> Self {
        Self::from_owner(block)
    }
}

impl Eq for Block {}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<[u8]> for Block {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Block {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Block {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Block {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

impl PartialEq<Vec<u8>> for Block {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

/// Shows the length and the first bytes.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        let more = if self.len > SHOWN { "..." } else { "" };
        write!(
            f,
            "Block({} bytes: \"{}\"{more})",
            self.len,
            self[..self.len.min(SHOWN)].escape_ascii()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_send_and_sync() {
        fn anywhere<T: Send + Sync + Unpin + 'static>() {}
        anywhere::<Block>();
    }

    #[test]
    fn debug_shows_the_first_bytes() {
        assert_eq!(format!("{:?}", Block::from(b"a\n".to_vec())), r#"Block(2 bytes: "a\n")"#);
        let long = format!("{:?}", Block::from(vec![b'x'; 33]));
        assert_eq!(long, format!("Block(33 bytes: \"{}\"...)", "x".repeat(32)));
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_slice_outside_the_block_panics() {
        // The memory has this byte, but the block does not.
        Block::from(vec![0; 4]).slice(..2).slice(1..3);
    }

    #[test]
    fn compact_copies_what_keeps_too_much() {
        let block = Block::from(vec![1; 100]);
        for (len, ratio, retained) in
            [(100, 1.0, 100), (50, 2.0, 100), (49, 2.0, 49), (99, f64::NAN, 99), (99, -1.0, 99)]
        {
            let part = block.slice(..len).compact(ratio);
            assert_eq!((part.len(), part.retained()), (len, retained), "{len}, {ratio}");
            assert_eq!(part, &block[..len]);
        }
        assert_eq!(block.slice(..0).compact(1.0).retained(), 0);
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_share_the_memory() {
        let block = Block::from(vec![1, 2, 3, 4]).slice(1..3);
        let first = block.as_ptr();
        let bytes = bytes::Bytes::from(block);
        assert_eq!((&bytes[..], bytes.as_ptr()), (&[2, 3][..], first));
    }

    proptest! {
        /// Slices of slices equal those of a plain slice, and share the memory.
        #[test]
        fn slices_of_slices(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            cuts in proptest::collection::vec(any::<[prop::sample::Index; 2]>(), 0..5),
        ) {
            let mut block = Block::from(bytes.clone());
            let mut plain = &bytes[..];
            for [one, other] in cuts {
                let (one, other) = (one.index(plain.len() + 1), other.index(plain.len() + 1));
                let range = one.min(other)..one.max(other);
                let first = block.as_ptr();
                block = block.slice(range.clone());
                prop_assert!(range.is_empty() || block.as_ptr() == first.wrapping_add(range.start));
                plain = &plain[range];
            }
            prop_assert_eq!(&block, &plain);
            prop_assert_eq!(block, plain.to_vec());
        }
    }
}
