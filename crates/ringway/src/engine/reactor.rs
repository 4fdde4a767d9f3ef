//! Reactors: they pick up completions besides the threads that submit. A reactor is a tokio
//! runtime's I/O driver, the engine's thread, or the program itself.

pub(crate) mod notifier;
pub(crate) mod thread;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;

use std::task::Waker;

/// The executor that polls a future.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Executor {
    /// A tokio runtime.
    #[cfg(feature = "tokio")]
    Runtime(::tokio::runtime::Id),
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
    #[cfg(feature = "tokio")]
    pub(crate) runtimes: Vec<(::tokio::runtime::Id, bool)>,
    /// Tasks that notice when their runtime ends; they are woken when the shard closes.
    #[cfg(feature = "tokio")]
    pub(crate) watchers: Vec<(::tokio::runtime::Id, Waker)>,
    /// The engine's thread picks up completions at once.
    pub(crate) thread: bool,
    /// The engine was dropped, or the backend has failed for good.
    pub(crate) closed: bool,
}

impl Reactors {
    /// Closes the shard to reactors. Returns the wakers of the tasks that must learn of it.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        #[cfg(feature = "tokio")]
        return self.watchers.drain(..).map(|(_, waker)| waker).collect();
        #[cfg(not(feature = "tokio"))]
        Vec::new()
    }

    /// Registers a runtime. Returns its ID if it was not known.
    #[cfg(feature = "tokio")]
    pub(super) fn register(&mut self, executor: Executor) -> Option<::tokio::runtime::Id> {
        let Executor::Runtime(id) = executor else { return None };
        let new = !self.closed && self.runtimes.iter().all(|(known, _)| *known != id);
        new.then(|| self.runtimes.push((id, true)));
        new.then_some(id)
    }

    /// Removes a runtime.
    #[cfg(feature = "tokio")]
    pub(super) fn forget(&mut self, id: ::tokio::runtime::Id) {
        self.runtimes.retain(|(known, _)| *known != id);
    }

    /// Notes that a future waits on `executor`: the thread must be quick where no runtime is.
    pub(super) fn note_waiter(&mut self, executor: Executor) {
        self.thread |= match executor {
            #[cfg(feature = "tokio")]
            Executor::Runtime(id) => {
                self.runtimes.iter().any(|(known, has_driver)| *known == id && !has_driver)
            }
            Executor::Other => true,
            Executor::Manual => false,
        };
    }
}
