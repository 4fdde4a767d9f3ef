//! What an engine is to be.

use super::reactor::manual::Notifier;
use super::reactor::thread::Reaper;
use super::shard::{SYNCS, Shard};
use super::{Engine, GLOBAL, Inner, Manual, PaddedCounter};
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
    /// In a tokio runtime its I/O driver (feature `tokio`); elsewhere, in a runtime without I/O,
    /// and where a runtime is late, a thread of the engine's own.
    ///
    /// Tokio panics when a runtime without I/O is asked for it, and has no way to find out before.
    /// ringway catches that panic, once for each runtime, and keeps it from the panic hook. A
    /// program built with `panic = "abort"` is never asked: there the thread does it, unless
    /// [`Runtime`](Self::Runtime) is chosen.
    #[default]
    Automatic,
    /// As [`Automatic`](Self::Automatic), in a program of which every tokio runtime that polls a
    /// future of ringway's has I/O enabled (`enable_io` or `enable_all`). In one that has not, the
    /// first operation panics. For programs built with `panic = "abort"`.
    Runtime,
    /// The thread, everywhere.
    Thread,
    /// The program: it polls [`Engine::readable`] in its own loop, and calls [`Engine::reap`].
    /// There is no thread.
    Manual,
}

/// What an engine is to be. From [`Engine::builder`].
///
/// What the program does not choose the environment may: `RINGWAY_BACKEND`, `RINGWAY_IN_FLIGHT` and
/// `RINGWAY_POOL` stand for [`backend`](Self::backend), [`in_flight`](Self::in_flight) and
/// [`pool`](Self::pool), for every engine of the program, the global one included. Empty is as not
/// set; a value that cannot be used is an error of [`build`](Self::build) that names the variable.
/// What the program does choose stands, and its variable is not looked at.
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
    waiting: u32,
    fixed_buffers: Option<(usize, usize)>,
    pool: Option<usize>,
    try_cached: bool,
    reaping: Reaping,
    close_wait: Duration,
}

/// Kernel threads that one ring may have for files: enough for syncs, and some for opens and what
/// the device refuses to take at once.
const IO_WQ_WORKERS: u32 = SYNCS + 8;
/// Transfers of storage in flight where nobody has chosen: as many as most devices queue.
const IN_FLIGHT: u32 = 256;
/// Bytes of lent memory that are kept where nobody has chosen.
const POOL: usize = 32 << 20;
/// The most shards that are made unasked.
const MAX_SHARDS: usize = 16;
/// Processors for which one shard is enough.
const PROCESSORS_PER_SHARD: usize = 4;

impl EngineBuilder {
    pub(super) fn new() -> Self {
        Self {
            options: Options::new().entries(128).io_wq_workers(IO_WQ_WORKERS, IO_WQ_WORKERS),
            shards: None,
            in_flight: None,
            waiting: 1024,
            fixed_buffers: None,
            pool: None,
            try_cached: true,
            reaping: Reaping::Automatic,
            close_wait: Duration::from_secs(5),
        }
    }

    /// How many queues the engine has; threads take them in turn. Default: one for four processors,
    /// at most 16.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Entries of each shard's submission queue, which count as locked memory on uring. Default
    /// 128.
    pub fn entries(mut self, entries: u32) -> Self {
        self.options = self.options.entries(entries);
        self
    }

    /// The most transfers of storage that each shard has with the kernel at a time; further ones
    /// wait in order. More than the device can queue (`nr_requests`, usually 256) costs: the kernel
    /// hands them to threads. Transfers that hang do not count, up to 1024 of them. Without it
    /// `RINGWAY_IN_FLIGHT` decides, and without that it is 256.
    pub fn in_flight(mut self, transfers: u32) -> Self {
        self.in_flight = Some(transfers);
        self
    }

    /// The most operations that may wait for ever (reads and writes of pipes, sockets, terminals)
    /// that each shard has with the kernel at a time; further ones wait in order. Opens, syncs, and
    /// what is done with names have room of their own. Default 1024.
    pub fn waiting(mut self, operations: u32) -> Self {
        self.waiting = operations;
        self
    }

    /// This backend or an error; without it `RINGWAY_BACKEND` decides, and without that the best
    /// that is granted.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.options = self.options.backend(backend);
        self
    }

    /// A kernel thread polls each shard's submission queue (uring). It keeps a processor busy.
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.options = self.options.sqpoll(sqpoll);
        self
    }

    /// The most io-wq workers of each shard's ring, for files and for the rest; 0 leaves the
    /// kernel's limit. Default 24 and 24.
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

    /// Blocks of `size` bytes, `count` of them, that reads into lent memory use first, registered
    /// with each shard's ring (fixed buffers). Where the registration is refused they are blocks
    /// like any other, and `explain` says why.
    pub fn fixed_buffers(mut self, size: usize, count: usize) -> Self {
        self.fixed_buffers = Some((size, count));
        self
    }

    /// Bytes of lent memory that are kept for the next read when they come back. Without it
    /// `RINGWAY_POOL` decides, a number of bytes, or of KiB, MiB or GiB with `k`, `m` or `g` behind
    /// it; and without that it is 32 MiB.
    pub fn pool(mut self, bytes: usize) -> Self {
        self.pool = Some(bytes);
        self
    }

    /// Whether a buffered read is tried in the page cache first, where an answer needs no ring and
    /// no other thread. Default yes.
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

    /// How long closing the engine waits, in the background, for operations that will not be
    /// cancelled. What is in flight after that is leaked. Default five seconds.
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }

    /// Makes the engine, as [`build`](Self::build) does, to be the [`global`](Engine::global) one:
    /// that which every function and every file uses that names none. It must not be there yet, so
    /// this belongs to the beginning of `main`.
    ///
    /// ```
    /// use ringway::Engine;
    /// # fn main() -> std::io::Result<()> {
    /// let engine = Engine::builder().in_flight(64).pool(8 << 20).install_global()?;
    /// println!("{}", engine.explain());
    /// let again = Engine::builder().install_global();
    /// assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `build`, after which there is no global engine still; AlreadyExists where
    /// there is one already, be it installed or made at the first need; ECHILD where it is that of
    /// the process this one was forked from.
    pub fn install_global(&self) -> io::Result<&'static Engine> {
        let taken = || {
            let text = "the global engine is there already: install one before anything uses it";
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        };
        if let Some(known) = Engine::existing() {
            return known.and_then(|_| Err(taken()));
        }
        // (Somebody else may have been quicker meanwhile.)
        GLOBAL.set(self.build()?).map_err(|_| taken())?;
        Engine::global()
    }

    /// Makes the engine. Blocks for some system calls, a real read for each shard among them.
    ///
    /// Errors: EINVAL for numbers out of range, or a value that `RINGWAY_BACKEND`,
    /// `RINGWAY_IN_FLIGHT` or `RINGWAY_POOL` cannot have; the errno of a refusal when a backend was
    /// forced; EMFILE, and EAGAIN for a thread that cannot be started.
    pub fn build(&self) -> io::Result<Engine> {
        let count = self.shards.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.div_ceil(PROCESSORS_PER_SHARD).min(MAX_SHARDS)
        });
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if count == 0 || count > 1024 {
            return invalid("shards: 1 to 1024");
        }
        let in_flight =
            chosen(self.in_flight, "RINGWAY_IN_FLIGHT", IN_FLIGHT, "a number from 1 on", |text| {
                text.parse().ok().filter(|transfers| *transfers > 0)
            })?;
        let pool = chosen(
            self.pool,
            "RINGWAY_POOL",
            POOL,
            "a number of bytes, such as 1048576, 1024k, 64m or 1g",
            bytes,
        )?;
        if in_flight == 0 || self.waiting == 0 {
            return invalid("in_flight and waiting: at least 1");
        }
        let notifier = Notifier::new(self.reaping == Reaping::Manual)?;
        let shards: io::Result<Arc<[Shard]>> = (0..count)
            .map(|_| Shard::new(&self.options, in_flight, self.waiting, notifier.clone()))
            .collect();
        let shards = shards?;
        let mut pool = Pool::new(pool);
        if let Some((size, count)) = self.fixed_buffers {
            let arena = match Arena::try_new(size, count) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return invalid(
                        "fixed_buffers: at least one of at least a byte, and no more than memory can hold",
                    );
                }
                arena => arena?,
            };
            for shard in shards.iter() {
                // Where it is refused, the blocks are buffers like any other.
                shard.register(&arena);
            }
            pool = pool.with_arena(arena);
        }
        let manual = match self.reaping {
            Reaping::Manual => Some(Manual {
                readable: one_for_all(&shards, &notifier)?,
                notifier: notifier.clone(),
            }),
            _ => None,
        };
        let reaper = match self.reaping {
            Reaping::Manual => None,
            _ => Some(Reaper::start(shards.clone(), notifier, self.close_wait)?),
        };
        Ok(Engine {
            inner: Arc::new(Inner {
                cached: (0..count).map(|_| PaddedCounter::default()).collect(),
                explained: shards[0].explain(),
                shards,
                reaper,
                manual,
                home: Home::here(),
                pool,
                try_cached: self.try_cached,
                close_wait: self.close_wait,
                reaping: self.reaping,
            }),
        })
    }
}

/// What the program has chosen, or else the environment; or else the default.
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
        Some(text) if !text.is_empty() => text.to_str().and_then(parse).ok_or_else(|| {
            let text = format!("{variable}: give {wanted}, not {text:?}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        }),
        _ => Ok(default),
    }
}

/// A number of bytes, or of KiB, MiB, GiB.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// A descriptor that is readable when that of any shard is, or the notifier's.
fn one_for_all(shards: &[Shard], notifier: &Notifier) -> io::Result<std::os::fd::OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in shards.iter().map(Shard::readable).chain([notifier.fd()]).chain(notifier.timer()) {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
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
