//! Transfers that do not wait: what can be answered at once needs no thread.
//!
//! `preadv2(2)` and `pwritev2(2)` with `RWF_NOWAIT` answer EAGAIN where the blocking call would wait, and
//! EOPNOTSUPP where the file (or the kernel) has no such form.

use crate::op::{Raw, Shape};
use std::os::fd::RawFd;

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// It is done: at least 0, or minus errno.
    Done(i64),
    /// It would have to wait.
    NotReady,
    /// It can only be called in the form that waits.
    Unsupported,
}

/// Tries a transfer, and counts the calls made for it. Anything but a transfer is unsupported.
pub(crate) fn attempt(raw: &Raw, calls: &mut u64) -> Try {
    loop {
        *calls += 1;
        let result = match *raw {
            Raw::Read(read) => vectored(libc::preadv2, read.fd, &one(read.addr, read.len), 1, read.offset),
            Raw::Readv(read) => vectored(libc::preadv2, read.fd, read.iov, read.count, read.offset),
            Raw::Write(write) => {
                vectored(libc::pwritev2, write.fd, &one(write.addr.cast_mut(), write.len), 1, write.offset)
            }
            Raw::Writev(write) => vectored(libc::pwritev2, write.fd, write.iov, write.count, write.offset),
            _ => return Try::Unsupported,
        };
        match i32::try_from(-result) {
            Ok(libc::EINTR) => {}
            Ok(libc::EAGAIN) => return Try::NotReady,
            Ok(libc::EOPNOTSUPP | libc::ENOSYS) => return Try::Unsupported,
            _ => return Try::Done(result),
        }
    }
}

type Call = unsafe extern "C" fn(RawFd, *const libc::iovec, libc::c_int, libc::off_t, libc::c_int) -> libc::ssize_t;

fn one(addr: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: addr.cast(), iov_len: len }
}

fn vectored(call: Call, fd: RawFd, iov: *const libc::iovec, count: usize, offset: u64) -> i64 {
    let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    // SAFETY: the iovec array and the buffers it names are valid until the job's answer has come out of
    // `enter` (`Backend::carry`), which is after this call. The offset that stands for the file's own
    // position is -1 here too.
    let at = |offset| crate::op::answer(unsafe { call(fd, iov, count, offset, libc::RWF_NOWAIT) } as i64);
    match at(offset as libc::off_t) {
        // A pipe has no offsets: one is ignored, as in the blocking form.
        crate::op::ESPIPE => at(-1),
        done => done,
    }
}

/// Bytes that a read copies at once in one [`enter`](crate::backend::Backend::enter), at most about: what is more
/// is shared out to the threads.
const BUDGET: u64 = 1 << 20;

/// Reads of storage that are worth a try, because what they want may be in the page cache.
///
/// A hit costs one system call and no thread; a miss costs one for nothing. So after some misses in a row fewer and
/// fewer are tried, until there is a hit again.
#[derive(Debug, Default)]
pub(super) struct Cached {
    misses: u32,
    skip: u32,
    budget: u64,
}

impl Cached {
    /// An `enter` begins.
    pub fn begin(&mut self) {
        self.budget = BUDGET;
    }

    /// The result, if all of it was there. Anything else has moved and decided nothing: it must be
    /// called again.
    pub fn attempt(&mut self, raw: &Raw, calls: &mut u64) -> Option<i64> {
        // Only at an offset: a part that was read at the file's own position would be lost.
        let len = match (raw, raw.shape()) {
            (Raw::Read(_), Shape::Bytes(len)) => len,
            (Raw::Readv(readv), Shape::Vector(len)) if readv.offset != crate::op::CURSOR => len,
            _ => return None,
        };
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.budget = self.budget.checked_sub(len)?;
        // A short read may be the end of the file, or of what is cached.
        if len > 0 && attempt(raw, calls) == Try::Done(len as i64) {
            self.misses = 0;
            return Some(len as i64);
        }
        self.misses = (self.misses + 1).min(12);
        self.skip = (1 << self.misses) >> 4;
        None
    }
}
