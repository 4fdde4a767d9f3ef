//! Implements the traits of `futures-io` and `futures-core` for the streams, and for a file at its
//! cursor.

use super::{RangeRead, RangeStream, Reader, Writer};
use crate::fs::{AtomicFile, File};
use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use std::io::{self, IoSlice, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
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
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        // A seek in flight is either this one or one whose future was dropped.
        if self.seeking() != Some(to) {
            self.start_seek(to)?;
        }
        Reader::poll_seek(&mut self, cx)
    }
}

/// Implements the traits for types that write with a [`Writer`].
macro_rules! written {
    ($type:ty, |$this:ident| $writer:expr) => {
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                Writer::poll_write($writer, cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                Writer::poll_write_vectored($writer, cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                Writer::poll_flush($writer, cx)
            }

            /// Flushes. The writer can still be used afterwards.
            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_flush(self, cx)
            }
        }

        impl AsyncSeek for $type {
            fn poll_seek(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                to: SeekFrom,
            ) -> Poll<io::Result<u64>> {
                let $this = self.get_mut();
                let writer: &mut Writer = $writer;
                writer.ensure_seek(to)?;
                Writer::poll_seek(writer, cx)
            }
        }
    };
}

written!(Writer, |writer| writer);
written!(AtomicFile, |file| file.writer());

impl AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        File::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        File::poll_write(&self, cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        File::poll_write(&self, cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        File::poll_flush(&self, cx)
    }

    /// Flushes. The file can still be used afterwards.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        File::poll_flush(&self, cx)
    }
}

impl AsyncSeek for File {
    fn poll_seek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        // A seek in flight is either this one or one whose future was dropped.
        if self.seeking() != Some(to) {
            File::start_seek(&self, to);
        }
        File::poll_seek(&self, cx)
    }
}

impl<I: Iterator<Item = Range<u64>>> Stream for RangeStream<I> {
    type Item = RangeRead;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RangeRead>> {
        RangeStream::poll_next(self.get_mut(), cx)
    }
}
