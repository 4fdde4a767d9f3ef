//! Writes from several buffers: `pwritev(2)`, `writev(2)`.

use super::operation::{Remaining, clamp_iovecs, remaining};
use super::{
    Operation, Position, Raw, Resources, RwFlags, SubmissionForms, Transfer, Vectored, Write,
    advanced, call_at, call_with_flags,
};
use crate::File;
use crate::sys::{RawFd, libc};

/// Writes `buffers`, one after the other, to `file` at `position`.
///
/// The result is the total number of bytes written. One call uses at most the first 1024 buffers
/// (`IOV_MAX`) that are not empty; with [`Operation::exact`] a short write is continued, over any
/// number of buffers. Errors and cancel as for [`write`](super::write()). The completion returns
/// the buffers.
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
pub fn writev(file: &File, buffers: Vectored, position: impl Into<Position>) -> Operation {
    let raw = Writev {
        fd: file.fd(),
        iov: buffers.iov().as_ptr(),
        count: buffers.iov().len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::Vectored(buffers), file, None)
}

/// A write from `count` buffers at `offset`
/// ([`CURRENT_POSITION`](super::CURRENT_POSITION): the current position).
#[derive(Clone, Copy, Debug)]
pub struct Writev {
    /// The file.
    pub fd: RawFd,
    /// The iovec array.
    pub iov: *const libc::iovec,
    /// The number of buffers.
    pub count: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// `RWF_*` flags.
    pub flags: RwFlags,
}

impl SubmissionForms for Writev {
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

    fn transfer(&self) -> Transfer {
        Transfer::Vector(super::operation::total(self.iov, self.count))
    }

    /// All buffers at the start; further in, the buffers from the one that `start` is in, or the
    /// rest of that one.
    fn piece(&self, start: u64, _: u64) -> Raw {
        if start == 0 {
            return Raw::Writev(*self);
        }
        let offset = advanced(self.offset, start);
        match remaining(self.iov, self.count, start) {
            Remaining::Buffers(iov, count) => Raw::Writev(Self { iov, count, offset, ..*self }),
            Remaining::Partial(buf, len) => {
                Raw::Write(Write { fd: self.fd, buf, len, offset, flags: self.flags })
            }
        }
    }

    fn call(&self) -> i64 {
        if self.flags != RwFlags::NONE {
            return self.call_with(self.flags.bits());
        }
        let (iov, count) = clamp_iovecs(self.iov, self.count);
        let count = count as i32;
        // SAFETY: the operation, or the caller of `from_raw`, keeps the iovec array and its buffers
        // valid until the completion.
        let at_offset = |at| unsafe { libc::pwritev64(self.fd, iov, count, at) as i64 };
        // SAFETY: as above.
        let at_position = || unsafe { libc::writev(self.fd, iov, count) as i64 };
        call_at(self.fd, self.offset, at_offset, at_position)
    }

    fn try_call(&self) -> Option<i64> {
        Some(self.call_with(libc::RWF_NOWAIT | self.flags.bits()))
    }
}

impl Writev {
    fn call_with(&self, flags: libc::c_int) -> i64 {
        let (iov, count) = clamp_iovecs(self.iov, self.count);
        call_with_flags(self.fd, self.offset, flags, |at| {
            // SAFETY: as in `call`.
            unsafe { libc::pwritev2(self.fd, iov, count as i32, at, flags) as i64 }
        })
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext, on_file, transfer_iocb};
    use crate::sys::kaio::{self, Iocb};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Writev {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let (iov, count) = clamp_iovecs(self.iov, self.count);
            Some(on_file!(context, self.fd, |file| opcode::Writev::new(file, iov, count as u32)
                .offset(self.offset)
                .rw_flags(self.flags.bits())
                .build()))
        }

        fn iocb(&self) -> Option<Iocb> {
            let (iov, count) = clamp_iovecs(self.iov, self.count);
            let memory = (iov as u64, count);
            transfer_iocb(kaio::IOCB_CMD_PWRITEV, self.fd, memory, self.offset, self.flags)
        }
    }
}
