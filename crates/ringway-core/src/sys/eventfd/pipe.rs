//! A pipe in place of an eventfd, for systems of the Unix family other than Linux.

use crate::sys::{Number, RawFd};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;

/// A pipe that does not block: readable from [`signal`](Self::signal) to [`drain`](Self::drain).
#[derive(Debug)]
pub(crate) struct EventFd {
    reader: PipeReader,
    writer: PipeWriter,
}

impl EventFd {
    /// Errors: those of `pipe(2)`: EMFILE, ENFILE.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        for fd in [reader.number(), writer.number()] {
            // SAFETY: the call takes numbers only, and the descriptor is open.
            if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { reader, writer })
    }

    /// Its descriptors; -1 stands for none.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.reader.number(), self.writer.number()]
    }

    /// Makes it readable. (A full pipe is readable already.)
    pub fn signal(&self) {
        // A write that a signal interrupts is repeated: on FreeBSD and macOS it may wait briefly
        // for another thread's call.
        let _ = (&self.writer).write_all(&[1]);
    }

    /// Makes it unreadable. Returns false if it was unreadable already.
    pub fn drain(&self) -> bool {
        drain(self.number())
    }
}

/// The descriptor to wait for.
impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }
}

/// As [`EventFd::drain`], for a pipe with another owner.
pub(crate) fn drain(eventfd: RawFd) -> bool {
    let mut bytes = [0u8; 64];
    let mut drained = false;
    // SAFETY: at most `bytes.len()` bytes are written to `bytes`, which is live for the call.
    while unsafe { libc::read(eventfd, bytes.as_mut_ptr().cast(), bytes.len()) } > 0 {
        drained = true;
    }
    drained
}
