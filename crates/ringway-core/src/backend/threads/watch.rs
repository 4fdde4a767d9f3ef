//! What can wait for ever: polls, timeouts, timers and streams that are not ready. One thread waits
//! for all of it in `ppoll(2)`, so that none of it keeps a worker from its work.

use super::nowait::{self, Try};
use super::pool::{CANCELED, Outcome, Shared, State, TICK, Wakes, carry_out};
use crate::backend::{Answer, Job};
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
const REST: Duration = Duration::from_millis(1);

/// Everything that is waited for.
#[derive(Default)]
pub(super) struct Watch {
    /// Polls, and transfers of streams, in the order in which they came.
    waiting: HashMap<Interest, Vec<Waiting>>,
    /// Timeouts and timers, by time; and when each of them is due.
    alarms: BTreeSet<(Instant, Alarm)>,
    due: HashMap<Alarm, (Instant, Token)>,
    /// When the lanes are looked at for calls that are stuck.
    look: Option<Instant>,
    /// Transfers of streams that a thread is just trying or calling: they may come back.
    lent: Vec<Lent>,
    /// There is a thread for it.
    pub running: bool,
    /// Wakes that thread.
    kick: Option<EventFd>,
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

struct Lent {
    token: Token,
    interest: Interest,
    /// It is a call that waits should the stream not be ready: nobody else may use up what it was
    /// called for.
    blocking: bool,
    cancelled: bool,
}

/// The slot and the piece of a token, without the generation.
fn place(token: Token) -> u32 {
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
        self.is_empty() && self.look.is_none()
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
                Alarm::Timeout(place(job.token)),
                after(timeout.duration),
                job.token,
            );
        }
        let waiting = Waiting { job, nowait, cancelled: false };
        self.waiting.entry(interest(&job.raw)).or_default().push(waiting);
        self.kick();
    }

    pub fn set_timer(&mut self, token: Token, at: Instant) {
        self.set_alarm(Alarm::Timer(place(token)), at, token);
    }

    fn set_alarm(&mut self, alarm: Alarm, at: Instant, token: Token) {
        if let Some((before, _)) = self.due.insert(alarm, (at, token)) {
            self.alarms.remove(&(before, alarm));
        }
        self.alarms.insert((at, alarm));
        if self.until.is_none_or(|until| at < until) {
            self.kick();
        }
    }

    /// Has the lanes looked at in a while, unless that is to be done already.
    pub fn look_at_lanes(&mut self) {
        if self.look.is_none() {
            let at = Instant::now() + TICK;
            self.look = Some(at);
            if self.until.is_none_or(|until| at < until) {
                self.kick();
            }
        }
    }

    /// A thread tries or calls the transfer now.
    pub fn lend(&mut self, job: &Job, blocking: bool) {
        self.lent.push(Lent {
            token: job.token,
            interest: interest(&job.raw),
            blocking,
            cancelled: false,
        });
    }

    /// It has come back; true when it was cancelled meanwhile.
    pub fn take_back(&mut self, token: Token) -> bool {
        let Some(at) = self.lent.iter().position(|lent| lent.token == token) else { return false };
        let lent = self.lent.swap_remove(at);
        if lent.blocking {
            self.kick();
        }
        lent.cancelled
    }

    /// Cancels what waits; true when it is over already, and its answer is due. What poll(2) may be
    /// looking at is answered by the watcher, once it has let go of the file.
    pub fn cancel(&mut self, token: Token) -> bool {
        let alarm = Alarm::Timeout(place(token));
        if let Some((at, _)) = self.due.get(&alarm).copied().filter(|(_, other)| *other == token) {
            self.due.remove(&alarm);
            return self.alarms.remove(&(at, alarm));
        }
        if let Some(waiting) =
            self.waiting.values_mut().flatten().find(|waiting| waiting.job.token == token)
        {
            waiting.cancelled = true;
            self.cancelled = true;
            self.kick();
        } else if let Some(lent) = self.lent.iter_mut().find(|lent| lent.token == token) {
            lent.cancelled = true;
        }
        false
    }

    /// What the thread needs, made before it is started.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.kick.is_none() {
            self.kick = Some(EventFd::new()?);
        }
        Ok(())
    }

    /// Has the thread look again, if it sleeps.
    pub fn kick(&mut self) {
        if let Some(kick) = self.kick.as_ref().filter(|_| self.asleep) {
            kick.signal();
            self.asleep = false;
        }
    }

    /// True while a worker has been sent to use up what there is.
    fn in_use(&self, interest: Interest) -> bool {
        self.lent.iter().any(|lent| lent.blocking && lent.interest == interest)
    }
}

/// A time so far away that it never comes stands for one that cannot be told.
fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

impl State {
    /// Answers what is due and what was cancelled.
    fn answer_due(&mut self, wakes: &mut Wakes) {
        let now = Instant::now();
        if self.watch.look.take_if(|at| *at <= now).is_some() {
            self.write_off_stuck(wakes);
        }
        while let Some((at, alarm)) =
            self.watch.alarms.first().copied().filter(|(at, _)| *at <= now)
        {
            self.watch.alarms.remove(&(at, alarm));
            let Some((_, token)) = self.watch.due.remove(&alarm) else { continue };
            let answer = match alarm {
                Alarm::Timer(_) => Answer::Expired,
                Alarm::Timeout(_) => Answer::Result(0),
            };
            self.answer(token, answer, wakes);
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
                self.answer(token, CANCELED, wakes);
            }
        }
    }
}

/// What one round of watching needs, kept from round to round.
#[derive(Default)]
pub(super) struct Round {
    polls: Vec<libc::pollfd>,
    tries: Vec<Waiting>,
    /// poll(2) failed, or said other than the calls.
    rest: bool,
}

impl Round {
    /// The kicking eventfd comes first. Each descriptor stands there once for what is wanted of it,
    /// so that there are no more than poll(2) takes (`RLIMIT_NOFILE`).
    fn fill(&mut self, watch: &Watch) {
        self.polls.clear();
        let kick = watch.kick.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        self.polls.push(libc::pollfd { fd: kick, events: libc::POLLIN, revents: 0 });
        if !self.rest {
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
        let limit =
            if self.rest { Some(limit.map_or(REST, |limit| limit.min(REST))) } else { limit };
        let limit = limit.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.polls.len() as libc::nfds_t;
        // SAFETY: the entries and the time live for the length of the call; no signal mask.
        let ready = unsafe { libc::ppoll(self.polls.as_mut_ptr(), count, limit, std::ptr::null()) };
        self.rest = ready < 0;
        ready > 0
    }

    /// Tries all that was ready, and stops at the first of those that want the same of one
    /// descriptor and do not get it.
    fn make_tries(&mut self, calls: &mut u64) -> Vec<(Waiting, Outcome)> {
        let mut empty = None;
        let outcomes: Vec<_> = self
            .tries
            .drain(..)
            .map(|waiting| {
                let interest = Some(interest(&waiting.job.raw));
                let tried = if interest == empty {
                    Try::NotReady
                } else {
                    nowait::attempt(&waiting.job.raw, calls)
                };
                let outcome = match tried {
                    Try::Done(result) => Outcome::Done(result),
                    Try::NotReady => Outcome::Wait { nowait: true },
                    Try::Unsupported => Outcome::Wait { nowait: false },
                };
                if tried == Try::NotReady {
                    empty = interest;
                }
                (waiting, outcome)
            })
            .collect();
        self.rest =
            outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Wait { nowait: true }));
        outcomes
    }
}

/// Waits once for everything there is, no longer than `limit`, and sees to what is ready.
///
/// What is to be woken for it stands in `wakes` when it returns.
pub(super) fn round<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    round: &mut Round,
    limit: Option<Duration>,
    wakes: &mut Wakes,
) -> MutexGuard<'a, State> {
    round.fill(&state.watch);
    let next =
        state.watch.alarms.first().map(|(at, _)| *at).into_iter().chain(state.watch.look).min();
    let limit = if state.watch.cancelled { Some(Duration::ZERO) } else { limit };
    state.watch.asleep = true;
    state.watch.until = next;
    drop(state);

    carry_out(shared, wakes);
    let ready = round.wait([limit, left(next)].into_iter().flatten().min());

    state = shared.lock();
    state.watch.asleep = false;
    state.calls += 1;
    if state.closed {
        return state;
    }
    if ready {
        state = see_to_ready(shared, state, round, wakes);
    }
    state.answer_due(wakes);
    state
}

/// What is ready is answered, tried or sent to a worker.
fn see_to_ready<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    round: &mut Round,
    wakes: &mut Wakes,
) -> MutexGuard<'a, State> {
    if round.polls[0].revents != 0 {
        state.calls += 1;
        if let Some(kick) = &state.watch.kick {
            kick.drain();
        }
    }
    for poll in round.polls[1..].iter().filter(|poll| poll.revents != 0) {
        take_ready(&mut state, poll, &mut round.tries, wakes);
    }
    if !round.tries.is_empty() {
        drop(state);
        let mut calls = 0;
        let outcomes = round.make_tries(&mut calls);
        state = shared.lock();
        state.calls += calls;
        for (waiting, outcome) in outcomes {
            state.settle(&waiting.job, outcome, wakes);
        }
    }
    state
}

/// A descriptor is ready: polls are answered, transfers are to be tried here or called by a worker.
fn take_ready(state: &mut State, poll: &libc::pollfd, tries: &mut Vec<Waiting>, wakes: &mut Wakes) {
    let interest = (poll.fd, poll.events);
    let mut stay = Vec::new();
    for waiting in state.watch.waiting.remove(&interest).into_iter().flatten() {
        let job = waiting.job;
        if matches!(job.raw, Raw::Poll(_)) {
            let result = match poll.revents {
                revents if revents & libc::POLLNVAL != 0 => -i64::from(libc::EBADF),
                revents => i64::from(revents as u16),
            };
            state.answer(job.token, Answer::Result(result), wakes);
        } else if waiting.cancelled {
            stay.push(waiting);
        } else if waiting.nowait {
            state.take_to_try(&job);
            tries.push(waiting);
        } else if state.watch.in_use(interest) {
            stay.push(waiting);
        } else {
            state.watch.lend(&job, true);
            state.call_ready(job, wakes);
        }
    }
    if !stay.is_empty() {
        state.watch.waiting.insert(interest, stay);
    }
}

/// The life of the watcher: it ends when there has been nothing to watch for a while.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut each = Round::default();
    let mut wakes = Wakes::default();
    let mut idle_since = None;
    let mut state = shared.lock();
    while !state.closed {
        idle_since = state.watch.is_idle().then(|| idle_since.unwrap_or_else(Instant::now));
        let limit = idle_since.map(|since| shared.idle.saturating_sub(since.elapsed()));
        if limit.is_some_and(|limit| limit.is_zero()) && !wakes.any() {
            break;
        }
        state = round(shared, state, &mut each, limit, &mut wakes);
    }
    state.watch.running = false;
}
