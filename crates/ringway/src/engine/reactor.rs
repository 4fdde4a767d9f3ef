//! Reactors: they pick up completions besides the threads that submit. A reactor is a tokio
//! runtime's I/O driver, the engine's thread, or the program itself.

#[cfg(all(feature = "tokio", unix))]
#[path = "reactor/tokio.rs"]
pub(crate) mod driver;
#[cfg(not(all(feature = "tokio", unix)))]
#[path = "reactor/no_driver.rs"]
pub(crate) mod driver;
#[cfg(target_os = "linux")]
pub(crate) mod manual;
#[cfg(not(target_os = "linux"))]
#[path = "reactor/no_manual.rs"]
pub(crate) mod manual;
pub(crate) mod notifier;
pub(crate) mod thread;

use driver::RuntimeId;
use std::task::Waker;

/// The executor that polls a future.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Executor {
    /// A tokio runtime.
    Runtime(RuntimeId),
    /// Any other executor.
    #[default]
    Other,
    /// Any executor, in an engine with [`Reaping::Manual`](crate::Reaping::Manual).
    Manual,
}

/// The reactors of a shard.
#[derive(Default)]
pub(crate) struct Reactors {
    /// Known tokio runtimes, and whether their I/O driver picks up completions.
    pub(crate) runtimes: Vec<(RuntimeId, bool)>,
    /// Tasks that notice when their runtime ends; they are woken when the shard closes.
    pub(crate) watchers: Vec<(RuntimeId, Waker)>,
    /// The engine's thread picks up completions at once.
    pub(crate) thread: bool,
    /// The engine was dropped, or the backend has failed for good.
    pub(crate) closed: bool,
}

impl Reactors {
    /// Closes the shard to reactors. Returns the wakers of the tasks that must learn of it.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.watchers.drain(..).map(|(_, waker)| waker).collect()
    }

    /// Registers a runtime. Returns its ID if it was not known.
    pub(super) fn register(&mut self, executor: Executor) -> Option<RuntimeId> {
        let Executor::Runtime(id) = executor else { return None };
        let new = !self.closed && self.runtimes.iter().all(|(known, _)| *known != id);
        new.then(|| self.runtimes.push((id, true)));
        new.then_some(id)
    }

    /// Removes a runtime.
    pub(super) fn forget(&mut self, id: RuntimeId) {
        self.runtimes.retain(|(known, _)| *known != id);
    }

    /// Notes that a future waits on `executor`: the thread must be quick where no runtime is.
    pub(super) fn note_waiter(&mut self, executor: Executor) {
        self.thread |= match executor {
            Executor::Runtime(id) => {
                self.runtimes.iter().any(|(known, has_driver)| *known == id && !has_driver)
            }
            Executor::Other => true,
            Executor::Manual => false,
        };
    }
}
