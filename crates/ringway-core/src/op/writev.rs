//! Write from several buffers: `pwritev(2)`, `writev(2)`.

use super::{At, CURSOR, Form, Held, Operation, Place, Raw, Shape, Vectored, Write, answer, call_at, on_file};
use crate::File;
use crate::backend::kaio_sys::{self, Iocb};
use io_uring::{opcode, squeue};
use std::os::fd::{AsRawFd, RawFd};

/// Write `buffers`, one after the other, to `file` at `at`.
///
/// The result is the number of bytes written over all of them. With [`Operation::exact`] a short
/// write is continued, one buffer at a time. At most 1024 buffers (`IOV_MAX`): more is EINVAL.
/// Errors and cancel as for [`write`](super::write()); the buffers come back with the completion.
///
/// ```
/// # use ringway_core::{op, File, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = OpenOptions::new().write(true).create(true).open(dir.path().join("new"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::writev(&file, op::Vectored::new([b"head".to_vec(), b"body".to_vec()]), 0))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(8));
/// # Ok(()) }
/// ```
pub fn writev(file: &File, buffers: Vectored, at: impl Into<At>) -> Operation {
    let form = Writev {
        fd: file.as_raw_fd(),
        iov: buffers.iov().as_ptr(),
        count: buffers.iov().len(),
        offset: at.into().raw(),
    };
    Operation::make(form.into(), Held::Vectored(buffers), Some(file.clone()), None)
}

/// `count` buffers to `offset` on ([`CURSOR`]: the file's own position).
#[derive(Clone, Copy, Debug)]
pub struct Writev {
    /// The file.
    pub fd: RawFd,
    /// The buffers.
    pub iov: *const libc::iovec,
    /// How many.
    pub count: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
}

impl Writev {
    pub(super) fn shape(&self) -> Shape {
        Shape::Vector(super::operation::total(self.iov, self.count))
    }

    /// Whole from the beginning; further in, the rest of the buffer that `start` falls into.
    pub(super) fn piece(&self, start: u64) -> Raw {
        if start == 0 {
            return Raw::Writev(*self);
        }
        let (addr, len) = super::operation::rest(self.iov, self.count, start);
        let offset = if self.offset == CURSOR { CURSOR } else { self.offset + start };
        Raw::Write(Write { fd: self.fd, addr, len, offset })
    }
}

impl Form for Writev {
    fn sqe(&self, place: &Place) -> Option<squeue::Entry> {
        let count = u32::try_from(self.count).ok()?;
        Some(on_file!(place, self.fd, |file| opcode::Writev::new(file, self.iov, count).offset(self.offset).build()))
    }

    fn iocb(&self) -> Option<Iocb> {
        if self.offset == CURSOR {
            return None;
        }
        Some(Iocb::new(kaio_sys::IOCB_CMD_PWRITEV, self.fd, self.iov as u64, self.count as u64, self.offset))
    }

    fn call(&self) -> i64 {
        let count = i32::try_from(self.count).unwrap_or(i32::MAX);
        let at_position = || {
            // SAFETY: whoever pushed the operation keeps the iovec array and the buffers it names valid until
            // its completion; the safe push does so by owning them in the operation's slot.
            answer(unsafe { libc::writev(self.fd, self.iov, count) as i64 })
        };
        // SAFETY: as above.
        let at_offset = |offset| answer(unsafe { libc::pwritev64(self.fd, self.iov, count, offset) as i64 });
        call_at(self.offset, at_offset, at_position)
    }
}
