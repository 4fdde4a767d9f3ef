//! A reader as a stream of blocks.

use super::Reader;
use crate::Block;
use futures_core::{FusedStream, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A file's blocks, one after the other, as a [`Stream`]. From [`Reader::blocks`]; with the feature
/// `futures`.
///
/// It gives what [`Reader::next_block`] gives, without a copy, and reads ahead as the reader does.
/// It ends at the end of the file, or behind an error, which is its last item.
///
/// Dropping it cancels what it has on its way; a call that waits for its next item may be dropped,
/// and nothing is lost.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Blocks {
    reader: Reader,
    is_over: bool,
}

impl Reader {
    /// The blocks from its position on, as a stream.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use futures::TryStreamExt;
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let lens = file.reader().chunk(1 << 20).blocks().map_ok(|block| block.len());
    /// let bytes = lens.try_fold(0, async |sum, len| Ok(sum + len)).await?;
    /// assert!(bytes > 0);
    /// # Ok(()) }
    /// ```
    pub fn blocks(self) -> Blocks {
        Blocks { reader: self, is_over: false }
    }
}

impl Blocks {
    /// The reader, to go on with behind the last block that was given, or to try again what failed.
    pub fn into_reader(self) -> Reader {
        self.reader
    }
}

impl Stream for Blocks {
    type Item = io::Result<Block>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Block>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = ready!(self.reader.poll_block(cx)).transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

impl FusedStream for Blocks {
    fn is_terminated(&self) -> bool {
        self.is_over
    }
}
