//! What an engine is to be.

use super::reactor::manual::Alarm;
use super::reactor::thread::Reaper;
use super::shard::{SYNCS, Shard};
use super::{ByHand, Engine, Inner, Padded};
use crate::pool::Pool;
#[cfg(feature = "testing")]
use ringway_core::FaultPlan;
use ringway_core::{Arena, BackendKind, Home, Options, SqPoll};
use rustix::event::epoll;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Who picks up completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reaping {
    /// In a tokio runtime its I/O driver (feature `tokio`); elsewhere, in a runtime without I/O, and where a runtime is late, a
    /// thread of the engine's own.
    ///
    /// Tokio panics when a runtime without I/O is asked for it, and has no way to find out before. ringway catches that
    /// panic, once for each runtime, and keeps it from the panic hook. A program built with `panic = "abort"` is never asked:
    /// there the thread does it, unless [`Runtime`](Self::Runtime) is chosen.
    #[default]
    Automatic,
    /// As [`Automatic`](Self::Automatic), in a program of which every tokio runtime that polls a future of ringway's has I/O
    /// enabled (`enable_io` or `enable_all`). In one that has not, the first operation panics. For programs built with
    /// `panic = "abort"`.
    Runtime,
    /// The thread, everywhere.
    Thread,
    /// The program: it polls [`Engine::readable`] in its own loop, and calls [`Engine::reap`]. There is no thread.
    ByHand,
}

/// What an engine is to be. From [`Engine::builder`].
///
/// ```
/// use ringway::{BackendKind, Engine};
/// # fn main() -> std::io::Result<()> {
/// let engine = Engine::builder()
///     .shards(1)
///     .backend(BackendKind::Threads)
///     .threads(8)
///     .build()?;
/// assert_eq!(engine.backend(), BackendKind::Threads);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an engine is made by `build`"]
pub struct EngineBuilder {
    options: Options,
    shards: Option<usize>,
    in_flight: u32,
    waiting: u32,
    fixed_buffers: Option<(usize, usize)>,
    pool: usize,
    try_cached: bool,
    reaping: Reaping,
    close_wait: Duration,
}

/// Kernel threads that one ring may have for files: enough for syncs, and some for opens and what the device refuses to take at once.
const IO_WQ_WORKERS: u32 = SYNCS + 8;
/// The most shards that are made unasked.
const MOST_SHARDS: usize = 16;
/// Processors for which one shard is enough.
const PROCESSORS_A_SHARD: usize = 4;

impl EngineBuilder {
    pub(super) fn new() -> Self {
        Self {
            options: Options::new().entries(128).io_wq_workers(IO_WQ_WORKERS, IO_WQ_WORKERS),
            shards: None,
            in_flight: 256,
            waiting: 1024,
            fixed_buffers: None,
            pool: 32 << 20,
            try_cached: true,
            reaping: Reaping::Automatic,
            close_wait: Duration::from_secs(5),
        }
    }

    /// How many queues the engine has; threads take them in turn. Default: one for four processors, at most 16.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Entries of each shard's submission queue, which count as locked memory on uring. Default 128.
    pub fn entries(mut self, entries: u32) -> Self {
        self.options = self.options.entries(entries);
        self
    }

    /// The most transfers of storage that each shard has with the kernel at a time; further ones wait in order. More than the
    /// device can queue (`nr_requests`, usually 256) costs: the kernel hands them to threads. Transfers that hang do not count,
    /// up to 1024 of them. Default 256.
    pub fn in_flight(mut self, transfers: u32) -> Self {
        self.in_flight = transfers;
        self
    }

    /// The most operations that may wait for ever (reads and writes of pipes, sockets, terminals) that each shard has with the
    /// kernel at a time; further ones wait in order. Opens, syncs, and what is done with names have room of their own.
    /// Default 1024.
    pub fn waiting(mut self, operations: u32) -> Self {
        self.waiting = operations;
        self
    }

    /// This backend or an error; without it `RINGWAY_BACKEND` decides, and without that the best that is granted.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.options = self.options.backend(backend);
        self
    }

    /// A kernel thread polls each shard's submission queue (uring). It keeps a processor busy.
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.options = self.options.sqpoll(sqpoll);
        self
    }

    /// The most io-wq workers of each shard's ring, for files and for the rest; 0 leaves the kernel's limit. Default 24 and 24.
    pub fn io_wq_workers(mut self, files: u32, rest: u32) -> Self {
        self.options = self.options.io_wq_workers(files, rest);
        self
    }

    /// The most threads of each shard on the threads backend, and beside the others. Default 64.
    pub fn threads(mut self, threads: u32) -> Self {
        self.options = self.options.threads(threads);
        self
    }

    /// The most threads of each shard for syncs, which have a lane of their own. Default 4.
    pub fn sync_threads(mut self, threads: u32) -> Self {
        self.options = self.options.sync_threads(threads);
        self
    }

    /// Blocks of `size` bytes, `count` of them, that reads into lent memory use first, registered with each shard's ring
    /// (fixed buffers). Where the registration is refused they are blocks like any other, and `explain` says why.
    pub fn fixed_buffers(mut self, size: usize, count: usize) -> Self {
        self.fixed_buffers = Some((size, count));
        self
    }

    /// Bytes of lent memory that are kept for the next read when they come back. Default 32 MiB.
    pub fn pool(mut self, bytes: usize) -> Self {
        self.pool = bytes;
        self
    }

    /// Whether a buffered read is tried in the page cache first, where an answer needs no ring and no other thread. Default yes.
    pub fn try_cached(mut self, yes: bool) -> Self {
        self.try_cached = yes;
        self
    }

    /// Who picks up completions.
    pub fn reaping(mut self, reaping: Reaping) -> Self {
        self.reaping = reaping;
        self
    }

    /// Anything refused is an error, instead of being done without.
    pub fn strict(mut self, yes: bool) -> Self {
        self.options = self.options.strict(yes);
        self
    }

    /// Injects faults: for tests of programs that must stand them. With the feature `testing`.
    #[cfg(feature = "testing")]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.options = self.options.faults(plan);
        self
    }

    /// How long closing the engine waits, in the background, for operations that will not be cancelled. What is in flight after that
    /// is leaked. Default five seconds.
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }

    /// Makes the engine. Blocks for some system calls, a real read for each shard among them.
    ///
    /// Errors: EINVAL for numbers out of range, or a name that `RINGWAY_BACKEND` cannot have; the errno of a
    /// refusal when a backend was forced; EMFILE, and EAGAIN for a thread that cannot be started.
    pub fn build(&self) -> io::Result<Engine> {
        let count = self.shards.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.div_ceil(PROCESSORS_A_SHARD).min(MOST_SHARDS)
        });
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if count == 0 || count > 1024 {
            return invalid("shards: 1 to 1024");
        }
        if self.in_flight == 0 || self.waiting == 0 {
            return invalid("in_flight and waiting: at least 1");
        }
        let alarm = Alarm::new(self.reaping == Reaping::ByHand)?;
        let shards: io::Result<Arc<[Shard]>> =
            (0..count).map(|_| Shard::new(&self.options, self.in_flight, self.waiting, alarm.clone())).collect();
        let shards = shards?;
        let mut pool = Pool::new(self.pool);
        if let Some((size, count)) = self.fixed_buffers {
            let arena = match Arena::try_new(size, count) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return invalid("fixed_buffers: at least one of at least a byte, and no more than memory can hold");
                }
                arena => arena?,
            };
            for shard in shards.iter() {
                // Where it is refused, the blocks are buffers like any other.
                shard.register(&arena);
            }
            pool = pool.with_arena(arena);
        }
        let by_hand = match self.reaping {
            Reaping::ByHand => Some(ByHand { readable: one_for_all(&shards, &alarm)?, alarm: alarm.clone() }),
            _ => None,
        };
        let reaper = match self.reaping {
            Reaping::ByHand => None,
            _ => Some(Reaper::start(shards.clone(), alarm, self.close_wait)?),
        };
        Ok(Engine {
            inner: Arc::new(Inner {
                cached: (0..count).map(|_| Padded::default()).collect(),
                explained: shards[0].explain(),
                shards,
                reaper,
                by_hand,
                home: Home::here(),
                pool,
                try_cached: self.try_cached,
                close_wait: self.close_wait,
                reaping: self.reaping,
            }),
        })
    }
}

/// A descriptor that is readable when that of any shard is, or the alarm's.
fn one_for_all(shards: &[Shard], alarm: &Alarm) -> io::Result<std::os::fd::OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in shards.iter().map(Shard::readable).chain([alarm.fd()]).chain(alarm.timer()) {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}
