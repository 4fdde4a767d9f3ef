//! A shard: one queue, and who moves it along.
//!
//! A future puts its operations into slots of the shard's table, under a lock held for a moment,
//! and finds their results there. When it is time ([`Pacer`]), whoever is there becomes the
//! [combiner](super::combiner): it submits what is pending, takes what has completed, marks it in
//! the slots, and wakes the futures outside all locks. Nobody waits for a thread that is in the
//! kernel.

use super::combiner::Combiner;
use super::limiter::Limiter;
use super::pacing::{CopyWork, Pacer};
use super::reactor::manual::Notifier;
use super::reactor::{Executor, Reactors};
use super::stats::Recorder;
use super::submission::{LANES, Lane, Pending, Schedule, Waiter};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use ringway_core::{
    BackendKind, Backends, Completion, Counts, Explanation, GivenUp, OpId, Operation, Options,
    Reason,
};
use ringway_core::{Orphan, Table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Rooms of the lanes whose operations end by themselves, mostly.
const CALLS: u32 = 1024;
const OPENS: u32 = 1024;
/// Some for each thread that there is for them.
const CLOSURES: u32 = 64;
/// On uring each sync has a kernel thread while it waits, of those that opens need too: fewer than
/// there may be.
pub(super) const SYNCS: u32 = 16;

/// The most operations of a kind that are written off because they hang: transfers of storage,
/// syncs, closures. Each may keep a thread.
const MAX_STUCK: u32 = 1024;
/// When no sync, or no closure, has completed for so long, those that are older are stuck.
const SYNCS_STUCK_AFTER: Duration = Duration::from_millis(250);
const CLOSURES_STUCK_AFTER: Duration = Duration::from_millis(500);

/// So long a backend that has failed for good is waited for, in all.
const FAILED: Duration = Duration::from_secs(1);
/// A backend that has no memory for so long has failed for good.
const NO_MEMORY: Duration = Duration::from_secs(10);

/// Of how many pushes one's time is recorded: looking at the clock for each would be seen in the
/// figures.
const SAMPLE: u64 = 8;

/// The most operations that one round submits: as many as a submission queue has entries for, by
/// default.
const MAX_SUBMITTED: usize = 128;

pub(crate) struct Shard {
    state: Mutex<State>,
    /// The combiner's.
    ring: Mutex<Ring>,
    pub(super) combiner: Combiner,
    /// Readable when there may be something to reap.
    readable: OwnedFd,
    /// The backend has failed for good.
    failed: AtomicBool,
    pub(super) notifier: Arc<Notifier>,
}

/// What became of one operation.
pub(crate) type OpResult = Result<Completion, Box<Refused>>;

/// An operation that was not taken, with the buffer that it owned.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) operation: Operation,
}

/// What became of all operations of one future, in their order.
pub(crate) type OpResults = SmallVec<[OpResult; 1]>;

/// The operations of one future, each in its slot, or refused.
pub(crate) type Group = SmallVec<[Result<OpId, Box<Refused>>; 1]>;

/// What the reaper has seen of a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    rounds: u64,
    pickups: u64,
    looks: u64,
    /// Of transfers of storage.
    pub(super) moves: u64,
}

/// How a shard does, as the reaper finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing has happened, and there is nothing to do.
    Idle,
    /// Somebody moves it.
    Moving,
    /// Operations wait for room that others do not leave: some of those may be written off before
    /// long.
    Waiting,
    /// There is something to do, and nobody has come.
    Late,
}

/// Futures that were woken and have not looked for their results. Each will have something to
/// submit, mostly, so it is worth waiting for them; but one may be forgotten, or its worker may
/// compute. Then the reaper comes, and nobody waits any more.
#[derive(Debug, Default)]
struct WokenFutures {
    count: usize,
    /// Where the latest of them was polled. They are nothing to those polled elsewhere, whose
    /// runtime may be quicker.
    executor: Executor,
    /// Counts how often they were forgotten.
    epoch: u32,
    /// Counts those that have looked.
    looks: u64,
}

impl WokenFutures {
    /// What a future has to show that was polled there, and that is to be woken.
    fn next_epoch(&mut self, executor: Executor) -> u32 {
        self.executor = executor;
        self.epoch + 1
    }

    /// One has looked, or has gone.
    fn looked(&mut self, wake_epoch: u32) {
        if wake_epoch == self.epoch + 1 {
            self.count = self.count.saturating_sub(1);
            self.looks += 1;
        }
    }

    /// Nobody waits for those that are left.
    fn forget(&mut self) {
        (self.count, self.epoch) = (0, self.epoch.wrapping_add(1) & i32::MAX as u32);
    }

    /// Those that may concern a future that is polled there.
    fn at(&self, executor: Executor) -> usize {
        if self.executor == executor { self.count } else { 0 }
    }
}

/// What an operation that could be submitted waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// Futures that were woken, and that will have more to submit.
    Woken,
    /// As many as make a group, or completions.
    Batch,
    /// Completions, or that what hangs is written off.
    Capacity,
}

/// What futures touch, and the combiner between its system calls.
pub(crate) struct State {
    table: Table<Waiter>,
    /// Those whose turn comes when a group has gathered, and when there is room.
    paced: Pending,
    /// Those whose turn is now, by their [`Lane`].
    lanes: [LaneQueue; LANES.len()],
    /// Operations in all of these.
    in_lanes: usize,
    /// Operations whose futures have gone, to be cancelled.
    cancels: Vec<OpId>,
    pace: Pacer,
    /// Everything is to be submitted that there is room for.
    flush: bool,
    /// The thread that submits copies what goes through the page cache, so one submission takes
    /// only so much of that.
    submitter_copies: bool,
    /// The reactors' business.
    reactors: Reactors,
    /// Futures that were woken and have not looked for their results.
    woken: WokenFutures,
    /// Futures that the last of those wakes, or a reaper: a task that woke them one by one would
    /// have a worker of its runtime woken for each.
    deferred_wakers: Vec<Waker>,
    /// How often the shard has been moved along.
    rounds: u64,
    /// How often completions were picked up.
    pickups: u64,
}

/// A lane's operations whose turn is now.
struct LaneQueue {
    pending: Pending,
    limiter: Limiter,
}

/// What belongs to the combiner.
pub(super) struct Ring {
    backends: Backends,
    recorder: Recorder,
    /// Since when the backend fails.
    failing: Option<Instant>,
}

/// What the rounds of a combiner leave to be done without a lock, and what a round came to.
#[derive(Default)]
pub(super) struct RoundOutput {
    /// There is already reason for another.
    pub(super) more: bool,
    /// This thread has copied enough: another one makes the next round.
    pub(super) hand_over: bool,
    /// Operations submitted.
    pub(super) submitted: usize,
    pub(super) wakers: Vec<Waker>,
    /// To be dropped.
    orphans: Vec<Orphan<Waiter>>,
    /// To be closed.
    closing: Vec<OwnedFd>,
}

/// The one operation of the future that combines, and where its completion goes.
pub(super) struct Own<'a> {
    pub(super) id: OpId,
    pub(super) completion: &'a mut Option<Completion>,
}

/// What a push came to.
pub(crate) struct Pushed {
    pub(crate) group: Group,
    /// It may be worth a look at the results.
    pub(crate) may_be_done: bool,
    /// The runtime that polls the future, if its I/O driver is still to be asked to pick up
    /// completions.
    #[cfg(feature = "tokio")]
    pub(crate) unregistered: Option<tokio::runtime::Id>,
}

impl Shard {
    /// A shard of which at most `paced` transfers of storage, and `waiting` operations that may
    /// wait for ever, are in flight. `notifier` is rung for the reaper.
    ///
    /// Blocks for some system calls, as [`Options::build`] does.
    pub(crate) fn new(
        options: &Options,
        paced: u32,
        waiting: u32,
        notifier: Arc<Notifier>,
    ) -> io::Result<Self> {
        let limit = |lane| match lane {
            Lane::Call => CALLS,
            Lane::Open => OPENS,
            Lane::Sync => SYNCS,
            Lane::Wait => waiting,
            Lane::Closure => CLOSURES,
        };
        let excludes_stuck = |lane| match lane {
            Lane::Sync => Some(SYNCS_STUCK_AFTER),
            Lane::Closure => Some(CLOSURES_STUCK_AFTER),
            Lane::Call | Lane::Open | Lane::Wait => None,
        };
        let lane = |lane| {
            let all = Limiter::new(limit(lane) as usize);
            let limiter = match excludes_stuck(lane) {
                Some(stalled) => all.exclude_stuck_after(stalled, MAX_STUCK as usize),
                None => all,
            };
            LaneQueue { pending: Pending::default(), limiter }
        };
        // Each sync may have a write before it, and transfers, syncs, their writes and closures may
        // be stuck.
        let besides = paced.saturating_add(SYNCS).saturating_add(4 * MAX_STUCK);
        let in_all = LANES.into_iter().map(limit).fold(besides, u32::saturating_add);
        // Closing is the engine's business, which waits.
        let options = options.clone().in_flight(in_all).close_wait(Duration::ZERO);
        let (mut table, mut backends) = options.build_halves()?;
        let readable = match backends.poll_fd().and_then(|fd| fd.try_clone_to_owned()) {
            Ok(readable) => readable,
            Err(error) => {
                table.shut_down(&mut backends, Duration::ZERO);
                return Err(error);
            }
        };
        Ok(Self {
            state: Mutex::new(State {
                table,
                paced: Pending::default(),
                lanes: LANES.map(lane),
                in_lanes: 0,
                cancels: Vec::new(),
                pace: Pacer::new(paced as usize, MAX_STUCK as usize),
                flush: false,
                submitter_copies: backends.kind() == BackendKind::Uring,
                reactors: Reactors::default(),
                woken: WokenFutures::default(),
                deferred_wakers: Vec::new(),
                rounds: 0,
                pickups: 0,
            }),
            ring: Mutex::new(Ring { backends, recorder: Recorder::new(), failing: None }),
            combiner: Combiner::new(),
            readable,
            failed: AtomicBool::new(false),
            notifier,
        })
    }

    /// Takes operations in for a future that is polled at `place`, and submits them if it is time.
    #[inline]
    pub(crate) fn push(
        &self,
        schedule: Schedule,
        executor: Executor,
        waker: &Waker,
        operations: impl Iterator<Item = Operation>,
        own: &mut Option<Completion>,
    ) -> Pushed {
        let mut state = self.state();
        let (group, lead) = state.insert(schedule, executor, operations);
        let mut pushed = Pushed {
            group,
            may_be_done: lead.is_none(),
            #[cfg(feature = "tokio")]
            unregistered: state.reactors.register(executor),
        };
        state.reactors.note_waiter(executor);
        let Some(lead) = lead else { return pushed };
        let is_due = state.is_due(executor);
        match if is_due { self.combiner.try_lock() } else { None } {
            Some(guard) => {
                let own = (pushed.group.len() == 1).then_some(Own { id: lead, completion: own });
                self.combine(guard, Some(state), executor, own, true);
                pushed.may_be_done = true;
            }
            None => {
                // (If it is due, whoever combines goes round again.)
                state.set_waker(lead, waker);
                let holds_back = !is_due && state.holds_back();
                drop(state);
                if holds_back {
                    self.notifier.notify_if_asleep();
                }
            }
        }
        pushed
    }

    /// Half of a lane's room, or more, is taken.
    pub(crate) fn is_half_used(&self, lane: Lane) -> bool {
        self.state().lanes[lane as usize].limiter.is_half_used()
    }

    /// The results of all of a group, in their order, if all are there; else the waker is kept. The
    /// last future of those that were woken submits what the others have left.
    pub(crate) fn take(
        &self,
        group: &mut Group,
        executor: Executor,
        waker: &Waker,
    ) -> Option<OpResults> {
        let mut state = self.state();
        let (taken, before) = state.take(group, waker);
        let mut wakers = Vec::new();
        state.wake_if_last(&mut wakers);
        let is_due = taken.is_some() && state.paced.len() > 0 && state.is_due(executor);
        drop(state);
        // Without the lock: it may own anything.
        drop(before);
        wake_all(&mut wakers);
        if is_due && let Some(guard) = self.combiner.try_lock() {
            self.combine(guard, None, executor, None, true);
        }
        taken
    }

    /// A future has gone: what has not been started is dropped, what has is cancelled.
    pub(crate) fn give_up(&self, group: &Group) {
        let mut given_up = SmallVec::<[GivenUp<Waiter>; 1]>::new();
        let mut wakers = Vec::new();
        let cancels = {
            let mut state = self.state();
            group.iter().flatten().for_each(|id| given_up.extend(state.give_up(*id)));
            state.wake_if_last(&mut wakers);
            !state.cancels.is_empty()
        };
        wake_all(&mut wakers);
        for one in given_up {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(one)));
        }
        if cancels {
            self.drive(Executor::Manual);
        }
    }

    /// Moves the shard along, if nobody is at it; else whoever is does it again. How many futures
    /// were woken.
    pub(crate) fn drive(&self, executor: Executor) -> usize {
        self.combiner.try_lock().map_or(0, |guard| self.combine(guard, None, executor, None, false))
    }

    /// Submits all that there is room for and takes what has completed, whatever the pace, and
    /// whoever was woken. How many futures were woken.
    pub(crate) fn flush(&self) -> usize {
        {
            let mut state = self.state();
            state.woken.forget();
            state.flush = true;
        }
        self.drive(Executor::Manual)
    }

    /// As [`flush`](Self::flush), after operations that hang have been written off.
    pub(crate) fn flush_without_stuck(&self) -> usize {
        self.state().exclude_stuck(Instant::now());
        self.flush()
    }

    /// One round of the combiner: submits, and takes what has completed.
    pub(super) fn round(
        &self,
        state: Option<MutexGuard<'_, State>>,
        executor: Executor,
        own: &mut Option<Own<'_>>,
        by_task: bool,
        round: &mut RoundOutput,
    ) {
        // Only the combiner has both locks at a time.
        let mut ring = lock(&self.ring);
        let ring = &mut *ring;
        let mut state = state.unwrap_or_else(|| self.state());
        state.rounds += 1;
        let begun = Instant::now();
        let (submitted, copied_enough) = state.submit(&mut ring.backends, executor, begun);
        round.submitted += submitted;
        round.hand_over = copied_enough;
        ring.recorder.batch(submitted);
        let mut failing = false;
        let mut state = loop {
            drop(state);
            let submitted = ring.backends.submit();
            state = self.state();
            let moved = state.table.sort_out(&mut ring.backends);
            match submitted {
                Ok(()) => ring.failing = None,
                Err(error) => {
                    drop(state);
                    ring.recorder.failures += 1;
                    failing = !ring.is_fatal(&error);
                    if !failing {
                        self.fail(ring, &error);
                    }
                    break self.state();
                }
            }
            // A retry, the next piece, the next of a chain.
            if !moved || !state.table.has_pending() {
                break state;
            }
            state.table.carry(&mut ring.backends);
        };
        if self.has_failed() {
            round.wakers.extend(state.reactors.close());
        }
        state.deliver(&mut ring.recorder, own, begun, round);
        if !by_task || state.woken.at(executor) == 0 {
            state.wake_deferred(&mut round.wakers);
        }
        // No memory, say: the next round is the reaper's.
        round.hand_over |= failing;
        round.more =
            round.hand_over || state.flush || state.is_due(executor) || !state.cancels.is_empty();
        let holds_back = state.holds_back();
        drop(state);
        if holds_back {
            self.notifier.notify_if_asleep();
        }
    }

    /// The backend has failed for good: answers all that is in flight, and takes no more.
    fn fail(&self, ring: &mut Ring, error: &io::Error) {
        self.cancel_and_wait(ring, FAILED);
        let mut state = self.state();
        state.table.fail(&mut ring.backends, error);
        state.woken.forget();
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Cancels all that is in flight and waits for it, at most for `wait`; futures can look for
    /// their results meanwhile.
    fn cancel_and_wait(&self, ring: &mut Ring, wait: Duration) {
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        self.state().table.begin_close(&mut ring.backends);
        while self.state().table.goes_on_closing(&mut ring.backends, until) {
            let waited = ring.backends.wait(until);
            self.state().table.waited(&mut ring.backends, waited, until);
        }
    }

    /// Its backend has failed for good: nothing is in flight, and nothing is taken any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Something waits that only a task of a runtime, or the thread, will see to.
    pub(crate) fn holds_back(&self) -> bool {
        self.state().holds_back()
    }

    /// What there is to be seen of it, to compare with later.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let (rounds, pickups) = (state.rounds, state.pickups);
        Snapshot { looks: state.woken.looks, moves: state.pace.moves(), rounds, pickups }
    }

    /// What has become of it since it was seen. Writes off what hangs while others wait.
    pub(crate) fn progress(&self, before: Snapshot) -> Progress {
        let now = self.snapshot();
        let (waits_for, has_room) = {
            let mut state = self.state();
            (state.waits_for(), state.exclude_stuck(Instant::now()))
        };
        match waits_for {
            _ if has_room => Progress::Late,
            Some(WaitsFor::Woken) if now.looks == before.looks => Progress::Late,
            Some(WaitsFor::Batch) if now.moves == before.moves => Progress::Late,
            Some(WaitsFor::Woken | WaitsFor::Batch) => Progress::Moving,
            // To submit is not to pick up: tasks may do that while nobody looks at what completes.
            _ if now.pickups == before.pickups && !self.has_failed() && self.is_readable() => {
                Progress::Late
            }
            _ if now.rounds != before.rounds => Progress::Moving,
            Some(WaitsFor::Capacity) => Progress::Waiting,
            None => Progress::Idle,
        }
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Futures are polled that nobody but the thread picks up completions for.
    pub(crate) fn needs_thread(&self) -> bool {
        self.state().reactors.thread
    }

    /// Readable when there may be something to reap.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Who picks up completions, to be changed.
    pub(crate) fn reactors<R>(&self, change: impl FnOnce(&mut Reactors) -> R) -> R {
        change(&mut self.state().reactors)
    }

    /// With nothing in flight, the thread need not be quick.
    pub(crate) fn rest_if_idle(&self) {
        let mut state = self.state();
        if state.table.in_flight() == 0 {
            state.reactors.thread = false;
        }
    }

    /// Cancels what is in flight and waits for it, at most for `wait`; what is left then is leaked.
    /// Whoever picks up completions need not come again.
    pub(crate) fn close(&self, wait: Duration) {
        // Who comes meanwhile finds it taken and goes on, rather than wait.
        let guard = loop {
            match self.combiner.try_lock() {
                Some(guard) => break guard,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.cancel_and_wait(&mut lock(&self.ring), wait);
        drop(guard);
        self.flush();
        self.reactors(Reactors::close).into_iter().for_each(Waker::wake);
    }

    /// Operations counted; and how many of those in flight have not been started.
    pub(crate) fn counts(&self) -> (Counts, usize) {
        let state = self.state();
        (state.table.counts(), state.paced.len() + state.in_lanes)
    }

    /// What the queue has done, and what was recorded of it.
    pub(crate) fn with_stats<R>(
        &self,
        look: impl FnOnce(ringway_core::QueueStats, &Recorder) -> R,
    ) -> R {
        // One lock after the other: a combiner takes the ring's while it holds the state's.
        let stats = self.state().table.stats();
        let ring = lock(&self.ring);
        look(
            ringway_core::QueueStats { system_calls: ring.backends.system_calls(), ..stats },
            &ring.recorder,
        )
    }

    /// The queue's own explanation.
    pub(crate) fn explain(&self) -> Explanation {
        lock(&self.ring).backends.explain()
    }

    /// Registers an arena's memory with the ring; a refusal is in the explanation.
    pub(crate) fn register(&self, arena: &ringway_core::Arena) {
        let _ = lock(&self.ring).backends.register_arena(arena);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ring = self.ring.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Closing is the engine's business, which waits.
        state.table.shut_down(&mut ring.backends, Duration::ZERO);
    }
}

impl State {
    /// Puts a future's operations into slots, and at the end of their list. The lead is the first
    /// that was not refused.
    #[inline]
    fn insert(
        &mut self,
        schedule: Schedule,
        executor: Executor,
        operations: impl Iterator<Item = Operation>,
    ) -> (Group, Option<OpId>) {
        let begun = self.table.counts().pushed.is_multiple_of(SAMPLE).then(Instant::now);
        let mut group = Group::new();
        let mut lead = None;
        for operation in operations {
            match self.table.insert(operation, Waiter::new(schedule, executor, lead, begun)) {
                Ok(id) => {
                    match schedule {
                        Schedule::Paced => self.paced.push(&mut self.table, id),
                        Schedule::Immediate(lane) => {
                            self.lanes[lane as usize].pending.push(&mut self.table, id);
                            self.in_lanes += 1;
                        }
                    }
                    let lead = *lead.get_or_insert(id);
                    self.table.attachment(lead).into_iter().for_each(|lead| lead.remaining += 1);
                    group.push(Ok(id));
                }
                Err((reason, operation)) => {
                    group.push(Err(Box::new(Refused { reason, operation })))
                }
            }
        }
        (group, lead)
    }

    /// Keeps a group's waker, unless it has one that wakes the same task. Gives back what is to be
    /// dropped without the lock.
    fn set_waker(&mut self, lead: OpId, waker: &Waker) -> Option<Waker> {
        match &mut self.table.attachment(lead)?.waker {
            Some(kept) if kept.will_wake(waker) => None,
            kept => kept.replace(waker.clone()),
        }
    }

    /// As [`Shard::take`]; with a waker that is to be dropped without the lock.
    fn take(&mut self, group: &mut Group, waker: &Waker) -> (Option<OpResults>, Option<Waker>) {
        let lead = group.iter().find_map(|one| one.as_ref().ok().copied());
        if let Some(lead) = lead
            && let Some(waiter) = self.table.attachment(lead)
        {
            if waiter.remaining > 0 {
                return (None, self.set_waker(lead, waker));
            }
            self.woken.looked(waiter.wake_epoch);
        }
        let table = &mut self.table;
        let taken = group.drain(..).filter_map(|one| match one {
            Ok(id) => table.take(id).map(Ok),
            Err(refused) => Some(Err(refused)),
        });
        (Some(taken.collect()), None)
    }

    /// A future has gone. What is returned is to be dropped without the lock.
    fn give_up(&mut self, id: OpId) -> Option<GivenUp<Waiter>> {
        if let Some((true, schedule)) =
            self.table.is_new(id).zip(self.table.attachment(id).map(|waiter| waiter.schedule))
        {
            match schedule {
                Schedule::Paced => self.paced.remove(&mut self.table, id),
                Schedule::Immediate(lane) => {
                    self.lanes[lane as usize].pending.remove(&mut self.table, id);
                    self.in_lanes -= 1;
                }
            }
        }
        let given_up = self.table.give_up(id)?;
        match &given_up {
            GivenUp::InFlight => self.cancels.push(id),
            GivenUp::Done(_, waiter) if waiter.released => self.woken.looked(waiter.wake_epoch),
            // The combiner has not come to it yet.
            GivenUp::Done(_, waiter) => {
                leave(&mut self.pace, &mut self.lanes, waiter, Instant::now());
            }
            GivenUp::New(..) => {}
        }
        Some(given_up)
    }

    /// Those that are to be woken now.
    fn wake_deferred(&mut self, wakers: &mut Vec<Waker>) {
        self.woken.count += self.deferred_wakers.len();
        wakers.append(&mut self.deferred_wakers);
    }

    /// The same, when the last of those that were woken has looked.
    fn wake_if_last(&mut self, wakers: &mut Vec<Waker>) {
        if self.woken.count == 0 && !self.deferred_wakers.is_empty() {
            self.wake_deferred(wakers);
        }
    }

    /// Whether it is time to submit, for somebody who is polled there.
    fn is_due(&self, executor: Executor) -> bool {
        self.reactors.closed && self.paced.len() > 0
            || self.in_lanes > 0
                && self
                    .lanes
                    .iter()
                    .any(|lane| lane.pending.len().min(lane.limiter.available()) > 0)
            || self.pace.is_due(self.paced.len(), self.woken.at(executor))
    }

    /// What operations or wake-ups wait for, besides the kernel, to be submitted or wake_epoch.
    fn waits_for(&self) -> Option<WaitsFor> {
        let ready = self.paced.len().min(self.pace.limiter.available());
        let is_blocked = |pending: &Pending, limiter: &Limiter| {
            pending.len() > 0 && limiter.available() == 0 && limiter.may_exclude()
        };
        match ready {
            _ if !self.deferred_wakers.is_empty() || self.woken.count > 0 && ready > 0 => {
                Some(WaitsFor::Woken)
            }
            _ if ready > 0 => Some(WaitsFor::Batch),
            _ if is_blocked(&self.paced, &self.pace.limiter) => Some(WaitsFor::Capacity),
            _ if self.in_lanes > 0
                && self.lanes.iter().any(|lane| is_blocked(&lane.pending, &lane.limiter)) =>
            {
                Some(WaitsFor::Capacity)
            }
            _ => None,
        }
    }

    fn holds_back(&self) -> bool {
        self.waits_for().is_some()
    }

    /// All that waits to be submitted is for the futures that were woken to submit.
    pub(super) fn woken_will_submit(&self) -> bool {
        self.woken.count > 0
            && self.in_lanes == 0
            && self.cancels.is_empty()
            && !self.table.has_pending()
    }

    /// Where operations wait, those that hang are written off; true if that leaves room.
    fn exclude_stuck(&mut self, now: Instant) -> bool {
        let mut has_room = self.paced.len() > 0 && self.pace.limiter.exclude_stuck(now);
        for lane in &mut self.lanes {
            has_room |= lane.pending.len() > 0
                && lane.limiter.available() == 0
                && lane.limiter.exclude_stuck(now);
        }
        has_room
    }

    /// Gives the backends those whose turn it is, and what is to be cancelled. How many, and
    /// whether the submission has enough to copy.
    fn submit(
        &mut self,
        backends: &mut Backends,
        executor: Executor,
        now: Instant,
    ) -> (usize, bool) {
        for id in self.cancels.drain(..) {
            self.table.cancel(backends, id);
        }
        let (mut submitted, mut copied_enough) = (0, false);
        // A flood of one kind leaves room for the others: each lane is the first in its turn, and
        // transfers have half.
        let most = if self.paced.len() > 0 { MAX_SUBMITTED / 2 } else { MAX_SUBMITTED };
        let (behind, first) = self.lanes.split_at_mut(self.rounds as usize % LANES.len());
        for lane in first.iter_mut().chain(behind).filter(|_| self.in_lanes > 0) {
            while lane.limiter.available() > 0
                && submitted < most
                && let Some(id) = lane.pending.pop(&mut self.table)
            {
                submitted += start(&mut self.table, lane, id, now);
            }
        }
        self.in_lanes -= submitted;
        if std::mem::take(&mut self.flush)
            || self.reactors.closed
            || self.pace.is_due(self.paced.len(), self.woken.at(executor))
        {
            let mut work = CopyWork::default();
            while self.pace.limiter.available() > 0 && self.paced.len() > 0 {
                copied_enough = work.is_enough();
                if copied_enough || submitted >= MAX_SUBMITTED {
                    self.flush = true;
                    break;
                }
                let Some(id) = self.paced.pop(&mut self.table) else { break };
                if self.submitter_copies
                    && let Some(bytes) =
                        self.table.operation(id).and_then(Operation::submitter_copies)
                {
                    work.add(bytes);
                }
                let permit = self.pace.submitted(now);
                self.table.attachment(id).into_iter().for_each(|waiter| waiter.permit = permit);
                self.table.start(id);
                submitted += 1;
            }
        }
        self.table.carry(backends);
        (submitted, copied_enough)
    }

    /// Sees to what is done, in a round that has begun then.
    fn deliver(
        &mut self,
        recorder: &mut Recorder,
        own: &mut Option<Own<'_>>,
        begun: Instant,
        round: &mut RoundOutput,
    ) {
        round.closing.append(self.table.closing());
        // (Those of the rounds before may still be there.)
        let orphans = round.orphans.len();
        round.orphans.append(self.table.orphans());
        for orphan in &round.orphans[orphans..] {
            leave(&mut self.pace, &mut self.lanes, &orphan.attachment, begun);
        }
        let mut any = round.orphans.len() > orphans;
        let mut now = None;
        while let Some(id) = self.table.next_done() {
            any = true;
            let Some(waiter) = self.table.attachment(id) else { continue };
            if let Some(pushed) = waiter.pushed_at {
                recorder.latency(
                    now.get_or_insert_with(Instant::now).saturating_duration_since(pushed),
                );
            }
            leave(&mut self.pace, &mut self.lanes, waiter, begun);
            waiter.released = true;
            let lead = waiter.lead.unwrap_or(id);
            let Some(waiter) = self.table.attachment(lead) else { continue };
            waiter.remaining -= 1;
            if waiter.remaining == 0
                && let Some(waker) = waiter.waker.take()
            {
                waiter.wake_epoch = self.woken.next_epoch(waiter.executor);
                self.deferred_wakers.push(waker);
            }
            if let Some(own) = own
                && own.id == id
            {
                *own.completion = self.table.take(id);
            }
        }
        self.pickups += u64::from(any);
    }
}

impl Ring {
    /// After an error of the backend as a whole: true if it has failed for good. If it may be
    /// better soon, this waits for a moment.
    fn is_fatal(&mut self, error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        let passes = matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM));
        if passes && self.failing.get_or_insert_with(Instant::now).elapsed() < NO_MEMORY {
            std::thread::sleep(Duration::from_micros(100));
            return false;
        }
        true
    }
}

/// Starts an operation of a lane; one of syncs with all that was pushed together with it, as a
/// chain. How many.
fn start(table: &mut Table<Waiter>, lane: &mut LaneQueue, first: OpId, now: Instant) -> usize {
    let is_sync = |waiter: &&mut Waiter| waiter.schedule == Schedule::Immediate(Lane::Sync);
    let count =
        table.attachment(first).filter(is_sync).map_or(1, |waiter| waiter.remaining as usize);
    // They were pushed together, and none has been started.
    let mut chain = SmallVec::<[OpId; 4]>::from_slice(&[first]);
    while chain.len() < count
        && let Some(id) = lane.pending.pop(table)
    {
        chain.push(id);
    }
    let permit = lane.limiter.acquire(chain.len() as u32, now);
    for id in &chain {
        table.attachment(*id).into_iter().for_each(|waiter| waiter.permit = permit);
    }
    match count {
        1 => table.start(first),
        _ => table.start_chain(&chain),
    }
    chain.len()
}

/// An operation that had room is over.
fn leave(pace: &mut Pacer, lanes: &mut [LaneQueue], waiter: &Waiter, now: Instant) {
    match waiter.schedule {
        Schedule::Paced => pace.completed(waiter.permit, now),
        Schedule::Immediate(lane) => lanes[lane as usize].limiter.release(waiter.permit, now),
    }
}

impl RoundOutput {
    /// Drops what nobody waits for, even if a buffer of the program's own panics.
    pub(super) fn drop_orphans(&mut self) {
        self.closing.clear();
        for orphan in self.orphans.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(orphan)));
        }
    }
}

/// Wakes them all, even if one of them panics: what one task does harms no other.
pub(super) fn wake_all(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        // The panic has been told of by the panic hook.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// A lock whose holders leave what it guards right at every moment: a panic elsewhere poisons
/// nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;
    use ringway_core::op::{self, Position};
    use ringway_core::{Buffer, File};
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A task that submits and then computes has a shard that is late, though it has just been
    /// moved along.
    #[test]
    fn to_submit_is_not_to_pick_up() -> io::Result<()> {
        let shard = Shard::new(&Options::new(), 8, 8, Notifier::new(false)?)?;
        let (end, mut writer) = io::pipe()?;
        let end = File::from(OwnedFd::from(end));
        let before = shard.snapshot();
        assert_eq!(shard.progress(before), Progress::Idle);
        let read = op::read(&end, Buffer::from(vec![0]), Position::Current);
        let mut pushed = shard.push(
            Schedule::Immediate(Lane::Wait),
            Executor::Manual,
            Waker::noop(),
            [read].into_iter(),
            &mut None,
        );
        writer.write_all(b"x")?;
        poll(
            &mut [PollFd::new(&shard.readable, PollFlags::IN)],
            Some(&Timespec { tv_sec: 20, tv_nsec: 0 }),
        )?;
        assert_eq!(shard.progress(before), Progress::Late);
        shard.flush();
        assert_eq!(shard.progress(before), Progress::Moving);
        assert!(shard.take(&mut pushed.group, Executor::Manual, Waker::noop()).is_some());
        Ok(())
    }

    /// Whoever looks at the statistics takes the locks in the other order than a future that
    /// submits.
    #[test]
    fn statistics_hold_up_nobody() -> io::Result<()> {
        let shard = Arc::new(Shard::new(
            &Options::new().backend(BackendKind::Null),
            8,
            8,
            Notifier::new(false)?,
        )?);
        let (over, ends) = std::sync::mpsc::channel();
        let spawn = |work: fn(&Shard)| {
            let (shard, over) = (shard.clone(), over.clone());
            std::thread::spawn(move || {
                (0..20_000).for_each(|_| work(&shard));
                over.send(())
            })
        };
        let _submits = spawn(|shard| {
            let mut own = None;
            let nop = [op::nop()].into_iter();
            let mut pushed =
                shard.push(Schedule::Paced, Executor::Manual, Waker::noop(), nop, &mut own);
            while own.is_none()
                && shard.take(&mut pushed.group, Executor::Manual, Waker::noop()).is_none()
            {
                shard.drive(Executor::Manual);
            }
        });
        let _looks = spawn(|shard| {
            shard.with_stats(|stats, _| assert!(stats.counts.pushed >= stats.counts.delivered));
            shard.explain();
        });
        for _ in 0..2 {
            ends.recv_timeout(Duration::from_secs(60)).expect("they wait for one another");
        }
        Ok(())
    }

    /// A future that goes instead of looking for its result leaves nobody asleep.
    #[test]
    fn the_last_of_those_that_were_woken_wakes_the_others() -> io::Result<()> {
        struct SetOnWake(AtomicBool);
        impl std::task::Wake for SetOnWake {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        for looks in [true, false] {
            let shard = Shard::new(
                &Options::new().backend(BackendKind::Null),
                8,
                8,
                Notifier::new(false)?,
            )?;
            let push = |waker: &Waker, by_task| {
                let mut state = shard.state();
                let (group, lead) =
                    state.insert(Schedule::Paced, Executor::Manual, [op::nop()].into_iter());
                state.set_waker(lead.unwrap(), waker);
                drop(state);
                let guard = shard.combiner.try_lock().unwrap();
                shard.combine(guard, None, Executor::Manual, None, by_task);
                group
            };
            let mut first = push(Waker::noop(), false);
            let woken = Arc::new(SetOnWake(AtomicBool::new(false)));
            let second = push(&woken.clone().into(), true);
            assert!(!woken.0.load(Ordering::SeqCst), "a task leaves it to those that were woken");
            match looks {
                true => assert!(shard.take(&mut first, Executor::Manual, Waker::noop()).is_some()),
                false => shard.give_up(&first),
            }
            assert!(woken.0.load(Ordering::SeqCst));
            shard.give_up(&second);
        }
        Ok(())
    }

    fn null() -> io::Result<Shard> {
        Shard::new(&Options::new().backend(BackendKind::Null), 8, 8, Notifier::new(false)?)
    }

    fn push(shard: &Shard, schedule: Schedule) -> Group {
        shard
            .push(schedule, Executor::Manual, Waker::noop(), [op::nop()].into_iter(), &mut None)
            .group
    }

    /// However many of a kind are pending, others need not wait for all of them.
    #[test]
    fn a_flood_of_one_lane_keeps_no_other_waiting() -> io::Result<()> {
        let shard = null()?;
        let guard = shard.combiner.try_lock();
        let mut flood: Vec<Group> =
            (0..5000).map(|_| push(&shard, Schedule::Immediate(Lane::Call))).collect();
        let others = LANES.into_iter().filter(|lane| *lane != Lane::Call).map(Schedule::Immediate);
        let mut others: Vec<Group> =
            others.chain([Schedule::Paced]).map(|schedule| push(&shard, schedule)).collect();
        drop(guard);
        (0..4).for_each(|_| _ = shard.drive(Executor::Manual));
        let is_done =
            |group: &mut Group| shard.take(group, Executor::Manual, Waker::noop()).is_some();
        for (number, group) in others.iter_mut().enumerate() {
            assert!(is_done(group), "number {number} waits for the flood");
        }
        assert!(!flood.iter_mut().all(is_done));
        Ok(())
    }

    /// Says that it is being dropped, and waits until it may be.
    struct Slow(Sender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(());
            let _ = self.1.recv();
        }
    }

    /// What is dropped with an operation that nobody waits for may take its time: others combine
    /// meanwhile, also if somebody has asked for another round.
    #[test]
    fn what_is_dropped_slowly_keeps_nobody_waiting() -> io::Result<()> {
        let shard = Arc::new(null()?);
        let ((begun, has_begun), (may_end, end)) = (channel(), channel());
        let slow = Slow(begun, end);
        let work = op::blocking(move || drop(slow));
        let guard = shard.combiner.try_lock();
        let schedule = Schedule::Immediate(Lane::Closure);
        let group = shard
            .push(schedule, Executor::Manual, Waker::noop(), [work].into_iter(), &mut None)
            .group;
        let mut state = shard.state();
        state.submit(&mut lock(&shard.ring).backends, Executor::Manual, Instant::now());
        let id = *group[0].as_ref().expect("there is room");
        assert!(matches!(state.give_up(id), Some(GivenUp::InFlight)));
        drop(guard);
        let combines = {
            let shard = shard.clone();
            std::thread::spawn(move || shard.drive(Executor::Manual))
        };
        // It waits for the state, and goes round again.
        while shard.combiner.try_lock().is_some() {
            std::thread::yield_now();
        }
        drop(state);
        has_begun.recv_timeout(Duration::from_secs(20)).expect("it is dropped");
        assert!(shard.combiner.try_lock().is_some(), "others combine");
        drop(may_end);
        assert!(combines.join().is_ok());
        Ok(())
    }
}
