//! What dropped handles of an open file still write in the background: who closes or syncs the
//! file waits for it, and learns of its error.

use super::pooled::clone_error;
use crate::Engine;
use crate::engine::op_result::forked;
use crate::engine::wake_all;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The writes of dropped handles of one file.
#[derive(Debug)]
pub(crate) struct DroppedWrites {
    engine: Engine,
    /// How many handles. Changes with the lock; a forked child looks without it.
    running: AtomicUsize,
    state: Mutex<DroppedState>,
}

#[derive(Debug, Default)]
struct DroppedState {
    /// Of the last write that has failed.
    error: Option<io::Error>,
    /// How many have failed.
    errors: u64,
    /// The value of `errors` when a caller was last told.
    reported: u64,
    waiters: Vec<Waker>,
}

/// The writes of one dropped handle, until this is dropped.
#[derive(Debug)]
pub(crate) struct DroppedWrite(Arc<DroppedWrites>);

impl DroppedWrites {
    pub(super) fn new(engine: &Engine) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            running: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// A handle is dropped, and its writes go on. Once they know, [drive](Self::drive) them.
    pub(crate) fn begin(self: &Arc<Self>) -> DroppedWrite {
        let _state = self.lock();
        self.running.fetch_add(1, Ordering::Release);
        DroppedWrite(Arc::clone(self))
    }

    /// Sees to it that the writes end if the program need not reap any more.
    pub(crate) fn drive(self: &Arc<Self>) {
        if self.running() > 0 {
            let writes = Arc::clone(self);
            self.engine.inner.drive_for_program(&self.engine, move || writes.running() == 0);
        }
    }

    /// In a forked child, locks may be held for ever and writes are the parent's.
    pub(super) fn is_current(&self) -> bool {
        self.engine.inner.is_current()
    }

    /// How many errors callers were told of so far. 0 in a forked child.
    pub(super) fn reported(&self) -> u64 {
        if self.is_current() { self.lock().reported } else { 0 }
    }

    /// Waits until all are written. Errors: that of one that has failed, unless callers were told
    /// of it when [`reported`](Self::reported) was this.
    pub(super) async fn idle(&self, since: u64) -> io::Result<()> {
        poll_fn(|cx| self.poll_idle(since, cx)).await
    }

    fn poll_idle(&self, since: u64, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_current() {
            let is_idle = self.running() == 0;
            return Poll::Ready(if is_idle { Ok(()) } else { Err(forked()) });
        }
        let mut state = self.lock();
        if self.running() > 0 {
            if !state.waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                state.waiters.push(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let error = state.error.as_ref().filter(|_| state.errors > since).map(clone_error);
        if error.is_some() {
            state.reported = state.errors;
        }
        Poll::Ready(error.map_or(Ok(()), Err))
    }

    /// A write of a dropped handle has failed.
    pub(crate) fn note(&self, error: io::Error) {
        if !self.is_current() {
            return;
        }
        let mut state = self.lock();
        state.errors += 1;
        state.error = Some(error);
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, DroppedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DroppedWrite {
    pub(crate) fn note(&self, error: io::Error) {
        self.0.note(error);
    }
}

impl Drop for DroppedWrite {
    fn drop(&mut self) {
        if !self.0.is_current() {
            return;
        }
        let mut state = self.0.lock();
        self.0.running.fetch_sub(1, Ordering::Release);
        let mut waiters = std::mem::take(&mut state.waiters);
        drop(state);
        wake_all(&mut waiters);
    }
}
