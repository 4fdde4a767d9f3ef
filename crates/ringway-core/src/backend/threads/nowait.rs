//! Transfers that do not wait: what can be answered at once needs no thread.

use crate::cache_hint::CacheHint;
use crate::op::{Raw, Shape};

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

/// Tries what has a call that does not wait, and counts the calls made.
pub(crate) fn attempt(raw: &Raw, calls: &mut u64) -> Try {
    loop {
        let Some(result) = raw.try_call() else { return Try::Unsupported };
        *calls += 1;
        match i32::try_from(-result) {
            Ok(libc::EINTR) => {}
            Ok(libc::EAGAIN) => return Try::NotReady,
            Ok(libc::EOPNOTSUPP | libc::ENOSYS) => return Try::Unsupported,
            _ => return Try::Done(result),
        }
    }
}

/// Bytes that a read copies at once in one [`enter`](crate::backend::Backend::enter), at most
/// about: what is more is shared out to the threads.
const BUDGET: u64 = 1 << 20;

/// Reads of storage that are tried in the page cache, as long as that pays.
#[derive(Debug, Default)]
pub(super) struct Cached {
    hint: CacheHint,
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
            (Raw::Readv(readv), Shape::Vector(len))
                if readv.offset != crate::op::CURRENT_POSITION =>
            {
                len
            }
            _ => return None,
        };
        if !self.hint.is_worth_a_try() {
            return None;
        }
        self.budget = self.budget.checked_sub(len)?;
        // A short read may be the end of the file, or of what is cached.
        if len > 0 && attempt(raw, calls) == Try::Done(len as i64) {
            self.hint.hit();
            return Some(len as i64);
        }
        self.hint.miss();
        None
    }
}
