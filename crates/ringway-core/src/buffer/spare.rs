//! Spare capacity of a buffer: memory that is read into without being initialised first.

#[cfg(feature = "bytes")]
use bytes::BytesMut;
use std::fmt;
use std::mem::MaybeUninit;

/// The memory between the length and the capacity of a `Vec<u8>` or a `BytesMut`, to read into.
///
/// A read appends to the buffer: when it completes, the buffer is longer by the bytes read. Until
/// then, and after an error, its length is unchanged. The memory is not zeroed first, and bytes
/// that were not read into are never exposed.
///
/// ```
/// use ringway_core::SpareCapacity;
/// let spare = SpareCapacity::from(Vec::with_capacity(4096));
/// assert_eq!(spare.len(), 4096);
/// assert!(Vec::try_from(spare).unwrap().is_empty());
/// ```
pub struct SpareCapacity {
    storage: SpareStorage,
    /// The most bytes to use.
    limit: usize,
}

enum SpareStorage {
    Vec(Vec<u8>),
    #[cfg(feature = "bytes")]
    BytesMut(BytesMut),
}

impl SpareCapacity {
    /// Uses at most `bytes` of the spare capacity.
    pub fn limit(self, bytes: usize) -> Self {
        Self { limit: bytes, ..self }
    }

    /// The number of bytes that can be read into.
    pub fn len(&self) -> usize {
        let free = match &self.storage {
            SpareStorage::Vec(vec) => vec.capacity() - vec.len(),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(bytes) => bytes.capacity() - bytes.len(),
        };
        free.min(self.limit)
    }

    /// The address that a read into it begins at.
    pub(crate) fn address(&self) -> usize {
        match &self.storage {
            SpareStorage::Vec(vec) => vec.as_ptr().addr() + vec.len(),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(bytes) => bytes.as_ptr().addr() + bytes.len(),
        }
    }

    /// True if there is no spare capacity to use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the spare capacity.
    pub fn as_ptr(&mut self) -> *const u8 {
        self.uninit().as_ptr().cast()
    }

    /// Appends these bytes, as many as fit.
    pub fn append(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.len())];
        self.limit -= bytes.len();
        match &mut self.storage {
            SpareStorage::Vec(vec) => vec.extend_from_slice(bytes),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(to) => to.extend_from_slice(bytes),
        }
    }

    /// Removes the last `bytes` from the buffer; they become spare capacity again.
    pub fn truncate_by(&mut self, bytes: usize) {
        match &mut self.storage {
            SpareStorage::Vec(vec) => vec.truncate(vec.len().saturating_sub(bytes)),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(to) => to.truncate(to.len().saturating_sub(bytes)),
        }
        self.limit = self.limit.saturating_add(bytes);
    }

    /// The memory to read into; it may be uninitialised.
    pub(crate) fn uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let len = self.len();
        let spare = match &mut self.storage {
            SpareStorage::Vec(vec) => vec.spare_capacity_mut(),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(bytes) => bytes.spare_capacity_mut(),
        };
        &mut spare[..len]
    }

    /// Initialises the memory, for a backend that completes reads without doing them.
    #[cfg(feature = "testing")]
    pub(crate) fn zero(&mut self) {
        self.uninit().fill(MaybeUninit::new(0));
    }

    /// Appends the first `bytes` of the memory to the buffer.
    ///
    /// # Safety
    ///
    /// `bytes` must be at most [`len`](Self::len), and the first `bytes` must be initialised.
    pub(crate) unsafe fn commit(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.len());
        self.limit -= bytes;
        match &mut self.storage {
            // SAFETY: the caller guarantees that these bytes are initialised and within the
            // capacity.
            SpareStorage::Vec(vec) => unsafe { vec.set_len(vec.len() + bytes) },
            #[cfg(feature = "bytes")]
            // SAFETY: as above.
            SpareStorage::BytesMut(to) => unsafe { to.set_len(to.len() + bytes) },
        }
    }
}

impl fmt::Debug for SpareCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpareCapacity({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for SpareCapacity {
    fn from(vec: Vec<u8>) -> Self {
        Self { storage: SpareStorage::Vec(vec), limit: usize::MAX }
    }
}

impl TryFrom<SpareCapacity> for Vec<u8> {
    type Error = SpareCapacity;

    /// Returns the whole buffer; an error returns one of the other type.
    fn try_from(spare: SpareCapacity) -> Result<Self, SpareCapacity> {
        match spare.storage {
            SpareStorage::Vec(vec) => Ok(vec),
            #[cfg(feature = "bytes")]
            SpareStorage::BytesMut(_) => Err(spare),
        }
    }
}

#[cfg(feature = "bytes")]
impl From<BytesMut> for SpareCapacity {
    fn from(bytes: BytesMut) -> Self {
        Self { storage: SpareStorage::BytesMut(bytes), limit: usize::MAX }
    }
}

#[cfg(feature = "bytes")]
impl TryFrom<SpareCapacity> for BytesMut {
    type Error = SpareCapacity;

    /// Returns the whole buffer; an error returns one of the other type.
    fn try_from(spare: SpareCapacity) -> Result<Self, SpareCapacity> {
        match spare.storage {
            SpareStorage::BytesMut(bytes) => Ok(bytes),
            SpareStorage::Vec(_) => Err(spare),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bytes written to the spare capacity in steps follow the previous content, and nothing
        /// else does.
        #[test]
        fn a_buffer_grows_by_the_bytes_committed(
            before in proptest::collection::vec(any::<u8>(), 0..50),
            capacity in 0usize..100,
            limit in prop_oneof![Just(usize::MAX), 0usize..60],
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)),
                0..10,
            ),
        ) {
            let mut vec = Vec::with_capacity(before.len() + capacity);
            vec.extend_from_slice(&before);
            let mut spare = SpareCapacity::from(vec).limit(limit);
            prop_assert!(spare.len() <= limit && spare.len() >= capacity.min(limit));
            let mut expected = before;
            for (copied, bytes) in steps {
                let free = spare.len();
                let taken = bytes.len().min(free);
                if copied {
                    spare.append(&bytes);
                } else {
                    for (to, from) in spare.uninit().iter_mut().zip(&bytes) {
                        to.write(*from);
                    }
                    // SAFETY: `taken` bytes were just written.
                    unsafe { spare.commit(taken) };
                }
                prop_assert_eq!(spare.len(), free - taken);
                expected.extend_from_slice(&bytes[..taken]);
                if taken == 3 {
                    spare.truncate_by(2);
                    expected.truncate(expected.len() - 2);
                    prop_assert_eq!(spare.len(), free - 1);
                }
            }
            prop_assert_eq!(Vec::try_from(spare).unwrap(), expected);
        }
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn each_type_of_buffer_converts_back() {
        let mut spare = SpareCapacity::from(BytesMut::with_capacity(10));
        spare.append(b"abc");
        let spare = Vec::try_from(spare).unwrap_err();
        assert_eq!(BytesMut::try_from(spare).unwrap(), "abc");
        let spare = BytesMut::try_from(SpareCapacity::from(vec![7])).unwrap_err();
        assert_eq!(Vec::try_from(spare).unwrap(), [7]);
    }
}
