//! What can wait for ever: polls, timeouts, timers and streams that are not ready. One thread waits
//! for all of it in `ppoll(2)`, so that none of it keeps a worker from its work.

use super::nowait::{self, TryResult};
use super::pool::{CANCELED, Deferred, Shared, State, TICK, TaskResult, run_deferred};
use crate::backend::{EventKind, Job};
use crate::op::Raw;
use crate::slots::Token;
use crate::sys::eventfd::{EventFd, left, timespec};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long the watcher rests when poll(2) says that a stream is ready and the call says that it is
/// not, so as not to ask again and again.
const BACK_OFF: Duration = Duration::from_millis(1);

/// Everything that is waited for.
#[derive(Default)]
pub(super) struct Watch {
    /// Polls, and transfers of streams, in the order in which they came.
    waiting: HashMap<Interest, Vec<Waiting>>,
    /// Timeouts and timers, by time; and when each of them is due.
    alarms: BTreeSet<(Instant, Alarm)>,
    due: HashMap<Alarm, (Instant, Token)>,
    /// When the lanes are looked at for calls that are stuck.
    lane_check: Option<Instant>,
    /// Transfers of streams that a thread is just trying or calling: they may come back.
    running_transfers: Vec<RunningTransfer>,
    /// There is a thread for it.
    pub running: bool,
    /// Wakes that thread.
    wake: Option<EventFd>,
    asleep: bool,
    /// When it wakes by itself.
    until: Option<Instant>,
    /// Some of what waits was cancelled.
    cancelled: bool,
}

/// What poll(2) is asked for: a descriptor, and `POLL*`.
type Interest = (RawFd, i16);

struct Waiting {
    job: Job,
    /// The file has the form of a call that does not wait.
    nowait: bool,
    cancelled: bool,
}

// SAFETY: as for a task of the pool: what the job points at may be used from any thread until its
// answer has come out of `enter`; whoever calls `Backend::carry` sees to that.
unsafe impl Send for Waiting {}

/// What becomes due. One for each slot and piece: setting it anew replaces what an earlier life of
/// the slot has left, so that there are never more than there are slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Alarm {
    /// A timer that the queue has set.
    Timer(u32),
    /// A timeout that is a job of its own.
    Timeout(u32),
}

struct RunningTransfer {
    token: Token,
    interest: Interest,
    /// It is a call that waits should the stream not be ready: nobody else may use up what it was
    /// called for.
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
        Raw::Write(_) | Raw::WriteDsync(_) | Raw::Writev(_) => libc::POLLOUT,
        _ => libc::POLLIN,
    };
    (raw.fd().unwrap_or(-1), events)
}

impl Watch {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.alarms.is_empty()
    }

    /// True when the thread is of no use.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.lane_check.is_none()
    }

    /// True while a timer or a timeout is set.
    pub fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// Jobs that wait here.
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

    /// Has the lanes looked at in a while, unless that is to be done already.
    pub fn schedule_lane_check(&mut self) {
        if self.lane_check.is_none() {
            let at = Instant::now() + TICK;
            self.lane_check = Some(at);
            if self.until.is_none_or(|until| at < until) {
                self.wake();
            }
        }
    }

    /// A thread tries or calls the transfer now.
    pub fn mark_running(&mut self, job: &Job, blocking: bool) {
        self.running_transfers.push(RunningTransfer {
            token: job.token,
            interest: interest(&job.raw),
            blocking,
            cancelled: false,
        });
    }

    /// It has come back; true when it was cancelled meanwhile.
    pub fn unmark_running(&mut self, token: Token) -> bool {
        let Some(at) = self
            .running_transfers
            .iter()
            .position(|running_transfers| running_transfers.token == token)
        else {
            return false;
        };
        let running_transfers = self.running_transfers.swap_remove(at);
        if running_transfers.blocking {
            self.wake();
        }
        running_transfers.cancelled
    }

    /// Cancels what waits; true when it is over already, and its answer is due. What poll(2) may be
    /// looking at is answered by the watcher, once it has let go of the file.
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
        } else if let Some(running_transfers) = self
            .running_transfers
            .iter_mut()
            .find(|running_transfers| running_transfers.token == token)
        {
            running_transfers.cancelled = true;
        }
        false
    }

    /// What the thread needs, made before it is started.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.wake.is_none() {
            self.wake = Some(EventFd::new()?);
        }
        Ok(())
    }

    /// Has the thread look again, if it sleeps.
    pub fn wake(&mut self) {
        if let Some(wake) = self.wake.as_ref().filter(|_| self.asleep) {
            wake.signal();
            self.asleep = false;
        }
    }

    /// True while a worker has been sent to use up what there is.
    fn in_use(&self, interest: Interest) -> bool {
        self.running_transfers.iter().any(|running_transfers| {
            running_transfers.blocking && running_transfers.interest == interest
        })
    }
}

/// A time so far away that it never comes stands for one that cannot be told.
fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

impl State {
    /// Answers what is due and what was cancelled.
    fn push_due_events(&mut self, deferred: &mut Deferred) {
        let now = Instant::now();
        if self.watch.lane_check.take_if(|at| *at <= now).is_some() {
            self.replace_stuck(deferred);
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

/// What one round of watching needs, kept from round to round.
#[derive(Default)]
pub(super) struct PollSet {
    polls: Vec<libc::pollfd>,
    tries: Vec<Waiting>,
    /// poll(2) failed, or said other than the calls.
    back_off: bool,
}

impl PollSet {
    /// The kicking eventfd comes first. Each descriptor stands there once for what is wanted of it,
    /// so that there are no more than poll(2) takes (`RLIMIT_NOFILE`).
    fn fill(&mut self, watch: &Watch) {
        self.polls.clear();
        let wake = watch.wake.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        self.polls.push(libc::pollfd { fd: wake, events: libc::POLLIN, revents: 0 });
        if !self.back_off {
            let interests = watch.waiting.keys().filter(|interest| !watch.in_use(**interest));
            self.polls.extend(interests.map(|(fd, events)| libc::pollfd {
                fd: *fd,
                events: *events,
                revents: 0,
            }));
        }
    }

    /// Waits until something is ready: true when something is.
    fn wait(&mut self, limit: Option<Duration>) -> bool {
        let limit = if self.back_off {
            Some(limit.map_or(BACK_OFF, |limit| limit.min(BACK_OFF)))
        } else {
            limit
        };
        let limit = limit.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.polls.len() as libc::nfds_t;
        // SAFETY: the entries and the time live for the length of the call; no signal mask.
        let ready = unsafe { libc::ppoll(self.polls.as_mut_ptr(), count, limit, std::ptr::null()) };
        self.back_off = ready < 0;
        ready > 0
    }

    /// Tries all that was ready, and stops at the first of those that want the same of one
    /// descriptor and do not get it.
    fn make_tries(&mut self, calls: &mut u64) -> Vec<(Waiting, TaskResult)> {
        let mut empty = None;
        let results: Vec<_> = self
            .tries
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
            .collect();
        self.back_off =
            results.iter().all(|(_, result)| matches!(result, TaskResult::Wait { nowait: true }));
        results
    }
}

/// Waits once for everything there is, no longer than `limit`, and sees to what is ready.
///
/// What is to be woken for it stands in `deferred` when it returns.
pub(super) fn poll_set<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    poll_set: &mut PollSet,
    limit: Option<Duration>,
    deferred: &mut Deferred,
) -> MutexGuard<'a, State> {
    poll_set.fill(&state.watch);
    let next = state
        .watch
        .alarms
        .first()
        .map(|(at, _)| *at)
        .into_iter()
        .chain(state.watch.lane_check)
        .min();
    let limit = if state.watch.cancelled { Some(Duration::ZERO) } else { limit };
    state.watch.asleep = true;
    state.watch.until = next;
    drop(state);

    run_deferred(shared, deferred);
    let ready = poll_set.wait([limit, left(next)].into_iter().flatten().min());

    state = shared.lock();
    state.watch.asleep = false;
    state.calls += 1;
    if state.closed {
        return state;
    }
    if ready {
        state = handle_ready(shared, state, poll_set, deferred);
    }
    state.push_due_events(deferred);
    state
}

/// What is ready is answered, tried or sent to a worker.
fn handle_ready<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    poll_set: &mut PollSet,
    deferred: &mut Deferred,
) -> MutexGuard<'a, State> {
    if poll_set.polls[0].revents != 0 {
        state.calls += 1;
        if let Some(wake) = &state.watch.wake {
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
        for (waiting, result) in results {
            state.settle(&waiting.job, result, deferred);
        }
    }
    state
}

/// A descriptor is ready: polls are answered, transfers are to be tried here or called by a worker.
fn take_ready(
    state: &mut State,
    poll: &libc::pollfd,
    tries: &mut Vec<Waiting>,
    deferred: &mut Deferred,
) {
    let interest = (poll.fd, poll.events);
    let mut stay = Vec::new();
    for waiting in state.watch.waiting.remove(&interest).into_iter().flatten() {
        let job = waiting.job;
        if matches!(job.raw, Raw::Poll(_)) {
            let result = match poll.revents {
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

/// The life of the watcher: it ends when there has been nothing to watch for a while.
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
        state = poll_set(shared, state, &mut each, limit, &mut deferred);
    }
    state.watch.running = false;
}
