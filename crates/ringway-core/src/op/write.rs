//! Writes from one buffer: `pwrite(2)`, `write(2)`.

use super::{
    Operation, Position, Raw, Resources, RwFlags, SubmissionForms, Transfer, advanced, call_at,
    call_with_flags,
};
use crate::sys::{RawFd, libc};
use crate::{Buffer, File};

/// Writes the whole of `buffer` to `file` at `position`.
///
/// The result is the number of bytes written. It may be less than the length (a full disk, a
/// signal); with [`Operation::exact`] the rest is written too, or the error is the result. A write
/// to a file opened for appending appends, whatever the offset (`pwrite(2)`, BUGS).
///
/// It is one request to the kernel, as `pwrite(2)` is: an append is contiguous, and nothing is
/// written after the count of a short write. A write over 1 GiB is split into pieces of that size,
/// one after the other, and so is the rest that `exact` writes: other appends may come between
/// them.
///
/// Errors: those of `pwrite(2)`; EINVAL, before anything is submitted, for an offset above
/// `i64::MAX`; with `exact`, ENOSPC if nothing was written without an error. After an error any
/// part of the bytes may have been written, since the device takes a long direct write in several
/// requests, each of which can fail. A cancelled write may have been done in part or in whole.
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
pub fn write(file: &File, buffer: impl Into<Buffer>, position: impl Into<Position>) -> Operation {
    let buffer = buffer.into();
    let raw = Write {
        fd: file.fd(),
        buf: std::ptr::null(),
        len: buffer.len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::Buffer(buffer), file, None)
}

/// A write of `len` bytes from `buf` at `offset`
/// ([`CURRENT_POSITION`](super::CURRENT_POSITION): the current position).
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The file.
    pub fd: RawFd,
    /// The address of the buffer.
    pub buf: *const u8,
    /// The number of bytes.
    pub len: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// `RWF_*` flags.
    pub flags: RwFlags,
}

impl Write {
    /// The blocking call with `RWF_*` flags.
    pub(super) fn call_with(&self, flags: libc::c_int) -> i64 {
        let iov = libc::iovec { iov_base: self.buf.cast_mut().cast(), iov_len: self.len };
        call_with_flags(self.fd, self.offset, flags, |at| {
            // SAFETY: the operation, or the caller of `from_raw`, keeps `buf` valid for reads of
            // `len` bytes until the completion. The iovec is on this stack.
            unsafe { libc::pwritev2(self.fd, &raw const iov, 1, at, flags) as i64 }
        })
    }

    /// The `len` bytes from byte `start` on.
    pub(super) fn part(&self, start: u64, len: u64) -> Self {
        let buf = self.buf.wrapping_add(start as usize);
        Self {
            fd: self.fd,
            buf,
            len: len as usize,
            offset: advanced(self.offset, start),
            flags: self.flags,
        }
    }
}

impl SubmissionForms for Write {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    #[inline]
    fn rw_flags(&self) -> RwFlags {
        self.flags
    }

    fn rw_flags_mut(&mut self) -> Option<&mut RwFlags> {
        Some(&mut self.flags)
    }

    fn offset(&self) -> Option<u64> {
        Some(self.offset)
    }

    fn is_write(&self) -> bool {
        true
    }

    #[inline]
    fn transfer(&self) -> Transfer {
        Transfer::at(self.offset, self.len)
    }

    #[inline]
    fn piece(&self, start: u64, len: u64) -> Raw {
        self.part(start, len).into()
    }

    fn call(&self) -> i64 {
        let Self { fd, buf, len, offset, flags } = *self;
        if flags != RwFlags::NONE {
            return self.call_with(flags.bits());
        }
        // SAFETY: the operation, or the caller of `from_raw`, keeps `buf` valid for reads of `len`
        // bytes until the completion.
        let at_offset = |at| unsafe { libc::pwrite64(fd, buf.cast(), len, at) as i64 };
        // SAFETY: as above.
        let at_position = || unsafe { libc::write(fd, buf.cast(), len) as i64 };
        call_at(self.fd, offset, at_offset, at_position)
    }

    fn try_call(&self) -> Option<i64> {
        Some(self.call_with(libc::RWF_NOWAIT | self.flags.bits()))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext, on_file, transfer_iocb};
    use crate::sys::kaio::{self, Iocb};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Write {
        #[inline]
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let len = u32::try_from(self.len).ok()?;
            Some(on_file!(context, self.fd, |file| match context.fixed_buffer {
                _ if context.socket =>
                    opcode::Send::new(file, self.buf, len).flags(libc::MSG_NOSIGNAL).build(),
                Some(index) => opcode::WriteFixed::new(file, self.buf, len, index)
                    .offset(self.offset)
                    .rw_flags(self.flags.bits())
                    .build(),
                None => opcode::Write::new(file, self.buf, len)
                    .offset(self.offset)
                    .rw_flags(self.flags.bits())
                    .build(),
            }))
        }

        #[inline]
        fn iocb(&self) -> Option<Iocb> {
            let memory = (self.buf as u64, self.len);
            transfer_iocb(kaio::IOCB_CMD_PWRITE, self.fd, memory, self.offset, self.flags)
        }
    }
}
