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

use super::{Answer, Backend, Event, FileKind, Job, NoRoom};
use crate::op::Raw;
use crate::refusal::{Feature, Refusal};
use crate::slots::Token;
use crate::sys::eventfd::EventFd;
use nowait::{Cached, Try};
use pool::{CANCELED, Shared, State, Task, Wakes, Way, carry_out};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Without a watcher, the reaper watches in its place, and looks for other events this often.
const IN_ITS_PLACE: Duration = Duration::from_millis(10);

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
    cached: Cached,
    /// System calls made by the submitter.
    calls: u64,
    refusals: Vec<Refusal>,
    // Kept for their memory.
    events: Vec<Event>,
    wakes: Wakes,
    round: watch::Round,
}

impl Threads {
    /// Errors: none today; a thread that cannot be started is worked without.
    pub fn new(options: ThreadOptions) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared::new(options.workers, options.sync_workers, options.idle)),
            batch: Vec::new(),
            pending: 0,
            cached: Cached::default(),
            calls: 0,
            refusals: Vec::new(),
            events: Vec::new(),
            wakes: Wakes::default(),
            round: watch::Round::default(),
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
    pub fn echo(&mut self, eventfd: Arc<EventFd>) {
        self.shared.lock().echo(eventfd);
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
                events.push(Event { token: task.job.token, answer: Answer::Result(result) });
                false
            }
            Err(way) => {
                task.way = way;
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
fn at_once(job: &Job, cached: &mut Cached, calls: &mut u64) -> Result<i64, Way> {
    match (&job.raw, job.file) {
        (Raw::Timeout(_), _) => Err(Way::Watch { nowait: true }),
        (Raw::Poll(poll), _) => {
            *calls += 1;
            match poll.look() {
                0 => Err(Way::Watch { nowait: true }),
                result => Ok(result),
            }
        }
        // Writes go to a worker: one to a pipe without a reader raises SIGPIPE, which is blocked
        // there.
        (Raw::Read(_) | Raw::Readv(_), FileKind::Stream | FileKind::Device) => {
            match nowait::attempt(&job.raw, calls) {
                Try::Done(result) => Ok(result),
                Try::NotReady => Err(Way::Watch { nowait: true }),
                Try::Unsupported => Err(Way::Watch { nowait: false }),
            }
        }
        (raw @ (Raw::Read(_) | Raw::Readv(_)), FileKind::Storage) if !job.direct => {
            cached.attempt(raw, calls).ok_or(Way::Work { blocks: true })
        }
        (raw, _) => Err(Way::Work { blocks: raw.is_sync() || job.direct }),
    }
}

/// Does the work of threads that could not be started: all that is queued, and one round of
/// watching, which lasts no longer than `limit`.
fn stand_in<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    round: &mut watch::Round,
    limit: Duration,
    wakes: &mut Wakes,
) -> MutexGuard<'a, State> {
    while let Some(task) = state.take_unattended() {
        drop(state);
        let mut calls = 0;
        let outcome = pool::run(&task, &mut calls);
        state = shared.lock();
        state.calls += calls;
        state.settle(&task.job, outcome, wakes);
    }
    if state.watch_unattended() {
        let limit = if state.events.is_empty() { limit } else { Duration::ZERO };
        state = watch::round(shared, state, round, Some(limit), wakes);
    }
    state
}

impl Backend for Threads {
    unsafe fn carry(&mut self, job: &Job) -> Result<(), NoRoom> {
        self.batch.push(Task { job: *job, way: Way::Work { blocks: false } });
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
        let answered = events.len() - before;

        let Self { shared, batch, wakes, round, .. } = self;
        let mut state = shared.lock();
        state.distribute(batch.drain(..), wakes);
        // More than there are would be waited for in vain.
        let mut most = self.pending - answered;
        if most == 0 && (until.is_some() || state.watch.has_alarms()) {
            most = 1;
        }
        let want = want.saturating_sub(answered).min(most);
        loop {
            if wakes.any() {
                drop(state);
                carry_out(shared, wakes);
                state = shared.lock();
            }
            let left =
                until.map_or(IN_ITS_PLACE, |until| until.saturating_duration_since(Instant::now()));
            if state.unattended() {
                let limit =
                    if state.events.len() < want { left.min(IN_ITS_PLACE) } else { Duration::ZERO };
                state = stand_in(shared, state, round, limit, wakes);
                if wakes.any() {
                    continue; // What it called for must not wait for what is waited for here.
                }
            }
            state = shared.wait(state, want, until);
            if state.events.len() >= want || left.is_zero() {
                break;
            }
        }
        if cfg!(debug_assertions) {
            state.check(self.pending - answered);
        }
        state.collect(&mut self.events);
        if state.watch_unattended() {
            // Nobody else would call for `enter` in time.
            state.raise();
        }
        let refused = state.refused.take();
        drop(state);

        carry_out(&self.shared, &mut self.wakes);
        events.append(&mut self.events);
        self.pending -=
            events[before..].iter().filter(|event| event.answer != Answer::Expired).count();
        if let Some(errno) = refused {
            self.note_refusal(errno);
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        let mut state = self.shared.lock();
        if let Some(at) = self.batch.iter().position(|task| task.job.token == token) {
            self.batch.remove(at);
            state.answer(token, CANCELED, &mut self.wakes);
        } else {
            state.cancel(token, &mut self.wakes);
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
        state.attend_watch(&mut self.wakes);
        drop(state);
        carry_out(&self.shared, &mut self.wakes);
    }

    fn can_carry(&self, _job: &Job) -> bool {
        true
    }

    fn chain_room(&self) -> usize {
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
        self.shared.lock().close(&mut self.wakes);
        carry_out(&self.shared, &mut self.wakes);
    }
}
