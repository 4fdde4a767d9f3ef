//! The buffer types that operations accept and return, [`IoBuffer`] and [`SpareBuffer`], and what
//! can be written as a whole: [`Content`].

use ringway_core::{AlignedBuffer, Buffer, CustomBuffer, SpareCapacity};
use std::borrow::Cow;

/// A buffer that an operation may own: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuffer`], and with the
/// feature `bytes` also `BytesMut` and (to write from) `Bytes`.
///
/// [`Buffer`] itself is one too: use it to read into a part of a buffer. For memory of your own,
/// implement [`CustomBuffer`] and pass `Box<dyn CustomBuffer>` or [`Buffer::custom`]. The trait is
/// sealed, so that an operation can always return the type that it was given.
///
/// Operations use the whole length of a buffer: `vec![0; 4096]`, not `Vec::with_capacity(4096)`,
/// which a read refuses (InvalidInput). To read into spare capacity, use [`SpareBuffer`].
///
/// If a process forks while an operation is in flight, the parent keeps the buffer. In the child
/// the operation fails with ECHILD and returns an empty buffer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use ringway::{AlignedBuffer, Buffer, fs::File};
/// let file = File::open("/etc/passwd").await?;
/// let (result, page) = file.read_at(AlignedBuffer::new(4096, 4096), 0).await;
/// println!("{} bytes at {:p}", result?, page.as_ptr());
/// // Reads into the second half.
/// let half = Buffer::from(vec![0; 1024]).slice(512..);
/// let (result, half) = file.read_at(half, 0).await;
/// assert!(result? <= 512 && half.len() == 512);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that an operation can own",
    label = "not an owned buffer",
    note = "the kernel may use the memory after the future is dropped, so borrowed memory, such as \
            `&mut [u8]`, cannot be passed: pass a `Vec<u8>`, `Box<[u8]>`, `AlignedBuffer`, or with \
            the feature `bytes` a `BytesMut` (or, to write, a `Bytes`); it is returned with the \
            result",
    note = "for memory of your own, implement `CustomBuffer` and pass `Buffer::custom(memory)`"
)]
pub trait IoBuffer: sealed::Returned<Buffer> {}

/// A buffer whose spare capacity a read may fill
/// ([`File::read_buf_at`](crate::fs::File::read_buf_at)): `Vec<u8>`, and with the feature `bytes`
/// also `BytesMut`.
///
/// [`SpareCapacity`] itself is one too: use it to read into a part of the capacity. The trait is
/// sealed. In a child that was forked while a read was in flight, an empty buffer is returned, as
/// for [`IoBuffer`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer whose spare capacity a read can fill",
    label = "not an owned buffer with spare capacity",
    note = "pass a `Vec<u8>` or, with the feature `bytes`, a `BytesMut`; it is returned with the \
            result"
)]
pub trait SpareBuffer: sealed::Returned<SpareCapacity> {}

/// The whole content of a file or a record, for [`fs::write`](crate::fs::write()),
/// [`fs::write_atomic`](crate::fs::write_atomic) and
/// [`LogWriter::append`](crate::LogWriter::append): any [`IoBuffer`], which is not copied, or bytes
/// and text that are: `&[u8]`, `&[u8; N]`, `&Vec<u8>`, `&str`, `&String`, `Cow`, and `[u8; N]`. A
/// `String` is not copied. The trait is sealed.
///
/// It is not every `AsRef<[u8]>`: such a type would have to be copied, whoever owns it. Generic
/// code passes `content.as_ref()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the content of a file or a record",
    label = "neither bytes nor text",
    note = "pass `&[u8]`, `&str`, a `Vec<u8>`, a `String`, or another `IoBuffer`; generic code \
            passes `content.as_ref()`"
)]
pub trait Content: sealed::IntoContent {}

impl<B: IoBuffer> Content for B {}

impl<B: IoBuffer> sealed::IntoContent for B {
    fn into_content(self) -> Buffer {
        self.into()
    }
}

/// Implements [`Content`] for types that are copied or unwrapped.
macro_rules! content {
    ($($type:ty, |$this:ident| $vec:expr $(, const $parameter:ident)?;)+) => { $(
        impl$(<const $parameter: usize>)? Content for $type {}

        impl$(<const $parameter: usize>)? sealed::IntoContent for $type {
            fn into_content(self) -> Buffer {
                let $this = self;
                Buffer::from($vec)
            }
        }
    )+ };
}

content! {
    &[u8], |this| this.to_vec();
    &[u8; N], |this| this.to_vec(), const N;
    [u8; N], |this| this.to_vec(), const N;
    &Vec<u8>, |this| this.clone();
    &str, |this| this.as_bytes().to_vec();
    &String, |this| this.as_bytes().to_vec();
    String, |this| this.into_bytes();
    Cow<'_, [u8]>, |this| this.into_owned();
    Cow<'_, str>, |this| this.into_owned().into_bytes();
}

/// An operation could not return this type, so it is not a buffer:
///
/// ```compile_fail,E0277
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
mod sealed {
    /// A type that converts to what an operation owns, and back.
    pub trait Returned<Owned>: Into<Owned> + Send + 'static {
        /// Converts back after the operation. Only a forked child gets a buffer of another type,
        /// because the parent has the original; this then returns an empty buffer.
        fn returned(owned: Owned) -> Self;
    }

    /// A type that converts to what an operation owns, and is not returned.
    pub trait IntoContent {
        fn into_content(self) -> super::Buffer;
    }
}

/// Implements a trait for a type, with the value that a forked child gets.
macro_rules! implement {
    ($name:ident<$owned:ty> for $type:ty, $empty:expr) => {
        impl $name for $type {}

        impl sealed::Returned<$owned> for $type {
            fn returned(owned: $owned) -> Self {
                Self::try_from(owned).unwrap_or_else(|_| $empty)
            }
        }
    };
}

implement!(IoBuffer<Buffer> for Vec<u8>, Vec::new());
implement!(IoBuffer<Buffer> for Box<[u8]>, Box::default());
implement!(IoBuffer<Buffer> for AlignedBuffer, Self::new(0, 1));
#[cfg(feature = "bytes")]
implement!(IoBuffer<Buffer> for bytes::BytesMut, Self::new());
#[cfg(feature = "bytes")]
implement!(IoBuffer<Buffer> for bytes::Bytes, Self::new());
implement!(IoBuffer<Buffer> for Box<dyn CustomBuffer>, Self::default());
implement!(SpareBuffer<SpareCapacity> for Vec<u8>, Vec::new());
#[cfg(feature = "bytes")]
implement!(SpareBuffer<SpareCapacity> for bytes::BytesMut, Self::new());

impl IoBuffer for Buffer {}

impl sealed::Returned<Buffer> for Buffer {
    fn returned(owned: Buffer) -> Self {
        owned
    }
}

impl SpareBuffer for SpareCapacity {}

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
        let other = if std::any::type_name::<B>() == std::any::type_name::<Vec<u8>>() {
            Buffer::from(vec![7u8; 3].into_boxed_slice())
        } else {
            Buffer::from(vec![7u8; 3])
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
