//! The reactor on tokio: a wake hook on a shard's descriptor, through `AsyncFd`, and a task that
//! notices when the runtime ends.
//!
//! The hook is a waker. Tokio's I/O driver calls it on readiness, on the worker that waits for
//! events. From there any number of tasks can be woken while at most one other worker is woken to
//! help; from a task, each wakeup may wake a worker.
//!
//! Each pair of a runtime and a shard that polled a future has its own hook and task. The first
//! hook to be called reaps all completions. Both end with their runtime, and the engine's thread
//! takes over.

use crate::engine::executor::Executor;
use crate::engine::shard::Shard;
use crate::engine::sync::{Mutex, lock};
use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::{Handle, Id};
use ::tokio::task::unconstrained;
use ringway_core::{OwnedFd, is_fork};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A thread looks up its runtime once in this many operations: the lookup writes to a cache line
/// that all workers share.
const REFRESH_INTERVAL: u8 = 16;

thread_local! {
    /// The runtime of this thread, and for how many more operations to assume it.
    static CURRENT: Cell<(Option<Id>, u8)> = const { Cell::new((None, 0)) };
}

/// Returns the runtime that the caller runs in. After a thread has moved to another runtime, this
/// may name the old one for some operations; the engine's thread then reaps what no runtime
/// does.
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

/// Looks the runtime up now.
fn current(here: &Cell<(Option<Id>, u8)>) -> Option<Id> {
    let id = Handle::try_current().ok().map(|handle| handle.id());
    here.set((id, REFRESH_INTERVAL - 1));
    id
}

/// Whether the caller runs in this runtime.
pub(crate) fn is_in(id: Id) -> bool {
    CURRENT.with(current) == Some(id)
}

/// Lets the current runtime reap completions. If it cannot (it has no I/O, or no descriptor is
/// free), the thread does it. With `has_io` the program guarantees that the runtime has I/O, and a
/// missing one panics.
///
/// A forked process registers nothing: it may have inherited the runtime, whose epoll instance its
/// parent waits on. The parent's driver would be handed the address of memory that only the child
/// has. Nothing shows whether a runtime was built before the fork or after it.
pub(crate) fn start(shards: &Arc<[Shard]>, shard: usize, id: Id, has_io: bool) {
    let watch = || {
        let fd = shards[shard].readable().try_clone_to_owned()?;
        // Its replacement is unsafe, for types whose descriptor may change. That of an `OwnedFd`
        // does not.
        #[allow(deprecated)]
        AsyncFd::with_interest(fd, Interest::READABLE)
    };
    let watched = match (is_fork(), has_io) {
        (true, _) => None,
        (false, true) => Some(watch()),
        (false, false) => catch_quietly(watch),
    };
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

/// A panic would abort the process, so this does not try.
#[cfg(not(panic = "unwind"))]
fn catch_quietly<R>(_try: impl FnOnce() -> R) -> Option<R> {
    None
}

/// Returns the result, or `None` after a panic. The panic hook does not see the panic, because it
/// might print or end the process.
///
/// The hook is global, so it is replaced briefly by one that forwards the panics of other threads.
/// It can only be taken and set, not exchanged: a panic of another thread in between would meet the
/// standard library's own hook.
#[cfg(panic = "unwind")]
fn catch_quietly<R>(run: impl FnOnce() -> R) -> Option<R> {
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
    static REPLACING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let here = std::thread::current().id();
    if std::thread::panicking() {
        return None; // The hook cannot be replaced.
    }
    let _serialized = lock_unless_lost(&REPLACING)?;
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
        // Another thread has set its own hook meanwhile.
        set_hook(found);
    }
    result.ok()
}

/// Locks a mutex that others hold for microseconds. `None` if it stays locked: in a forked child,
/// the thread that held it may not exist.
#[cfg(panic = "unwind")]
fn lock_unless_lost(mutex: &std::sync::Mutex<()>) -> Option<std::sync::MutexGuard<'_, ()>> {
    for _ in 0..100 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// The most runtimes without I/O to remember.
const MAX_RUNTIMES: usize = 256;

/// The waker that tokio's I/O driver calls when there may be completions to reap.
struct WakeHook {
    shards: Arc<[Shard]>,
    shard: usize,
    id: Id,
    /// `None` once the runtime ends. The descriptor holds this hook through its waker.
    fd: Mutex<Option<AsyncFd<OwnedFd>>>,
}

impl WakeHook {
    fn shard(&self) -> &Shard {
        &self.shards[self.shard]
    }

    /// Whether the descriptor has become readable since the last call. If not, the hook will be
    /// called when it becomes readable.
    fn is_ready(self: &Arc<Self>) -> bool {
        let waker = Waker::from(self.clone());
        let mut fd = lock(&self.fd);
        let poll = |fd: &AsyncFd<OwnedFd>| {
            let ready =
                poll_fn(|cx| fd.poll_read_ready(cx).map_ok(|mut ready| ready.clear_ready()));
            // Not within the budget of a task that is being polled: a hook without budget would
            // have to yield, and tokio's list of those takes none while it is called.
            pin!(unconstrained(ready)).poll(&mut Context::from_waker(&waker))
        };
        match fd.as_ref().map(poll) {
            Some(Poll::Ready(Ok(()))) => true,
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
        // Completions that arrive after the check call the hook again.
        while self.is_ready() {
            self.shard().drive(Executor::Runtime(self.id));
        }
    }
}

/// Unregisters the runtime when dropped, together with the task that owns it, which may happen at
/// any time.
struct RuntimeWatch {
    hook: Arc<WakeHook>,
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        // This breaks the reference cycle through the waker.
        drop(lock(&self.hook.fd).take());
        let shard = self.hook.shard();
        // Keeping a waker of the task would keep its runtime's descriptors open.
        let watcher = shard.reactors(|reactors| {
            if let Some(at) = reactors.runtimes.iter().position(|(id, _)| *id == self.hook.id) {
                reactors.runtimes.swap_remove(at);
            }
            reactors.thread = true;
            let at = reactors.watchers.iter().position(|(id, _)| *id == self.hook.id);
            at.map(|at| reactors.watchers.swap_remove(at))
        });
        drop(watcher);
        shard.flush();
    }
}

/// Runs until the shard closes or the runtime ends.
async fn watch_runtime(watch: RuntimeWatch) {
    let mut is_known = false;
    poll_fn(|cx| {
        watch.hook.shard().reactors(|reactors| {
            if reactors.closed {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_known, true) {
                reactors.watchers.push((watch.hook.id, cx.waker().clone()));
            }
            Poll::Pending
        })
    })
    .await;
}

#[cfg(all(test, panic = "unwind"))]
mod tests {
    use super::*;

    /// As in a forked child whose parent was forked while another thread held it.
    #[test]
    fn a_lock_that_is_never_released_is_given_up() {
        let lock = std::sync::Mutex::new(());
        let lost = lock.lock().unwrap();
        assert!(lock_unless_lost(&lock).is_none());
        drop(lost);
        assert!(lock_unless_lost(&lock).is_some());
    }
}
