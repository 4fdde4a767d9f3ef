//! Read into several buffers: `preadv(2)`, `readv(2)`.

use super::{At, CURSOR, Fault, Form, Held, Operation, Place, Raw, Read, Shape, Vectored, answer, call_at, on_file};
use crate::File;
use crate::backend::kaio_sys::{self, Iocb};
use io_uring::{opcode, squeue};
use std::os::fd::{AsRawFd, RawFd};

/// Read from `file` at `at` into `buffers`, one after the other.
///
/// The result is the number of bytes read over all of them. With [`Operation::exact`] a short read is
/// continued, one buffer at a time. At most 1024 buffers (`IOV_MAX`): more is EINVAL.
/// Errors and cancel as for [`read`](super::read()); the buffers come back with the completion
/// ([`Completion::into_vectored`](crate::Completion::into_vectored)), to be used again without a new
/// allocation.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = File::open("/etc/passwd")?;
/// let mut queue = Options::new().build()?;
/// let buffers = op::Vectored::new([vec![0u8; 16], vec![0u8; 48]]);
/// queue.push(op::readv(&file, buffers, 0))?;
/// let done = queue.reap(1)?.next().unwrap();
/// println!("{} bytes", done.result?);
/// # Ok(()) }
/// ```
pub fn readv(file: &File, mut buffers: Vectored, at: impl Into<At>) -> Operation {
    let fault = if buffers.writable() { None } else { Some(Fault::ReadOnlyBuffer) };
    let form = Readv {
        fd: file.as_raw_fd(),
        iov: buffers.iov().as_ptr(),
        count: buffers.iov().len(),
        offset: at.into().raw(),
    };
    Operation::make(form.into(), Held::Vectored(buffers), Some(file.clone()), fault)
}

/// `count` buffers from `offset` on ([`CURSOR`]: the file's own position).
#[derive(Clone, Copy, Debug)]
pub struct Readv {
    /// The file.
    pub fd: RawFd,
    /// The buffers.
    pub iov: *const libc::iovec,
    /// How many.
    pub count: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
}

impl Readv {
    pub(super) fn shape(&self) -> Shape {
        Shape::Vector(super::operation::total(self.iov, self.count))
    }

    /// Whole from the beginning; further in, the rest of the buffer that `start` falls into.
    pub(super) fn piece(&self, start: u64) -> Raw {
        if start == 0 {
            return Raw::Readv(*self);
        }
        let (addr, len) = super::operation::rest(self.iov, self.count, start);
        let offset = if self.offset == CURSOR { CURSOR } else { self.offset + start };
        Raw::Read(Read { fd: self.fd, addr, len, offset })
    }
}

impl Form for Readv {
    fn sqe(&self, place: &Place) -> Option<squeue::Entry> {
        let count = u32::try_from(self.count).ok()?;
        Some(on_file!(place, self.fd, |file| opcode::Readv::new(file, self.iov, count).offset(self.offset).build()))
    }

    fn iocb(&self) -> Option<Iocb> {
        if self.offset == CURSOR {
            return None;
        }
        Some(Iocb::new(kaio_sys::IOCB_CMD_PREADV, self.fd, self.iov as u64, self.count as u64, self.offset))
    }

    fn call(&self) -> i64 {
        let count = i32::try_from(self.count).unwrap_or(i32::MAX);
        let at_position = || {
            // SAFETY: whoever pushed the operation keeps the iovec array and the buffers it names valid until
            // its completion; the safe push does so by owning them in the operation's slot.
            answer(unsafe { libc::readv(self.fd, self.iov, count) as i64 })
        };
        // SAFETY: as above.
        let at_offset = |offset| answer(unsafe { libc::preadv64(self.fd, self.iov, count, offset) as i64 });
        call_at(self.offset, at_offset, at_position)
    }
}
