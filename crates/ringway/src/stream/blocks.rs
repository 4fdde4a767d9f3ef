//! A reader as a stream of blocks.

use super::Reader;
use crate::Block;
use futures_core::{FusedStream, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The blocks of a file in order, as a [`Stream`]. From [`Reader::blocks`]; with the feature
/// `futures`.
///
/// It yields what [`Reader::next_block`] returns, without a copy, and reads ahead as the reader
/// does. It ends at the end of the file, or after an error, which is its last item.
///
/// Dropping the stream cancels its reads in flight. A future that waits for the next item may be
/// dropped without losing data.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Blocks {
    reader: Reader,
    is_over: bool,
}

impl Reader {
    /// Returns the blocks from the reader's position on, as a stream.
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
    /// Returns the reader, to continue after the last block or to retry after an error.
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
