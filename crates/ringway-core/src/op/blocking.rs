//! Runs a closure on a thread, for work that neither io_uring nor Linux AIO has an operation for.

use super::{Operation, Resources, SubmissionForms};
use crate::sys::RawFd;
use crate::sys::libc;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs `work` on a thread of the queue, on every backend. The result is 0.
///
/// `work` owns what it uses, and returns its own result by other means (a channel, for example).
/// Closures have threads of their own, with a stack of 2 MiB as in the standard library, so that
/// they delay only each other, never a transfer or a sync.
///
/// If it is cancelled before it starts, `work` is dropped without being called, and the operation
/// fails with ECANCELED. Once started it runs to its end, even if its operation is abandoned or the
/// queue is dropped. Errors: EIO if `work` panics.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (result, results) = std::sync::mpsc::channel();
/// let mut queue = Options::new().build()?;
/// queue.push(op::blocking(move || _ = result.send(std::fs::canonicalize("/etc/.."))))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// assert_eq!(results.recv()??, std::path::Path::new("/"));
/// # Ok(()) }
/// ```
pub fn blocking(work: impl FnOnce() + Send + 'static) -> Operation {
    let work = Arc::new(Work(Mutex::new(Some(Box::new(work)))));
    let raw = Blocking { work: Arc::as_ptr(&work) };
    Operation::make(raw.into(), Resources::Work { _work: work }, None, None)
}

/// The closure, until it is called.
pub(crate) struct Work(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// A call of a closure.
#[derive(Clone, Copy, Debug)]
pub struct Blocking {
    /// Owned by the [`Operation`]. Private, so that only `blocking` can make one.
    work: *const Work,
}

impl SubmissionForms for Blocking {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn call(&self) -> i64 {
        // SAFETY: only `blocking` makes a `Blocking`, and its operation owns the `Work` until the
        // completion; the call is made before that.
        let work = unsafe { &*self.work };
        let work = work.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic must not end the thread, which serves other operations too. The panic hook has
        // reported it.
        match work.map(|work| catch_unwind(AssertUnwindSafe(work))) {
            Some(Ok(())) => 0,
            Some(Err(_)) | None => -i64::from(libc::EIO),
        }
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use io_uring::squeue;

    impl LinuxForms for Blocking {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            None
        }
    }
}
