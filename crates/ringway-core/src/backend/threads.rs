//! The threads backend: it works everywhere, and is the fallback pool of the other backends.
//!
//! Each queue has a bounded pool of its own, which makes the blocking call of each operation
//! ([`Raw::call`]). Five rules keep it cheap and free of stalls:
//!
//! - Jobs that need not wait complete in `enter`, on the submitting thread: reads in the page cache
//!   (tried with `RWF_NOWAIT` while that pays off) and streams that are ready.
//! - Syncs have a lane of their own, so that reads do not wait behind them. So have closures.
//! - Jobs that may wait forever (polls, timeouts, streams that are not ready) all wait in one
//!   thread, in `ppoll(2)`.
//! - An open that may wait forever (of a FIFO) has a thread of its own and shares nothing with its
//!   operation, so that a cancel completes it at once: there is no other way to open a FIFO for
//!   writing.
//! - Threads whose calls hang do not count: others replace them, up to a bound.
//!
//! A call that has started runs to its end, even if its operation is cancelled.

pub(crate) mod nowait;
mod pool;
mod signal;
// They block threads with pipes, which Windows cannot poll.
#[cfg(all(test, unix))]
mod tests;
mod watch;

use super::{Backend, BackendFull, EventKind, FileKind, Job, JobEvent, LimitKeeper, Wait};
use crate::op::Raw;
use crate::refusal::{Feature, Refusal};
use crate::slots::Token;
use crate::sys::RawFd;
use crate::sys::eventfd::EventFd;
use nowait::{CachedReads, TryResult};
use pool::{CANCELED, Deferred, PoolState, Route, Shared, Task, run_deferred};
use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Without a watcher thread, the reaping thread watches, and checks for other events this often.
const INLINE_WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadOptions {
    /// The most threads for I/O; at least 1.
    pub workers: usize,
    /// The most threads for syncs; at least 1.
    pub sync_workers: usize,
    /// How long a thread without work stays.
    pub idle: Duration,
    /// A signal ends a wait.
    pub interruptible: bool,
}

/// The threads backend of one queue. A thread starts only when there is work for it.
///
/// Dropping it never waits: queued jobs are dropped, running calls continue, sleeping threads end.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Jobs taken since the last `enter`.
    batch: Vec<Task>,
    /// Jobs whose event `enter` has not returned.
    pending: usize,
    cached: CachedReads,
    /// System calls made by the submitting thread.
    calls: u64,
    /// Those of the pool's threads, as of the last `enter`.
    pool_calls: u64,
    refusals: Vec<Refusal>,
    interruptible: bool,
    // Kept to reuse their memory.
    events: Vec<JobEvent>,
    deferred: Deferred,
    poll_set: watch::PollSet,
}

impl Threads {
    /// Errors: those of `eventfd(2)`, if a signal is to end waits. A thread that cannot be started
    /// is done without.
    pub fn new(options: ThreadOptions) -> io::Result<Self> {
        let shared = Shared::new(options.workers, options.sync_workers, options.idle);
        if options.interruptible {
            shared.lock().signal_fd()?;
        }
        Ok(Self {
            shared: Arc::new(shared),
            batch: Vec::new(),
            pending: 0,
            cached: CachedReads::default(),
            calls: 0,
            pool_calls: 0,
            refusals: Vec::new(),
            interruptible: options.interruptible,
            events: Vec::new(),
            deferred: Deferred::default(),
            poll_set: watch::PollSet::default(),
        })
    }

    /// The eventfd that is readable when there may be events, for a backend that uses this pool as
    /// its fallback.
    ///
    /// Errors: those of `eventfd(2)`: EMFILE, ENFILE, ENOMEM.
    pub fn eventfd(&mut self) -> io::Result<RawFd> {
        self.shared.lock().signal_fd()
    }

    /// Signals this eventfd too when there are events.
    pub fn forward_signal_to(&mut self, eventfd: Arc<EventFd>) {
        self.shared.lock().forward_signal_to(eventfd);
    }

    /// Jobs whose event [`enter`](Backend::enter) has not returned.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Whether [`enter`](Backend::enter) may return events although no jobs are pending: a timer is
    /// set, or has expired.
    pub fn has_timers(&self) -> bool {
        let state = self.shared.lock();
        state.watch.has_alarms() || !state.events.is_empty()
    }

    /// Completes jobs that need not wait, and routes the others.
    fn try_at_once(&mut self, events: &mut Vec<JobEvent>) {
        let Self { batch, cached, calls, .. } = self;
        cached.begin();
        batch.retain_mut(|task| match at_once(&task.job, cached, calls) {
            Ok(result) => {
                events.push(JobEvent { token: task.job.token, kind: EventKind::Result(result) });
                false
            }
            Err(route) => {
                task.route = route;
                true
            }
        });
    }

    fn note_refusal(&mut self, errno: i32) {
        if self.refusals.iter().all(|refusal| refusal.errno != errno) {
            self.refusals.push(Refusal::new(Feature::Threads, errno));
        }
    }
}

/// The result of the job, or its route.
fn at_once(job: &Job, cached: &mut CachedReads, calls: &mut u64) -> Result<i64, Route> {
    match (&job.raw, job.file) {
        (Raw::Timeout(_), _) => Err(Route::Watcher { nowait: true }),
        (Raw::Poll(poll), _) => {
            *calls += 1;
            match poll.poll_now() {
                0 => Err(Route::Watcher { nowait: true }),
                result => Ok(result),
            }
        }
        // Writes go to a worker: writing to a pipe without a reader raises SIGPIPE, which is
        // blocked there.
        (Raw::Read(_) | Raw::Readv(_), FileKind::Stream | FileKind::Device) => {
            match nowait::try_stream(&job.raw, calls) {
                TryResult::Done(result) => Ok(result),
                TryResult::NotReady => Err(Route::Watcher { nowait: true }),
                TryResult::Unsupported => Err(Route::Watcher { nowait: false }),
            }
        }
        (raw @ (Raw::Read(_) | Raw::Readv(_)), FileKind::Storage)
            if !job.direct && !job.for_threads && !job.may_wait =>
        {
            cached.try_nowait(raw, calls).ok_or(Route::Worker { blocks: true })
        }
        (raw, _) => Err(Route::Worker { blocks: raw.is_sync() || job.direct || job.reads_extents }),
    }
}

/// Does the work of threads that could not be started: all queued tasks, and watching once, for at
/// most `limit`.
fn work_inline<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, PoolState>,
    poll_set: &mut watch::PollSet,
    limit: Duration,
    deferred: &mut Deferred,
) -> MutexGuard<'a, PoolState> {
    while let Some(task) = state.take_unattended() {
        drop(state);
        let mut calls = 0;
        let result = pool::run(&task, &mut calls);
        state = shared.lock();
        state.calls += calls;
        state.settle(&task.job, result, deferred);
    }
    if state.watch_unattended() {
        let limit = if state.events.is_empty() { limit } else { Duration::ZERO };
        state = watch::poll_once(shared, state, poll_set, Some(limit), deferred);
    }
    state
}

impl Backend for Threads {
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull> {
        self.batch.push(Task { job: *job, route: Route::Worker { blocks: false } });
        self.pending += 1;
        Ok(())
    }

    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        let before = events.len();
        self.try_at_once(events);
        let completed = events.len() - before;

        let Self { shared, batch, deferred, poll_set, interruptible, .. } = self;
        let mut wait = Wait::Ended;
        let mut state = shared.lock();
        state.distribute(batch.drain(..), deferred);
        // Waiting for more events than there are jobs would never end.
        let max_events = match self.pending - completed {
            0 if until.is_some() || state.watch.has_alarms() => 1,
            jobs => jobs,
        };
        let want = want.saturating_sub(completed).min(max_events);
        loop {
            if deferred.any() {
                drop(state);
                run_deferred(shared, deferred);
                state = shared.lock();
            }
            let left = until.map_or(INLINE_WATCH_INTERVAL, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if state.unattended() {
                let waits = state.events.len() < want;
                let limit = if waits { left.min(INLINE_WATCH_INTERVAL) } else { Duration::ZERO };
                state = work_inline(shared, state, poll_set, limit, deferred);
                let interrupted = poll_set.take_interrupted();
                if *interruptible && interrupted && state.events.len() < want {
                    wait = Wait::Interrupted;
                    break;
                }
                if deferred.any() {
                    continue; // Deferred wakeups must not wait for what this thread waits for.
                }
            }
            if *interruptible {
                (state, wait) = shared.wait_interruptibly(state, want, until);
            } else {
                state = shared.wait(state, want, until);
            }
            if state.events.len() >= want || left.is_zero() || wait == Wait::Interrupted {
                break;
            }
        }
        if cfg!(debug_assertions) {
            state.check(self.pending - completed);
        }
        state.take_events(&mut self.events);
        if state.watch_unattended() {
            // Otherwise nothing would make the program call `enter` in time.
            state.raise();
        }
        let refused = state.refused.take();
        self.pool_calls = state.calls;
        drop(state);

        run_deferred(&self.shared, &mut self.deferred);
        events.append(&mut self.events);
        self.pending -= events[before..].iter().filter(|event| event.kind.is_completion()).count();
        if let Some(errno) = refused {
            self.note_refusal(errno);
        }
        Ok(wait)
    }

    fn cancel(&mut self, token: Token) {
        let mut state = self.shared.lock();
        if let Some(at) = self.batch.iter().position(|task| task.job.token == token) {
            self.batch.remove(at);
            state.push_event(token, CANCELED, &mut self.deferred);
        } else {
            state.cancel(token, &mut self.deferred);
        }
        drop(state);
        run_deferred(&self.shared, &mut self.deferred);
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        self.eventfd()
    }

    fn poll_eventfd(&self) -> Option<Arc<EventFd>> {
        self.shared.lock().signal_eventfd()
    }

    fn wake(&mut self) {
        self.shared.lock().raise();
    }

    /// The threads backend has no fallback pool to watch.
    fn watch(&mut self, _eventfd: RawFd, _active: bool) {}

    fn set_timer(&mut self, token: Token, at: Instant) {
        let mut state = self.shared.lock();
        state.watch.set_timer(token, at);
        state.attend_watch(&mut self.deferred);
        drop(state);
        run_deferred(&self.shared, &mut self.deferred);
    }

    fn supports(&self, _job: &Job) -> bool {
        true
    }

    fn chain_capacity(&self) -> usize {
        0
    }

    fn limit_keeper(&self) -> LimitKeeper {
        LimitKeeper::Timer
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.shared.descriptors()
    }

    /// Why threads could not be started, each reason once.
    fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Counts the calls of operations, tries and polls that did not wait, `ppoll(2)`, and reads and
    /// writes of eventfds, but not the calls that start threads, put them to sleep and wake them.
    /// Those of the threads are as of the last `enter`.
    fn system_calls(&self) -> u64 {
        self.calls + self.pool_calls
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().close(&mut self.deferred);
        run_deferred(&self.shared, &mut self.deferred);
        self.shared.close_descriptors();
    }
}
