//! A future that starts before a task waits for it.

use crate::engine::without_yielding;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A future that has been polled once, so that its operations are in flight, and its result if it
/// has completed.
pub(crate) struct Eager<T> {
    /// The mutex is never locked; it only makes the type `Sync`.
    future: Mutex<Pin<Box<dyn Future<Output = T> + Send>>>,
    result: Option<T>,
}

impl<T> Eager<T> {
    /// Starts a future that the current task waits for.
    pub(crate) fn new(
        future: impl Future<Output = T> + Send + 'static,
        cx: &mut Context<'_>,
    ) -> Self {
        let mut future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
        let result = match future.as_mut().poll(cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        };
        Self { future: Mutex::new(future), result }
    }

    /// Starts a future ahead of its use. It wakes no task: [poll](Self::poll) it before waiting for
    /// it.
    pub(crate) fn early(future: impl Future<Output = T> + Send + 'static) -> Self {
        without_yielding(|| Self::new(future, &mut Context::from_waker(Waker::noop())))
    }

    /// Whether the future completed when it was started, and the result has not been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.result.is_some()
    }

    /// Polls for the result. Call this until it is ready, and not after that.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => self.future.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx),
        }
    }
}
