//! A shard: one queue and its scheduling. Futures push operations here and take results; the
//! combining lock and the reactors are in their own modules.
//!
//! A future puts its operations into slots of the shard's table, under a lock that is held briefly,
//! and takes their results from there. When a submission is due ([`Pacer`]), the calling thread
//! becomes the [combiner](super::combiner): it submits pending operations, reaps completions,
//! marks them in the slots, and wakes the futures outside all locks. No thread waits for another
//! one that is in the kernel.

use super::combiner::Combiner;
use super::devices::Devices;
use super::executor::{Executor, RuntimeId};
use super::limiter::Limiter;
use super::notifier::Notifier;
use super::pacing::{CopyWork, Pacer};
use super::registry::Reactors;
use super::stats::Recorder;
use super::submission::{LANES, Lane, Operations, Pending, Schedule, Waiter};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use super::sync_ledger::Ticket;
use super::wake::wake_all;
use ringway_core::op::Opcode;
use ringway_core::refusal::{Feature, Refusal};
use ringway_core::wait::PollFd;
use ringway_core::{
    Abandoned, BackendKind, Backends, BorrowedFd, Completion, Counts, Explanation, OpId, Operation,
    Options, Orphan, OwnedFd, QueueStats, Reason, Table, errno, wait,
};
use smallvec::SmallVec;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Limits of the lanes whose operations normally end by themselves.
const CALLS: u32 = 1024;
const OPENS: u32 = 1024;
/// A timer needs memory only.
const TIMERS: u32 = 1 << 20;
/// A few for each thread that runs closures.
const CLOSURES: u32 = 64;
/// On uring each waiting sync occupies a kernel thread, which opens need too. This is less than the
/// limit of kernel threads.
pub(super) const SYNCS: u32 = 16;

/// The most operations of one kind (storage transfers, syncs, closures) that count as hung. Each
/// may occupy a thread.
const MAX_HUNG_OPERATIONS: u32 = 1024;
/// If no sync (or no closure) completes for this long, older ones count as hung.
const SYNCS_HUNG_AFTER: Duration = Duration::from_millis(250);
const CLOSURES_HUNG_AFTER: Duration = Duration::from_millis(500);
/// The same, while some are hung. A thousand of them on a hung file system take six such steps.
const FURTHER_HUNG_AFTER: Duration = Duration::from_millis(50);

/// How long to wait in total for operations of a backend that has failed.
const FAILED: Duration = Duration::from_secs(1);
/// A backend that has been out of memory for this long has failed.
const NO_MEMORY: Duration = Duration::from_secs(10);

/// One of this many pushes is timed: reading the clock for each would cost measurable time.
const SAMPLE: u64 = 8;

/// Descriptors that a ring must leave to the program: two for a copy, and one for its runtime.
const SPARE_DESCRIPTORS: usize = 3;

/// The most operations that one round submits: the default size of a submission queue.
const MAX_SUBMITTED: usize = 128;

pub(crate) struct Shard {
    state: Mutex<ShardState>,
    /// Locked by the combiner.
    backends: Mutex<ShardBackends>,
    /// The best backend, if it would have left no descriptors for files.
    given_up: Option<Refusal>,
    pub(super) combiner: Combiner,
    /// Readable when there may be completions to reap.
    readable: PollFd,
    /// The backend has failed for good.
    failed: AtomicBool,
    pub(super) notifier: Arc<Notifier>,
}

/// The result of one operation.
pub(crate) type OpResult = Result<Completion, Box<Refused>>;

/// An operation that the queue refused, with the buffer that it owned.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) operation: Operation,
}

/// The results of all operations of one future, in order.
pub(crate) type OpResults = SmallVec<[OpResult; 1]>;

/// The operations of one future: each is in its slot, or refused.
pub(crate) type Group = SmallVec<[Result<OpId, Box<Refused>>; 1]>;

/// Counters of a shard. The engine's thread compares two snapshots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    rounds: u64,
    reaps: u64,
    settled: u64,
    /// Storage transfers submitted or completed.
    pub(super) moves: u64,
}

/// The state of a shard since a snapshot, as the engine's thread needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardProgress {
    /// Nothing has happened, and there is nothing to do.
    Idle,
    /// Some thread drives the shard.
    Moving,
    /// Operations wait for capacity that other operations do not release. Some of those may soon
    /// count as hung.
    Waiting,
    /// There is work, and no thread has come to do it.
    Late,
}

/// Futures that were woken and have not taken their results yet. Most of them will push another
/// operation, so a submission waits for them. But a future may be forgotten, or its worker may be
/// busy computing. Then the engine's thread calls `forget`, and submissions wait for them no
/// longer.
#[derive(Debug, Default)]
struct WokenFutures {
    count: usize,
    /// The executor of the one woken last. Submissions from other executors do not wait for these
    /// futures, because their runtime may be quicker.
    executor: Executor,
    /// How often `forget` was called.
    epoch: u32,
    /// How many futures took their results or were dropped.
    settled: u64,
}

impl WokenFutures {
    /// The epoch for a future that is about to be woken on this executor.
    fn next_epoch(&mut self, executor: Executor) -> u32 {
        self.executor = executor;
        self.epoch + 1
    }

    /// Records that a future woken in `wake_epoch` took its results or was dropped.
    fn settle(&mut self, wake_epoch: u32) {
        if wake_epoch == self.epoch + 1 {
            self.count = self.count.saturating_sub(1);
            self.settled += 1;
        }
    }

    /// Stops waiting for the remaining futures.
    fn forget(&mut self) {
        (self.count, self.epoch) = (0, self.epoch.wrapping_add(1) & i32::MAX as u32);
    }

    /// The futures that a submission from this executor waits for.
    fn at(&self, executor: Executor) -> usize {
        if self.executor == executor { self.count } else { 0 }
    }
}

/// What pending operations wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// For woken futures, which will push more operations.
    Woken,
    /// For a batch to fill, or for completions.
    Batch,
    /// For completions, or for hung operations to be excluded.
    Capacity,
}

/// State that futures use, and the combiner between its system calls.
pub(crate) struct ShardState {
    table: Table<Waiter>,
    /// Transfers that wait for a batch to fill or for free capacity.
    paced: Pending,
    /// Transfers that wait for room in the queue of their device, and what each device has.
    devices: Devices,
    /// Operations that are submitted at once, by [`Lane`].
    lanes: [LaneQueue; LANES.len()],
    /// Operations pending in all lanes.
    in_lanes: usize,
    /// Operations to cancel, because their futures were dropped.
    cancels: Vec<OpId>,
    pacer: Pacer,
    /// The next round submits everything that has capacity.
    flush: bool,
    /// The submitting thread copies transfers through the page cache, so one submission takes a
    /// limited number of those.
    submitter_copies: bool,
    /// The reactors of this shard.
    reactors: Reactors,
    /// Futures that were woken and have not taken their results.
    woken: WokenFutures,
    /// Futures that the last of the woken ones wakes, or a reactor. If a task woke them one by one,
    /// its runtime would wake a worker for each.
    deferred_wakers: Vec<Waker>,
    /// Combining rounds so far.
    rounds: u64,
    /// Rounds that reaped completions.
    reaps: u64,
    recorder: Recorder,
    /// The backends' part of the statistics, and the queue's explanation, as of the last round. The
    /// combiner may be in the kernel for long, and nobody who asks for them waits for it.
    backend_stats: QueueStats,
    explanation: Explanation,
}

/// The pending operations of one lane, and their limit.
struct LaneQueue {
    pending: Pending,
    limiter: Limiter,
}

impl LaneQueue {
    fn new(lane: Lane, limit: u32) -> Self {
        let all = Limiter::new(limit as usize);
        let limiter = match lane {
            Lane::Sync => all.exclude_hung_after(SYNCS_HUNG_AFTER, MAX_HUNG_OPERATIONS as usize),
            Lane::Closure => {
                all.exclude_hung_after(CLOSURES_HUNG_AFTER, MAX_HUNG_OPERATIONS as usize)
            }
            Lane::Call | Lane::Open | Lane::Wait | Lane::Timer => all,
        };
        Self { pending: Pending::default(), limiter: limiter.growing(FURTHER_HUNG_AFTER) }
    }
}

/// The part of a shard that only the combiner uses.
pub(super) struct ShardBackends {
    queue: Backends,
    /// Since when the backend has been failing.
    failing: Option<Instant>,
}

/// The output of a combiner's rounds, which it handles without a lock.
#[derive(Default)]
pub(super) struct RoundOutput {
    /// Another round is needed.
    pub(super) more: bool,
    /// This thread has copied enough; another thread makes the next round.
    pub(super) hand_over: bool,
    /// Operations submitted in all rounds.
    pub(super) submitted: usize,
    pub(super) wakers: Vec<Waker>,
    /// Completed operations whose futures are gone, to be dropped.
    orphans: Vec<Orphan<Waiter>>,
    /// Descriptors to close.
    closing: Vec<OwnedFd>,
}

/// The single operation of the future that is combining, and where its completion goes.
pub(super) struct OwnOperation<'a> {
    pub(super) id: OpId,
    pub(super) completion: &'a mut Option<Completion>,
}

/// The result of a push.
pub(crate) struct Pushed {
    pub(crate) group: Group,
    /// The results may already be there.
    pub(crate) may_be_done: bool,
    /// The runtime that polls the future, if it is not yet registered as a reactor of the shard.
    pub(crate) unregistered: Option<RuntimeId>,
}

impl Shard {
    /// Creates one of `shards` shards, with at most `paced` storage transfers and `waiting`
    /// operations of [`Lane::Wait`] in flight. It notifies `notifier` when the engine's thread has
    /// to come.
    ///
    /// Blocks for several system calls, as [`Options::build`] does.
    pub(crate) fn new(
        options: &Options,
        shards: usize,
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
            Lane::Timer => TIMERS,
        };
        // Each sync may have a write before it. Transfers, syncs, their writes and closures may be
        // hung.
        let extra = paced.saturating_add(SYNCS).saturating_add(4 * MAX_HUNG_OPERATIONS);
        let total = LANES.into_iter().map(limit).fold(extra, u32::saturating_add);
        // The engine closes its shards, and does the waiting.
        let options = options.clone().in_flight(total).close_wait(Duration::ZERO);
        let ((table, backends, readable), given_up) = match options.forced_backend()? {
            Some(_) => (build_parts(&options)?, None),
            None => build_with_spare_descriptors(options)?,
        };
        Ok(Self {
            state: Mutex::new(ShardState {
                table,
                paced: Pending::default(),
                devices: match backends.backend() {
                    BackendKind::Uring | BackendKind::Kaio => {
                        Devices::shared_by(shards, MAX_HUNG_OPERATIONS as usize)
                    }
                    _ => Devices::without_limits(),
                },
                lanes: LANES.map(|lane| LaneQueue::new(lane, limit(lane))),
                in_lanes: 0,
                cancels: Vec::new(),
                pacer: Pacer::new(paced as usize, MAX_HUNG_OPERATIONS as usize),
                flush: false,
                submitter_copies: backends.backend() == BackendKind::Uring,
                reactors: Reactors::default(),
                woken: WokenFutures::default(),
                deferred_wakers: Vec::new(),
                rounds: 0,
                reaps: 0,
                recorder: Recorder::new(),
                backend_stats: QueueStats::default(),
                explanation: backends.explain(),
            }),
            backends: Mutex::new(ShardBackends { queue: backends, failing: None }),
            given_up,
            combiner: Combiner::new(),
            readable,
            failed: AtomicBool::new(false),
            notifier,
        })
    }

    /// Accepts operations of a future that `executor` polls, and submits them if that is due.
    #[inline]
    pub(crate) fn push(
        &self,
        schedule: Schedule,
        executor: Executor,
        waker: &Waker,
        operations: &mut Option<impl Operations>,
        own: &mut Option<Completion>,
    ) -> Pushed {
        let mut state = self.state();
        let (group, lead) = state.insert(schedule, executor, operations);
        let mut pushed = Pushed {
            group,
            may_be_done: lead.is_none(),
            unregistered: state.reactors.register(executor),
        };
        state.reactors.note_waiter(executor);
        let Some(lead) = lead else { return pushed };
        let is_due = state.is_due(executor);
        match if is_due { self.combiner.try_lock() } else { None } {
            Some(guard) => {
                let own =
                    (pushed.group.len() == 1).then_some(OwnOperation { id: lead, completion: own });
                self.combine(guard, Some(state), executor, own, true);
                pushed.may_be_done = true;
            }
            None => {
                // If a submission is due, the current combiner makes another round.
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

    /// Whether at least half of a lane's capacity is in use, or will be when the operations that
    /// are pending start.
    pub(crate) fn is_half_used(&self, lane: Lane) -> bool {
        let state = self.state();
        let lane = &state.lanes[lane as usize];
        lane.limiter.is_half_used(lane.pending.len())
    }

    /// Takes the results of a whole group, in order, if all are there; otherwise keeps the waker.
    pub(crate) fn take(
        &self,
        group: &mut Group,
        executor: Executor,
        waker: &Waker,
    ) -> Option<OpResults> {
        let lead = group.iter().find_map(|one| one.as_ref().ok().copied());
        self.take_if_done(lead, executor, waker, |table| {
            let mut results = OpResults::with_capacity(group.len());
            results.extend(group.drain(..).filter_map(|one| match one {
                Ok(id) => table.take(id).map(Ok),
                Err(refused) => Some(Err(refused)),
            }));
            results
        })
    }

    /// As [`take`](Self::take), for the only operation of its group. The inner value is `None` if
    /// it has no result: a forked child's parent has it.
    #[inline]
    pub(crate) fn take_one(
        &self,
        id: OpId,
        executor: Executor,
        waker: &Waker,
    ) -> Option<Option<Completion>> {
        self.take_if_done(Some(id), executor, waker, |table| table.take(id))
    }

    /// Calls `take` if the group of this lead is done; otherwise keeps the waker. The last of the
    /// futures that were woken submits what the others have pushed.
    #[inline]
    fn take_if_done<R>(
        &self,
        lead: Option<OpId>,
        executor: Executor,
        waker: &Waker,
        take: impl FnOnce(&mut Table<Waiter>) -> R,
    ) -> Option<R> {
        let mut state = self.state();
        let (taken, before) = match lead.filter(|lead| !state.settle(*lead)) {
            Some(lead) => (None, state.set_waker(lead, waker)),
            None => (Some(take(&mut state.table)), None),
        };
        let mut wakers = Vec::new();
        state.wake_if_last(&mut wakers);
        let is_due = taken.is_some() && state.waiting() > 0 && state.is_due(executor);
        drop(state);
        if !wakers.is_empty() {
            wake_all(&mut wakers);
        }
        // Without the lock, because a waker may own anything; last, because its drop may panic.
        drop(before);
        if is_due && let Some(guard) = self.combiner.try_lock() {
            self.combine(guard, None, executor, None, true);
        }
        taken
    }

    /// A future was dropped: drops its operations that have not started, and cancels the others.
    pub(crate) fn abandon(&self, group: &Group) {
        let mut abandoned = SmallVec::<[Abandoned<Waiter>; 1]>::new();
        let mut wakers = Vec::new();
        let cancels = {
            let mut state = self.state();
            for id in group.iter().flatten() {
                abandoned.extend(state.abandon(*id));
            }
            state.wake_if_last(&mut wakers);
            !state.cancels.is_empty()
        };
        wake_all(&mut wakers);
        for one in abandoned {
            let _ = catch_unwind(AssertUnwindSafe(|| match one {
                Abandoned::Done(completion, waiter) => {
                    if let Some(ticket) = &waiter.ticket {
                        wake_all(&mut ticket.end(completion.result.map(drop)));
                    }
                    drop_completion(completion);
                    drop(waiter);
                }
                other => drop(other),
            }));
        }
        if cancels {
            self.drive(Executor::Manual);
        }
    }

    /// The ticket learns how this operation ends, whether or not a future waits for it.
    pub(crate) fn observe(&self, id: OpId, ticket: Arc<Ticket>) {
        let mut state = self.state();
        let mut wakers = match state.table.result(id) {
            Some(result) => ticket.end(result),
            None => {
                if let Some(waiter) = state.table.attachment(id) {
                    waiter.ticket = Some(Arc::clone(&ticket));
                }
                Vec::new()
            }
        };
        drop(state);
        wake_all(&mut wakers);
    }

    /// Makes combining rounds. If another thread is combining, it makes another round instead.
    /// Returns the number of futures woken here.
    pub(crate) fn drive(&self, executor: Executor) -> usize {
        self.combiner.try_lock().map_or(0, |guard| self.combine(guard, None, executor, None, false))
    }

    /// Submits everything that has capacity and reaps completions, without waiting for a batch
    /// or for woken futures. Returns the number of futures woken.
    pub(crate) fn flush(&self) -> usize {
        {
            let mut state = self.state();
            state.woken.forget();
            state.flush = true;
        }
        self.drive(Executor::Manual)
    }

    /// As [`flush`](Self::flush), after hung operations have been excluded.
    pub(crate) fn flush_without_hung(&self) -> usize {
        self.state().exclude_hung(Instant::now());
        self.flush()
    }

    /// One round of the combiner: submits, and reaps completions.
    pub(super) fn round(
        &self,
        state: Option<MutexGuard<'_, ShardState>>,
        executor: Executor,
        own: &mut Option<OwnOperation<'_>>,
        by_task: bool,
        output: &mut RoundOutput,
    ) {
        // Only the combiner holds both locks, in this order.
        let mut backends = lock(&self.backends);
        let backends = &mut *backends;
        let mut state = state.unwrap_or_else(|| self.state());
        state.rounds += 1;
        let begun = Instant::now();
        let (submitted, copied_enough) = state.submit(&mut backends.queue, executor, begun);
        output.submitted += submitted;
        output.hand_over = copied_enough;
        state.recorder.batch(submitted);
        let mut failing = false;
        let mut state = loop {
            drop(state);
            let submitted = backends.queue.submit();
            state = self.state();
            let moved = state.table.process_events(&mut backends.queue);
            match submitted {
                Ok(()) => backends.failing = None,
                Err(error) => {
                    state.recorder.failures += 1;
                    drop(state);
                    failing = !backends.is_fatal(&error);
                    if !failing {
                        self.fail(backends, &error);
                    }
                    break self.state();
                }
            }
            // A retry, the next piece of a split, or the next of a chain is pending, or what found
            // the submission queue full; or an event has led to a cancel.
            if !(state.table.has_pending() || backends.queue.has_unsubmitted_cancels()) {
                break state;
            }
            if !state.table.submit_without_entering(&mut backends.queue) && !moved {
                break state;
            }
        };
        if self.has_failed() {
            output.wakers.extend(state.reactors.close());
        }
        state.deliver(own, begun, output);
        state.note(&backends.queue);
        if !by_task || state.woken.at(executor) == 0 {
            state.wake_deferred(&mut output.wakers);
        }
        // After a failure (no memory, for example) the engine's thread makes the next round.
        output.hand_over |= failing;
        output.more =
            output.hand_over || state.flush || state.is_due(executor) || !state.cancels.is_empty();
        let holds_back = state.holds_back();
        drop(state);
        if holds_back {
            self.notifier.notify_if_asleep();
        }
    }

    /// The backend has failed for good: completes everything in flight with an error, and refuses
    /// new operations.
    fn fail(&self, backends: &mut ShardBackends, error: &io::Error) {
        self.cancel_and_wait(backends, FAILED);
        let mut state = self.state();
        state.table.fail(&mut backends.queue, error);
        state.woken.forget();
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Cancels everything in flight and waits for it, at most for `wait`. Futures can take results
    /// meanwhile.
    fn cancel_and_wait(&self, backends: &mut ShardBackends, wait: Duration) {
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        self.state().table.begin_close(&mut backends.queue);
        while self.state().table.continue_close(&mut backends.queue, until) {
            let waited = backends.queue.wait(until);
            self.state().table.handle_close_wait(&mut backends.queue, waited, until);
        }
    }

    /// Whether the backend has failed for good. Then nothing is in flight, and pushes are refused.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether something is pending that only a task of a runtime, or the thread, will handle.
    pub(crate) fn holds_back(&self) -> bool {
        self.state().holds_back()
    }

    /// The counters now, to compare with later.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let (rounds, reaps) = (state.rounds, state.reaps);
        Snapshot { settled: state.woken.settled, moves: state.pacer.moves(), rounds, reaps }
    }

    /// What has happened since the snapshot. Excludes hung operations if others wait for capacity.
    pub(crate) fn progress(&self, before: Snapshot) -> ShardProgress {
        let now = self.snapshot();
        let (waits_for, freed) = {
            let mut state = self.state();
            (state.waits_for(), state.exclude_hung(Instant::now()))
        };
        match waits_for {
            _ if freed => ShardProgress::Late,
            Some(WaitsFor::Woken) if now.settled == before.settled => ShardProgress::Late,
            Some(WaitsFor::Batch) if now.moves == before.moves => ShardProgress::Late,
            Some(WaitsFor::Woken | WaitsFor::Batch) => ShardProgress::Moving,
            // Submitting is not reaping: tasks may submit while completions wait.
            _ if now.reaps == before.reaps && !self.has_failed() && self.is_readable() => {
                ShardProgress::Late
            }
            _ if now.rounds != before.rounds => ShardProgress::Moving,
            Some(WaitsFor::Capacity) => ShardProgress::Waiting,
            None => ShardProgress::Idle,
        }
    }

    fn is_readable(&self) -> bool {
        wait::readable(&[self.readable()], Some(Duration::ZERO)).is_ok_and(|ready| ready[0])
    }

    /// Whether only the engine's thread reaps completions for some futures.
    pub(crate) fn needs_thread(&self) -> bool {
        self.state().reactors.thread
    }

    /// Readable when there may be completions to reap.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.readable.fd()
    }

    /// Changes the reactors.
    pub(crate) fn reactors<R>(&self, change: impl FnOnce(&mut Reactors) -> R) -> R {
        change(&mut self.state().reactors)
    }

    /// With nothing in flight, the thread is not needed.
    pub(crate) fn rest_if_idle(&self) {
        let mut state = self.state();
        if state.table.in_flight() == 0 {
            state.reactors.thread = false;
        }
    }

    /// Cancels everything in flight and waits for it, at most for `wait`, and leaks the rest. Then
    /// the reactors are released.
    pub(crate) fn close(&self, wait: Duration) {
        // A thread that comes meanwhile finds the lock taken and continues, instead of waiting.
        let guard = loop {
            match self.combiner.try_lock() {
                Some(guard) => break guard,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.cancel_and_wait(&mut lock(&self.backends), wait);
        drop(guard);
        self.flush();
        self.reactors(Reactors::close).into_iter().for_each(Waker::wake);
    }

    /// The operation counts, and how many of those in flight are still pending.
    pub(crate) fn counts(&self) -> (Counts, usize) {
        let state = self.state();
        (state.table.counts(), state.paced.len() + state.devices.pending() + state.in_lanes)
    }

    /// Calls `look` with the statistics of the queue and those of the recorder. Does not wait for a
    /// combiner in the kernel: the backends' part is then that of its last round.
    pub(crate) fn with_stats<R>(&self, look: impl FnOnce(QueueStats, &Recorder) -> R) -> R {
        // One lock after the other, because a combiner locks the state while it holds the backends.
        let now =
            self.try_backends(|backends| backends.queue.complete_stats(QueueStats::default()));
        let mut state = self.state();
        if let Some(now) = now {
            state.backend_stats = now;
        }
        let (mut stats, backends) = (state.table.stats(), state.backend_stats);
        stats.system_calls = backends.system_calls;
        look(stats, &state.recorder)
    }

    /// The queue's own explanation; that of the last round while a combiner is in the kernel.
    pub(crate) fn explain(&self) -> Explanation {
        let now = self.try_backends(|backends| backends.queue.explain());
        let mut explanation = now.unwrap_or_else(|| self.state().explanation.clone());
        if let Some(given_up) = &self.given_up {
            // Neither the program nor the environment asked for threads.
            explanation.forced_by = None;
            explanation.refusals.push(given_up.clone());
        }
        explanation
    }

    /// Looks at the backends, unless a combiner has them.
    fn try_backends<R>(&self, look: impl FnOnce(&ShardBackends) -> R) -> Option<R> {
        match self.backends.try_lock() {
            Ok(backends) => Some(look(&backends)),
            Err(TryLockError::Poisoned(backends)) => Some(look(&backends.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Registers an arena's memory with the ring. A refusal appears in the explanation.
    pub(crate) fn register(&self, arena: &ringway_core::Arena) {
        let _ = lock(&self.backends).queue.register_arena(arena);
    }

    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, ShardState> {
        lock(&self.state)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let backends = self.backends.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The engine closes its shards, and does the waiting.
        state.table.shut_down(&mut backends.queue, Duration::ZERO);
    }
}

impl ShardState {
    /// Puts a future's operations into slots and appends them to their lists. Returns the group and
    /// its lead, which is the first operation that was not refused.
    #[inline]
    fn insert(
        &mut self,
        schedule: Schedule,
        executor: Executor,
        operations: &mut Option<impl Operations>,
    ) -> (Group, Option<OpId>) {
        let begun = self.table.counts().pushed.is_multiple_of(SAMPLE).then(Instant::now);
        let mut group = Group::with_capacity(operations.as_ref().map_or(0, Operations::count));
        let mut lead = None;
        Operations::push_each(operations, |operation| {
            let waiter = Waiter::new(schedule, executor, lead, begun);
            match self.table.insert_from(operation, waiter) {
                Ok(id) => {
                    match schedule {
                        Schedule::Paced => self.paced.push(&mut self.table, id),
                        Schedule::Immediate(lane) => {
                            self.lanes[lane as usize].pending.push(&mut self.table, id);
                            self.in_lanes += 1;
                        }
                    }
                    let lead = *lead.get_or_insert(id);
                    if let Some(lead) = self.table.attachment(lead) {
                        lead.remaining += 1;
                    }
                    group.push(Ok(id));
                }
                Err(reason) => {
                    let refused = operation.take().map(|operation| Refused { reason, operation });
                    group.extend(refused.map(|refused| Err(Box::new(refused))));
                }
            }
        });
        (group, lead)
    }

    /// Keeps a group's waker, unless the kept one wakes the same task. Returns the old waker, to be
    /// dropped without the lock.
    fn set_waker(&mut self, lead: OpId, waker: &Waker) -> Option<Waker> {
        match &mut self.table.attachment(lead)?.waker {
            Some(kept) if kept.will_wake(waker) => None,
            kept => kept.replace(waker.clone()),
        }
    }

    /// Whether the group of this lead is done: its future takes the results now.
    #[inline]
    fn settle(&mut self, lead: OpId) -> bool {
        match self.table.attachment(lead) {
            Some(waiter) if waiter.remaining > 0 => false,
            Some(waiter) => {
                self.woken.settle(waiter.wake_epoch);
                true
            }
            None => true,
        }
    }

    /// A future was dropped. The caller drops the returned value without the lock.
    fn abandon(&mut self, id: OpId) -> Option<Abandoned<Waiter>> {
        if let Some((true, (schedule, waits_for_device))) = self
            .table
            .is_new(id)
            .zip(self.table.attachment(id).map(|waiter| (waiter.schedule, waiter.waits_for_device)))
        {
            match schedule {
                Schedule::Paced if waits_for_device => self.devices.remove(&mut self.table, id),
                Schedule::Paced => self.paced.remove(&mut self.table, id),
                Schedule::Immediate(lane) => {
                    self.lanes[lane as usize].pending.remove(&mut self.table, id);
                    self.in_lanes -= 1;
                }
            }
        }
        let abandoned = self.table.abandon(id)?;
        match &abandoned {
            // A close goes on: cancelled, it would be left to the thread that finds out.
            Abandoned::InFlight if self.is_close(id) => {}
            Abandoned::InFlight => self.cancels.push(id),
            Abandoned::Done(_, waiter) if waiter.released => self.woken.settle(waiter.wake_epoch),
            // The combiner has not handled this completion yet.
            Abandoned::Done(_, waiter) => {
                let (pacer, lanes) = (&mut self.pacer, &mut self.lanes);
                release_capacity(pacer, &mut self.devices, lanes, waiter, Instant::now());
            }
            Abandoned::New(..) => {}
        }
        Some(abandoned)
    }

    fn is_close(&mut self, id: OpId) -> bool {
        self.table.operation(id).is_some_and(|operation| operation.opcode() == Opcode::Close)
    }

    /// Moves the deferred wakers to `wakers`, to be called now.
    fn wake_deferred(&mut self, wakers: &mut Vec<Waker>) {
        self.woken.count += self.deferred_wakers.len();
        wakers.append(&mut self.deferred_wakers);
    }

    /// The same, if no woken future is left that would do it.
    fn wake_if_last(&mut self, wakers: &mut Vec<Waker>) {
        if self.woken.count == 0 && !self.deferred_wakers.is_empty() {
            self.wake_deferred(wakers);
        }
    }

    /// Transfers that wait, without those for which their device has no room.
    fn waiting(&self) -> usize {
        self.paced.len() + self.devices.ready()
    }

    /// Whether a submission by this executor is due.
    fn is_due(&self, executor: Executor) -> bool {
        self.reactors.closed && self.waiting() > 0
            || self.in_lanes > 0
                && self
                    .lanes
                    .iter()
                    .any(|lane| lane.pending.len().min(lane.limiter.available()) > 0)
            || self.pacer.is_due(self.waiting(), self.woken.at(executor))
    }

    /// What keeps pending operations or deferred wakers waiting, besides the kernel.
    fn waits_for(&self) -> Option<WaitsFor> {
        let ready = self.waiting().min(self.pacer.limiter.available());
        let is_blocked = |pending: usize, limiter: &Limiter| {
            pending > 0 && limiter.available() == 0 && limiter.may_exclude()
        };
        match ready {
            _ if !self.deferred_wakers.is_empty() || self.woken.count > 0 && ready > 0 => {
                Some(WaitsFor::Woken)
            }
            _ if ready > 0 => Some(WaitsFor::Batch),
            _ if is_blocked(self.waiting(), &self.pacer.limiter) || self.devices.is_blocked() => {
                Some(WaitsFor::Capacity)
            }
            _ if self.in_lanes > 0
                && self.lanes.iter().any(|lane| is_blocked(lane.pending.len(), &lane.limiter)) =>
            {
                Some(WaitsFor::Capacity)
            }
            _ => None,
        }
    }

    fn holds_back(&self) -> bool {
        self.waits_for().is_some()
    }

    /// Whether the woken futures will submit everything that is pending.
    pub(super) fn woken_will_submit(&self) -> bool {
        self.woken.count > 0
            && self.in_lanes == 0
            && self.cancels.is_empty()
            && !self.table.has_pending()
    }

    /// Keeps what others may ask about the backends while a combiner is in the kernel.
    fn note(&mut self, backends: &Backends) {
        self.backend_stats = backends.complete_stats(QueueStats::default());
        // Making the text for each round would cost too much.
        if backends.refusals() != self.explanation.refusals.len() {
            self.explanation = backends.explain();
        }
    }

    /// Excludes hung operations of the kinds that have operations waiting. Returns true if that
    /// frees capacity.
    fn exclude_hung(&mut self, now: Instant) -> bool {
        let mut freed = self.waiting() > 0 && self.pacer.limiter.exclude_hung(now);
        freed |= self.devices.exclude_hung(now);
        for lane in &mut self.lanes {
            freed |= lane.pending.len() > 0
                && lane.limiter.available() == 0
                && lane.limiter.exclude_hung(now);
        }
        freed
    }

    /// Gives the backends what is due, and cancellations. Returns the number of operations, and
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
        // Many operations of one kind must leave capacity for others: the lanes take turns at being
        // first, and transfers get half of a round.
        let most = if self.waiting() > 0 { MAX_SUBMITTED / 2 } else { MAX_SUBMITTED };
        let (later, first) = self.lanes.split_at_mut(self.rounds as usize % LANES.len());
        for lane in first.iter_mut().chain(later).filter(|_| self.in_lanes > 0) {
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
            || self.pacer.is_due(self.waiting(), self.woken.at(executor))
        {
            let mut work = CopyWork::default();
            while self.pacer.limiter.available() > 0 && self.waiting() > 0 {
                copied_enough = work.is_enough();
                if copied_enough || submitted >= MAX_SUBMITTED {
                    self.flush = true;
                    break;
                }
                let Some(id) = self.next_paced(now) else { break };
                if self.submitter_copies
                    && let Some(bytes) =
                        self.table.operation(id).and_then(Operation::submitter_copies)
                {
                    work.add(bytes);
                }
                let permit = self.pacer.submitted(now);
                if let Some(waiter) = self.table.attachment(id) {
                    waiter.permit = permit;
                }
                self.table.start(id);
                submitted += 1;
            }
        }
        self.table.submit_without_entering(backends);
        (submitted, copied_enough)
    }

    /// The next transfer to submit: one that waited for its device, or the next one of the list
    /// whose device has room.
    fn next_paced(&mut self, now: Instant) -> Option<OpId> {
        if let Some(id) = self.devices.next(&mut self.table, now) {
            return Some(id);
        }
        while let Some(id) = self.paced.pop(&mut self.table) {
            if self.devices.admit(&mut self.table, id, now) {
                return Some(id);
            }
        }
        None
    }

    /// Delivers completions in a round that started at `begun`.
    fn deliver(
        &mut self,
        own: &mut Option<OwnOperation<'_>>,
        begun: Instant,
        output: &mut RoundOutput,
    ) {
        output.closing.append(self.table.fds_to_close());
        // The orphans of earlier rounds may still be there.
        let orphans = output.orphans.len();
        output.orphans.append(self.table.orphans());
        for orphan in &output.orphans[orphans..] {
            let (pacer, lanes) = (&mut self.pacer, &mut self.lanes);
            release_capacity(pacer, &mut self.devices, lanes, &orphan.attachment, begun);
            if let Some(ticket) = &orphan.attachment.ticket {
                output.wakers.extend(ticket.end(orphan.completion.result.map(drop)));
            }
        }
        let mut any = output.orphans.len() > orphans;
        let mut now = None;
        while let Some(id) = self.table.next_done() {
            any = true;
            let Some(waiter) = self.table.attachment(id) else { continue };
            if let Some(pushed) = waiter.pushed_at {
                self.recorder.latency(
                    now.get_or_insert_with(Instant::now).saturating_duration_since(pushed),
                );
            }
            let (pacer, lanes) = (&mut self.pacer, &mut self.lanes);
            release_capacity(pacer, &mut self.devices, lanes, waiter, begun);
            waiter.released = true;
            let lead = waiter.lead.unwrap_or(id);
            if let Some(ticket) = waiter.ticket.take()
                && let Some(result) = self.table.result(id)
            {
                output.wakers.extend(ticket.end(result));
            }
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
        self.reaps += u64::from(any);
    }
}

/// The parts of a shard, and the descriptor to poll.
type Parts = (Table<Waiter>, Backends, PollFd);

fn build_parts(options: &Options) -> io::Result<Parts> {
    let (mut table, mut backends) = options.build_parts()?;
    match backends.shared_poll_fd() {
        Ok(readable) => Ok((table, backends, readable)),
        Err(error) => {
            table.shut_down(&mut backends, Duration::ZERO);
            Err(error)
        }
    }
}

/// As [`build_parts`], but threads, which need the fewest descriptors, where the best backend would
/// leave none for files. Returns the refusal of that backend as well.
fn build_with_spare_descriptors(options: Options) -> io::Result<(Parts, Option<Refusal>)> {
    let (mut table, mut backends) = options.build_parts()?;
    let best = match backends.backend() {
        BackendKind::Uring => Some(Feature::Uring),
        BackendKind::Kaio => Some(Feature::Kaio),
        _ => None,
    };
    let readable = backends.shared_poll_fd().and_then(|readable| {
        if best.is_some() {
            let spare = |_| readable.fd().try_clone_to_owned();
            (0..SPARE_DESCRIPTORS).map(spare).collect::<io::Result<Vec<_>>>()?;
        }
        Ok(readable)
    });
    let error = match readable {
        Ok(readable) => return Ok(((table, backends, readable), None)),
        Err(error) => error,
    };
    table.shut_down(&mut backends, Duration::ZERO);
    drop((table, backends));
    match (best, error.raw_os_error()) {
        (Some(best), Some(errno)) if is_out_of_descriptors(&error) => {
            let parts = build_parts(&options.backend(BackendKind::Threads))?;
            Ok((parts, Some(Refusal::new(best, errno))))
        }
        _ => Err(error),
    }
}

pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EMFILE | errno::ENFILE))
}

impl ShardBackends {
    /// Whether the backend as a whole has failed for good. After an error that may pass, this
    /// sleeps briefly.
    fn is_fatal(&mut self, error: &io::Error) -> bool {
        let is_transient = matches!(
            error.raw_os_error(),
            Some(errno::EINTR | errno::EAGAIN | errno::EBUSY | errno::ENOMEM)
        );
        if is_transient && self.failing.get_or_insert_with(Instant::now).elapsed() < NO_MEMORY {
            std::thread::sleep(Duration::from_micros(100));
            return false;
        }
        true
    }
}

/// Starts an operation of a lane. Syncs start as a chain with all operations pushed together with
/// them. Returns the number started.
fn start(table: &mut Table<Waiter>, lane: &mut LaneQueue, first: OpId, now: Instant) -> usize {
    let is_sync = |waiter: &&mut Waiter| waiter.schedule == Schedule::Immediate(Lane::Sync);
    let count =
        table.attachment(first).filter(is_sync).map_or(1, |waiter| waiter.remaining as usize);
    // They were pushed together, and none has started.
    let mut chain = SmallVec::<[OpId; 4]>::from_slice(&[first]);
    while chain.len() < count
        && let Some(id) = lane.pending.pop(table)
    {
        chain.push(id);
    }
    let permit = lane.limiter.acquire(chain.len() as u32, now);
    for id in &chain {
        if let Some(waiter) = table.attachment(*id) {
            waiter.permit = permit;
        }
    }
    match count {
        1 => table.start(first),
        _ => table.start_chain(&chain),
    }
    chain.len()
}

/// Releases the capacity of an operation that is done.
fn release_capacity(
    pacer: &mut Pacer,
    devices: &mut Devices,
    lanes: &mut [LaneQueue],
    waiter: &Waiter,
    now: Instant,
) {
    match waiter.schedule {
        Schedule::Paced => {
            pacer.completed(waiter.permit, now);
            devices.release(waiter, now);
        }
        Schedule::Immediate(lane) => lanes[lane as usize].limiter.release(waiter.permit, now),
    }
}

impl RoundOutput {
    /// Drops orphans and closes descriptors, even if a custom buffer panics when it is dropped.
    pub(super) fn drop_orphans(&mut self) {
        self.closing.clear();
        for orphan in self.orphans.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let Orphan { attachment, completion } = orphan;
                drop_completion(completion);
                drop(attachment);
            }));
        }
    }
}

/// Drops a result that nobody takes. A file that was opened is closed without waiting for it.
fn drop_completion(completion: Completion) {
    if completion.opcode == Opcode::Open
        && let Ok(file) = completion.into_file()
    {
        file.close_in_background();
    }
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;
    use ringway_core::op::{self, Position};
    use ringway_core::{Buffer, File};
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// If a task submits and then computes, its shard is late, although a round has just been made.
    #[test]
    fn submitting_is_not_reaping() -> io::Result<()> {
        let shard = Shard::new(&Options::new(), 1, 8, 8, Notifier::new(false)?)?;
        let (end, mut writer) = io::pipe()?;
        let end = File::from(OwnedFd::from(end));
        let before = shard.snapshot();
        assert_eq!(shard.progress(before), ShardProgress::Idle);
        let read = op::read(&end, Buffer::from(vec![0]), Position::Current);
        let mut pushed = shard.push(
            Schedule::Immediate(Lane::Wait),
            Executor::Manual,
            Waker::noop(),
            &mut Some(read),
            &mut None,
        );
        writer.write_all(b"x")?;
        wait::readable(&[shard.readable()], Some(Duration::from_secs(20)))?;
        assert_eq!(shard.progress(before), ShardProgress::Late);
        shard.flush();
        assert_eq!(shard.progress(before), ShardProgress::Moving);
        assert!(shard.take(&mut pushed.group, Executor::Manual, Waker::noop()).is_some());
        Ok(())
    }

    /// Reading the statistics must not deadlock with a future that submits.
    #[test]
    fn statistics_do_not_deadlock_with_submission() -> io::Result<()> {
        let shard = Arc::new(Shard::new(
            &Options::new().backend(BackendKind::Null),
            1,
            8,
            8,
            Notifier::new(false)?,
        )?);
        let (over, ends) = std::sync::mpsc::channel();
        let spawn = |work: fn(&Shard)| {
            let (shard, over) = (shard.clone(), over.clone());
            std::thread::spawn(move || {
                for _ in 0..20_000 {
                    work(&shard);
                }
                over.send(())
            })
        };
        let _submits = spawn(|shard| {
            let mut own = None;
            let nop = &mut Some(op::nop());
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
            ends.recv_timeout(Duration::from_secs(60)).expect("the threads deadlocked");
        }
        Ok(())
    }

    /// Nobody who asks for statistics waits for a combiner that is in the kernel.
    #[test]
    fn statistics_do_not_wait_for_the_combiner() -> io::Result<()> {
        let shard = Arc::new(null()?);
        shard.abandon(&push(&shard, Schedule::Paced));
        let in_the_kernel = lock(&shard.backends);
        let (over, ends) = channel();
        let asks = shard.clone();
        std::thread::spawn(move || {
            let pushed = asks.with_stats(|stats, _| stats.counts.pushed);
            over.send((pushed, asks.explain().backend))
        });
        let answer = ends.recv_timeout(Duration::from_secs(20)).expect("it waits");
        assert_eq!(answer, (1, BackendKind::Null));
        drop(in_the_kernel);
        Ok(())
    }

    /// A future that is dropped instead of taking its result still wakes the others.
    #[test]
    fn the_last_woken_future_wakes_the_deferred_ones() -> io::Result<()> {
        struct SetOnWake(AtomicBool);
        impl std::task::Wake for SetOnWake {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        for looks in [true, false] {
            let shard = Shard::new(
                &Options::new().backend(BackendKind::Null),
                1,
                8,
                8,
                Notifier::new(false)?,
            )?;
            let push = |waker: &Waker, by_task| {
                let mut state = shard.state();
                let (group, lead) =
                    state.insert(Schedule::Paced, Executor::Manual, &mut Some(op::nop()));
                state.set_waker(lead.unwrap(), waker);
                drop(state);
                let guard = shard.combiner.try_lock().unwrap();
                shard.combine(guard, None, Executor::Manual, None, by_task);
                group
            };
            let mut first = push(Waker::noop(), false);
            let woken = Arc::new(SetOnWake(AtomicBool::new(false)));
            let second = push(&woken.clone().into(), true);
            assert!(!woken.0.load(Ordering::SeqCst), "a task leaves waking to the woken futures");
            if looks {
                assert!(shard.take(&mut first, Executor::Manual, Waker::noop()).is_some())
            } else {
                shard.abandon(&first)
            }
            assert!(woken.0.load(Ordering::SeqCst));
            shard.abandon(&second);
        }
        Ok(())
    }

    fn null() -> io::Result<Shard> {
        Shard::new(&Options::new().backend(BackendKind::Null), 1, 8, 8, Notifier::new(false)?)
    }

    fn push(shard: &Shard, schedule: Schedule) -> Group {
        shard.push(schedule, Executor::Manual, Waker::noop(), &mut Some(op::nop()), &mut None).group
    }

    /// Many pending operations of one lane do not delay operations of others.
    #[test]
    fn a_full_lane_does_not_delay_others() -> io::Result<()> {
        let shard = null()?;
        let guard = shard.combiner.try_lock();
        let mut many: Vec<Group> =
            (0..5000).map(|_| push(&shard, Schedule::Immediate(Lane::Call))).collect();
        let others = LANES.into_iter().filter(|lane| *lane != Lane::Call).map(Schedule::Immediate);
        let mut others: Vec<Group> =
            others.chain([Schedule::Paced]).map(|schedule| push(&shard, schedule)).collect();
        drop(guard);
        for _ in 0..4 {
            _ = shard.drive(Executor::Manual);
        }
        let is_done =
            |group: &mut Group| shard.take(group, Executor::Manual, Waker::noop()).is_some();
        for (number, group) in others.iter_mut().enumerate() {
            assert!(is_done(group), "number {number} waits for the full lane");
        }
        assert!(!many.iter_mut().all(is_done));
        Ok(())
    }

    /// Operations that are pending will use capacity too: a burst of opens is pushed before the
    /// first one starts.
    #[test]
    fn pending_operations_count_as_use() -> io::Result<()> {
        let shard = null()?;
        let guard = shard.combiner.try_lock();
        let opens = Schedule::Immediate(Lane::Open);
        let burst: Vec<Group> = (0..OPENS)
            .take_while(|_| !shard.is_half_used(Lane::Open))
            .map(|_| push(&shard, opens))
            .collect();
        assert_eq!(burst.len(), OPENS as usize / 2);
        drop(guard);
        for group in &burst {
            shard.abandon(group);
        }
        assert!(!shard.is_half_used(Lane::Open));
        Ok(())
    }

    /// Reports that it is being dropped, and blocks until told to continue.
    struct Slow(Sender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(());
            let _ = self.1.recv();
        }
    }

    /// An orphan may take long to drop: others combine meanwhile, even if another round was
    /// requested.
    #[test]
    fn a_slow_drop_does_not_block_others() -> io::Result<()> {
        let shard = Arc::new(null()?);
        let ((begun, has_begun), (may_end, end)) = (channel(), channel());
        let slow = Slow(begun, end);
        let work = op::blocking(move || drop(slow));
        let guard = shard.combiner.try_lock();
        let schedule = Schedule::Immediate(Lane::Closure);
        let group =
            shard.push(schedule, Executor::Manual, Waker::noop(), &mut Some(work), &mut None).group;
        let mut state = shard.state();
        state.submit(&mut lock(&shard.backends).queue, Executor::Manual, Instant::now());
        let id = *group[0].as_ref().expect("the slot is free");
        assert!(matches!(state.abandon(id), Some(Abandoned::InFlight)));
        drop(guard);
        let combines = {
            let shard = shard.clone();
            std::thread::spawn(move || shard.drive(Executor::Manual))
        };
        // It waits for the state, and will make another round.
        while shard.combiner.try_lock().is_some() {
            std::thread::yield_now();
        }
        drop(state);
        has_begun.recv_timeout(Duration::from_secs(20)).expect("the orphan is dropped");
        assert!(shard.combiner.try_lock().is_some(), "others combine");
        drop(may_end);
        assert!(combines.join().is_ok());
        Ok(())
    }
}
