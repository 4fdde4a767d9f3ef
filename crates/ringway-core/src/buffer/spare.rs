//! Spare capacity of a buffer: memory that is read into without being initialised first.

#[cfg(feature = "bytes")]
use bytes::BytesMut;
use std::fmt;
use std::mem::MaybeUninit;

/// The part of a `Vec<u8>` or a `BytesMut` that lies between its length and its capacity, to be
/// read into.
///
/// A read appends to it: when it completes, the buffer's length has grown by what was read. Until
/// then, and after an error, the length is what it was. Nothing is zeroed first, and nobody can
/// look at memory that has not been read into.
///
/// ```
/// use ringway_core::SpareCapacity;
/// let spare = SpareCapacity::from(Vec::with_capacity(4096));
/// assert_eq!(spare.len(), 4096);
/// assert!(Vec::try_from(spare).unwrap().is_empty());
/// ```
pub struct SpareCapacity {
    storage: Storage,
    /// No more than this is used of it.
    limit: usize,
}

enum Storage {
    Vec(Vec<u8>),
    #[cfg(feature = "bytes")]
    BytesMut(BytesMut),
}

impl SpareCapacity {
    /// Only the first `bytes` of it are read into.
    pub fn limit(self, bytes: usize) -> Self {
        Self { limit: bytes, ..self }
    }

    /// Bytes that may be read into.
    pub fn len(&self) -> usize {
        let free = match &self.storage {
            Storage::Vec(vec) => vec.capacity() - vec.len(),
            #[cfg(feature = "bytes")]
            Storage::BytesMut(bytes) => bytes.capacity() - bytes.len(),
        };
        free.min(self.limit)
    }

    /// True when there is no room.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the spare capacity begins.
    pub fn as_ptr(&mut self) -> *const u8 {
        self.uninit().as_ptr().cast()
    }

    /// Appends a copy of as many of these bytes as may be read into it.
    pub fn append(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.len())];
        self.limit -= bytes.len();
        match &mut self.storage {
            Storage::Vec(vec) => vec.extend_from_slice(bytes),
            #[cfg(feature = "bytes")]
            Storage::BytesMut(to) => to.extend_from_slice(bytes),
        }
    }

    /// Takes the last bytes of the buffer out again: they are spare capacity once more.
    pub fn truncate_by(&mut self, bytes: usize) {
        match &mut self.storage {
            Storage::Vec(vec) => vec.truncate(vec.len().saturating_sub(bytes)),
            #[cfg(feature = "bytes")]
            Storage::BytesMut(to) => to.truncate(to.len().saturating_sub(bytes)),
        }
        self.limit = self.limit.saturating_add(bytes);
    }

    /// The memory, none of which need be initialised.
    pub(crate) fn uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let len = self.len();
        let spare = match &mut self.storage {
            Storage::Vec(vec) => vec.spare_capacity_mut(),
            #[cfg(feature = "bytes")]
            Storage::BytesMut(bytes) => bytes.spare_capacity_mut(),
        };
        &mut spare[..len]
    }

    /// Initialises all of it, for a backend that answers reads which it does not make.
    #[cfg(feature = "testing")]
    pub(crate) fn zero(&mut self) {
        self.uninit().fill(MaybeUninit::new(0));
    }

    /// Makes the first bytes a part of the buffer.
    ///
    /// # Safety
    ///
    /// `bytes` must be at most [`len`](Self::len), and so many must have been initialised from the
    /// first on.
    pub(crate) unsafe fn commit(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.len());
        self.limit -= bytes;
        match &mut self.storage {
            // SAFETY: the caller vouches for so many initialised bytes behind the length, within
            // the capacity.
            Storage::Vec(vec) => unsafe { vec.set_len(vec.len() + bytes) },
            #[cfg(feature = "bytes")]
            // SAFETY: as above.
            Storage::BytesMut(to) => unsafe { to.set_len(to.len() + bytes) },
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
        Self { storage: Storage::Vec(vec), limit: usize::MAX }
    }
}

impl TryFrom<SpareCapacity> for Vec<u8> {
    type Error = SpareCapacity;

    /// The whole buffer; one of another kind is given back.
    fn try_from(spare: SpareCapacity) -> Result<Self, SpareCapacity> {
        match spare.storage {
            Storage::Vec(vec) => Ok(vec),
            #[cfg(feature = "bytes")]
            Storage::BytesMut(_) => Err(spare),
        }
    }
}

#[cfg(feature = "bytes")]
impl From<BytesMut> for SpareCapacity {
    fn from(bytes: BytesMut) -> Self {
        Self { storage: Storage::BytesMut(bytes), limit: usize::MAX }
    }
}

#[cfg(feature = "bytes")]
impl TryFrom<SpareCapacity> for BytesMut {
    type Error = SpareCapacity;

    /// The whole buffer; one of another kind is given back.
    fn try_from(spare: SpareCapacity) -> Result<Self, SpareCapacity> {
        match spare.storage {
            Storage::BytesMut(bytes) => Ok(bytes),
            Storage::Vec(_) => Err(spare),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bytes written to the spare capacity, in steps: the buffer has those and what it had
        /// before, and nothing else.
        #[test]
        fn it_grows_by_what_is_filled(
            before in proptest::collection::vec(any::<u8>(), 0..50),
            capacity in 0usize..100,
            limit in prop_oneof![Just(usize::MAX), 0usize..60],
            steps in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..10),
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
                    // SAFETY: so many bytes were written just now.
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
    fn each_kind_comes_back_as_what_it_was() {
        let mut spare = SpareCapacity::from(BytesMut::with_capacity(10));
        spare.append(b"abc");
        let spare = Vec::try_from(spare).unwrap_err();
        assert_eq!(BytesMut::try_from(spare).unwrap(), "abc");
        let spare = BytesMut::try_from(SpareCapacity::from(vec![7])).unwrap_err();
        assert_eq!(Vec::try_from(spare).unwrap(), [7]);
    }
}
