//! Write from one buffer: `pwrite(2)`, `write(2)`.

use super::{
    CURRENT_POSITION, Form, Held, Operation, Place, Position, Shape, answer, call_at, on_file,
};
use crate::sys::kaio::{self, Iocb};
use crate::{Buffer, File};
use io_uring::{opcode, squeue};
use std::os::fd::{AsRawFd, RawFd};

/// Write the whole of `buffer` to `file` at `at`.
///
/// The result is the number of bytes written; it may be less than asked for (a full disk, a
/// signal), with [`Operation::exact`] what is missing is written too, or the error is the result. A
/// file open for appending is appended to, whatever the offset (`pwrite(2)`, BUGS).
///
/// It is one request to the kernel, as `pwrite(2)` is: an append lands in one place, and nothing
/// changes behind the count of a short write. A write over 1 GiB goes in pieces of that size, one
/// after the other, and so does what `exact` continues: other appends may come between these.
///
/// Errors: those of `pwrite(2)`; EINVAL before anything is submitted for an offset over `i64::MAX`;
/// with `exact`, ENOSPC for a write that came to nothing without an error. After an error any part
/// of the bytes may have been written: the device takes a long direct write in several requests,
/// and one of these fails. A cancelled write may have been carried out in part or whole.
///
/// ```
/// # use ringway_core::{op, File, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = OpenOptions::new().write(true).create(true).open(dir.path().join("new"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::write(&file, b"hello".to_vec(), 0).exact())?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(5));
/// # Ok(()) }
/// ```
#[inline]
pub fn write(file: &File, buffer: impl Into<Buffer>, at: impl Into<Position>) -> Operation {
    let buffer = buffer.into();
    let form = Write {
        fd: file.as_raw_fd(),
        addr: std::ptr::null(),
        len: buffer.len(),
        offset: at.into().raw(),
    };
    Operation::make(form.into(), Held::Buffer(buffer), Some(file.clone()), None)
}

/// `len` bytes from `addr` to `offset` on ([`CURRENT_POSITION`]: the file's own position).
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes come from.
    pub addr: *const u8,
    /// Bytes.
    pub len: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
}

impl Write {
    #[inline]
    pub(super) fn shape(&self) -> Shape {
        if self.offset == CURRENT_POSITION {
            Shape::Stream(self.len as u64)
        } else {
            Shape::Bytes(self.len as u64)
        }
    }

    #[inline]
    pub(super) fn piece(&self, start: u64, len: u64) -> Self {
        let offset =
            if self.offset == CURRENT_POSITION { CURRENT_POSITION } else { self.offset + start };
        Self {
            fd: self.fd,
            addr: self.addr.wrapping_add(start as usize),
            len: len as usize,
            offset,
        }
    }
}

impl Form for Write {
    #[inline]
    fn sqe(&self, place: &Place) -> Option<squeue::Entry> {
        let len = u32::try_from(self.len).ok()?;
        Some(on_file!(place, self.fd, |file| match place.fixed_buffer {
            Some(index) =>
                opcode::WriteFixed::new(file, self.addr, len, index).offset(self.offset).build(),
            None => opcode::Write::new(file, self.addr, len).offset(self.offset).build(),
        }))
    }

    #[inline]
    fn iocb(&self) -> Option<Iocb> {
        if self.offset == CURRENT_POSITION {
            return None;
        }
        Some(Iocb::new(
            kaio::IOCB_CMD_PWRITE,
            self.fd,
            self.addr as u64,
            self.len as u64,
            self.offset,
        ))
    }

    fn call(&self) -> i64 {
        let at_position = || {
            // SAFETY: whoever pushed the operation keeps `addr` valid for reads of `len` bytes
            // until its completion; the safe push does so by owning the buffer in the operation's
            // slot.
            answer(unsafe { libc::write(self.fd, self.addr.cast(), self.len) as i64 })
        };
        let at_offset = |offset| {
            // SAFETY: as above.
            answer(unsafe { libc::pwrite64(self.fd, self.addr.cast(), self.len, offset) as i64 })
        };
        call_at(self.offset, at_offset, at_position)
    }

    fn try_call(&self) -> Option<i64> {
        let iov = libc::iovec { iov_base: self.addr.cast_mut().cast(), iov_len: self.len };
        let write = |at| {
            // SAFETY: as in `call`; the one iovec is on this stack.
            answer(
                unsafe { libc::pwritev2(self.fd, &raw const iov, 1, at, libc::RWF_NOWAIT) } as i64
            )
        };
        Some(call_at(self.offset, write, || write(-1)))
    }
}
