//! The threads of one queue and their shared state: lanes of tasks, events, and wakeups.
//!
//! One mutex protects all of it. Waking and starting threads, and signalling eventfds, is recorded
//! in [`Deferred`] and done after the mutex is released: whoever is woken takes the mutex first
//! thing.

use super::nowait::{self, TryResult};
use super::signal::PoolSignal;
use super::watch::{self, Watch};
use crate::backend::{EventKind, FileKind, Job, JobEvent, Wait};
#[cfg(ringway_linux)]
use crate::extents;
use crate::file::Traits;
use crate::op::{DetachedOpen, Open, Raw};
use crate::refusal::errno_of;
use crate::slots::Token;
use crate::sys::eventfd::{EventFd, Numbers, wait_readable};
use crate::sys::{RawFd, libc};
use crate::thread::{PROGRAM_STACK, SYSTEM_CALL_STACK, start_thread};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

/// After a thread was refused, no other is started for this long.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// How often a call on storage is retried after EAGAIN, and the first pause before that; it doubles
/// each time.
const MAX_EAGAIN_RETRIES: u32 = 10;
const FIRST_RETRY_PAUSE: Duration = Duration::from_micros(500);

/// How often a call is retried at once after EINTR. It is no signal, which reaches no thread of the
/// pool (unless it stops the process), but what a file system answers, and may answer for ever: so
/// the queue decides then, which knows of cancels and time limits.
const MAX_EINTR_RETRIES: u32 = 10;

/// How often a worker yields before it sleeps. Under load there is work again by then, which saves
/// two context switches and two futex calls.
const LINGER: u32 = 4;

/// A yield that takes longer than this means that other threads compute rather than wait for I/O,
/// and yielding to them delays work. Then no worker yields for a while.
const SLOW_YIELD: Duration = Duration::from_micros(500);
const NO_LINGER_AFTER_SLOW_YIELD: Duration = Duration::from_millis(100);

/// How often a lane is checked while all its threads are in calls and more tasks wait: a tick.
pub(super) const LANE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A call that has run for this long is hung: its thread no longer counts, and another replaces it.
const CALL_HUNG_AFTER: Duration = Duration::from_secs(2);

/// If no call of a lane has ended for this long, all its calls are hung, by [`Role`]. Syncs get
/// longer than other I/O, and closures longer still.
const LANE_HUNG_AFTER: [Duration; LANE_ROLES.len()] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(2),
    Duration::from_millis(500),
];

/// The same, once some calls of the lane are hung: others probably hang for the same reason. The
/// number of threads doubles each time, so that a thousand calls that hang delay another one by
/// less than a second.
const LANE_FURTHER_HUNG_AFTER: [Duration; LANE_ROLES.len()] = [
    Duration::from_millis(100),
    Duration::from_millis(50),
    Duration::from_secs(2),
    Duration::from_millis(50),
];

/// The most hung threads of a lane. Beyond that, tasks wait until one returns.
const MAX_HUNG_THREADS: usize = 1024;

/// The most opens that wait, mostly for the other end of a FIFO; another one fails with EAGAIN.
/// Also the most blocking calls on streams.
const MAX_WAITING: usize = 1024;

/// A job and its route through the pool.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub job: Job,
    pub route: Route,
}

// SAFETY: a job holds plain numbers and addresses. Any thread may use what they point at until
// `enter` has returned the job's event: the caller of `Backend::push` guarantees that.
unsafe impl Send for Task {}

/// Where a task goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To a worker. `blocks`: the call probably waits for a device, so it is worth a thread of its
    /// own.
    Worker { blocks: bool },
    /// To a worker, for a blocking call on a stream that was just ready.
    ReadyStream,
    /// To the watcher. `nowait`: the file supports calls that do not wait.
    Watcher { nowait: bool },
}

/// The result of a worker's or the watcher's work on a task.
pub(super) enum TaskResult {
    Done(i64),
    Wait {
        nowait: bool,
    },
    /// The blocking call on a stream that was ready found that it is not.
    FalselyReady,
    /// It may wait forever, so it needs a thread of its own.
    Open(DetachedOpen),
}

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Io = 0,
    Sync = 1,
    /// Blocking calls on streams: one at a time for each descriptor, right after it was ready.
    Stream = 2,
    /// Closures ([`crate::op::blocking`]), which may take any time.
    Closure = 3,
    Watcher,
}

const LANE_ROLES: [Role; 4] = [Role::Io, Role::Sync, Role::Stream, Role::Closure];

/// The most threads for closures, not counting hung ones.
const CLOSURE_WORKERS: usize = 16;

impl Role {
    fn thread_name(self) -> &'static CStr {
        match self {
            Self::Io => c"ringway-io",
            Self::Sync => c"ringway-sync",
            Self::Stream => c"ringway-stream",
            Self::Closure => c"ringway-call",
            Self::Watcher => c"ringway-watch",
        }
    }

    fn stack_size(self) -> usize {
        if self == Self::Closure { PROGRAM_STACK } else { SYSTEM_CALL_STACK }
    }

    fn of(task: &Task) -> Self {
        match task.route {
            Route::ReadyStream => Self::Stream,
            _ if task.job.raw.is_sync() => Self::Sync,
            _ if matches!(task.job.raw, Raw::Blocking(_)) => Self::Closure,
            _ => Self::Io,
        }
    }
}

/// A queue of tasks, and the threads for it.
struct WorkerLane {
    queue: VecDeque<Task>,
    /// The most threads.
    max_threads: usize,
    /// Threads, including those being started.
    threads: usize,
    /// Threads that will look for work anyway: being started, woken, or yielding.
    waking: usize,
    /// Sleeping threads. The last one to fall asleep is woken first, so that the others may end.
    idle: Vec<(ThreadId, Thread)>,
    no_linger_before: Option<Instant>,
    calls: Calls,
}

/// The calls that a lane's threads are making.
#[derive(Default)]
struct Calls {
    running: Vec<Option<RunningCall>>,
    free: Vec<usize>,
    /// Advances while the lane is checked.
    tick: u32,
    /// The tick of the last call that ended.
    ended: u32,
    /// The number of hung calls.
    hung: usize,
}

struct RunningCall {
    /// The tick at which it started.
    began: u32,
    hung: bool,
}

/// The number of ticks in this time.
fn ticks(time: Duration) -> u32 {
    time.as_millis().div_ceil(LANE_CHECK_INTERVAL.as_millis()) as u32
}

impl Calls {
    /// Starts a call; returns its number.
    fn begin(&mut self) -> usize {
        let call = Some(RunningCall { began: self.tick, hung: false });
        match self.free.pop() {
            Some(number) => {
                self.running[number] = call;
                number
            }
            None => {
                self.running.push(call);
                self.running.len() - 1
            }
        }
    }

    fn end(&mut self, number: usize) {
        let call = self.running[number].take();
        self.free.push(number);
        self.hung -= usize::from(call.is_some_and(|call| call.hung));
        self.ended = self.tick;
    }

    /// Advances the tick; returns how many calls are found hung. If none has ended for `all_after`,
    /// all are that started before.
    fn tick(&mut self, all_after: Duration) -> usize {
        self.tick = self.tick.wrapping_add(1);
        let none_ends = self.tick.wrapping_sub(self.ended) >= ticks(all_after);
        let age = ticks(if none_ends { all_after } else { CALL_HUNG_AFTER });
        let before = self.hung;
        for call in self.running.iter_mut().flatten() {
            if !call.hung
                && self.hung < MAX_HUNG_THREADS
                && self.tick.wrapping_sub(call.began) >= age
            {
                call.hung = true;
                self.hung += 1;
            }
        }
        self.hung - before
    }
}

impl WorkerLane {
    fn new(max_threads: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            max_threads: max_threads.max(1),
            threads: 0,
            waking: 0,
            idle: Vec::new(),
            no_linger_before: None,
            calls: Calls::default(),
        }
    }

    /// The most threads now: if many calls are hung, many more may become so.
    fn limit(&self) -> usize {
        self.max_threads.max(self.calls.hung) + self.calls.hung
    }

    /// True if tasks wait while all threads are in calls, because of the limit or because no thread
    /// could be started.
    fn is_behind(&self) -> bool {
        !self.queue.is_empty() && self.waking == 0 && self.idle.is_empty() && self.threads > 0
    }

    /// True if a worker without work should yield before it sleeps: other threads are in calls, so
    /// more work will probably follow.
    fn may_linger(&self) -> bool {
        let busy = self.threads.saturating_sub(self.idle.len() + self.waking + self.calls.hung);
        busy > 1 && self.no_linger_before.is_none_or(|time| Instant::now() >= time)
    }

    /// True if tasks wait and all threads are hung.
    fn is_unattended(&self) -> bool {
        !self.queue.is_empty() && self.threads <= self.calls.hung
    }
}

/// Actions to do after the mutex is released.
#[derive(Default)]
pub(super) struct Deferred {
    owner: bool,
    idle: Vec<Thread>,
    start: [usize; LANE_ROLES.len()],
    start_watcher: bool,
    opens: Vec<(Token, DetachedOpen)>,
}

impl Deferred {
    pub fn any(&self) -> bool {
        self.owner
            || !self.idle.is_empty()
            || self.start.iter().any(|threads| *threads > 0)
            || self.start_watcher
            || !self.opens.is_empty()
    }
}

/// State shared by the owner of the pool and its threads.
pub(super) struct Shared {
    state: Mutex<PoolState>,
    /// The owner of the pool waits for it.
    owner_wakeup: Condvar,
    pub idle: Duration,
    /// The numbers of all eventfds of the state, to find them in a forked child without the mutex.
    eventfds: [Numbers; 2],
}

pub(super) struct PoolState {
    lanes: [WorkerLane; LANE_ROLES.len()],
    /// Opens that wait, each in a thread of its own, and were not cancelled.
    opening: Vec<Token>,
    /// Their threads, including those of cancelled opens.
    open_threads: usize,
    pub watch: Watch,
    pub events: Vec<JobEvent>,
    /// While the reaping thread waits: the number of events it waits for.
    wanted: Option<usize>,
    signal: PoolSignal,
    pub closed: bool,
    /// Tasks that a thread has taken and not finished.
    running_tasks: usize,
    /// System calls made by the threads.
    pub calls: u64,
    /// Why a thread could not be started, until the owner has seen it.
    pub refused: Option<i32>,
    no_start_before: Option<Instant>,
}

impl Shared {
    pub fn new(workers: usize, sync_workers: usize, idle: Duration) -> Self {
        let state = PoolState {
            lanes: [workers, sync_workers, MAX_WAITING, CLOSURE_WORKERS].map(WorkerLane::new),
            opening: Vec::new(),
            open_threads: 0,
            watch: Watch::default(),
            events: Vec::new(),
            wanted: None,
            signal: PoolSignal::default(),
            closed: false,
            running_tasks: 0,
            calls: 0,
            refused: None,
            no_start_before: None,
        };
        let eventfds = [state.signal.numbers(), state.watch.wake_numbers()];
        Self { state: Mutex::new(state), owner_wakeup: Condvar::new(), idle, eventfds }
    }

    /// The descriptors of the pool. Takes no lock.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let numbers = self.eventfds.iter().flat_map(|numbers| numbers.iter());
        let numbers = numbers.map(|number| number.load(Ordering::Relaxed) as RawFd);
        numbers.filter(|number| *number >= 0).collect()
    }

    pub fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code panics while it holds the lock; the state would be consistent even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the descriptors of a closed pool, which its threads may outlive. The watcher, which
    /// was woken, must have left poll(2) first: another file may get the number of its eventfd.
    pub fn close_descriptors(&self) {
        let mut state = self.lock();
        while state.watch.polling {
            state = self.owner_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.signal.close();
        state.watch.close_wake();
    }

    /// Tells [`close_descriptors`](Self::close_descriptors) that the watcher has left poll(2).
    pub fn watcher_left_poll(&self) {
        self.owner_wakeup.notify_one();
    }

    /// Waits until there are `wanted` events, unattended work, or until `until`.
    pub fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, PoolState>,
        wanted: usize,
        until: Option<Instant>,
    ) -> MutexGuard<'a, PoolState> {
        while state.events.len() < wanted && !state.unattended() {
            state.wanted = Some(wanted);
            state = match until {
                None => self.owner_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.owner_wakeup
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        state.wanted = None;
        state
    }

    /// As [`wait`](Self::wait), and a signal ends it. A condition variable would wait on: its
    /// system call is restarted after a handler with `SA_RESTART`, but poll(2) never is.
    pub fn wait_interruptibly<'a>(
        &'a self,
        mut state: MutexGuard<'a, PoolState>,
        wanted: usize,
        until: Option<Instant>,
    ) -> (MutexGuard<'a, PoolState>, Wait) {
        while state.events.len() < wanted && !state.unattended() {
            let readable = state.signal_fd().and_then(|fd| {
                drop(state);
                wait_readable([fd], until)
            });
            state = self.lock();
            state.calls += 1;
            state.lower();
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            // (Neither call fails: the eventfd was made with the pool.)
            if is_over || readable.map_or(true, |readable| readable == [false]) {
                return (state, Wait::cut_short(until));
            }
        }
        (state, Wait::Ended)
    }
}

impl PoolState {
    /// Adds an event. Wakes the reaping thread once there are as many as it waits for.
    pub fn push_event(&mut self, token: Token, kind: EventKind, deferred: &mut Deferred) {
        self.events.push(JobEvent { token, kind });
        match self.wanted {
            None => self.raise(),
            Some(wanted) if self.events.len() == wanted => deferred.owner = true,
            Some(_) => {}
        }
    }

    /// Makes the descriptor readable, if it exists.
    pub fn raise(&mut self) {
        self.calls += self.signal.raise();
    }

    fn lower(&mut self) {
        self.calls += self.signal.lower();
    }

    /// The descriptor; made by the first call.
    pub fn signal_fd(&mut self) -> io::Result<RawFd> {
        self.signal.get_or_make()
    }

    /// The eventfd of [`signal_fd`](Self::signal_fd), if that was called.
    pub fn signal_eventfd(&self) -> Option<Arc<EventFd>> {
        self.signal.share()
    }

    /// Signals this eventfd too. Only its owner drains it.
    pub fn forward_signal_to(&mut self, eventfd: Arc<EventFd>) {
        self.signal.forward_to(eventfd);
    }

    /// Takes all events, in exchange for an empty list.
    pub fn take_events(&mut self, empty: &mut Vec<JobEvent>) {
        self.lower();
        std::mem::swap(&mut self.events, empty);
    }

    /// Passes tasks to the lanes and the watcher, and wakes or starts threads.
    pub fn distribute(&mut self, tasks: impl Iterator<Item = Task>, deferred: &mut Deferred) {
        let mut blocking = [0; LANE_ROLES.len()];
        for task in tasks {
            if let Route::Watcher { nowait } = task.route {
                self.watch.insert(task.job, nowait);
            } else {
                let lane = Role::of(&task) as usize;
                blocking[lane] += usize::from(task.route == Route::Worker { blocks: true });
                self.lanes[lane].queue.push_back(task);
            }
        }
        for role in LANE_ROLES {
            self.wake_or_start(role, blocking[role as usize], deferred);
        }
        self.attend_watch(deferred);
    }

    /// Wakes or starts threads for queued tasks: `blocking` of them at once, otherwise one, which
    /// wakes the next if tasks are left. So short calls do not cause more threads than they need.
    fn wake_or_start(&mut self, role: Role, blocking: usize, deferred: &mut Deferred) {
        let may_start = self.may_start();
        let lane = &mut self.lanes[role as usize];
        let waiting = lane.queue.len().saturating_sub(lane.waking);
        let enough = if lane.waking == 0 { 1 } else { 0 };
        for _ in 0..waiting.min(blocking.max(enough)) {
            if let Some((_, thread)) = lane.idle.pop() {
                deferred.idle.push(thread);
            } else if lane.threads < lane.limit() && may_start {
                lane.threads += 1;
                deferred.start[role as usize] += 1;
            } else {
                break;
            }
            lane.waking += 1;
        }
        if lane.is_behind() && lane.calls.hung < MAX_HUNG_THREADS {
            self.watch.schedule_lane_check();
            if !self.watch.running {
                self.start_watcher(deferred);
            }
            self.wake_for_unattended(deferred);
        }
    }

    /// Replaces hung threads, so that calls that hang on one file system do not delay others.
    pub fn replace_hung(&mut self, deferred: &mut Deferred) {
        for role in LANE_ROLES {
            let lane = &mut self.lanes[role as usize];
            if lane.is_behind() {
                let none = lane.calls.hung == 0;
                let after = if none { LANE_HUNG_AFTER } else { LANE_FURTHER_HUNG_AFTER };
                lane.calls.tick(after[role as usize]);
                let more = lane.limit().saturating_sub(lane.threads);
                self.wake_or_start(role, more, deferred);
            }
        }
    }

    /// Starts the watcher if there is something to watch.
    pub fn attend_watch(&mut self, deferred: &mut Deferred) {
        if self.watch_unattended() {
            self.start_watcher(deferred);
        }
        self.wake_for_unattended(deferred);
    }

    fn start_watcher(&mut self, deferred: &mut Deferred) {
        if self.may_start() {
            match self.watch.prepare() {
                Ok(()) => {
                    self.watch.running = true;
                    deferred.start_watcher = true;
                }
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// Wakes the reaping thread for work without a thread: it must do it itself.
    fn wake_for_unattended(&mut self, deferred: &mut Deferred) {
        if self.unattended() {
            self.raise();
            deferred.owner = true;
        }
    }

    fn may_start(&mut self) -> bool {
        self.no_start_before.is_none_or(|time| Instant::now() >= time)
    }

    fn refuse(&mut self, error: &io::Error) {
        self.refused = Some(error.raw_os_error().unwrap_or(libc::EAGAIN));
        self.no_start_before = Some(Instant::now() + AFTER_REFUSAL);
    }

    /// True if there is work without a thread: the reaping thread must do it.
    pub fn unattended(&self) -> bool {
        self.watch_unattended() || self.lanes.iter().any(WorkerLane::is_unattended)
    }

    pub fn watch_unattended(&self) -> bool {
        !self.watch.running && !self.watch.is_idle()
    }

    /// Takes a task of a lane without threads for it.
    pub fn take_unattended(&mut self) -> Option<Task> {
        let role =
            LANE_ROLES.into_iter().find(|role| self.lanes[*role as usize].is_unattended())?;
        self.take(role)
    }

    fn take(&mut self, role: Role) -> Option<Task> {
        let task = self.lanes[role as usize].queue.pop_front()?;
        if task.route != Route::ReadyStream && may_block(&task.job) {
            self.watch.mark_running(&task.job, false);
        }
        self.running_tasks += 1;
        Some(task)
    }

    /// Marks a transfer that the watcher tries itself.
    pub fn start_try(&mut self, job: &Job) {
        self.watch.mark_running(job, false);
        self.running_tasks += 1;
    }

    /// Passes a stream that was ready to a worker, for the blocking call.
    pub fn call_ready(&mut self, job: Job, deferred: &mut Deferred) {
        self.lanes[Role::Stream as usize].queue.push_back(Task { job, route: Route::ReadyStream });
        self.wake_or_start(Role::Stream, 1, deferred);
        self.wake_for_unattended(deferred);
    }

    /// Records the result of a task.
    pub fn settle(&mut self, job: &Job, result: TaskResult, deferred: &mut Deferred) {
        self.running_tasks -= 1;
        let cancelled = may_block(job) && self.watch.unmark_running(job.token);
        match result {
            TaskResult::Done(result) => {
                self.push_event(job.token, EventKind::Result(result), deferred)
            }
            TaskResult::Wait { .. } | TaskResult::FalselyReady | TaskResult::Open(_)
                if cancelled =>
            {
                self.push_event(job.token, CANCELED, deferred)
            }
            TaskResult::FalselyReady => {
                self.watch.insert_falsely_ready(*job);
                self.attend_watch(deferred);
            }
            TaskResult::Wait { nowait } => {
                self.watch.insert(*job, nowait);
                self.attend_watch(deferred);
            }
            TaskResult::Open(_) if self.open_threads >= MAX_WAITING => {
                self.push_event(job.token, NO_THREAD, deferred)
            }
            TaskResult::Open(open) => {
                self.open_threads += 1;
                self.opening.push(job.token);
                deferred.opens.push((job.token, open));
            }
        }
    }

    /// Records the result of an open that waited. If it was cancelled, its event was returned
    /// before, and the file is closed.
    fn opened(&mut self, token: Token, result: i64, deferred: &mut Deferred) {
        self.open_threads -= 1;
        match self.opening.iter().position(|opening| *opening == token) {
            Some(at) if !self.closed => {
                self.opening.swap_remove(at);
                self.push_event(token, EventKind::Result(result), deferred);
            }
            _ => drop(Open::opened(result)),
        }
    }

    /// Cancels a task that has not started, or that waits. A waiting open completes now; its thread
    /// continues until the call returns, and shares nothing with the operation.
    pub fn cancel(&mut self, token: Token, deferred: &mut Deferred) {
        for role in LANE_ROLES {
            let queue = &mut self.lanes[role as usize].queue;
            if let Some(at) = queue.iter().position(|task| task.job.token == token) {
                queue.remove(at);
                self.watch.unmark_running(token);
                return self.push_event(token, CANCELED, deferred);
            }
        }
        if let Some(at) = self.opening.iter().position(|opening| *opening == token) {
            self.opening.swap_remove(at);
            self.push_event(token, CANCELED, deferred);
        } else if self.watch.cancel(token) {
            self.push_event(token, CANCELED, deferred);
        }
    }

    /// Closes the pool: no queued task is started any more, and threads that are not in a call end.
    pub fn close(&mut self, deferred: &mut Deferred) {
        self.closed = true;
        for lane in &mut self.lanes {
            lane.queue.clear();
            // A woken thread decrements it again.
            lane.waking += lane.idle.len();
            deferred.idle.extend(lane.idle.drain(..).map(|(_, thread)| thread));
        }
        self.watch.wake();
    }

    /// Checks that each of the `pending` jobs is in exactly one place (unless the pool was closed),
    /// and that no more threads are idle or waking than exist.
    pub fn check(&self, pending: usize) {
        let queued: usize = self.lanes.iter().map(|lane| lane.queue.len()).sum();
        let completed = self.events.iter().filter(|event| event.kind.is_completion()).count();
        let places = [queued, self.running_tasks, self.watch.jobs(), self.opening.len(), completed];
        assert!(
            self.closed || places.iter().sum::<usize>() == pending,
            "{pending} jobs are pending, and {places:?} found"
        );
        for lane in &self.lanes {
            assert!(
                lane.idle.len() + lane.waking <= lane.threads,
                "more threads are idle or coming than there are"
            );
        }
        assert!(self.opening.len() <= self.open_threads);
    }

    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queue.len()).sum()
    }

    #[cfg(test)]
    pub fn threads(&self) -> [usize; 3] {
        [self.lanes[0].threads, self.lanes[1].threads, usize::from(self.watch.running)]
    }
}

/// The result of a task that was cancelled before it started.
pub(super) const CANCELED: EventKind = EventKind::Result(-(libc::ECANCELED as i64));

/// The result of an open that would need a thread of its own beyond the limit.
const NO_THREAD: EventKind = EventKind::Result(-(libc::EAGAIN as i64));

/// True for tasks that may have to wait for a stream, or for the other end of a FIFO.
fn may_block(job: &Job) -> bool {
    job.file != FileKind::Storage && job.raw.is_transfer() || matches!(job.raw, Raw::Open(_))
}

/// Does the deferred actions.
pub(super) fn run_deferred(shared: &Arc<Shared>, deferred: &mut Deferred) {
    if std::mem::take(&mut deferred.owner) {
        shared.owner_wakeup.notify_one();
    }
    for thread in deferred.idle.drain(..) {
        thread.unpark();
    }
    for role in LANE_ROLES {
        for _ in 0..std::mem::take(&mut deferred.start[role as usize]) {
            start(shared, role);
        }
    }
    if std::mem::take(&mut deferred.start_watcher) {
        start(shared, Role::Watcher);
    }
    for (token, open) in std::mem::take(&mut deferred.opens) {
        start_open(shared, token, open);
    }
}

/// Starts a thread for one open that may wait forever.
fn start_open(shared: &Arc<Shared>, token: Token, open: DetachedOpen) {
    let own = Arc::clone(shared);
    let completed = move |shared: &Arc<Shared>, result, calls| {
        let mut deferred = Deferred::default();
        let mut state = shared.lock();
        state.calls += calls;
        state.opened(token, result, &mut deferred);
        drop(state);
        run_deferred(shared, &mut deferred);
    };
    let started = start_thread(c"ringway-open", SYSTEM_CALL_STACK, move || {
        // (Signals are blocked, so nothing interrupts the call.)
        completed(&own, open.call(), 1);
    });
    if let Err(error) = started {
        shared.lock().refuse(&error);
        completed(shared, -i64::from(libc::EAGAIN), 0);
    }
}

/// Starts a thread that is counted already. If that fails, it is not counted any more, and the
/// owner is woken, which may have to do its work.
fn start(shared: &Arc<Shared>, role: Role) {
    let own = Arc::clone(shared);
    let started = start_thread(role.thread_name(), role.stack_size(), move || match role {
        Role::Watcher => watch::run(&own),
        lane => work(&own, lane),
    });
    let Err(error) = started else { return };
    let mut deferred = Deferred::default();
    let mut state = shared.lock();
    state.refuse(&error);
    if role == Role::Watcher {
        state.watch.running = false;
    } else {
        let lane = &mut state.lanes[role as usize];
        lane.threads -= 1;
        lane.waking -= 1;
        // The lane's other threads may be hung, so this schedules a check that tries again.
        state.wake_or_start(role, 0, &mut deferred);
    }
    state.wake_for_unattended(&mut deferred);
    drop(state);
    run_deferred(shared, &mut deferred);
}

/// Runs a worker. It records a result and takes its next task under one lock.
fn work(shared: &Arc<Shared>, role: Role) {
    let this = thread::current();
    let mut deferred = Deferred::default();
    let mut lingered = 0;
    let mut state = shared.lock();
    state.lanes[role as usize].waking -= 1;
    loop {
        let closed = state.closed;
        let lane = &mut state.lanes[role as usize];
        // A hung thread that has returned may be one too many.
        if closed || lane.threads > lane.limit() {
            lane.threads -= 1;
            if !closed {
                // It may have been woken for a task, which another thread must do then.
                state.wake_or_start(role, 0, &mut deferred);
            }
            drop(state);
            return run_deferred(shared, &mut deferred);
        }
        let Some(task) = state.take(role) else {
            if lingered < LINGER && state.lanes[role as usize].may_linger() {
                lingered += 1;
                state.lanes[role as usize].waking += 1;
                drop(state);
                run_deferred(shared, &mut deferred);
                let before = Instant::now();
                thread::yield_now();
                let took = before.elapsed();
                state = shared.lock();
                let lane = &mut state.lanes[role as usize];
                lane.waking = lane.waking.saturating_sub(1);
                if took > SLOW_YIELD {
                    lane.no_linger_before = Some(before + took + NO_LINGER_AFTER_SLOW_YIELD);
                }
                continue;
            }
            state.lanes[role as usize].idle.push((this.id(), this.clone()));
            drop(state);
            run_deferred(shared, &mut deferred);
            match sleep(shared, role, &this) {
                Some(awake) => state = awake,
                None => return,
            }
            continue;
        };
        lingered = 0;
        state.wake_or_start(role, 0, &mut deferred);
        let call = state.lanes[role as usize].calls.begin();
        drop(state);
        run_deferred(shared, &mut deferred);
        let mut calls = 0;
        let result = run(&task, &mut calls);
        state = shared.lock();
        state.calls += calls;
        state.lanes[role as usize].calls.end(call);
        match result {
            result if !state.closed => state.settle(&task.job, result, &mut deferred),
            TaskResult::Done(result) if matches!(task.job.raw, Raw::Open(_)) => {
                drop(Open::opened(result))
            }
            _ => {}
        }
    }
}

/// Sleeps until woken. `None` if that did not happen within the idle time: the thread is not
/// counted any more.
fn sleep<'a>(shared: &'a Shared, role: Role, this: &Thread) -> Option<MutexGuard<'a, PoolState>> {
    let until = Instant::now() + shared.idle;
    loop {
        thread::park_timeout(until.saturating_duration_since(Instant::now()));
        let mut state = shared.lock();
        let lane = &mut state.lanes[role as usize];
        // The waker removes the thread from the list.
        let Some(at) = lane.idle.iter().position(|(id, _)| *id == this.id()) else {
            lane.waking = lane.waking.saturating_sub(1);
            return Some(state);
        };
        if Instant::now() >= until {
            lane.idle.remove(at);
            lane.threads -= 1;
            return None;
        }
    }
}

/// Makes the calls of a task.
pub(super) fn run(task: &Task, calls: &mut u64) -> TaskResult {
    let job = &task.job;
    if let Raw::Open(open) = &job.raw {
        *calls += 1;
        let own_thread = || {
            open.detach().map_or_else(
                |error| TaskResult::Done(-i64::from(errno_of(&error))),
                TaskResult::Open,
            )
        };
        if open.may_wait() {
            return own_thread();
        }
        let result = call_storage(&open.without_waiting().into(), calls);
        return open.opened_without_waiting(result).map_or_else(own_thread, TaskResult::Done);
    }
    #[cfg(ringway_linux)]
    if let (true, Some(fd)) = (job.reads_extents, job.raw.fd()) {
        *calls += extents::load(fd);
    }
    if !may_block(job) {
        return TaskResult::Done(call_storage(&job.raw, calls));
    }
    if task.route == Route::ReadyStream {
        return call_ready_stream(&job.raw, calls);
    }
    if job.file == FileKind::Unknown {
        *calls += 1;
        if job.raw.fd().is_none_or(is_storage) {
            return TaskResult::Done(call_storage(&job.raw, calls));
        }
    }
    match nowait::try_stream(&job.raw, calls) {
        TryResult::Done(result) => TaskResult::Done(result),
        TryResult::NotReady => TaskResult::Wait { nowait: true },
        TryResult::Unsupported => TaskResult::Wait { nowait: false },
    }
}

/// Makes a call that ends by itself. What it answers is the answer, also if a file system answers
/// EAGAIN; only an NVMe namespace that has no path at the moment is asked again.
fn call_storage(raw: &Raw, calls: &mut u64) -> i64 {
    let retries = if matches!(raw, Raw::Flush(_)) { MAX_EAGAIN_RETRIES } else { 0 };
    // An interrupted close has closed the descriptor. Of a sync it may be the error of lost data,
    // which a second one would not return.
    let is_final = matches!(raw, Raw::Close(_)) || raw.is_sync();
    let interrupted = if is_final { 0 } else { MAX_EINTR_RETRIES };
    retry_call(retries, interrupted, || {
        *calls += 1;
        raw.call()
    })
}

/// Calls again after so many EAGAIN, with longer and longer pauses, and after so many EINTR, with a
/// pause before the last call: the queue may make the same call again.
fn retry_call(mut retries: u32, mut interrupted: u32, mut call: impl FnMut() -> i64) -> i64 {
    let mut pause = FIRST_RETRY_PAUSE;
    loop {
        let result = call();
        match i32::try_from(-result) {
            Ok(libc::EINTR) if interrupted > 0 => {
                interrupted -= 1;
                if interrupted == 0 {
                    thread::sleep(FIRST_RETRY_PAUSE);
                }
            }
            Ok(libc::EAGAIN) if retries > 0 => {
                retries -= 1;
                thread::sleep(pause);
                pause *= 2;
            }
            _ => return result,
        }
    }
}

/// Makes a blocking call on a stream that was just ready. With `O_NONBLOCK` it fails with EAGAIN if
/// the stream is no longer ready.
fn call_ready_stream(raw: &Raw, calls: &mut u64) -> TaskResult {
    let result = retry_call(0, MAX_EINTR_RETRIES, || {
        *calls += 1;
        raw.call()
    });
    match i32::try_from(-result) {
        Ok(libc::EAGAIN) => TaskResult::FalselyReady,
        _ => TaskResult::Done(result),
    }
}

/// True for files that need no poll(2), and for bad descriptors, for which the call itself fails.
fn is_storage(fd: RawFd) -> bool {
    Traits::of(fd).kind == FileKind::Storage
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path to a namespace may never come back, and a server may answer EINTR for ever.
    #[test]
    fn a_call_is_retried_a_bounded_number_of_times() {
        for (retries, interrupted, errno, expected) in [
            (0, 5, libc::EAGAIN, 1),
            (3, 5, libc::EAGAIN, 4),
            (3, 5, libc::EIO, 1),
            (3, 0, libc::EINTR, 1),
            (3, 5, libc::EINTR, 6),
        ] {
            let mut calls = 0;
            let result = retry_call(retries, interrupted, || {
                calls += 1;
                assert!(calls <= expected, "errno {errno} is retried without a bound");
                -i64::from(errno)
            });
            assert_eq!((result, calls), (-i64::from(errno), expected));
        }
        let mut left = MAX_EINTR_RETRIES;
        let after_signals = || {
            left -= 1;
            if left > 0 { -i64::from(libc::EINTR) } else { 7 }
        };
        assert_eq!(retry_call(0, MAX_EINTR_RETRIES, after_signals), 7);
    }

    #[test]
    #[should_panic = "1 jobs are pending"]
    fn a_lost_job_is_detected() {
        let shared = Shared::new(1, 1, Duration::ZERO);
        shared.lock().check(0);
        shared.lock().check(1);
    }

    #[test]
    fn calls_are_hung_if_none_of_them_ends() {
        let mut calls = Calls::default();
        let [first, second] = [calls.begin(), calls.begin()];
        assert_eq!(calls.tick(2 * LANE_CHECK_INTERVAL), 0);
        let third = calls.begin();
        assert_eq!((calls.tick(2 * LANE_CHECK_INTERVAL), calls.hung), (2, 2));
        calls.end(first);
        assert_eq!(calls.hung, 1);
        calls.end(second);
        calls.end(third);
        assert_eq!(
            (calls.hung, calls.tick(2 * LANE_CHECK_INTERVAL), calls.tick(2 * LANE_CHECK_INTERVAL)),
            (0, 0, 0)
        );
    }

    #[test]
    fn one_call_is_hung_while_others_end() {
        let mut calls = Calls::default();
        let hangs = calls.begin();
        for tick in 1..=ticks(CALL_HUNG_AFTER) {
            let ends = calls.begin();
            calls.end(ends);
            assert_eq!(
                calls.tick(2 * LANE_CHECK_INTERVAL),
                usize::from(tick == ticks(CALL_HUNG_AFTER)),
                "{tick}"
            );
        }
        calls.end(hangs);
        assert_eq!(calls.hung, 0);
    }

    /// Hundreds of hung calls in a lane of a few threads are all found within some ticks.
    #[test]
    fn hung_threads_are_replaced() {
        let mut lane = WorkerLane::new(4);
        let rounds = (1..).find(|_| {
            for _ in lane.calls.running.len()..lane.limit() {
                _ = lane.calls.begin();
            }
            lane.calls.tick(LANE_CHECK_INTERVAL);
            lane.calls.hung > 300
        });
        assert!(rounds < Some(10), "{rounds:?}");
    }

    #[test]
    fn the_number_of_hung_calls_is_bounded() {
        let mut calls = Calls::default();
        for _ in 0..MAX_HUNG_THREADS + 10 {
            _ = calls.begin();
        }
        assert_eq!(
            (calls.tick(LANE_CHECK_INTERVAL), calls.tick(LANE_CHECK_INTERVAL)),
            (MAX_HUNG_THREADS, 0)
        );
    }
}
