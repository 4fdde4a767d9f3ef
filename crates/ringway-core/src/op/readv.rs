//! Reads into several buffers: `preadv(2)`, `readv(2)`.

use super::operation::{Remaining, clamp_iovecs, remaining};
use super::{
    Operation, Position, Raw, Read, Resources, RwFlags, SubmissionForms, Transfer, Vectored,
    advanced, call_at, call_with_flags,
};
use crate::File;
use crate::sys::{RawFd, libc};

/// Reads from `file` at `position` into `buffers`, one after the other.
///
/// The result is the total number of bytes read. One call uses at most the first 1024 buffers
/// (`IOV_MAX`) that are not empty; with [`Operation::exact`] a short read is continued, over any
/// number of buffers. Errors and cancel as for [`read`](super::read()). The completion returns the
/// buffers ([`Completion::into_vectored`](crate::Completion::into_vectored)); using them again
/// needs no allocation.
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
pub fn readv(file: &File, mut buffers: Vectored, position: impl Into<Position>) -> Operation {
    let invalid = buffers.refusal_to_read();
    let raw = Readv {
        fd: file.fd(),
        iov: buffers.iov().as_ptr(),
        count: buffers.iov().len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::Vectored(buffers), file, invalid)
}

/// A read into `count` buffers at `offset`
/// ([`CURRENT_POSITION`](super::CURRENT_POSITION): the current position).
#[derive(Clone, Copy, Debug)]
pub struct Readv {
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

impl SubmissionForms for Readv {
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

    fn transfer(&self) -> Transfer {
        Transfer::Vector(super::operation::total(self.iov, self.count))
    }

    /// All buffers at the start; further in, the buffers from the one that `start` is in, or the
    /// rest of that one.
    fn piece(&self, start: u64, _: u64) -> Raw {
        if start == 0 {
            return Raw::Readv(*self);
        }
        let offset = advanced(self.offset, start);
        match remaining(self.iov, self.count, start) {
            Remaining::Buffers(iov, count) => Raw::Readv(Self { iov, count, offset, ..*self }),
            Remaining::Partial(buf, len) => {
                Raw::Read(Read { fd: self.fd, buf, len, offset, flags: self.flags })
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
        let at_offset = |at| unsafe { libc::preadv64(self.fd, iov, count, at) as i64 };
        // SAFETY: as above.
        let at_position = || unsafe { libc::readv(self.fd, iov, count) as i64 };
        call_at(self.fd, self.offset, at_offset, at_position)
    }

    fn try_call(&self) -> Option<i64> {
        Some(self.call_with(libc::RWF_NOWAIT | self.flags.bits()))
    }
}

impl Readv {
    fn call_with(&self, flags: libc::c_int) -> i64 {
        let (iov, count) = clamp_iovecs(self.iov, self.count);
        call_with_flags(self.fd, self.offset, flags, |at| {
            // SAFETY: as in `call`.
            unsafe { libc::preadv2(self.fd, iov, count as i32, at, flags) as i64 }
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

    impl LinuxForms for Readv {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let (iov, count) = clamp_iovecs(self.iov, self.count);
            Some(on_file!(context, self.fd, |file| opcode::Readv::new(file, iov, count as u32)
                .offset(self.offset)
                .rw_flags(self.flags.bits())
                .build()))
        }

        fn iocb(&self) -> Option<Iocb> {
            let (iov, count) = clamp_iovecs(self.iov, self.count);
            let memory = (iov as u64, count);
            transfer_iocb(kaio::IOCB_CMD_PREADV, self.fd, memory, self.offset, self.flags)
        }
    }
}
