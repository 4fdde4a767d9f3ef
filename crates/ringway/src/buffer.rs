//! The buffer types that operations accept and return: [`IoBuffer`] and [`SpareBuffer`].

use ringway_core::{AlignedBuffer, Buffer, CustomBuffer, SpareCapacity};

/// A buffer that an operation may own: `Vec<u8>`, `Box<[u8]>`,
/// [`AlignedBuffer`](crate::AlignedBuffer), and with the feature `bytes` also `BytesMut` and (to
/// write from) `Bytes`.
///
/// [`Buffer`] itself is one too: use it to read into a part of a buffer. For memory of your own,
/// implement [`CustomBuffer`](crate::CustomBuffer) and pass `Box<dyn CustomBuffer>` or
/// [`Buffer::custom`]. The trait is sealed, so that an operation can always return the type that it
/// was given.
///
/// Operations use the whole length of a buffer: `vec![0; 4096]`, not `Vec::with_capacity(4096)`. To
/// read into spare capacity, use [`SpareBuffer`].
///
/// If a process forks while an operation is in flight, the parent keeps the buffer. In the child
/// the operation fails with ECHILD and returns an empty buffer.
///
/// ```compile_fail
/// use ringway::{Buffer, IoBuffer};
/// struct Page(Vec<u8>);
/// impl From<Page> for Buffer {
///     fn from(page: Page) -> Self {
///         page.0.into()
///     }
/// }
/// impl TryFrom<Buffer> for Page {
///     type Error = Buffer;
///     fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
///         Err(buffer) // an operation could not return this page
///     }
/// }
/// fn is_buffer<B: IoBuffer>() {}
/// is_buffer::<Page>();
/// ```
pub trait IoBuffer: sealed::Returned<Buffer> {}

impl<B: sealed::Returned<Buffer>> IoBuffer for B {}

/// A buffer whose spare capacity a read may fill
/// ([`File::read_buf_at`](crate::fs::File::read_buf_at)): `Vec<u8>`, and with the feature `bytes`
/// also `BytesMut`.
///
/// [`SpareCapacity`] itself is one too: use it to read into a part of the capacity. The trait is
/// sealed. In a child that was forked while a read was in flight, an empty buffer is returned, as
/// for [`IoBuffer`].
pub trait SpareBuffer: sealed::Returned<SpareCapacity> {}

impl<B: sealed::Returned<SpareCapacity>> SpareBuffer for B {}

mod sealed {
    /// A type that converts to what an operation owns, and back.
    pub trait Returned<Owned>: Into<Owned> + Send + 'static {
        /// Converts back after the operation. Only a forked child gets a buffer of another type,
        /// because the parent has the original; this then returns an empty buffer.
        fn returned(owned: Owned) -> Self;
    }
}

macro_rules! returned {
    ($type:ty, $owned:ty, $empty:expr) => {
        impl sealed::Returned<$owned> for $type {
            fn returned(owned: $owned) -> Self {
                Self::try_from(owned).unwrap_or_else(|_| $empty)
            }
        }
    };
}

returned!(Vec<u8>, Buffer, Vec::new());
returned!(Box<[u8]>, Buffer, Box::default());
returned!(AlignedBuffer, Buffer, AlignedBuffer::new(0, 1));
#[cfg(feature = "bytes")]
returned!(bytes::BytesMut, Buffer, bytes::BytesMut::new());
#[cfg(feature = "bytes")]
returned!(bytes::Bytes, Buffer, bytes::Bytes::new());
returned!(Box<dyn CustomBuffer>, Buffer, Self::default());
returned!(Vec<u8>, SpareCapacity, Vec::new());
#[cfg(feature = "bytes")]
returned!(bytes::BytesMut, SpareCapacity, bytes::BytesMut::new());

impl sealed::Returned<Buffer> for Buffer {
    fn returned(owned: Buffer) -> Self {
        owned
    }
}

impl sealed::Returned<SpareCapacity> for SpareCapacity {
    fn returned(owned: SpareCapacity) -> Self {
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Returned;
    use super::*;

    /// What a forked child gets instead of a buffer of type `B`.
    fn in_forked_child<B: Returned<Buffer> + AsRef<[u8]>>() -> usize {
        let other = match std::any::type_name::<B>() == std::any::type_name::<Vec<u8>>() {
            true => Buffer::from(vec![7u8; 3].into_boxed_slice()),
            false => Buffer::from(vec![7u8; 3]),
        };
        B::returned(other).as_ref().len()
    }

    #[test]
    fn a_forked_child_gets_an_empty_buffer_of_each_type() {
        assert_eq!(in_forked_child::<Vec<u8>>(), 0);
        assert_eq!(in_forked_child::<Box<[u8]>>(), 0);
        assert!(AlignedBuffer::returned(Buffer::from(vec![7; 3])).is_empty());
        assert!(Box::<dyn CustomBuffer>::returned(Buffer::from(vec![7; 3])).is_empty());
        assert_eq!(Buffer::returned(Buffer::from(vec![7; 3])).len(), 3);
        #[cfg(feature = "bytes")]
        {
            assert_eq!(in_forked_child::<bytes::BytesMut>(), 0);
            assert_eq!(in_forked_child::<bytes::Bytes>(), 0);
            let spare = SpareCapacity::from(vec![7; 3]);
            assert!(<bytes::BytesMut as Returned<SpareCapacity>>::returned(spare).is_empty());
            let spare = SpareCapacity::from(bytes::BytesMut::zeroed(3));
            assert!(<Vec<u8> as Returned<SpareCapacity>>::returned(spare).is_empty());
        }
    }
}
