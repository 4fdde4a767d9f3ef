//! Transfers that do not wait: what can be answered at once needs no thread.

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
