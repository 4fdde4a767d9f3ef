//! Transfers that do not wait: what can be answered at once needs no thread.

use crate::cache_hint::CacheHint;
use crate::op::{Raw, Transfer};

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryResult {
    /// It is done: at least 0, or minus errno.
    Done(i64),
    /// It would have to wait.
    NotReady,
    /// It can only be called in the form that waits.
    Unsupported,
}

/// Tries what has a call that does not wait, and counts the calls made.
pub(crate) fn try_nowait(raw: &Raw, calls: &mut u64) -> TryResult {
    loop {
        let Some(result) = raw.try_call() else { return TryResult::Unsupported };
        *calls += 1;
        match i32::try_from(-result) {
            Ok(libc::EINTR) => {}
            Ok(libc::EAGAIN) => return TryResult::NotReady,
            Ok(libc::EOPNOTSUPP | libc::ENOSYS) => return TryResult::Unsupported,
            _ => return TryResult::Done(result),
        }
    }
}

/// Bytes that a read copies at once in one [`enter`](crate::backend::Backend::enter), at most
/// about: what is more is shared out to the threads.
const BUDGET: u64 = 1 << 20;

/// Reads of storage that are tried in the page cache, as long as that pays.
#[derive(Debug, Default)]
pub(super) struct CachedReads {
    hint: CacheHint,
    budget: u64,
}

impl CachedReads {
    /// An `enter` begins.
    pub fn begin(&mut self) {
        self.budget = BUDGET;
    }

    /// The result, if all of it was there. Anything else has moved and decided nothing: it must be
    /// called again.
    pub fn try_nowait(&mut self, raw: &Raw, calls: &mut u64) -> Option<i64> {
        // Only at an offset: a part that was read at the file's own position would be lost.
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
        // A short read may be the end of the file, or of what is cached.
        if len > 0 && try_nowait(raw, calls) == TryResult::Done(len as i64) {
            self.hint.hit();
            return Some(len as i64);
        }
        self.hint.miss();
        None
    }
}
