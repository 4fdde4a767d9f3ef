//! Who picks up completions, besides those who submit: a runtime's I/O driver, the engine's own
//! thread, or the program.

pub(crate) mod manual;
pub(crate) mod thread;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;

use std::task::Waker;

/// Where a future is polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Executor {
    /// In a tokio runtime.
    #[cfg(feature = "tokio")]
    Runtime(::tokio::runtime::Id),
    /// Anywhere else.
    #[default]
    Other,
    /// In a program that reaps by itself.
    Manual,
}

/// Who picks up completions, besides those who submit.
#[derive(Default)]
pub(crate) struct Reactors {
    /// Runtimes whose I/O driver does; false: that have none.
    #[cfg(feature = "tokio")]
    pub(crate) runtimes: Vec<(::tokio::runtime::Id, bool)>,
    /// Tasks that tell when their runtime ends; to be woken when the shard closes.
    #[cfg(feature = "tokio")]
    pub(crate) drivers: Vec<(::tokio::runtime::Id, Waker)>,
    /// The thread does.
    pub(crate) thread: bool,
    /// The engine has gone, or the backend has failed for good.
    pub(crate) closed: bool,
}

impl Reactors {
    /// Nobody need come any more; whom to wake to learn of it.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        #[cfg(feature = "tokio")]
        return self.drivers.drain(..).map(|(_, waker)| waker).collect();
        #[cfg(not(feature = "tokio"))]
        Vec::new()
    }

    /// The runtime that somebody waits in, if it was not known.
    #[cfg(feature = "tokio")]
    pub(super) fn register(&mut self, executor: Executor) -> Option<::tokio::runtime::Id> {
        let Executor::Runtime(id) = executor else { return None };
        let new = !self.closed && self.runtimes.iter().all(|(known, _)| *known != id);
        new.then(|| self.runtimes.push((id, true)));
        new.then_some(id)
    }

    /// A runtime is not known any more.
    #[cfg(feature = "tokio")]
    pub(super) fn forget(&mut self, id: ::tokio::runtime::Id) {
        self.runtimes.retain(|(known, _)| *known != id);
    }

    /// Somebody waits at `place`: the thread is to be quick where no runtime is.
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
