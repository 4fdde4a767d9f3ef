//! Values whose drop may take long.

use ringway_core::{OwnerProcess, run_in_background};
use std::ops::{Deref, DerefMut};

/// Drops what it holds on a thread in the background: the last close of a file without a name
/// frees all that was written. A forked child drops its copy in place: it starts no thread for a
/// file that its parent keeps open.
#[derive(Debug)]
pub(crate) struct InBackground<T: Send + 'static> {
    /// `None` once it was taken out.
    value: Option<T>,
    owner: OwnerProcess,
}

impl<T: Send + 'static> InBackground<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), owner: OwnerProcess::current() }
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect(TAKEN_BY_VALUE)
    }
}

const TAKEN_BY_VALUE: &str = "what has no value has been moved";

impl<T: Send + 'static> Deref for InBackground<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(TAKEN_BY_VALUE)
    }
}

impl<T: Send + 'static> DerefMut for InBackground<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(TAKEN_BY_VALUE)
    }
}

impl<T: Send + 'static> Drop for InBackground<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take().filter(|_| self.owner.is_current()) {
            run_in_background(move || drop(value));
        }
    }
}

/// Whose drop sends the number of its thread.
#[cfg(test)]
pub(crate) struct Probe(pub(crate) std::sync::mpsc::Sender<std::thread::ThreadId>);

#[cfg(test)]
impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn another_thread_drops_what_was_not_taken_out() {
        let (sender, receiver) = channel();
        drop(InBackground::new(Probe(sender.clone())).into_inner());
        assert_eq!(receiver.try_recv(), Ok(thread::current().id()));
        drop(InBackground::new(Probe(sender)));
        let dropped = receiver.recv_timeout(Duration::from_secs(20));
        assert_ne!(dropped.unwrap(), thread::current().id());
    }
}
