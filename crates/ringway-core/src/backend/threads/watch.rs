//! Watches everything that may wait forever: polls, timeouts, timers and streams that are not
//! ready. One thread waits for all of it in `ppoll(2)`, so that none of it occupies a worker.

use super::nowait::{self, TryResult};
use super::pool::{
    CANCELED, Deferred, LANE_CHECK_INTERVAL, PoolState, Shared, TaskResult, run_deferred,
};
use crate::backend::{EventKind, Job};
use crate::op::Raw;
use crate::slots::Token;
use crate::sys::eventfd::{LazyEventFd, Numbers, left, timespec};
use crate::sys::{Number, RawFd, libc};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long a stream is not polled for if poll(2) reports it as ready and the call does not, so
/// that the watcher does not spin. It also pauses for so long if poll(2) fails.
const BACK_OFF: Duration = Duration::from_millis(1);

/// Everything that is watched.
#[derive(Default)]
pub(super) struct Watch {
    /// Polls and stream transfers, by descriptor and events; in the order in which they came.
    waiting: BTreeMap<Interest, Vec<Waiting>>,
    /// Timeouts and timers, sorted by time; and the time of each.
    alarms: BTreeSet<(Instant, Alarm)>,
    due: HashMap<Alarm, (Instant, Token)>,
    /// When to check the lanes for hung calls.
    lane_check: Option<Instant>,
    /// Stream transfers that a thread is trying or calling: they may return here.
    running_transfers: Vec<RunningTransfer>,
    /// The watcher thread exists.
    pub running: bool,
    /// Wakes that thread.
    wake: LazyEventFd,
    asleep: bool,
    /// A thread is in poll(2), which may still use that eventfd.
    pub polling: bool,
    /// When it wakes by itself.
    until: Option<Instant>,
    /// Some of the waiting jobs were cancelled.
    cancelled: bool,
    /// What a call found not ready, although poll(2) reported it: it is not polled for until then.
    resting: BTreeMap<Interest, Instant>,
}

/// The input of poll(2): a descriptor, and `POLL*`.
type Interest = (RawFd, i16);

/// What poll(2) reports whether or not it was asked for.
const ALWAYS_REPORTED: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

struct Waiting {
    job: Job,
    /// The file supports calls that do not wait.
    nowait: bool,
    cancelled: bool,
}

// SAFETY: as for a task of the pool: any thread may use what the job points at until `enter` has
// returned its event; the caller of `Backend::push` guarantees that.
unsafe impl Send for Waiting {}

/// Identifies a time to wait for: one for each slot and piece. Setting it again replaces one that
/// an earlier use of the slot has left, so there are never more than slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Alarm {
    /// A timer set by the queue.
    Timer(u32),
    /// A timeout operation.
    Timeout(u32),
}

struct RunningTransfer {
    token: Token,
    interest: Interest,
    /// The call blocks if the stream is not ready: until it returns, nobody else may use the
    /// stream.
    blocking: bool,
    cancelled: bool,
}

/// The slot and the piece of a token, without the generation.
fn slot_and_piece(token: Token) -> u32 {
    token.0 as u32
}

fn interest(raw: &Raw) -> Interest {
    let events = match raw {
        Raw::Poll(poll) => poll.events as i16,
        raw if raw.is_write() => libc::POLLOUT,
        _ => libc::POLLIN,
    };
    (raw.fd().unwrap_or(-1), events)
}

impl Watch {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.alarms.is_empty()
    }

    /// True if the thread has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.lane_check.is_none()
    }

    /// True if a timer or a timeout is set; perhaps a timer of an operation that has ended.
    pub fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// The number of waiting jobs.
    pub fn jobs(&self) -> usize {
        let timeouts = self.due.keys().filter(|alarm| matches!(alarm, Alarm::Timeout(_))).count();
        self.waiting.values().map(Vec::len).sum::<usize>() + timeouts
    }

    #[cfg(test)]
    pub fn alarms(&self) -> usize {
        assert_eq!(self.alarms.len(), self.due.len());
        self.alarms.len()
    }

    pub fn insert(&mut self, job: Job, nowait: bool) {
        if let Raw::Timeout(timeout) = job.raw {
            return self.set_alarm(
                Alarm::Timeout(slot_and_piece(job.token)),
                after(timeout.duration),
                job.token,
            );
        }
        let waiting = Waiting { job, nowait, cancelled: false };
        self.waiting.entry(interest(&job.raw)).or_default().push(waiting);
        self.wake();
    }

    /// Takes back a transfer on a stream that poll(2) reported as ready and the blocking call did
    /// not: a nonblocking one that another reader was faster on, or one without a poll of its own.
    pub fn insert_falsely_ready(&mut self, job: Job) {
        self.rest(interest(&job.raw));
        self.insert(job, false);
    }

    fn rest(&mut self, interest: Interest) {
        self.resting.insert(interest, Instant::now() + BACK_OFF);
    }

    pub fn set_timer(&mut self, token: Token, at: Instant) {
        self.set_alarm(Alarm::Timer(slot_and_piece(token)), at, token);
    }

    fn set_alarm(&mut self, alarm: Alarm, at: Instant, token: Token) {
        if let Some((before, _)) = self.due.insert(alarm, (at, token)) {
            self.alarms.remove(&(before, alarm));
        }
        self.alarms.insert((at, alarm));
        if self.until.is_none_or(|until| at < until) {
            self.wake();
        }
    }

    /// Schedules a check of the lanes, unless one is scheduled.
    pub fn schedule_lane_check(&mut self) {
        if self.lane_check.is_none() {
            let at = Instant::now() + LANE_CHECK_INTERVAL;
            self.lane_check = Some(at);
            if self.until.is_none_or(|until| at < until) {
                self.wake();
            }
        }
    }

    /// Records that a thread is trying or calling the transfer.
    pub fn mark_running(&mut self, job: &Job, blocking: bool) {
        self.running_transfers.push(RunningTransfer {
            token: job.token,
            interest: interest(&job.raw),
            blocking,
            cancelled: false,
        });
    }

    /// Removes that record; returns true if the transfer was cancelled meanwhile.
    pub fn unmark_running(&mut self, token: Token) -> bool {
        let Some(at) = self.running_transfers.iter().position(|transfer| transfer.token == token)
        else {
            return false;
        };
        let transfer = self.running_transfers.swap_remove(at);
        if transfer.blocking {
            self.wake();
        }
        transfer.cancelled
    }

    /// Cancels a waiting job; returns true if it has ended and the caller must push its event. For
    /// a job that poll(2) may be using, the watcher pushes the event, once it has stopped using the
    /// file.
    pub fn cancel(&mut self, token: Token) -> bool {
        let alarm = Alarm::Timeout(slot_and_piece(token));
        if let Some((at, _)) = self.due.get(&alarm).copied().filter(|(_, other)| *other == token) {
            self.due.remove(&alarm);
            return self.alarms.remove(&(at, alarm));
        }
        if let Some(waiting) =
            self.waiting.values_mut().flatten().find(|waiting| waiting.job.token == token)
        {
            waiting.cancelled = true;
            self.cancelled = true;
            self.wake();
        } else if let Some(transfer) =
            self.running_transfers.iter_mut().find(|transfer| transfer.token == token)
        {
            transfer.cancelled = true;
        }
        false
    }

    /// The numbers of the eventfd that wakes the thread.
    pub fn wake_numbers(&self) -> Numbers {
        self.wake.numbers()
    }

    /// Makes what the thread needs, before it is started.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.wake.get_or_make().map(drop)
    }

    /// Wakes the thread, if it sleeps.
    pub fn wake(&mut self) {
        if let Some(wake) = self.wake.get().filter(|_| self.asleep) {
            wake.signal();
            self.asleep = false;
        }
    }

    /// Closes the eventfd. No thread may be in poll(2), nor begin it.
    pub fn close_wake(&mut self) {
        self.wake.close();
    }

    /// True while a worker makes a blocking call on the stream.
    fn in_use(&self, interest: Interest) -> bool {
        self.running_transfers
            .iter()
            .any(|transfer| transfer.blocking && transfer.interest == interest)
    }
}

/// The time after `duration`; if the clock cannot express it, a time that is never reached.
fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

impl PoolState {
    /// Pushes the events that are due, and those of cancelled jobs.
    fn push_due_events(&mut self, deferred: &mut Deferred) {
        let now = Instant::now();
        if self.watch.lane_check.take_if(|at| *at <= now).is_some() {
            self.replace_hung(deferred);
        }
        while let Some((at, alarm)) =
            self.watch.alarms.first().copied().filter(|(at, _)| *at <= now)
        {
            self.watch.alarms.remove(&(at, alarm));
            let Some((_, token)) = self.watch.due.remove(&alarm) else { continue };
            let kind = match alarm {
                Alarm::Timer(_) => EventKind::TimerExpired,
                Alarm::Timeout(_) => EventKind::Result(0),
            };
            self.push_event(token, kind, deferred);
        }
        if std::mem::take(&mut self.watch.cancelled) {
            let mut cancelled = Vec::new();
            self.watch.waiting.retain(|_, waiting| {
                cancelled.extend(
                    waiting
                        .extract_if(.., |waiting| waiting.cancelled)
                        .map(|waiting| waiting.job.token),
                );
                !waiting.is_empty()
            });
            for token in cancelled {
                self.push_event(token, CANCELED, deferred);
            }
        }
    }
}

/// The descriptors to poll, reused from one poll to the next.
#[derive(Default)]
pub(super) struct PollSet {
    polls: Vec<libc::pollfd>,
    tries: Vec<Waiting>,
    /// poll(2) failed: pause before the next one.
    back_off: bool,
    /// A signal ended the last poll(2).
    interrupted: bool,
}

impl PollSet {
    /// The eventfd that wakes the thread comes first. Each descriptor is listed once, with the
    /// events of all who wait for it, so that there are no more than poll(2) accepts
    /// (`RLIMIT_NOFILE`).
    fn fill(&mut self, watch: &Watch) {
        self.polls.clear();
        let wake = watch.wake.get().map_or(-1, Number::number);
        self.polls.push(libc::pollfd { fd: wake, events: libc::POLLIN, revents: 0 });
        if !self.back_off {
            // (Sorted by descriptor.)
            let is_polled = |interest: &&Interest| {
                !watch.in_use(**interest) && !watch.resting.contains_key(*interest)
            };
            for &(fd, events) in watch.waiting.keys().filter(is_polled) {
                match self.polls[1..].last_mut() {
                    Some(last) if last.fd == fd => last.events |= events,
                    _ => self.polls.push(libc::pollfd { fd, events, revents: 0 }),
                }
            }
        }
    }

    /// Waits until a descriptor is ready; returns true if one is.
    fn wait(&mut self, limit: Option<Duration>) -> bool {
        let backed_off = self.back_off;
        let limit = if backed_off {
            Some(limit.map_or(BACK_OFF, |limit| limit.min(BACK_OFF)))
        } else {
            limit
        };
        let limit = limit.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.polls.len() as libc::nfds_t;
        // SAFETY: the entries and the timespec live during the call; no signal mask.
        let ready = unsafe { libc::ppoll(self.polls.as_mut_ptr(), count, limit, std::ptr::null()) };
        self.interrupted =
            ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        self.back_off = ready < 0 && !self.interrupted;
        if self.back_off && backed_off {
            // Even one descriptor is refused: the limit is 0.
            std::thread::sleep(BACK_OFF);
        }
        ready > 0
    }

    /// True if a signal ended the last poll; once for each poll.
    pub fn take_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
    }

    /// Tries the transfers that are ready. After the first one of a descriptor that is not ready,
    /// the others with the same events are not tried.
    fn make_tries(&mut self, calls: &mut u64) -> Vec<(Waiting, TaskResult)> {
        let mut empty = None;
        self.tries
            .drain(..)
            .map(|waiting| {
                let interest = Some(interest(&waiting.job.raw));
                let tried = if interest == empty {
                    TryResult::NotReady
                } else {
                    nowait::try_nowait(&waiting.job.raw, calls)
                };
                let result = match tried {
                    TryResult::Done(result) => TaskResult::Done(result),
                    TryResult::NotReady => TaskResult::Wait { nowait: true },
                    TryResult::Unsupported => TaskResult::Wait { nowait: false },
                };
                if tried == TryResult::NotReady {
                    empty = interest;
                }
                (waiting, result)
            })
            .collect()
    }
}

/// The streams of which none of these tries found that they are ready.
fn falsely_ready(tries: &[(Waiting, TaskResult)]) -> BTreeSet<Interest> {
    let is_ready =
        |(_, result): &&(Waiting, TaskResult)| !matches!(result, TaskResult::Wait { nowait: true });
    let interest = |(waiting, _): &(Waiting, TaskResult)| interest(&waiting.job.raw);
    let ready: BTreeSet<_> = tries.iter().filter(is_ready).map(interest).collect();
    tries.iter().map(interest).filter(|interest| !ready.contains(interest)).collect()
}

/// Polls once for everything, for at most `limit`, and handles what is ready.
///
/// Wakeups that this causes are left in `deferred`.
pub(super) fn poll_once<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, PoolState>,
    poll_set: &mut PollSet,
    limit: Option<Duration>,
    deferred: &mut Deferred,
) -> MutexGuard<'a, PoolState> {
    let now = Instant::now();
    state.watch.resting.retain(|_, until| now < *until);
    poll_set.fill(&state.watch);
    let next = state
        .watch
        .alarms
        .first()
        .map(|(at, _)| *at)
        .into_iter()
        .chain(state.watch.lane_check)
        .chain(state.watch.resting.values().copied())
        .min();
    let limit = if state.watch.cancelled { Some(Duration::ZERO) } else { limit };
    state.watch.asleep = true;
    state.watch.polling = true;
    state.watch.until = next;
    drop(state);

    run_deferred(shared, deferred);
    let ready = poll_set.wait([limit, left(next)].into_iter().flatten().min());

    state = shared.lock();
    state.watch.asleep = false;
    state.watch.polling = false;
    state.calls += 1;
    if state.closed {
        shared.watcher_left_poll();
        return state;
    }
    if ready {
        state = handle_ready(shared, state, poll_set, deferred);
    }
    state.push_due_events(deferred);
    state
}

/// Completes, tries or passes to a worker what is ready.
fn handle_ready<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, PoolState>,
    poll_set: &mut PollSet,
    deferred: &mut Deferred,
) -> MutexGuard<'a, PoolState> {
    if poll_set.polls[0].revents != 0 {
        state.calls += 1;
        if let Some(wake) = state.watch.wake.get() {
            wake.drain();
        }
    }
    for poll in poll_set.polls[1..].iter().filter(|poll| poll.revents != 0) {
        take_ready(&mut state, poll, &mut poll_set.tries, deferred);
    }
    if !poll_set.tries.is_empty() {
        drop(state);
        let mut calls = 0;
        let results = poll_set.make_tries(&mut calls);
        state = shared.lock();
        state.calls += calls;
        for interest in falsely_ready(&results) {
            state.watch.rest(interest);
        }
        for (waiting, result) in results {
            state.settle(&waiting.job, result, deferred);
        }
    }
    state
}

/// Handles a ready descriptor: completes polls, and collects transfers to be tried here or passes
/// them to a worker.
fn take_ready(
    state: &mut PoolState,
    poll: &libc::pollfd,
    tries: &mut Vec<Waiting>,
    deferred: &mut Deferred,
) {
    let of_descriptor = (poll.fd, i16::MIN)..=(poll.fd, i16::MAX);
    let interests: Vec<_> = state.watch.waiting.range(of_descriptor).map(|(key, _)| *key).collect();
    for interest in interests {
        let revents = poll.revents & (interest.1 | ALWAYS_REPORTED);
        if revents != 0 {
            take_ready_interest(state, interest, revents, tries, deferred);
        }
    }
}

/// Handles what waits for these events of a ready descriptor.
fn take_ready_interest(
    state: &mut PoolState,
    interest: Interest,
    revents: i16,
    tries: &mut Vec<Waiting>,
    deferred: &mut Deferred,
) {
    let mut stay = Vec::new();
    for waiting in state.watch.waiting.remove(&interest).into_iter().flatten() {
        let job = waiting.job;
        if matches!(job.raw, Raw::Poll(_)) {
            let result = match revents {
                revents if revents & libc::POLLNVAL != 0 => -i64::from(libc::EBADF),
                revents => i64::from(revents as u16),
            };
            state.push_event(job.token, EventKind::Result(result), deferred);
        } else if waiting.cancelled {
            stay.push(waiting);
        } else if waiting.nowait {
            state.start_try(&job);
            tries.push(waiting);
        } else if state.watch.in_use(interest) {
            stay.push(waiting);
        } else {
            state.watch.mark_running(&job, true);
            state.call_ready(job, deferred);
        }
    }
    if !stay.is_empty() {
        state.watch.waiting.insert(interest, stay);
    }
}

/// Runs the watcher, until there has been nothing to watch for the idle time.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut each = PollSet::default();
    let mut deferred = Deferred::default();
    let mut idle_since = None;
    let mut state = shared.lock();
    while !state.closed {
        idle_since = state.watch.is_idle().then(|| idle_since.unwrap_or_else(Instant::now));
        let limit = idle_since.map(|since| shared.idle.saturating_sub(since.elapsed()));
        if limit.is_some_and(|limit| limit.is_zero()) && !deferred.any() {
            break;
        }
        state = poll_once(shared, state, &mut each, limit, &mut deferred);
    }
    state.watch.running = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FileKind;
    use crate::op::{CURRENT_POSITION, Read, RwFlags};

    fn read(fd: RawFd) -> Job {
        let read = Read {
            fd,
            buf: std::ptr::null_mut(),
            len: 1,
            offset: CURRENT_POSITION,
            flags: RwFlags::NONE,
        };
        Job::new(Token(fd as u64), read.into(), FileKind::Stream, false)
    }

    #[test]
    fn a_stream_that_is_falsely_ready_delays_no_other() {
        let mut watch = Watch::default();
        watch.insert_falsely_ready(read(10));
        watch.insert(read(11), true);
        let mut polled = PollSet::default();
        polled.fill(&watch);
        let polled: Vec<RawFd> = polled.polls[1..].iter().map(|poll| poll.fd).collect();
        assert_eq!(polled, [11]);
    }

    /// Of several reads of a pipe, the first may take all bytes.
    #[test]
    fn a_stream_is_ready_if_one_call_finds_it_so() {
        let tried =
            |fd, result| (Waiting { job: read(fd), nowait: true, cancelled: false }, result);
        let not_ready = || TaskResult::Wait { nowait: true };
        let tries =
            [tried(10, TaskResult::Done(1)), tried(10, not_ready()), tried(11, not_ready())];
        assert_eq!(falsely_ready(&tries), BTreeSet::from([(11, libc::POLLIN)]));
    }
}
