//! The reactors of a shard: who reaps its completions besides the threads that submit.

use super::executor::{Executor, RuntimeId};
use std::task::Waker;

/// The reactors of a shard.
#[derive(Default)]
pub(crate) struct Reactors {
    /// Known tokio runtimes, and whether their I/O driver reaps completions.
    pub(crate) runtimes: Vec<(RuntimeId, bool)>,
    /// Tasks that notice when their runtime ends; they are woken when the shard closes.
    pub(crate) watchers: Vec<(RuntimeId, Waker)>,
    /// The engine's thread reaps completions at once.
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
