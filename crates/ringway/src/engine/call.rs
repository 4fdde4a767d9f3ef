//! Blocking calls on the engine's threads, for what the kernel has no asynchronous operation for.

use super::shard::lock;
use super::sync::Mutex;
use super::{Engine, Lane, OpFuture, Schedule};
use crate::fs::op_result::nothing;
use ringway_core::op;
use std::io;
use std::sync::Arc;

impl Engine {
    /// Runs `work` on a thread and returns its result.
    ///
    /// If the future is dropped before `work` has started, `work` is dropped without running.
    /// Otherwise it runs to its end, and the thread drops its result. So `work` or its result must
    /// own what needs cleaning up.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = Arc::new(Mutex::new(None));
        let result = Arc::clone(&slot);
        let operation = op::blocking(move || *lock(&slot) = Some(work()));
        nothing(OpFuture::new(&self.inner, Schedule::Immediate(Lane::Closure), operation).await)?;
        // The null backend does not run the closure, so there is no result.
        let result = lock(&result).take();
        result.unwrap_or_else(|| Err(io::Error::other("the call was not made")))
    }
}
