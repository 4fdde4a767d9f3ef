//! Buffers that are given to an operation and come back with its result.

use ringway_core::{AlignedBuffer, Buffer, SpareCapacity};

/// A buffer that an operation may own: `Vec<u8>`, `Box<[u8]>`,
/// [`AlignedBuffer`](crate::AlignedBuffer), with the feature `bytes` also `BytesMut` and (to write
/// from) `Bytes`; and [`Buffer`] itself, of which a part can be used, and which takes a
/// [`CustomBuffer`](crate::CustomBuffer).
///
/// All of its length is read into or written from: `vec![0; 4096]`, not `Vec::with_capacity(4096)`.
/// For that there is [`SpareBuffer`].
///
/// In a child that was forked while an operation was in flight, the buffer is out of reach: the
/// operation fails there with ECHILD, and an empty buffer of the same kind is returned (for a type
/// of the program's own it panics).
pub trait IoBuffer: Into<Buffer> + TryFrom<Buffer> + Send + 'static {}

impl<B: Into<Buffer> + TryFrom<Buffer> + Send + 'static> IoBuffer for B {}

/// A buffer whose spare capacity may be read into
/// ([`File::read_buf_at`](crate::fs::File::read_buf_at)): `Vec<u8>`, with the feature `bytes` also
/// `BytesMut`; and [`SpareCapacity`] itself, of which a part can be used.
///
/// In a child that was forked while a read was in flight, an empty buffer is returned, as for
/// [`IoBuffer`].
pub trait SpareBuffer: Into<SpareCapacity> + TryFrom<SpareCapacity> + Send + 'static {}

impl<B: Into<SpareCapacity> + TryFrom<SpareCapacity> + Send + 'static> SpareBuffer for B {}

/// The way back to what it was.
pub(crate) fn spare_given_back<B: SpareBuffer>(spare: SpareCapacity) -> B {
    // Only a forked child gets another kind back: its parent has the buffer.
    let given_back = B::try_from(spare).or_else(|_| B::try_from(empty_spare()));
    given_back.unwrap_or_else(|_| panic!("a forked child has no buffer of this kind to return"))
}

/// An empty buffer of a kind that is not `Vec`'s.
#[cold]
fn empty_spare() -> SpareCapacity {
    #[cfg(feature = "bytes")]
    return bytes::BytesMut::new().into();
    #[cfg(not(feature = "bytes"))]
    Vec::new().into()
}

/// The way back to what it was.
pub(crate) fn given_back<B: IoBuffer>(buffer: Buffer) -> B {
    // What `B` was made into is of `B`'s kind, and nothing changes a buffer's kind.
    B::try_from(buffer).unwrap_or_else(|_| empty())
}

/// An empty buffer of `B`'s kind, for a forked child, whose parent has the buffer.
#[cold]
fn empty<B: IoBuffer>() -> B {
    let kinds: [fn() -> Buffer; _] = [
        || Vec::new().into(),
        || Box::<[u8]>::default().into(),
        || AlignedBuffer::new(0, 1).into(),
        #[cfg(feature = "bytes")]
        || bytes::BytesMut::new().into(),
        #[cfg(feature = "bytes")]
        || bytes::Bytes::new().into(),
    ];
    let found = kinds.into_iter().find_map(|make| B::try_from(make()).ok());
    found.unwrap_or_else(|| panic!("a forked child has no buffer of this kind to return"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_empty_buffer() {
        assert!(empty::<Vec<u8>>().is_empty());
        assert!(empty::<Box<[u8]>>().is_empty());
        assert!(empty::<AlignedBuffer>().is_empty());
        assert_eq!(empty::<Buffer>().len(), 0);
        #[cfg(feature = "bytes")]
        assert!(empty::<bytes::BytesMut>().is_empty() && empty::<bytes::Bytes>().is_empty());
    }
}
