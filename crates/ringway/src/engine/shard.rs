//! A shard: one queue, the futures that wait on it, and the rule of who moves it along.
//!
//! A future puts its operations into the front, under a lock held for a moment. When it is time ([`Pace`]), whoever is there
//! goes through the [`Turnstile`] and has the ring to itself: it gives the queue what waits, submits, takes what has
//! completed, hands it to the waiters, and wakes them outside all locks. Who finds the turnstile taken leaves word
//! and goes on. So nobody waits for anybody who is in the kernel.

use super::pace::{Pace, Work};
use super::reaper::Alarm;
use super::room::Room;
use super::stats::Recorder;
use super::turnstile::Turnstile;
use super::waiters::{Answered, Few, GivenUp, Key, Next, Outcome, Refused, Waiters};
use ringway_core::{BackendKind, Completions, Counts, Explanation, OpId, Operation, Options, Queue, Stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How an operation takes its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A transfer of storage: it may gather with others into a group, and no more are in flight than the device can use.
    Paced,
    /// Anything else: it is entered at once, if its lane has room.
    Now(Lane),
}

/// Operations that are entered at once. Each kind has room of its own, so that those which wait (for the other end of a pipe,
/// for a disk that hangs) keep no other kind from its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Metadata, names, closing.
    Call,
    /// Opens; that of a FIFO may wait for ever.
    Open,
    /// Syncs. Operations that are pushed together are a chain: writes, and the sync behind them.
    Sync,
    /// What may wait for ever: reads and writes of pipes, sockets, terminals.
    Wait,
    /// Closures on threads: nobody knows how long they take.
    Closure,
}

const LANES: [Lane; 5] = [Lane::Call, Lane::Open, Lane::Sync, Lane::Wait, Lane::Closure];

/// Rooms of the lanes whose operations end by themselves, mostly.
const CALLS: u32 = 1024;
const OPENS: u32 = 1024;
/// Some for each thread that there is for them.
const CLOSURES: u32 = 64;
/// On uring each sync has a kernel thread while it waits, of those that opens need too: fewer than there may be.
pub(super) const SYNCS: u32 = 16;

/// The most operations of a kind that are written off because they hang: transfers of storage, syncs, closures. Each may keep
/// a thread.
const MOST_STUCK: u32 = 1024;
/// When no sync, or no closure, has completed for so long, those that are older are stuck.
const STALLED_SYNCS: Duration = Duration::from_millis(250);
const STALLED_CLOSURES: Duration = Duration::from_millis(500);

/// So long a backend that has failed for good is waited for, in all.
const FAILED: Duration = Duration::from_secs(1);
/// A backend that has no memory for so long has failed for good.
const NO_MEMORY: Duration = Duration::from_secs(10);

/// The most rounds that one thread makes for others in a row, before it leaves the rest to the reaper.
const MOST_ROUNDS: usize = 16;

pub(crate) struct Shard {
    front: Mutex<Front>,
    ring: Mutex<Ring>,
    turnstile: Turnstile,
    /// Readable when there may be something to reap.
    readable: OwnedFd,
    /// How often it has been moved along.
    turns: AtomicU64,
    /// How often completions were picked up.
    pickups: AtomicU64,
    /// Somebody has made the most rounds, and left the next to whoever hears the alarm.
    left_over: AtomicBool,
    /// The backend has failed for good.
    over: AtomicBool,
    alarm: Arc<Alarm>,
}

/// What the reaper has seen of a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    turns: u64,
    pickups: u64,
    promises: u64,
    /// Of transfers of storage.
    pub(super) moves: u64,
}

/// How a shard does, as the reaper finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing has happened, and there is nothing to do.
    Still,
    /// Somebody moves it.
    Moving,
    /// Operations wait for room that others do not leave: some of those may be written off before long.
    Waiting,
    /// There is something to do, and nobody has come.
    Late,
}

/// What an operation that could be entered, or a wake-up that could be told, waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// The task that a reaper has promised.
    Promise,
    /// As many as make a group, or completions.
    Group,
    /// Completions, or that what hangs is written off.
    Room,
}

/// What futures touch.
struct Front {
    waiters: Waiters,
    /// Whose turn comes when a group has gathered, and when there is room.
    paced: Inbox,
    /// Whose turn is now, by their [`Lane`].
    now: [Now; LANES.len()],
    cancels: Vec<OpId>,
    pace: Pace,
    /// Everything is to be entered that there is room for.
    flush: bool,
    /// The thread that enters copies what goes through the page cache, so an enter takes only so much of that.
    enter_copies: bool,
    /// The reapers' business.
    reapers: Reapers,
    /// A reaper has woken tasks, and comes back when they have run.
    promise: Option<Promise>,
    /// Promises so far.
    promises: u64,
    /// Futures that will be woken by it.
    deferred: Vec<Waker>,
}

/// What a reaper leaves behind when it gives way to the tasks that it woke. Until it is back, what completes in the meantime
/// is for it to tell: a task that woke others would have a worker woken for each of them.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// Where it was given. It is nothing to those who are polled elsewhere, for that runtime may be busy.
    place: Place,
    /// Tasks that were woken.
    tasks: usize,
}

/// Who picks up completions, besides those who submit.
#[derive(Default)]
pub(crate) struct Reapers {
    /// Runtimes whose I/O driver does; false: that have none.
    #[cfg(feature = "tokio")]
    pub(crate) runtimes: Vec<(tokio::runtime::Id, bool)>,
    /// Tasks that come after those that were woken; to be woken themselves when the shard closes.
    #[cfg(feature = "tokio")]
    pub(crate) drivers: Vec<(tokio::runtime::Id, Waker)>,
    /// The thread does.
    pub(crate) thread: bool,
    /// The engine has gone, or the backend has failed for good.
    pub(crate) closed: bool,
}

/// A lane's operations whose turn is now.
struct Now {
    inbox: Inbox,
    room: Room,
}

/// Waiters with operations whose turn has not come, in order.
#[derive(Default)]
struct Inbox {
    keys: VecDeque<Key>,
    /// Operations, those of futures that have gone not counted.
    operations: usize,
}

/// Keys of futures that have gone are swept out when there are more than this, and most of all.
const SWEEP: usize = 64;

impl Inbox {
    fn add(&mut self, key: Key, operations: usize) {
        self.keys.push_back(key);
        self.operations += operations;
    }

    /// The next operation in order.
    fn take(&mut self, waiters: &mut Waiters) -> Option<(Key, Next)> {
        loop {
            let key = *self.keys.front()?;
            let next = waiters.next(key);
            if next.as_ref().is_none_or(|next| next.last) {
                self.keys.pop_front();
            }
            if let Some(next) = next {
                self.operations -= 1;
                return Some((key, next));
            }
        }
    }

    /// A future with so many operations in here has gone.
    fn forget(&mut self, operations: usize, waiters: &Waiters) {
        self.operations -= operations;
        if self.keys.len() > SWEEP && self.keys.len() > 4 * self.operations {
            self.keys.retain(|key| waiters.waiting(*key) > 0);
        }
    }
}

/// What a round came to.
struct Round {
    /// There is already reason for another.
    more: bool,
    /// The thread has copied enough in its enter: another one makes the next round.
    enough: bool,
    /// To be dropped.
    orphans: Vec<Outcome>,
}

/// What belongs to who is through the turnstile.
struct Ring {
    queue: Queue,
    cancels: Vec<OpId>,
    recorder: Recorder,
    /// Since when the backend fails.
    failing: Option<Instant>,
}

/// Which operation of which waiter: an operation's user data.
#[derive(Clone, Copy)]
struct Label(u64);

/// Where its turn stands in a label: the lane's number, or one of these.
const TURN: u32 = 61;
/// A paced operation.
const PACED: u64 = 7;
/// A member of a chain: the last one has the room of all.
const CHAINED: u64 = 6;

impl Label {
    fn new(key: Key, place: u32, turn: Turn) -> Self {
        let turn = match turn {
            Turn::Paced => PACED,
            Turn::Now(lane) => lane as u64,
        };
        Self(u64::from(key.index()) | u64::from(place) << 32 | turn << TURN)
    }

    /// Of a chain's operation that is not its last.
    fn chained(key: Key, place: u32) -> Self {
        Self(u64::from(key.index()) | u64::from(place) << 32 | CHAINED << TURN)
    }

    fn index(self) -> u32 {
        self.0 as u32
    }

    fn place(self) -> u32 {
        (self.0 << (64 - TURN) >> (64 - TURN) >> 32) as u32
    }

    /// The number of its lane, or [`PACED`], or [`CHAINED`].
    fn turn(self) -> u64 {
        self.0 >> TURN
    }
}

/// What a push came to.
pub(crate) struct Pushed {
    pub(crate) key: Key,
    /// It is time to enter, and worth a look at the results after that.
    pub(crate) due: bool,
    /// The runtime that polls the future, if its I/O driver is still to be asked to pick up completions.
    #[cfg(feature = "tokio")]
    pub(crate) unattended: Option<tokio::runtime::Id>,
}

/// Where a future is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a tokio runtime.
    #[cfg(feature = "tokio")]
    Runtime(tokio::runtime::Id),
    /// Anywhere else.
    Elsewhere,
    /// In a program that reaps by itself.
    ByHand,
}

impl Shard {
    /// A shard of which at most `paced` transfers of storage, and `waiting` operations that may wait for ever, are in flight. `alarm`
    /// is rung for the reaper.
    ///
    /// Blocks for some system calls, as [`Options::build`] does.
    pub(crate) fn new(options: &Options, paced: u32, waiting: u32, alarm: Arc<Alarm>) -> io::Result<Self> {
        let room = |lane| match lane {
            Lane::Call => CALLS,
            Lane::Open => OPENS,
            Lane::Sync => SYNCS,
            Lane::Wait => waiting,
            Lane::Closure => CLOSURES,
        };
        let writes_off = |lane| match lane {
            Lane::Sync => Some(STALLED_SYNCS),
            Lane::Closure => Some(STALLED_CLOSURES),
            Lane::Call | Lane::Open | Lane::Wait => None,
        };
        let lane = |lane| {
            let all = Room::new(room(lane) as usize);
            let room = match writes_off(lane) {
                Some(stalled) => all.write_off_after(stalled, MOST_STUCK as usize),
                None => all,
            };
            Now { inbox: Inbox::default(), room }
        };
        // Each sync may have a write before it, and transfers, syncs, their writes and closures may be stuck.
        let besides = paced.saturating_add(SYNCS).saturating_add(4 * MOST_STUCK);
        let in_all = LANES.into_iter().map(room).fold(besides, u32::saturating_add);
        // Closing is the engine's business, which waits.
        let options = options.clone().in_flight(in_all).close_wait(Duration::ZERO);
        let mut queue = options.build()?;
        let enter_copies = queue.explain().backend == BackendKind::Uring;
        let readable = queue.poll_fd()?.try_clone_to_owned()?;
        Ok(Self {
            front: Mutex::new(Front {
                waiters: Waiters::default(),
                paced: Inbox::default(),
                now: LANES.map(lane),
                cancels: Vec::new(),
                pace: Pace::new(paced as usize, MOST_STUCK as usize),
                flush: false,
                enter_copies,
                reapers: Reapers::default(),
                promise: None,
                promises: 0,
                deferred: Vec::new(),
            }),
            ring: Mutex::new(Ring { queue, cancels: Vec::new(), recorder: Recorder::new(), failing: None }),
            turnstile: Turnstile::new(),
            readable,
            turns: AtomicU64::new(0),
            pickups: AtomicU64::new(0),
            left_over: AtomicBool::new(false),
            over: AtomicBool::new(false),
            alarm,
        })
    }

    /// Takes operations in for a future that is polled at `place`.
    pub(crate) fn push(
        &self,
        turn: Turn,
        place: Place,
        waker: &Waker,
        fill: impl FnOnce(&mut Few<Operation>),
    ) -> Pushed {
        let (pushed, holds_back) = {
            let mut front = self.front();
            let front = &mut *front;
            let key = front.waiters.insert(waker, fill);
            let count = front.waiters.waiting(key);
            match turn {
                Turn::Paced => front.paced.add(key, count),
                Turn::Now(lane) => front.now[lane as usize].inbox.add(key, count),
            }
            // None at all are over at once.
            let due = count == 0 || front.is_due(place);
            let pushed = Pushed {
                key,
                due,
                #[cfg(feature = "tokio")]
                unattended: front.reapers.is_new(place),
            };
            front.reapers.attend(place);
            (pushed, !due && front.holds_back())
        };
        if holds_back {
            self.alarm.watch();
        }
        pushed
    }

    /// Half of a lane's room, or more, is taken.
    pub(crate) fn is_crowded(&self, lane: Lane) -> bool {
        self.front().now[lane as usize].room.is_crowded()
    }

    /// The result of a waiter's one operation, if it is there.
    pub(crate) fn take_one(&self, key: Key, waker: &Waker) -> Option<Outcome> {
        let taken = self.front().waiters.take_one(key, waker);
        // Without the lock, a waker that was kept before is dropped.
        taken.ok()
    }

    /// The results of all of a waiter's operations, in their order, if all are there.
    pub(crate) fn take_all(&self, key: Key, waker: &Waker) -> Option<Vec<Outcome>> {
        let taken = self.front().waiters.take_all(key, waker);
        taken.ok()
    }

    /// A future has gone: what has not begun is dropped, what has is cancelled.
    pub(crate) fn give_up(&self, key: Key) {
        let (given_up, cancels): (Option<GivenUp>, bool) = {
            let mut front = self.front();
            let front = &mut *front;
            let waiting = front.waiters.waiting(key);
            let given_up = front.waiters.give_up(key, &mut front.cancels);
            // Which of the two it stood in, its place there tells.
            if waiting > 0 {
                let now = front.now.iter_mut().map(|now| &mut now.inbox).find(|inbox| inbox.keys.contains(&key));
                now.unwrap_or(&mut front.paced).forget(waiting, &front.waiters);
            }
            (given_up, !front.cancels.is_empty())
        };
        drop(given_up);
        if cancels {
            self.turn(Place::ByHand, None);
        }
    }

    /// Moves the shard along, if nobody is at it; else whoever is does it again. How many futures were woken.
    ///
    /// `own` is not woken: it looks for itself.
    pub(crate) fn turn(&self, place: Place, own: Option<Key>) -> usize {
        self.go(place, own, false)
    }

    /// As [`turn`](Self::turn), by a reaper that will call this again when the tasks that it wakes have run, if it wakes more than one.
    #[cfg(feature = "tokio")]
    pub(crate) fn reap(&self, place: Place) -> usize {
        self.front().promise = None;
        self.go(place, None, true)
    }

    /// Enters all that there is room for and takes what has completed, whatever the pace and whoever has promised what. How many
    /// futures were woken.
    pub(crate) fn flush(&self) -> usize {
        {
            let mut front = self.front();
            front.promise = None;
            front.flush = true;
        }
        self.turn(Place::ByHand, None)
    }

    /// As [`flush`](Self::flush), after operations that hang have been written off.
    pub(crate) fn flush_past_stuck(&self) -> usize {
        self.front().write_off(Instant::now());
        self.flush()
    }

    /// Makes a round that another thread has left over, if there is one.
    pub(crate) fn take_over(&self) {
        if self.left_over.swap(false, Ordering::AcqRel) {
            self.turn(Place::Elsewhere, None);
        }
    }

    fn go(&self, place: Place, own: Option<Key>, comes_back: bool) -> usize {
        let mut woken = 0;
        let mut wakers = Vec::new();
        let Some(mut passage) = self.turnstile.enter() else { return woken };
        for round in 1.. {
            let Round { more, enough, orphans } = self.go_round(place, own, comes_back, &mut wakers);
            let left = passage.leave();
            // What nobody waits for is dropped where nobody waits for it: it may free memory or close a file.
            drop_all(orphans);
            woken += wakers.len();
            wake_all(&mut wakers);
            let again = match left {
                Ok(()) if !more => break,
                // What completed made room, or a group.
                Ok(()) => self.turnstile.enter(),
                // Somebody has left word.
                Err(passage) => Some(passage),
            };
            match again {
                None => break,
                Some(again) if round < MOST_ROUNDS && !enough => passage = again,
                // The others go on without this thread: who comes next, and at the latest the reaper.
                Some(again) => {
                    self.left_over.store(true, Ordering::Release);
                    drop(again);
                    self.alarm.ring();
                    break;
                }
            }
        }
        woken
    }

    /// One round.
    fn go_round(&self, place: Place, own: Option<Key>, comes_back: bool, wakers: &mut Vec<Waker>) -> Round {
        let mut ring = lock(&self.ring);
        let ring = &mut *ring;
        let mut orphans = Vec::new();
        self.turns.fetch_add(1, Ordering::Relaxed);
        let (given, enough) = self.front().give_turns(ring, place, &mut orphans);
        ring.recorder.batch(given);
        ring.cancels.drain(..).for_each(|id| _ = ring.queue.cancel(id));
        let mut failing = false;
        let mut front = match self.pick_up(ring, own, &mut orphans) {
            Ok(front) => {
                ring.failing = None;
                front
            }
            Err(error) => {
                ring.recorder.failures += 1;
                failing = !ring.gives_up(&error);
                // With the queue closed all is answered, and nothing is entered for it.
                let picked_up = if failing { Err(error) } else { self.pick_up(ring, own, &mut orphans) };
                let mut front = picked_up.unwrap_or_else(|_| self.front());
                if !failing {
                    self.over.store(true, Ordering::Relaxed);
                    front.promise = None;
                    wakers.extend(front.reapers.close());
                }
                front
            }
        };
        if front.expected(place) == 0 {
            wakers.append(&mut front.deferred);
        }
        // One task alone needs nobody behind it.
        if comes_back && wakers.len() > 1 && !front.reapers.closed {
            front.promise = Some(Promise { place, tasks: wakers.len() });
            front.promises += 1;
        }
        // No memory, say: the next round is the reaper's.
        let enough = enough || failing;
        let (more, holds_back) = (enough || front.is_due(place) || !front.cancels.is_empty(), front.holds_back());
        drop(front);
        if holds_back {
            self.alarm.watch();
        }
        Round { more, enough, orphans }
    }

    /// The system call, with nobody waiting for it, and what has completed. An error is of the backend as a whole; nothing is lost by it.
    fn pick_up(
        &self,
        ring: &mut Ring,
        own: Option<Key>,
        orphans: &mut Vec<Outcome>,
    ) -> io::Result<MutexGuard<'_, Front>> {
        let completions = ring.queue.reap(0)?;
        let mut front = self.front();
        if completions.len() > 0 {
            self.pickups.fetch_add(1, Ordering::Relaxed);
        }
        front.hand_out(completions, &mut ring.recorder, own, orphans);
        Ok(front)
    }

    /// Its backend has failed for good: nothing is in flight, and nothing is taken any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Something waits that only a task of a runtime, or the thread, will see to.
    pub(crate) fn holds_back(&self) -> bool {
        self.front().holds_back()
    }

    /// What there is to be seen of it, to compare with later.
    pub(crate) fn seen(&self) -> Seen {
        let front = self.front();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Seen { promises: front.promises, moves: front.pace.moves(), turns: of(&self.turns), pickups: of(&self.pickups) }
    }

    /// What has become of it since it was seen. Writes off what hangs while others wait.
    pub(crate) fn progress(&self, before: Seen) -> Progress {
        let now = self.seen();
        let (waits_for, has_room) = {
            let mut front = self.front();
            (front.waits_for(), front.write_off(Instant::now()))
        };
        match waits_for {
            _ if has_room => Progress::Late,
            Some(WaitsFor::Promise) if now.promises == before.promises => Progress::Late,
            Some(WaitsFor::Group) if now.moves == before.moves => Progress::Late,
            Some(WaitsFor::Promise | WaitsFor::Group) => Progress::Moving,
            // To submit is not to pick up: tasks may do that while nobody looks at what completes.
            _ if now.pickups == before.pickups && !self.is_over() && self.is_readable() => Progress::Late,
            _ if now.turns != before.turns => Progress::Moving,
            Some(WaitsFor::Room) => Progress::Waiting,
            None => Progress::Still,
        }
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Futures are polled that nobody but the thread picks up completions for.
    pub(crate) fn is_served(&self) -> bool {
        self.front().reapers.thread
    }

    /// Readable when there may be something to reap.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Who picks up completions, to be changed.
    pub(crate) fn reapers<R>(&self, change: impl FnOnce(&mut Reapers) -> R) -> R {
        change(&mut self.front().reapers)
    }

    /// With nothing in flight, the thread need not be quick.
    pub(crate) fn rest(&self) {
        let mut front = self.front();
        if front.waiters.in_flight() == 0 {
            front.reapers.thread = false;
        }
    }

    /// Cancels what is in flight and waits for it, at most for `wait`; what is left then is leaked. Whoever picks up completions
    /// need not come again.
    pub(crate) fn close(&self, wait: Duration) {
        // Who comes meanwhile finds it taken and goes on, rather than wait.
        let passage = loop {
            match self.turnstile.enter() {
                Some(passage) => break passage,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        // An error of the backend as a whole: then all of it is leaked.
        let _ = lock(&self.ring).queue.close(wait);
        drop(passage);
        self.flush();
        self.reapers(Reapers::close).into_iter().for_each(Waker::wake);
    }

    /// Operations counted, by the futures' side and by the queue's.
    pub(crate) fn counts(&self) -> (Counts, usize) {
        let front = self.front();
        let now: usize = front.now.iter().map(|now| now.inbox.operations).sum();
        (front.waiters.counts(), front.paced.operations + now)
    }

    /// What the queue has done, and what was recorded of it.
    pub(crate) fn recorded<R>(&self, look: impl FnOnce(Stats, &Recorder) -> R) -> R {
        let ring = lock(&self.ring);
        look(ring.queue.stats(), &ring.recorder)
    }

    /// The queue's own explanation.
    pub(crate) fn explain(&self) -> Explanation {
        lock(&self.ring).queue.explain()
    }

    /// For what is registered with the queue.
    pub(crate) fn with_queue<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        change(&mut lock(&self.ring).queue)
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        lock(&self.front)
    }
}

impl Front {
    /// Whether it is time to enter, for somebody who is polled there.
    fn is_due(&self, place: Place) -> bool {
        self.reapers.closed && self.paced.operations > 0
            || self.now.iter().any(|now| now.inbox.operations.min(now.room.left()) > 0)
            || self.pace.is_due(self.paced.operations, self.expected(place))
    }

    /// What operations or wake-ups wait for, besides the kernel, to be entered or told.
    fn waits_for(&self) -> Option<WaitsFor> {
        let ready = self.paced.operations.min(self.pace.room.left());
        let is_blocked = |inbox: &Inbox, room: &Room| inbox.operations > 0 && room.left() == 0 && room.may_write_off();
        match self.promise {
            Some(_) if ready > 0 || !self.deferred.is_empty() => Some(WaitsFor::Promise),
            _ if ready > 0 => Some(WaitsFor::Group),
            _ if is_blocked(&self.paced, &self.pace.room) => Some(WaitsFor::Room),
            _ if self.now.iter().any(|now| is_blocked(&now.inbox, &now.room)) => Some(WaitsFor::Room),
            _ => None,
        }
    }

    fn holds_back(&self) -> bool {
        self.waits_for().is_some()
    }

    /// Where operations wait, those that hang are written off; true if that leaves room.
    fn write_off(&mut self, now: Instant) -> bool {
        let mut has_room = self.paced.operations > 0 && self.pace.room.write_off(now);
        for lane in &mut self.now {
            has_room |= lane.inbox.operations > 0 && lane.room.left() == 0 && lane.room.write_off(now);
        }
        has_room
    }

    /// Tasks there after which a reaper comes back.
    fn expected(&self, place: Place) -> usize {
        self.promise.filter(|promise| promise.place == place).map_or(0, |promise| promise.tasks)
    }

    /// Gives the queue those whose turn it is; how many, and whether more of them are left for another enter, since this one has
    /// enough to copy.
    fn give_turns(&mut self, ring: &mut Ring, place: Place, orphans: &mut Vec<Outcome>) -> (usize, bool) {
        std::mem::swap(&mut self.cancels, &mut ring.cancels);
        let mut given = 0;
        let now = Instant::now();
        for lane in LANES {
            let at = lane as usize;
            while self.now[at].room.left() > 0
                && let Some((key, next)) = self.now[at].inbox.take(&mut self.waiters)
            {
                if lane == Lane::Sync && !next.last {
                    given += self.give_chain(&mut ring.queue, key, next, now, orphans);
                } else {
                    self.give(&mut ring.queue, key, next, Turn::Now(lane), now, orphans);
                    given += 1;
                }
            }
        }
        if std::mem::take(&mut self.flush)
            || self.reapers.closed
            || self.pace.is_due(self.paced.operations, self.expected(place))
        {
            let mut work = Work::default();
            while self.pace.room.left() > 0 && self.paced.operations > 0 {
                if work.is_enough() {
                    self.flush = true;
                    break;
                }
                let Some((key, next)) = self.paced.take(&mut self.waiters) else { break };
                let copies = next.operation.submitter_copies().filter(|_| self.enter_copies);
                if self.give(&mut ring.queue, key, next, Turn::Paced, now, orphans) {
                    copies.into_iter().for_each(|bytes| work.add(bytes));
                }
                given += 1;
            }
        }
        (given, self.flush)
    }

    /// Gives the queue an operation, or its waiter the reason why not; true if the queue has it.
    fn give(
        &mut self,
        queue: &mut Queue,
        key: Key,
        next: Next,
        turn: Turn,
        now: Instant,
        orphans: &mut Vec<Outcome>,
    ) -> bool {
        let label = Label::new(key, next.place, turn);
        match queue.push(next.operation.user_data(label.0)) {
            Ok(id) => {
                match turn {
                    Turn::Paced => self.pace.entered(id.slot(), now),
                    Turn::Now(lane) => self.now[lane as usize].room.enter(key.index(), now),
                }
                self.waiters.carried(key.index(), id);
                true
            }
            Err(refused) => {
                let reason = refused.reason();
                for operation in refused.into_operations() {
                    self.answer(label, Err(Box::new(Refused { reason, operation })), None, orphans);
                }
                false
            }
        }
    }

    /// Gives the queue all operations of a waiter, each to begin when the one before it has succeeded; how many.
    fn give_chain(
        &mut self,
        queue: &mut Queue,
        key: Key,
        first: Next,
        now: Instant,
        orphans: &mut Vec<Outcome>,
    ) -> usize {
        let (mut chain, mut labels) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(Next { operation, place, last }) = next {
            let label = if last { Label::new(key, place, Turn::Now(Lane::Sync)) } else { Label::chained(key, place) };
            chain.push(operation.user_data(label.0));
            labels.push(label);
            next = if last {
                None
            } else {
                self.now[Lane::Sync as usize].inbox.take(&mut self.waiters).map(|(_, next)| next)
            };
        }
        let count = chain.len();
        match queue.push_chain(chain) {
            Ok(first) => {
                self.now[Lane::Sync as usize].room.enter(key.index(), now);
                // All of them: the first may be over when the future goes.
                let chain = std::iter::successors(Some(first), |id| queue.behind(*id));
                chain.for_each(|id| self.waiters.carried(key.index(), id));
            }
            Err(refused) => {
                let reason = refused.reason();
                for (operation, label) in refused.into_operations().into_iter().zip(labels) {
                    self.answer(label, Err(Box::new(Refused { reason, operation })), None, orphans);
                }
            }
        }
        count
    }

    /// Tells the waiters what has become of their operations. Whom to wake is added to `deferred`.
    fn hand_out(
        &mut self,
        completions: Completions<'_>,
        recorder: &mut Recorder,
        own: Option<Key>,
        orphans: &mut Vec<Outcome>,
    ) {
        if completions.len() == 0 {
            return;
        }
        let now = Instant::now();
        for done in completions {
            let label = Label(done.user_data);
            if let Some(begun) = self.waiters.begun(label.index()) {
                recorder.latency(now.saturating_duration_since(begun));
            }
            match label.turn() {
                PACED => self.pace.completed(done.id.slot(), now),
                CHAINED => {}
                lane => self.now[lane as usize].room.leave(label.index(), now),
            }
            self.answer(label, Ok(done), own, orphans);
        }
    }

    /// Tells one waiter. `own` looks for itself.
    fn answer(&mut self, label: Label, outcome: Outcome, own: Option<Key>, orphans: &mut Vec<Outcome>) {
        match self.waiters.answer(label.index(), label.place(), outcome) {
            Answered::Complete(Some(waker)) if own.is_none_or(|own| own.index() != label.index()) => {
                self.deferred.push(waker)
            }
            Answered::Complete(_) | Answered::Partly => {}
            Answered::Orphaned(outcome) => orphans.push(outcome),
        }
    }
}

impl Ring {
    /// After an error of the backend as a whole: answers all that is in flight and takes no more, unless it may be better soon.
    /// Then it waits for a moment.
    fn gives_up(&mut self, error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        let passes = matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM));
        if passes && self.failing.get_or_insert_with(Instant::now).elapsed() < NO_MEMORY {
            std::thread::sleep(Duration::from_micros(100));
            return false;
        }
        // It fails in a forked child only, which does not get here.
        let _ = self.queue.give_up(error, FAILED);
        true
    }
}

impl Reapers {
    /// Nobody need come any more; whom to wake to learn of it.
    fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        #[cfg(feature = "tokio")]
        return self.drivers.drain(..).map(|(_, waker)| waker).collect();
        #[cfg(not(feature = "tokio"))]
        Vec::new()
    }

    /// The runtime that somebody waits in, if it was not known.
    #[cfg(feature = "tokio")]
    fn is_new(&mut self, place: Place) -> Option<tokio::runtime::Id> {
        let Place::Runtime(id) = place else { return None };
        let new = !self.closed && self.runtimes.iter().all(|(known, _)| *known != id);
        new.then(|| self.runtimes.push((id, true)));
        new.then_some(id)
    }

    /// Somebody waits at `place`: the thread is to be quick where no runtime is.
    fn attend(&mut self, place: Place) {
        self.thread |= match place {
            #[cfg(feature = "tokio")]
            Place::Runtime(id) => self.runtimes.iter().any(|(known, has_driver)| *known == id && !has_driver),
            Place::Elsewhere => true,
            Place::ByHand => false,
        };
    }
}

/// Drops them all, even if a buffer of the program's own panics.
fn drop_all(orphans: Vec<Outcome>) {
    for orphan in orphans {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(orphan)));
    }
}

/// Wakes them all, even if one of them panics: what one task does harms no other.
fn wake_all(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        // The panic has been told of by the panic hook.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// A lock whose holders leave what it guards right at every moment: a panic elsewhere poisons nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_core::op::{self, At};
    use ringway_core::{Buffer, File};
    use std::io::Write;

    /// A task that submits and then computes has a shard that is late, though it has just been moved along.
    #[test]
    fn to_submit_is_not_to_pick_up() -> io::Result<()> {
        let shard = Shard::new(&Options::new(), 8, 8, Alarm::new(false)?)?;
        let (end, mut writer) = io::pipe()?;
        let end = File::from(OwnedFd::from(end));
        let before = shard.seen();
        assert_eq!(shard.progress(before), Progress::Still);
        let read = op::read(&end, Buffer::from(vec![0]), At::Cursor);
        let pushed = shard.push(Turn::Now(Lane::Wait), Place::ByHand, Waker::noop(), |few| few.push(read));
        shard.turn(Place::ByHand, Some(pushed.key));
        writer.write_all(b"x")?;
        poll(&mut [PollFd::new(&shard.readable, PollFlags::IN)], Some(&Timespec { tv_sec: 20, tv_nsec: 0 }))?;
        assert_eq!(shard.progress(before), Progress::Late);
        shard.flush();
        assert_eq!(shard.progress(before), Progress::Moving);
        assert!(shard.take_one(pushed.key, Waker::noop()).is_some());
        Ok(())
    }
}
