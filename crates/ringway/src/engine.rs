//! The engine: the queues that a whole program shares and that all futures use. Submission and
//! completion of operations are in the submodules.

mod background;
mod builder;
mod call;
mod combiner;
mod coop;
mod devices;
mod executor;
mod limiter;
#[cfg(all(test, ringway_loom))]
mod loom_tests;
mod notifier;
mod op_future;
pub(crate) mod op_result;
mod pacing;
mod reactor;
mod registry;
mod rounds;
mod shard;
mod stats;
mod submission;
mod sync;
mod sync_ledger;
#[cfg(target_os = "linux")]
mod timer;
#[cfg(not(target_os = "linux"))]
#[path = "engine/no_timer.rs"]
mod timer;
mod torn_write;
mod trace;
mod wake;

pub use builder::{EngineBuilder, Reaping};
pub use stats::{Batches, Latency, Stats};
pub use torn_write::TornWrite;

pub(crate) use background::run_in_background;
pub(crate) use coop::{
    COPY_STEP, poll_may_proceed, poll_proceed, poll_proceed_in_memory, without_yielding,
};
pub(crate) use op_future::OpFuture;
pub(crate) use shard::OpResult;
pub(crate) use submission::{Lane, Schedule};
pub(crate) use sync_ledger::{Outcome, Since, SyncLedger, Ticket, TicketWait};
pub(crate) use wake::wake_all;

use crate::pool::{Pool, PoolStats};
use crate::thread;
use executor::{Executor, RuntimeId};
use notifier::Notifier;
use reactor::driver;
use reactor::manual::Readable;
use reactor::thread::EngineThread;
use ringway_core::{
    BackendKind, BorrowedFd, Completion, Counts, Explanation, OwnerProcess, Reason, errno,
    start_thread,
};
use shard::{Pushed, Shard};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::{Duration, Instant};
use submission::Operations;

/// The queues that a whole program shares. A file is opened with an engine, and every operation on
/// the file goes through it.
///
/// Most programs need no engine of their own: [`File::open`](crate::fs::File::open) uses the
/// [`global`](Self::global) one. Clones and open files share the engine; it closes when the last of
/// them is dropped. Operations whose futures were dropped are then cancelled and waited for in the
/// background, and leaked if they do not end.
///
/// If the kernel starts to refuse the backend's system calls while the backend is in use (because
/// of a seccomp filter installed later, for example), the backend is closed. Operations in flight
/// then fail with ECANCELED, whether or not they took effect; those that do not end within a second
/// fail with EIO, and their buffers are leaked (before Linux 6.0, which cannot cancel them without
/// those calls, all do so if one of them does not end). Later operations fail with ESHUTDOWN, and
/// [`explain`](Self::explain) gives the reason.
///
/// ```
/// use ringway::Engine;
/// # fn main() -> std::io::Result<()> {
/// let engine = Engine::builder().in_flight(64).build()?;
/// println!("{}", engine.explain());
/// let text = futures::executor::block_on(async {
///     let file = engine.open("/etc/passwd").await?;
///     file.read(0..16).await
/// })?;
/// assert_eq!(text.len(), 16);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<SharedEngine>,
}

pub(crate) struct SharedEngine {
    pub(crate) shards: Arc<[Shard]>,
    thread: Option<Arc<EngineThread>>,
    /// With [`Reaping::Manual`].
    manual: Option<Manual>,
    owner: OwnerProcess,
    /// The explanation of the first shard when the engine was built. A forked child uses it,
    /// because the shard's lock may be held forever in the child.
    explained: Explanation,
    pub(crate) pool: Pool,
    /// Reads that were served from the page cache, counted per shard to avoid contention on a cache
    /// line.
    cached: Box<[PaddedCounter]>,
    /// Whether a read tries the page cache first.
    pub(crate) try_cached: bool,
    close_wait: Duration,
    reaping: Reaping,
}

/// What a program with its own event loop needs.
struct Manual {
    /// Readable when a shard is readable, the notifier was notified, or its timer has expired.
    readable: Readable,
    notifier: Arc<Notifier>,
}

/// A counter on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct PaddedCounter(AtomicU64);

/// The stack size of a thread that closes shards: it may call the program's wakers, as the
/// engine's thread does.
const CLOSE_STACK: usize = reactor::thread::STACK;
/// The time between two looks for what has ended, on a thread that reaps for the program.
const DRIVE_PAUSE: Duration = Duration::from_micros(200);

static GLOBAL: OnceLock<Engine> = OnceLock::new();

impl Engine {
    /// Returns a builder for an engine with other settings than the global one.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Returns the global engine, which every function and file uses unless it names another one.
    /// It is built on first use with the defaults of [`EngineBuilder`], unless
    /// [`install_global`](EngineBuilder::install_global) built it before, and is never closed.
    ///
    /// The first call blocks for a few system calls.
    ///
    /// Errors: those of [`EngineBuilder::build`], after which the next call tries again; ECHILD in
    /// a forked child whose parent built the global engine.
    pub fn global() -> io::Result<&'static Self> {
        match Self::existing() {
            Some(known) => known,
            None => {
                let engine = Self::builder().build()?;
                Ok(GLOBAL.get_or_init(|| engine))
            }
        }
    }

    /// The global engine, if it has been built.
    fn existing() -> Option<io::Result<&'static Self>> {
        #[cfg(all(test, target_os = "linux"))]
        if let Some(engine) = crate::faults::global() {
            return Some(Ok(engine));
        }
        let engine = GLOBAL.get()?;
        // In a forked child, the engine belongs to the parent.
        let forked = || io::Error::from_raw_os_error(Reason::Forked.errno());
        Some(if engine.inner.owner.is_current() { Ok(engine) } else { Err(forked()) })
    }

    /// Returns the backend in use.
    pub fn backend(&self) -> BackendKind {
        self.inner.explained.backend
    }

    /// Returns which backend the engine uses and what forced it, which features are available, and
    /// for each refused feature the reason and the fix.
    pub fn explain(&self) -> Explanation {
        if !self.inner.owner.is_current() {
            return self.inner.explained.clone();
        }
        let mut all = self.inner.shards[0].explain();
        for other in &self.inner.shards[1..] {
            // Shards usually share their refusals; list each feature once.
            for refusal in other.explain().refusals {
                if all.refusals.iter().all(|known| known.feature != refusal.feature) {
                    all.refusals.push(refusal);
                }
            }
        }
        all
    }

    /// Returns the engine's statistics so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// For a program with its own event loop ([`Reaping::Manual`]): a descriptor that is readable
    /// when [`reap`](Self::reap) may have something to do. Wakeups may be spurious; none is lost.
    ///
    /// Errors: EOPNOTSUPP with any other [`Reaping`].
    pub fn readable(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.inner.manual {
            Some(manual) => Ok(manual.readable.fd()),
            None => Err(io::Error::from_raw_os_error(errno::EOPNOTSUPP)),
        }
    }

    /// Submits pending operations, reaps completions, and wakes their futures. Returns the
    /// number of futures woken. Does not block (except for a worker of the kernel soon after
    /// another engine was closed, as a queue of `ringway-core` does).
    ///
    /// Any thread may call it on any engine. Only engines with [`Reaping::Manual`] need it.
    pub fn reap(&self) -> usize {
        if !self.inner.owner.is_current() {
            return 0;
        }
        let mut timer_expired = false;
        if let Some(manual) = &self.inner.manual {
            manual.notifier.clear();
            timer_expired = manual.notifier.timer_expired();
        }
        let reap = |shard: &Shard| {
            if timer_expired { shard.flush_without_hung() } else { shard.drive(Executor::Manual) }
        };
        self.inner.shards.iter().map(reap).sum()
    }
}

impl SharedEngine {
    /// The shard of the calling thread.
    fn shard_index(&self) -> usize {
        match self.shards.len() {
            1 => 0,
            shards => thread::number() % shards,
        }
    }

    /// True in the process that built the engine. A forked child must not push operations.
    pub(crate) fn is_current(&self) -> bool {
        self.owner.is_current()
    }

    /// Accepts a future's operations, submits them if they are due, and ensures that some reactor
    /// reaps their completions. Returns the index of the shard. Sets `own` if a single operation
    /// has already completed.
    #[inline]
    fn push(
        &self,
        schedule: Schedule,
        cx: &Context<'_>,
        operations: &mut Option<impl Operations>,
        own: &mut Option<Completion>,
    ) -> (usize, Pushed) {
        let index = self.shard_index();
        let pushed =
            self.shards[index].push(schedule, self.executor(), cx.waker(), operations, own);
        if let Some(id) = pushed.unregistered {
            self.register_runtime(index, id);
        }
        (index, pushed)
    }

    /// Registers the calling runtime as a reactor of a shard that does not know it yet.
    #[cold]
    fn register_runtime(&self, shard: usize, id: RuntimeId) {
        let mut unregistered = Some(id);
        // The cached runtime of this thread may be out of date.
        if !driver::is_in(id) {
            let executor = self.executor();
            unregistered = self.shards[shard].reactors(|reactors| {
                reactors.forget(id);
                let unregistered = reactors.register(executor);
                reactors.note_waiter(executor);
                unregistered
            });
        }
        if let Some(id) = unregistered {
            driver::start(&self.shards, shard, id, self.reaping == Reaping::Runtime);
        }
    }

    /// The executor that polls the caller.
    fn executor(&self) -> Executor {
        match self.reaping {
            Reaping::Manual => Executor::Manual,
            Reaping::Thread => Executor::Other,
            Reaping::Automatic | Reaping::Runtime => {
                driver::runtime().map_or(Executor::Other, Executor::Runtime)
            }
        }
    }

    /// Whether a runtime's I/O driver or the program reaps what the calling thread begins. (For the
    /// engine's thread it would be that thread, next to the runtime whose task waits.)
    pub(crate) fn has_reactor_here(&self) -> bool {
        !matches!(self.executor(), Executor::Other)
    }

    /// Whether at least half of a lane's capacity is in use, or waited for, in the calling thread's
    /// shard.
    pub(crate) fn is_half_used(&self, lane: Lane) -> bool {
        // In a forked child, the shard's lock may be held forever.
        self.is_current() && self.shards[self.shard_index()].is_half_used(lane)
    }

    /// Counts a read that was served from the page cache.
    #[inline]
    pub(crate) fn count_cached(&self) {
        self.cached[self.shard_index()].0.fetch_add(1, Ordering::Relaxed);
    }

    fn close_shards(&self, wait: Duration) {
        for shard in self.shards.iter() {
            shard.close(wait);
        }
    }

    /// Whether closing has operations to cancel and to wait for.
    fn has_operations(&self) -> bool {
        self.shards.iter().any(|shard| {
            let (counts, queued) = shard.counts();
            counts.in_flight > 0 || queued > 0
        })
    }

    /// A thread waits for operations in flight. If none can be started, nobody waits.
    fn close_on_thread(&self) {
        let (shards, wait) = (self.shards.clone(), self.close_wait);
        let close = move || shards.iter().for_each(|shard| shard.close(wait));
        if start_thread(c"ringway-end", CLOSE_STACK, close).is_err() {
            self.close_shards(Duration::ZERO);
        }
    }

    /// With [`Reaping::Manual`], reaps until `is_over` says so: the program may have dropped all
    /// that it has, and does not reap any more. Gives up once nothing has ended for as long as
    /// closing waits. A thread does it; if none can be started, nobody does.
    pub(crate) fn drive_for_program(
        &self,
        engine: &Engine,
        is_over: impl Fn() -> bool + Send + 'static,
    ) {
        if self.manual.is_none() || !self.is_current() {
            return;
        }
        let engine = engine.clone();
        let drive = move || {
            let mut last = Instant::now();
            while !is_over() && last.elapsed() < engine.inner.close_wait {
                if engine.reap() > 0 {
                    last = Instant::now();
                } else {
                    std::thread::sleep(DRIVE_PAUSE);
                }
            }
        };
        let _ = start_thread(c"ringway-end", CLOSE_STACK, drive);
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats {
            counts: Counts::default(),
            queued: 0,
            cached: self.cached.iter().map(|count| count.0.load(Ordering::Relaxed)).sum(),
            system_calls: 0,
            batches: Batches::default(),
            retries: 0,
            continued: 0,
            to_threads: 0,
            failures: 0,
            refusals: 0,
            pool: PoolStats::default(),
            latency: Latency::new(),
        };
        if !self.owner.is_current() {
            return stats;
        }
        stats.pool = self.pool.stats();
        for shard in self.shards.iter() {
            let (counts, queued) = shard.counts();
            stats.counts += counts;
            stats.queued += queued as u64;
            stats.refusals += shard.explain().refusals.len();
            shard.with_stats(|queue, recorder| {
                stats.system_calls += queue.system_calls;
                stats.retries += queue.retries;
                stats.continued += queue.continued;
                stats.to_threads += queue.to_threads;
                stats.failures += recorder.failures;
                stats.batches.add(recorder.batches);
                stats.latency.add(&recorder.latency);
            });
        }
        stats
    }
}

impl Drop for SharedEngine {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return; // The shards belong to the parent.
        }
        match &self.thread {
            // It waits for operations in flight, so that this thread does not have to.
            Some(thread) => thread.close(),
            // The thread that drops the engine may be that of an event loop, or hold locks. If it
            // is in a call of the engine, that call ends after this.
            None if call::is_calling() || self.has_operations() => self.close_on_thread(),
            None => self.close_shards(self.close_wait),
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Engine")
            .field("backend", &self.backend())
            .field("counts", &stats.counts)
            .field("pool", &stats.pool)
            .finish()
    }
}
