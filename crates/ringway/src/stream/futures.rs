//! The streams as the traits of `futures-io`.

use super::{RangeRead, RangeStream, Reader, Writer};
use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use std::io::{self, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Reader::poll_read(&mut self, cx, buf)
    }
}

impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(cx)
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        Reader::consume(&mut self, bytes);
    }
}

impl AsyncSeek for Reader {
    fn poll_seek(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        // A seek that is on its way is this one, or one whose future has been dropped.
        if self.seeking() != Some(to) {
            self.start_seek(to)?;
        }
        Reader::poll_seek(&mut self, cx)
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Writer::poll_write(&mut self, cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Writer::poll_flush(&mut self, cx)
    }

    /// Flushes. It may be written to again.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }
}

impl<I: Iterator<Item = Range<u64>>> Stream for RangeStream<I> {
    type Item = RangeRead;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RangeRead>> {
        RangeStream::poll_next(self.get_mut(), cx)
    }
}
