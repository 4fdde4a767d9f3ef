//! The engine: queues shared by a whole program, which futures are built on.

mod builder;
mod call;
mod combiner;
mod coop;
#[cfg(all(test, ringway_loom))]
mod every_order;
mod limiter;
mod op_future;
mod pacing;
mod reactor;
mod shard;
mod stats;
mod submission;
mod sync;
mod trace;

pub use builder::{EngineBuilder, Reaping};
pub use stats::{Batches, Latency, Stats};

pub(crate) use coop::{COPY_STEP, poll_proceed, poll_proceed_in_memory, without_yielding};
pub(crate) use op_future::OpFuture;
pub(crate) use shard::OpResult;
pub(crate) use submission::{Lane, Schedule};

use crate::pool::Pool;
use crate::thread;
use reactor::Executor;
use reactor::manual::Notifier;
use reactor::thread::Reaper;
use ringway_core::{BackendKind, Completion, Counts, Explanation, Home, Operation, Reason};
use shard::{Pushed, Shard};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::Duration;

/// Queues shared by a whole program: files are opened with one, and every operation on them goes
/// through it.
///
/// Most programs need none of their own: [`File::open`](crate::fs::File::open) uses the
/// [`global`](Self::global) one. Clones share the engine, as files do that were opened with it; it
/// is closed when the last of them has gone. Operations that nobody waits for any more are then
/// cancelled, waited for in the background, and leaked if they do not end.
///
/// A backend that refuses its system calls while it is in use (a seccomp filter that came later) is
/// closed. What is in flight answers ECANCELED, whether or not it took executor; what does not end
/// within a second answers EIO, and its buffer is lost. What comes after that answers ESHUTDOWN,
/// and [`explain`](Self::explain) says why.
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
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shards: Arc<[Shard]>,
    reaper: Option<Arc<Reaper>>,
    /// For a program that reaps by itself.
    manual: Option<Manual>,
    home: Home,
    /// What the first shard said at the beginning: a forked child may find its lock taken for ever.
    explained: Explanation,
    pub(crate) pool: Pool,
    /// Reads that were answered at once, counted apart for each shard so that nobody waits for a
    /// cache line.
    cached: Box<[PaddedCounter]>,
    /// Whether reads of the page cache are tried at once.
    pub(crate) try_cached: bool,
    close_wait: Duration,
    reaping: Reaping,
}

/// What a program needs that has a loop of its own.
struct Manual {
    /// Readable when any shard is, or the notifier has been rung, or its timer.
    readable: OwnedFd,
    notifier: Arc<Notifier>,
}

/// A counter with a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct PaddedCounter(AtomicU64);

static GLOBAL: OnceLock<Engine> = OnceLock::new();

impl Engine {
    /// For an engine of one's own.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// The engine that is used where none is named; made at the first need, with the defaults of
    /// [`EngineBuilder`], unless [`install_global`](EngineBuilder::install_global) has made it
    /// before, and never closed.
    ///
    /// The first call blocks for a few system calls. Errors: as for [`EngineBuilder::build`], and
    /// the next call tries again; ECHILD in a fork of the process that the global engine belongs
    /// to.
    pub fn global() -> io::Result<&'static Self> {
        match Self::existing() {
            Some(known) => known,
            None => {
                let engine = Self::builder().build()?;
                Ok(GLOBAL.get_or_init(|| engine))
            }
        }
    }

    /// The global engine, if it has been made.
    fn existing() -> Option<io::Result<&'static Self>> {
        #[cfg(test)]
        if let Some(engine) = crate::faults::global() {
            return Some(Ok(engine));
        }
        let engine = GLOBAL.get()?;
        // In a fork of the process it was made in, it is the parent's.
        let forked = || io::Error::from_raw_os_error(Reason::Forked.errno());
        Some(if engine.inner.home.is_here() { Ok(engine) } else { Err(forked()) })
    }

    /// How operations reach the kernel.
    pub fn backend(&self) -> BackendKind {
        self.inner.explained.backend
    }

    /// Which backend the engine has, what that was granted, and what was refused, why, and what
    /// would fix it.
    pub fn explain(&self) -> Explanation {
        if !self.inner.home.is_here() {
            return self.inner.explained.clone();
        }
        let mut all = self.inner.shards[0].explain();
        for other in &self.inner.shards[1..] {
            // The same is refused to all of them, mostly.
            for refusal in other.explain().refusals {
                if all.refusals.iter().all(|known| known.feature != refusal.feature) {
                    all.refusals.push(refusal);
                }
            }
        }
        all
    }

    /// What the engine has done so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// For a program with a loop of its own ([`Reaping::Manual`]): readable when there may be
    /// something to [`reap`](Self::reap). A hint: it may be readable for nothing.
    ///
    /// Errors: EOPNOTSUPP for an engine that reaps by itself.
    pub fn readable(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.inner.manual {
            Some(manual) => Ok(manual.readable.as_fd()),
            None => Err(io::Error::from(rustix::io::Errno::OPNOTSUPP)),
        }
    }

    /// Submits what waits, picks up what has completed, and wakes the futures concerned. Does not
    /// block. How many futures were woken.
    ///
    /// Any thread may call it, on any engine; one that reaps by itself has no need of it.
    pub fn reap(&self) -> usize {
        if !self.inner.home.is_here() {
            return 0;
        }
        let mut timer_expired = false;
        if let Some(manual) = &self.inner.manual {
            manual.notifier.clear();
            timer_expired = manual.notifier.timer_expired();
        }
        let reap = |shard: &Shard| {
            if timer_expired { shard.flush_without_stuck() } else { shard.drive(Executor::Manual) }
        };
        self.inner.shards.iter().map(reap).sum()
    }
}

impl Inner {
    /// The shard of the thread that calls.
    fn shard_index(&self) -> usize {
        match self.shards.len() {
            1 => 0,
            shards => thread::number() % shards,
        }
    }

    /// True in the process that the engine belongs to; a fork of it may not push.
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Takes a future's operations in, submits them if it is time, and sees to it that somebody
    /// picks up what completes. In which shard. `own`: what became of one operation, if that is
    /// known already.
    #[inline]
    fn push(
        &self,
        schedule: Schedule,
        cx: &Context<'_>,
        operations: impl Iterator<Item = Operation>,
        own: &mut Option<Completion>,
    ) -> (usize, Pushed) {
        let index = self.shard_index();
        let pushed =
            self.shards[index].push(schedule, self.executor(), cx.waker(), operations, own);
        #[cfg(feature = "tokio")]
        if let Some(id) = pushed.unregistered {
            self.register_runtime(index, id);
        }
        (index, pushed)
    }

    /// Has a runtime pick up a shard's completions that is not known there.
    #[cfg(feature = "tokio")]
    #[cold]
    fn register_runtime(&self, shard: usize, id: ::tokio::runtime::Id) {
        let mut unregistered = Some(id);
        // The thread may have gone to another runtime meanwhile.
        if !reactor::tokio::is_in(id) {
            let executor = self.executor();
            unregistered = self.shards[shard].reactors(|reactors| {
                reactors.forget(id);
                let unregistered = reactors.register(executor);
                reactors.note_waiter(executor);
                unregistered
            });
        }
        if let Some(id) = unregistered {
            reactor::tokio::start(&self.shards, shard, id, self.reaping == Reaping::Runtime);
        }
    }

    /// Where the caller is polled.
    fn executor(&self) -> Executor {
        match self.reaping {
            Reaping::Manual => Executor::Manual,
            Reaping::Thread => Executor::Other,
            #[cfg(feature = "tokio")]
            Reaping::Automatic | Reaping::Runtime => {
                reactor::tokio::runtime().map_or(Executor::Other, Executor::Runtime)
            }
            #[cfg(not(feature = "tokio"))]
            Reaping::Automatic | Reaping::Runtime => Executor::Other,
        }
    }

    /// Half of a lane's room, or more, is taken in the shard of the thread that calls.
    pub(crate) fn is_half_used(&self, lane: Lane) -> bool {
        // (A fork may find the lock taken for ever.)
        self.is_here() && self.shards[self.shard_index()].is_half_used(lane)
    }

    /// A read was answered from the page cache.
    #[inline]
    pub(crate) fn count_cached(&self) {
        self.cached[self.shard_index()].0.fetch_add(1, Ordering::Relaxed);
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
            latency: Latency::new(),
        };
        if !self.home.is_here() {
            return stats;
        }
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

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return; // All of it is the parent's.
        }
        match &self.reaper {
            // It waits for what is in future, so that this thread need not.
            Some(reaper) => reaper.close(),
            None => self.shards.iter().for_each(|shard| shard.close(self.close_wait)),
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Engine")
            .field("backend", &self.backend())
            .field("counts", &stats.counts)
            .finish()
    }
}
