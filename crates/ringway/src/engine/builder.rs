//! The settings of an engine, and how it is built from them and from the environment.

use super::notifier::Notifier;
use super::op_result::invalid;
use super::reactor::manual::Readable;
use super::reactor::thread::EngineThread;
use super::shard::{SYNCS, Shard, is_out_of_descriptors};
use super::{Engine, GLOBAL, Manual, PaddedCounter, SharedEngine};
use crate::pool::Pool;
#[cfg(feature = "testing")]
use ringway_core::FaultPlan;
use ringway_core::refusal::{Feature, Refusal};
use ringway_core::{Arena, BackendKind, BuildError, Options, OwnerProcess, SqPoll};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Which reactor reaps completions. From [`EngineBuilder::reaping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reaping {
    /// In a tokio runtime, its I/O driver (feature `tokio`). A thread of the engine does it on
    /// other executors, in a runtime without I/O, and when a runtime is late; on Windows it does so
    /// always, because tokio's driver cannot wait for an event object there. It also does so always
    /// in a process that was forked and has executed no program since, because such a process may
    /// have inherited the runtime.
    ///
    /// Tokio panics when a runtime without I/O is asked for its I/O driver, and offers no way to
    /// check first. ringway catches that panic, once per runtime, and hides it from the panic hook.
    /// A program built with `panic = "abort"` cannot catch it, so there the thread always does the
    /// work unless [`Runtime`](Self::Runtime) is chosen.
    #[default]
    Automatic,
    /// As [`Automatic`](Self::Automatic), for programs in which every tokio runtime that polls a
    /// ringway future has I/O enabled (`enable_io` or `enable_all`). In a runtime without I/O the
    /// first operation panics. This is for programs built with `panic = "abort"`.
    Runtime,
    /// The engine's thread, on every executor.
    Thread,
    /// The program itself: it polls [`Engine::readable`] in its own event loop and calls
    /// [`Engine::reap`]. The engine has no thread, except while a dropped file or writer still
    /// writes what it has accepted: one reaps, too, then, since the program may have ended its
    /// loop. On Linux only; elsewhere [`build`](EngineBuilder::build) fails with Unsupported.
    Manual,
}

/// Settings of an engine. From [`Engine::builder`].
///
/// The environment supplies settings that the program does not choose, for every engine of the
/// program including the global one: `RINGWAY_BACKEND`, `RINGWAY_IN_FLIGHT` and `RINGWAY_POOL`
/// stand for [`backend`](Self::backend), [`in_flight`](Self::in_flight) and
/// [`pool_bytes`](Self::pool_bytes). An empty variable counts as not set. An invalid value makes
/// [`build`](Self::build) fail with an error that names the variable. If the program chooses a
/// setting, its variable is ignored.
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
#[must_use = "an engine is made by `build` or `install_global`"]
pub struct EngineBuilder {
    options: Options,
    shards: Option<usize>,
    in_flight: Option<u32>,
    in_flight_pipes: u32,
    fixed_buffers: Option<(usize, usize)>,
    pool_bytes: Option<usize>,
    try_cached: bool,
    reaping: Reaping,
    close_wait: Duration,
}

/// Most io-wq workers of one ring for files: enough for syncs, and some for opens and for requests
/// that the device does not take at once.
const IO_WQ_WORKERS: u32 = SYNCS + 8;
/// Default limit of storage transfers in flight: the usual queue length of a device.
const DEFAULT_IN_FLIGHT: u32 = 256;
/// More than any device takes, and so few that a queue has room for all limits together.
const MAX_IN_FLIGHT: u32 = 1 << 20;
/// Default capacity of the buffer pool, in bytes.
const DEFAULT_POOL: usize = 32 << 20;
/// The most shards that are created by default.
const MAX_SHARDS: usize = 16;
/// The most shards. On Windows the engine's thread can wait for 64 event objects: one for each
/// shard, and its own.
const LIMIT_OF_SHARDS: usize = if cfg!(windows) { 63 } else { 1024 };
/// Processors per shard, by default.
const PROCESSORS_PER_SHARD: usize = 4;

impl EngineBuilder {
    pub(super) fn new() -> Self {
        let mut options = Options::new().entries(128);
        if cfg!(all(target_os = "linux", not(ringway_portable))) {
            options = options.io_wq_workers(IO_WQ_WORKERS, IO_WQ_WORKERS);
        }
        Self {
            options,
            shards: None,
            in_flight: None,
            in_flight_pipes: 1024,
            fixed_buffers: None,
            pool_bytes: None,
            try_cached: true,
            reaping: Reaping::Automatic,
            close_wait: Duration::from_secs(5),
        }
    }

    /// The number of shards: queues that the threads of the program share. Default: one per four
    /// processors, at most 16.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Entries of each shard's submission queue; they count as locked memory on uring. Default 128.
    pub fn entries(mut self, entries: u32) -> Self {
        self.options = self.options.entries(entries);
        self
    }

    /// The most storage transfers that each shard has in the kernel at a time; further ones wait in
    /// order. More than the device can queue (`nr_requests`, usually 256) is slower, because the
    /// kernel hands the excess to worker threads. Transfers that hang do not count, up to 1024 of
    /// them. At most 1,048,576. Default: `RINGWAY_IN_FLIGHT`, or 256.
    pub fn in_flight(mut self, transfers: u32) -> Self {
        self.in_flight = Some(transfers);
        self
    }

    /// The most reads and writes of pipes, sockets and terminals that each shard has in the kernel
    /// at a time; further ones wait in order. Such operations may wait forever, so they have a
    /// limit of their own. At most 1,048,576. Default 1024.
    pub fn in_flight_pipes(mut self, operations: u32) -> Self {
        self.in_flight_pipes = operations;
        self
    }

    /// Uses this backend; [`build`](Self::build) fails if it is not available. Default:
    /// `RINGWAY_BACKEND`, or the best available backend.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.options = self.options.backend(backend);
        self
    }

    /// Lets a kernel thread poll each shard's submission queue (uring). It keeps a processor busy.
    /// Operations on paths run on threads then: the kernel's thread would keep the user, the
    /// capabilities and the restrictions with which the engine was made.
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.options = self.options.sqpoll(sqpoll);
        self
    }

    /// The most io-wq workers of each thread that submits to a shard's ring, bounded (what the
    /// kernel hands over itself on files) and unbounded (everything else). Default 24 and 24.
    /// `bounded` 0 is the kernel's own limit; `unbounded` 0 is the same as `bounded`, or 24.
    pub fn io_wq_workers(mut self, bounded: u32, unbounded: u32) -> Self {
        self.options = self.options.io_wq_workers(bounded, unbounded);
        self
    }

    /// The most threads of each shard, on the threads backend and in the fallback pool of the
    /// others. Default 64.
    pub fn threads(mut self, threads: u32) -> Self {
        self.options = self.options.threads(threads);
        self
    }

    /// The most threads of each shard for syncs, which do not use the other threads. Default 4.
    pub fn sync_threads(mut self, threads: u32) -> Self {
        self.options = self.options.sync_threads(threads);
        self
    }

    /// Registers `count` buffers of `size` bytes with each shard's ring (fixed buffers). Pooled
    /// reads use them first. If the registration is refused, they are used like any other buffer,
    /// and [`explain`](Engine::explain) gives the reason.
    pub fn fixed_buffers(mut self, size: usize, count: usize) -> Self {
        self.fixed_buffers = Some((size, count));
        self
    }

    /// Bytes of free buffers that the pool keeps for later reads. Its buffers, free and in use,
    /// take at most four times as much; beyond that, buffers are freed when they are dropped
    /// ([`PoolStats`](crate::PoolStats)). Default: `RINGWAY_POOL`, or 32 MiB. The variable is a
    /// number of bytes, or of KiB, MiB or GiB with the suffix `k`, `m` or `g`.
    pub fn pool_bytes(mut self, bytes: usize) -> Self {
        self.pool_bytes = Some(bytes);
        self
    }

    /// Whether a buffered read tries the page cache first. A read that finds all its data there
    /// uses neither the ring nor another thread. Likewise a file is opened for reading in place if
    /// its path is in the kernel's name cache and its file system is local. Default true.
    pub fn try_cached(mut self, yes: bool) -> Self {
        self.try_cached = yes;
        self
    }

    /// Which reactor reaps completions. Default [`Reaping::Automatic`].
    pub fn reaping(mut self, reaping: Reaping) -> Self {
        self.reaping = reaping;
        self
    }

    /// Makes [`build`](Self::build) fail if the best backend, or a feature that was requested, is
    /// refused, instead of continuing without it. With io_uring an engine requests a limit on io-wq
    /// workers, which came with kernel 5.15.
    pub fn strict(mut self, yes: bool) -> Self {
        self.options = self.options.strict(yes);
        self
    }

    /// Injects faults, for tests of programs that must handle them. With the feature `testing`.
    #[cfg(feature = "testing")]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.options = self.options.faults(plan);
        self
    }

    /// How long closing the engine waits, in the background, for operations that cannot be
    /// cancelled. Those still in flight after that are leaked, with their memory and descriptors.
    /// Default five seconds.
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }

    /// Builds the engine, as [`build`](Self::build) does, and makes it the
    /// [`global`](Engine::global) one, which every function and file uses unless it names another
    /// one. Call it at the beginning of `main`, before anything uses the global engine.
    ///
    /// ```
    /// use ringway::Engine;
    /// # fn main() -> std::io::Result<()> {
    /// let engine = Engine::builder().in_flight(64).pool_bytes(8 << 20).install_global()?;
    /// println!("{}", engine.explain());
    /// let again = Engine::builder().install_global();
    /// assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `build`, after which there is still no global engine; AlreadyExists if the
    /// global engine exists, whether installed or built on first use; ECHILD in a forked child
    /// whose parent has it.
    pub fn install_global(&self) -> io::Result<&'static Engine> {
        let taken = || {
            let text =
                "the global engine already exists: call install_global before anything uses it";
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        };
        if let Some(known) = Engine::existing() {
            return known.and_then(|_| Err(taken()));
        }
        // Another thread may have set it in the meantime.
        GLOBAL.set(self.build()?).map_err(|_| taken())?;
        Engine::global()
    }

    /// Builds the engine. Blocks for several system calls, including a real read for each shard.
    ///
    /// Errors: InvalidInput for a number out of range or an invalid value of `RINGWAY_BACKEND`,
    /// `RINGWAY_IN_FLIGHT` or `RINGWAY_POOL`; EMFILE; EAGAIN when a thread cannot be started. If a
    /// backend or, with [`strict`](Self::strict), a feature is refused, the error holds a
    /// [`BuildError`](crate::BuildError) with errno, reason and fix, and its `raw_os_error` is
    /// `None`, also for EMFILE and EAGAIN.
    ///
    /// ```
    /// use ringway::{BackendKind, BuildError, Engine};
    /// if let Err(error) = Engine::builder().backend(BackendKind::Uring).build() {
    ///     let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
    ///     println!("{error} (errno {:?})", refused.map(BuildError::errno));
    /// }
    /// ```
    pub fn build(&self) -> io::Result<Engine> {
        let count = self.shards.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.div_ceil(PROCESSORS_PER_SHARD).min(MAX_SHARDS)
        });
        if count == 0 || count > LIMIT_OF_SHARDS {
            return Err(invalid(format!("shards must be 1 to {LIMIT_OF_SHARDS}")));
        }
        let in_flight = chosen(
            self.in_flight,
            "RINGWAY_IN_FLIGHT",
            DEFAULT_IN_FLIGHT,
            &format!("a number from 1 to {MAX_IN_FLIGHT}"),
            |text| text.parse().ok().filter(|transfers| (1..=MAX_IN_FLIGHT).contains(transfers)),
        )?;
        let pool_bytes = chosen(
            self.pool_bytes,
            "RINGWAY_POOL",
            DEFAULT_POOL,
            "a number of bytes, such as 1048576, 1024k, 64m or 1g",
            bytes,
        )?;
        for (name, value) in [("in_flight", in_flight), ("in_flight_pipes", self.in_flight_pipes)] {
            if value == 0 || value > MAX_IN_FLIGHT {
                let text = format!("{name} must be 1 to {MAX_IN_FLIGHT}, not {value}");
                return Err(invalid(text));
            }
        }
        let is_manual = self.reaping == Reaping::Manual;
        let notifier = Notifier::new(is_manual).map_err(without_descriptor)?;
        let shards = self.make_shards(count, in_flight, &notifier)?;
        let pool = self.make_pool(pool_bytes, &shards)?;
        let (manual, thread) = if is_manual {
            let readable = Readable::new(&shards, &notifier).map_err(without_descriptor)?;
            (Some(Manual { readable, notifier }), None)
        } else {
            let thread = EngineThread::start(shards.clone(), notifier, self.close_wait);
            (None, Some(thread.map_err(without_thread)?))
        };
        Ok(Engine {
            inner: Arc::new(SharedEngine {
                cached: shards.iter().map(|_| PaddedCounter::default()).collect(),
                explained: shards[0].explain(),
                shards,
                thread,
                manual,
                owner: OwnerProcess::current(),
                pool,
                try_cached: self.try_cached,
                close_wait: self.close_wait,
                reaping: self.reaping,
            }),
        })
    }

    fn make_shards(
        &self,
        count: usize,
        in_flight: u32,
        notifier: &Arc<Notifier>,
    ) -> io::Result<Arc<[Shard]>> {
        let make = |count: usize| -> io::Result<Arc<[Shard]>> {
            let pipes = self.in_flight_pipes;
            (0..count)
                .map(|_| Shard::new(&self.options, count, in_flight, pipes, notifier.clone()))
                .collect()
        };
        match make(count) {
            // One shard does with the fewest.
            Err(error) if is_out_of_descriptors(&error) && self.shards.is_none() => make(1),
            made => made,
        }
        .map_err(without_descriptor)
    }

    /// The pool, whose fixed buffers are registered with the shards.
    fn make_pool(&self, bytes: usize, shards: &[Shard]) -> io::Result<Pool> {
        let pool = Pool::new(bytes);
        let Some((size, count)) = self.fixed_buffers else { return Ok(pool) };
        let arena = match Arena::try_new(size, count) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let text = "fixed_buffers: size and count must be at least 1, and fit in memory";
                return Err(invalid(text));
            }
            arena => arena?,
        };
        for shard in shards {
            // If the registration is refused, the arena's buffers are ordinary buffers.
            shard.register(&arena);
        }
        Ok(pool.with_arena(arena))
    }
}

/// The program's value, else the environment's, else the default.
fn chosen<T>(
    by_program: Option<T>,
    variable: &str,
    default: T,
    wanted: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> io::Result<T> {
    if let Some(value) = by_program {
        return Ok(value);
    }
    match std::env::var_os(variable) {
        Some(text) if !text.is_empty() => text
            .to_str()
            .and_then(parse)
            .ok_or_else(|| invalid(format!("{variable}: expected {wanted}, got {text:?}"))),
        _ => Ok(default),
    }
}

/// Parses a number of bytes, or of KiB, MiB or GiB.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// The error of a missing descriptor, with its reason and fix.
fn without_descriptor(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) if is_out_of_descriptors(&error) => {
            BuildError::Refused(Refusal::new(Feature::Threads, errno)).into()
        }
        _ => error,
    }
}

/// The error of a thread that cannot be started, with its reason and fix.
fn without_thread(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => BuildError::Refused(Refusal::new(Feature::Threads, errno)).into(),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_have_a_unit() {
        assert_eq!(bytes("0"), Some(0));
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("3k"), Some(3 << 10));
        assert_eq!(bytes("64M"), Some(64 << 20));
        assert_eq!(bytes("1g"), Some(1 << 30));
        for wrong in [
            "",
            "m",
            "-1",
            "1.5m",
            "1 m",
            "1mb",
            "ä",
            "18446744073709551615k",
            "99999999999999999999",
        ] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
