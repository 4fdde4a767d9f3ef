//! Threads: the backend that works everywhere, and that carries what io_uring or Linux AIO do not.
//!
//! A bounded pool of its own for each queue, which makes the blocking form of each operation
//! ([`Raw::call`]). Five rules keep it cheap and free of stalls:
//!
//! - What can be answered without waiting is answered in `enter`, by the submitter: reads that are
//!   in the page cache (tried with `RWF_NOWAIT`, as long as that pays), streams that are ready.
//! - Syncs have a lane of their own, so that reads do not stand behind them. So have closures.
//! - What can wait for ever (polls, timeouts, streams that are not ready) waits in one thread for
//!   all, in `ppoll(2)`.
//! - An open that may wait for ever (of a FIFO) has a thread of its own, and nothing of its
//!   operation's, so that a cancel answers it at once: there is no other way to open a FIFO for
//!   writing.
//! - Calls that hang do not count: others take the place of their threads, up to a bound.
//!
//! A call that has begun runs to its end, whatever is cancelled.

pub(crate) mod nowait;
mod pool;
#[cfg(test)]
mod tests;
mod watch;

use super::{Backend, BackendFull, Event, EventKind, FileKind, Job};
use crate::op::Raw;
use crate::refusal::{Feature, Refusal};
use crate::slots::Token;
use crate::sys::eventfd::EventFd;
use nowait::{CachedReads, TryResult};
use pool::{CANCELED, Deferred, Route, Shared, State, Task, run_deferred};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Without a watcher, the reaper watches in its place, and looks for other events this often.
const INLINE_WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// How many threads there may be, and how long they stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadOptions {
    /// The most threads for I/O; at least 1.
    pub workers: usize,
    /// The most threads for syncs; at least 1.
    pub sync_workers: usize,
    /// How long a thread stays without work.
    pub idle: Duration,
}

/// The thread backend of one queue. No thread is started before there is work for it.
///
/// Dropping it never waits: what is queued is forgotten, what runs is left to run, and sleeping
/// threads end.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Carried since the last `enter`.
    batch: Vec<Task>,
    /// Jobs that have been carried and whose answer has not come out of `enter`.
    pending: usize,
    cached: CachedReads,
    /// System calls made by the submitter.
    calls: u64,
    refusals: Vec<Refusal>,
    // Kept for their memory.
    events: Vec<Event>,
    deferred: Deferred,
    poll_set: watch::PollSet,
}

impl Threads {
    /// Errors: none today; a thread that cannot be started is worked without.
    pub fn new(options: ThreadOptions) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared::new(options.workers, options.sync_workers, options.idle)),
            batch: Vec::new(),
            pending: 0,
            cached: CachedReads::default(),
            calls: 0,
            refusals: Vec::new(),
            events: Vec::new(),
            deferred: Deferred::default(),
            poll_set: watch::PollSet::default(),
        })
    }

    /// The eventfd that is readable when there may be events: for a backend that these threads
    /// stand beside.
    ///
    /// Errors: those of `eventfd(2)`: EMFILE, ENFILE, ENOMEM.
    pub fn eventfd(&mut self) -> io::Result<RawFd> {
        self.shared.lock().signal_fd()
    }

    /// Has the descriptor that a program polls tell of these threads' events too.
    pub fn forward_signal_to(&mut self, eventfd: Arc<EventFd>) {
        self.shared.lock().forward_signal_to(eventfd);
    }

    /// Jobs taken whose answer has not come out of [`enter`](Backend::enter).
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Answers what need not wait, and finds out where the rest goes.
    fn try_at_once(&mut self, events: &mut Vec<Event>) {
        let Self { batch, cached, calls, .. } = self;
        cached.begin();
        batch.retain_mut(|task| match at_once(&task.job, cached, calls) {
            Ok(result) => {
                events.push(Event { token: task.job.token, kind: EventKind::Result(result) });
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

/// The result, or where it can be had.
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
        // Writes go to a worker: one to a pipe without a reader raises SIGPIPE, which is blocked
        // there.
        (Raw::Read(_) | Raw::Readv(_), FileKind::Stream | FileKind::Device) => {
            match nowait::try_nowait(&job.raw, calls) {
                TryResult::Done(result) => Ok(result),
                TryResult::NotReady => Err(Route::Watcher { nowait: true }),
                TryResult::Unsupported => Err(Route::Watcher { nowait: false }),
            }
        }
        (raw @ (Raw::Read(_) | Raw::Readv(_)), FileKind::Storage) if !job.direct => {
            cached.try_nowait(raw, calls).ok_or(Route::Worker { blocks: true })
        }
        (raw, _) => Err(Route::Worker { blocks: raw.is_sync() || job.direct }),
    }
}

/// Does the work of threads that could not be started: all that is queued, and one round of
/// watching, which lasts no longer than `limit`.
fn work_inline<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    poll_set: &mut watch::PollSet,
    limit: Duration,
    deferred: &mut Deferred,
) -> MutexGuard<'a, State> {
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
        state = watch::poll_set(shared, state, poll_set, Some(limit), deferred);
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
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let before = events.len();
        self.try_at_once(events);
        let completed = events.len() - before;

        let Self { shared, batch, deferred, poll_set, .. } = self;
        let mut state = shared.lock();
        state.distribute(batch.drain(..), deferred);
        // More than there are would be waited for in vain.
        let mut max_threads = self.pending - completed;
        if max_threads == 0 && (until.is_some() || state.watch.has_alarms()) {
            max_threads = 1;
        }
        let want = want.saturating_sub(completed).min(max_threads);
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
                let limit = if state.events.len() < want {
                    left.min(INLINE_WATCH_INTERVAL)
                } else {
                    Duration::ZERO
                };
                state = work_inline(shared, state, poll_set, limit, deferred);
                if deferred.any() {
                    continue; // What it called for must not wait for what is waited for here.
                }
            }
            state = shared.wait(state, want, until);
            if state.events.len() >= want || left.is_zero() {
                break;
            }
        }
        if cfg!(debug_assertions) {
            state.check(self.pending - completed);
        }
        state.collect(&mut self.events);
        if state.watch_unattended() {
            // Nobody else would call for `enter` in time.
            state.raise();
        }
        let refused = state.refused.take();
        drop(state);

        run_deferred(&self.shared, &mut self.deferred);
        events.append(&mut self.events);
        self.pending -=
            events[before..].iter().filter(|event| event.kind != EventKind::TimerExpired).count();
        if let Some(errno) = refused {
            self.note_refusal(errno);
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        let mut state = self.shared.lock();
        if let Some(at) = self.batch.iter().position(|task| task.job.token == token) {
            self.batch.remove(at);
            state.push_event(token, CANCELED, &mut self.deferred);
        } else {
            state.cancel(token, &mut self.deferred);
        }
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        self.eventfd()
    }

    fn wake(&mut self) {
        self.shared.lock().raise();
    }

    /// Threads stand above no other backend.
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

    /// Why threads could not be started, each reason once.
    fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Counted are the calls of operations, tries and looks that did not wait, `ppoll(2)`, and
    /// reads and writes of eventfds; not those that threads are started, put to sleep and woken
    /// with.
    fn system_calls(&self) -> u64 {
        self.calls + self.shared.lock().calls
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().close(&mut self.deferred);
        run_deferred(&self.shared, &mut self.deferred);
    }
}
