//! Blocking calls on the engine's threads, for what the kernel has no asynchronous operation for,
//! and pauses between two of them.

use super::op_result::nothing;
use super::sync::{Mutex, lock};
use super::{Engine, Lane, OpFuture, Schedule};
use ringway_core::op;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// This thread is running a call.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is running a call of an engine. If that call drops the engine, the
/// engine cannot wait here for the call to end.
pub(super) fn is_calling() -> bool {
    CALLING.get()
}

/// Marks the thread while it lives.
struct Calling(bool);

impl Calling {
    fn begin() -> Self {
        Self(CALLING.replace(true))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLING.set(self.0);
    }
}

impl Engine {
    /// Runs a blocking call on one of the engine's threads and returns its result. Use it for
    /// system calls on files that ringway has no function for. The thread has a stack of 2 MiB, as
    /// one of the standard library has. At most 16 calls of each shard run at a time, not counting
    /// those that hang; further ones wait in order. If none ends for half a second, all that run
    /// count as hanging.
    ///
    /// If the future is dropped before `work` has started, `work` is dropped without running.
    /// Otherwise it runs to its end, and its result is dropped. So `work` or its result must own
    /// what needs cleaning up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let engine = ringway::Engine::global()?;
    /// let entries = engine.call(|| Ok(std::fs::read_dir("/etc")?.count())).await?;
    /// assert!(entries > 0);
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `work`; EIO if it panics; ESHUTDOWN if the engine's backend has failed, and
    /// ECHILD in a forked child. After the last two, `work` was not run, unless it had started.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = Arc::new(Mutex::new(None));
        let result = Arc::clone(&slot);
        let operation = op::blocking(move || {
            let _calling = Calling::begin();
            // Dropped here, not with the closure: its value may hold the engine.
            let slot = slot;
            *lock(&slot) = Some(work());
        });
        nothing(OpFuture::new(&self.inner, Schedule::Immediate(Lane::Closure), operation).await)?;
        // The null backend does not run the closure, so there is no result.
        let result = lock(&result).take();
        result.unwrap_or_else(|| Err(io::Error::other("the call was not made")))
    }
    /// Waits for this time on the monotonic clock, with a timer of the engine's backend: for
    /// example before a call is tried again. It needs no runtime and does not block. Any number of
    /// timers delay no other operation. If the future is dropped, the timer is cancelled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let engine = ringway::Engine::global()?;
    /// engine.sleep(Duration::from_millis(1)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: ESHUTDOWN if the engine's backend has failed, and ECHILD in a forked child.
    pub async fn sleep(&self, duration: Duration) -> io::Result<()> {
        let timer = op::timeout(duration);
        nothing(OpFuture::new(&self.inner, Schedule::Immediate(Lane::Timer), timer).await)
    }
}
