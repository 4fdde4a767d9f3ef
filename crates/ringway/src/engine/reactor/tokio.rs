//! The reaper on tokio: a hook on the descriptor of a shard, through `AsyncFd`, and a task that
//! tells when the runtime ends.
//!
//! The hook is a waker of our own. Tokio calls it where its I/O driver tells of readiness, on the
//! worker that waits for events; there any number of tasks can be woken with at most one other
//! worker woken to help. From a task, each wake-up may wake a worker.
//!
//! One of each for each runtime and shard that a future was polled with; whichever hook rings first
//! picks up all completions. They go with their runtime, and the engine's thread takes over then.

use super::Executor;
use crate::engine::shard::{Shard, lock};
use crate::engine::sync::Mutex;
use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::{Handle, Id};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Of how many operations of a thread one asks tokio again in which runtime that is: asking writes
/// to a cache line that all of its workers share.
const REFRESH_INTERVAL: u8 = 16;

thread_local! {
    /// The runtime that this thread was in, and for how many operations that is taken for granted.
    static CURRENT: Cell<(Option<Id>, u8)> = const { Cell::new((None, 0)) };
}

/// The runtime that the caller runs in. A thread that goes from one runtime to another may be taken
/// to be in the first for some operations; the engine's thread then picks up what nobody else does.
pub(crate) fn runtime() -> Option<Id> {
    CURRENT.with(|here| {
        let (id, left) = here.get();
        match left.checked_sub(1) {
            Some(left) => {
                here.set((id, left));
                id
            }
            None => current(here),
        }
    })
}

/// The same, asked for now.
fn current(here: &Cell<(Option<Id>, u8)>) -> Option<Id> {
    let id = Handle::try_current().ok().map(|handle| handle.id());
    here.set((id, REFRESH_INTERVAL - 1));
    id
}

/// Whether the caller runs in that runtime.
pub(crate) fn is_in(id: Id) -> bool {
    CURRENT.with(current) == Some(id)
}

/// Has the current runtime pick up completions. Without success (the runtime has no I/O, no
/// descriptor is to be had) the thread does it. `has_io`: the program promises that the runtime has
/// I/O; else it panics.
pub(crate) fn start(shards: &Arc<[Shard]>, shard: usize, id: Id, has_io: bool) {
    let watch = || {
        let fd = shards[shard].readable().try_clone_to_owned()?;
        // The newer function is unsafe, for types whose descriptor may change; that of an `OwnedFd`
        // does not.
        #[allow(deprecated)]
        AsyncFd::with_interest(fd, Interest::READABLE)
    };
    let watched = if has_io { Some(watch()) } else { catch_quietly(watch) };
    let fd = watched.and_then(io::Result::ok);
    let works = fd.is_some();
    let hook = Arc::new(WakeHook { shards: shards.clone(), shard, id, fd: Mutex::new(fd) });
    let watch = RuntimeWatch { hook: hook.clone() };
    if works {
        ::tokio::spawn(watch_runtime(watch));
        hook.wake();
    } else {
        drop(watch);
        hook.shard().reactors(|reactors| {
            reactors.runtimes.truncate(MAX_RUNTIMES);
            reactors.runtimes.insert(0, (id, false));
        });
    }
}

/// A panic would end the process: nothing is tried.
#[cfg(not(panic = "unwind"))]
fn catch_quietly<R>(_try: impl FnOnce() -> R) -> Option<R> {
    None
}

/// The result; `None` if there was a panic, of which the panic hook is not wake_epoch: it may print, or
/// end the process.
///
/// The hook is the whole process's, so it is replaced for a moment by one that passes on what other
/// threads have to tell. (It can only be taken and set, not exchanged: a panic of another thread in
/// between would meet the standard library's own hook.)
#[cfg(panic = "unwind")]
fn catch_quietly<R>(run: impl FnOnce() -> R) -> Option<R> {
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let here = std::thread::current().id();
    if std::thread::panicking() {
        return None; // The hook cannot be replaced.
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let usual = Arc::new(take_hook());
    let for_others = usual.clone();
    let quiet: Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync> = Box::new(move |info| {
        if std::thread::current().id() != here {
            for_others(info);
        }
    });
    let ours = &raw const *quiet;
    set_hook(quiet);
    let result = catch_unwind(AssertUnwindSafe(run));
    let found = take_hook();
    if std::ptr::addr_eq(&raw const *found, ours) {
        drop(found);
        if let Some(usual) = Arc::into_inner(usual) {
            set_hook(usual);
        }
    } else {
        // Another thread has set its own meanwhile.
        set_hook(found);
    }
    result.ok()
}

/// Runtimes that are remembered.
const MAX_RUNTIMES: usize = 256;

/// Rung when there may be something to reap.
struct WakeHook {
    shards: Arc<[Shard]>,
    shard: usize,
    id: Id,
    /// `None` when it is over. (It holds this hook itself, by the waker.)
    fd: Mutex<Option<AsyncFd<OwnedFd>>>,
}

impl WakeHook {
    fn shard(&self) -> &Shard {
        &self.shards[self.shard]
    }

    /// True if it has rung since it was last asked; else it rings again when there is something.
    fn is_ready(self: &Arc<Self>) -> bool {
        let waker = Waker::from(self.clone());
        let mut fd = lock(&self.fd);
        match fd.as_ref().map(|fd| fd.poll_read_ready(&mut Context::from_waker(&waker))) {
            Some(Poll::Ready(Ok(mut ready))) => {
                ready.clear_ready();
                true
            }
            // The runtime is shutting down.
            Some(Poll::Ready(Err(_))) => {
                *fd = None;
                false
            }
            Some(Poll::Pending) | None => false,
        }
    }
}

impl Wake for WakeHook {
    fn wake(self: Arc<Self>) {
        // What completes after it has been asked rings it again.
        while self.is_ready() {
            self.shard().drive(Executor::Runtime(self.id));
        }
    }
}

/// The hook's place in its shard; given up with the task that has it, when it is dropped, which may
/// be at any time.
struct RuntimeWatch {
    hook: Arc<WakeHook>,
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        // Which ends the ring of owners that goes through the waker.
        drop(lock(&self.hook.fd).take());
        let shard = self.hook.shard();
        // A waker of the task would keep its runtime's descriptors open.
        let driver = shard.reactors(|reactors| {
            if let Some(at) = reactors.runtimes.iter().position(|(id, _)| *id == self.hook.id) {
                reactors.runtimes.swap_remove(at);
            }
            reactors.thread = true;
            let at = reactors.drivers.iter().position(|(id, _)| *id == self.hook.id);
            at.map(|at| reactors.drivers.swap_remove(at))
        });
        drop(driver);
        shard.flush();
    }
}

/// Until the shard closes or the runtime ends.
async fn watch_runtime(watch: RuntimeWatch) {
    let mut is_known = false;
    poll_fn(|cx| {
        watch.hook.shard().reactors(|reactors| {
            if reactors.closed {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_known, true) {
                reactors.drivers.push((watch.hook.id, cx.waker().clone()));
            }
            Poll::Pending
        })
    })
    .await;
}
