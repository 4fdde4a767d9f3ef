//! What [`File::read`] can read: a range of the file, or the next bytes at its cursor.

use super::File;
use crate::Block;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// What [`File::read`] and [`File::read_exact`] read, and where to: a range of bytes into a pooled
/// buffer, or the next bytes at the cursor into a borrowed one.
///
/// A borrowed buffer is a `&mut [u8]`, `&mut [u8; N]`, `&mut Vec<u8>` or `&mut Box<[u8]>`: those to
/// which tokio's `AsyncReadExt::read` is usually applied. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a range of bytes nor a borrowed buffer",
    label = "neither `Range<u64>` nor `&mut [u8]`",
    note = "`file.read(0..4096)` reads a range into a pooled buffer; `file.read(&mut bytes[..])` \
            reads at the cursor; `file.read_at(vec![0; 4096], 0)` reads into a buffer of yours"
)]
pub trait ReadTarget: sealed::Target {}

mod sealed {
    use super::File;
    use std::io;

    pub trait Target {
        /// A block, or the number of bytes.
        type Output;

        /// Reads as much as there is.
        fn read(self, file: &File) -> impl Future<Output = io::Result<Self::Output>> + Send;

        /// Reads all of it.
        fn read_exact(self, file: &File) -> impl Future<Output = io::Result<Self::Output>> + Send;
    }
}

impl ReadTarget for Range<u64> {}

impl sealed::Target for Range<u64> {
    type Output = Block;

    async fn read(self, file: &File) -> io::Result<Block> {
        file.read_pooled(self, true, file.is_storage()).await
    }

    async fn read_exact(self, file: &File) -> io::Result<Block> {
        let wanted = self.end.saturating_sub(self.start);
        let block = file.read_pooled(self, true, true).await?;
        if block.len() as u64 == wanted {
            Ok(block)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// Implements the trait for a borrowed buffer, as a slice.
macro_rules! borrowed {
    ($type:ty $(, $parameter:ident)?) => {
        impl$(<const $parameter: usize>)? ReadTarget for &mut $type {}

        impl$(<const $parameter: usize>)? sealed::Target for &mut $type {
            type Output = usize;

            async fn read(self, file: &File) -> io::Result<usize> {
                read_next(file, &mut self[..]).await
            }

            async fn read_exact(self, file: &File) -> io::Result<usize> {
                let (wanted, mut read) = (self.len(), 0);
                while read < wanted {
                    match read_next(file, &mut self[read..]).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        more => read += more,
                    }
                }
                Ok(wanted)
            }
        }
    };
}

borrowed!([u8]);
borrowed!([u8; N], N);
borrowed!(Vec<u8>);
borrowed!(Box<[u8]>);

/// Reads at the cursor.
async fn read_next(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let _claim = Claim::new(file)?;
    poll_fn(|cx| file.poll_read(cx, bytes)).await
}

/// The right to read at the cursor through one handle. Its poll has one waker, so there is one.
struct Claim<'a>(&'a AtomicBool);

impl<'a> Claim<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        let claimed = file.claimed();
        if claimed.swap(true, Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "read: another read at the cursor waits on this handle; give each task a clone",
            ));
        }
        Ok(Self(claimed))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
