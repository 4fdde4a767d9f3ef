//! A future that is on its way before anybody waits for it.

use crate::engine::without_yielding;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A future that has been polled once, so that what it does is under way, and its result if it is
/// over.
pub(super) struct Eager<T> {
    /// The mutex is never locked: it says that nobody looks at the future but who has it alone.
    future: Mutex<Pin<Box<dyn Future<Output = T> + Send>>>,
    result: Option<T>,
}

impl<T> Eager<T> {
    /// Starts it for somebody who waits for it.
    pub(super) fn new(
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

    /// Starts it. It wakes nobody: it has to be [polled](Self::poll) before anybody waits for it.
    pub(super) fn early(future: impl Future<Output = T> + Send + 'static) -> Self {
        without_yielding(|| Self::new(future, &mut Context::from_waker(Waker::noop())))
    }

    /// True when the result is there.
    pub(super) fn is_over(&self) -> bool {
        self.result.is_some()
    }

    /// The result, once.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => self.future.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx),
        }
    }
}
