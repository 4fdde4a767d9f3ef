//! Transfers that do not wait: what completes at once needs no thread.

use crate::cache_hint::CacheHint;
use crate::file::is_open_for;
use crate::op::{Raw, Transfer};
use crate::sys::libc;

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryResult {
    /// Done: at least 0, or minus errno.
    Done(i64),
    /// It would have to wait.
    NotReady,
    /// There is only a call that waits.
    Unsupported,
}

/// Tries an operation that has a call that does not wait, and counts the calls.
pub(crate) fn try_nowait(raw: &Raw, calls: &mut u64) -> TryResult {
    let Some(result) = raw.try_call() else { return TryResult::Unsupported };
    *calls += 1;
    match i32::try_from(-result) {
        // (What a signal can interrupt waits.)
        Ok(libc::EAGAIN | libc::EINTR) => TryResult::NotReady,
        // A filter may refuse the call. If the file does, the call that waits says so too.
        Ok(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) => TryResult::Unsupported,
        _ => TryResult::Done(result),
    }
}

/// As [`try_nowait`], for a transfer that will be polled for if it cannot be tried: on a descriptor
/// that is not open for it, that would never end.
pub(super) fn try_stream(raw: &Raw, calls: &mut u64) -> TryResult {
    match try_nowait(raw, calls) {
        TryResult::Unsupported if raw.fd().is_some_and(|fd| !is_open_for(fd, raw.is_write())) => {
            TryResult::Done(-i64::from(libc::EBADF))
        }
        result => result,
    }
}

/// About how many bytes one [`enter`](crate::backend::Backend::enter) copies itself; further reads
/// go to the threads.
const BUDGET: u64 = 1 << 20;

/// Tries reads of storage in the page cache, while that pays off.
#[derive(Debug, Default)]
pub(super) struct CachedReads {
    hint: CacheHint,
    budget: u64,
}

impl CachedReads {
    /// Starts an `enter` with a new budget.
    pub fn begin(&mut self) {
        self.budget = BUDGET;
    }

    /// The result, if all bytes were cached. Otherwise nothing is decided, and the read must be
    /// made again.
    pub fn try_nowait(&mut self, raw: &Raw, calls: &mut u64) -> Option<i64> {
        // Only at an offset: a partial read at the current position would be lost.
        let len = match (raw, raw.transfer()) {
            (Raw::Read(_), Transfer::Bytes(len)) => len,
            (Raw::Readv(readv), Transfer::Vector(len))
                if readv.offset != crate::op::CURRENT_POSITION =>
            {
                len
            }
            _ => return None,
        };
        if !self.hint.should_try() {
            return None;
        }
        self.budget = self.budget.checked_sub(len)?;
        // A short read may be the end of the file or of the cached part.
        if len > 0 && try_nowait(raw, calls) == TryResult::Done(len as i64) {
            self.hint.hit();
            return Some(len as i64);
        }
        self.hint.miss();
        None
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;
    use crate::op::{Read, RwFlags};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::FileExt as _;

    /// The owner would copy any number of cached reads itself, one after the other.
    #[test]
    fn one_enter_copies_a_bounded_number_of_bytes() {
        let file = tempfile::tempfile().unwrap();
        let mut bytes = vec![7; 1 << 18];
        file.write_all_at(&bytes, 0).unwrap();
        let read = Raw::from(Read {
            fd: file.as_raw_fd(),
            buf: bytes.as_mut_ptr(),
            len: bytes.len(),
            offset: 0,
            flags: RwFlags::NONE,
        });
        let (mut reads, mut calls) = (CachedReads::default(), 0);
        for round in 0..2 {
            reads.begin();
            let done = (0..20).filter(|_| reads.try_nowait(&read, &mut calls).is_some()).count();
            if calls == 1 && done == 0 {
                return println!("skipped: this file system does not report what is cached");
            }
            assert_eq!(done as u64 * bytes.len() as u64, BUDGET, "round {round}");
        }
        assert_eq!((BUDGET, calls), (1 << 20, 8));
    }
}
