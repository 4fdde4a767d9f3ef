//! The descriptor of a pool that is readable when there may be events. It changes under the pool's
//! mutex only: a program that has found it readable may read it itself, so no other thread may
//! drain it.

use crate::sys::eventfd::{EventFd, LazyEventFd, Numbers};
use crate::sys::{Number, RawFd};
use std::io;
use std::sync::Arc;

/// The descriptor. Its methods are called under the pool's mutex.
#[derive(Default)]
pub(super) struct PoolSignal {
    fd: LazyEventFd,
    /// That of the main backend, if this pool is its fallback and the program polls it.
    forward_to: Option<Arc<EventFd>>,
    /// Readable, or to be made readable once it exists.
    is_high: bool,
}

impl PoolSignal {
    /// Makes the descriptor readable. Returns the number of system calls.
    pub fn raise(&mut self) -> u64 {
        if std::mem::replace(&mut self.is_high, true) {
            return 0;
        }
        let mut calls = 0;
        for target in self.fd.get().into_iter().chain(self.forward_to.as_deref()) {
            target.signal();
            calls += 1;
        }
        calls
    }

    /// Makes the descriptor unreadable. Returns the number of system calls.
    pub fn lower(&mut self) -> u64 {
        let was_high = std::mem::take(&mut self.is_high);
        match self.fd.get().filter(|_| was_high) {
            Some(fd) => {
                fd.drain();
                1
            }
            None => 0,
        }
    }

    /// The number of the descriptor, which the first call makes.
    ///
    /// Errors: those of `eventfd(2)`.
    pub fn get_or_make(&mut self) -> io::Result<RawFd> {
        let is_new = self.fd.get().is_none();
        let fd = self.fd.get_or_make()?;
        if is_new && self.is_high {
            fd.signal();
        }
        Ok(fd.number())
    }

    pub fn share(&self) -> Option<Arc<EventFd>> {
        self.fd.share()
    }

    /// Signals this eventfd too. Only its owner drains it.
    pub fn forward_to(&mut self, eventfd: Arc<EventFd>) {
        if self.is_high {
            eventfd.signal();
        }
        self.forward_to = Some(eventfd);
    }

    pub fn numbers(&self) -> Numbers {
        self.fd.numbers()
    }

    /// Closes the descriptor.
    pub fn close(&mut self) {
        self.forward_to = None;
        self.fd.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::wait_readable;
    use std::time::Instant;

    fn is_readable(signal: &mut PoolSignal) -> bool {
        let fd = signal.get_or_make().unwrap();
        wait_readable([fd], Some(Instant::now())).unwrap() == [true]
    }

    #[test]
    fn it_is_readable_from_a_raise_until_it_is_lowered() {
        let mut signal = PoolSignal::default();
        assert!(!is_readable(&mut signal));
        assert_eq!((signal.raise(), signal.raise()), (1, 0));
        assert!(is_readable(&mut signal));
        assert_eq!((signal.lower(), signal.lower()), (1, 0));
        assert!(!is_readable(&mut signal));
        // The program may have read it.
        signal.raise();
        signal.fd.get().unwrap().drain();
        signal.lower();
        assert_eq!(signal.raise(), 1);
        assert!(is_readable(&mut signal));
    }

    #[test]
    fn a_descriptor_that_is_made_late_is_readable() {
        let mut signal = PoolSignal::default();
        assert_eq!(signal.raise(), 0, "there is nothing to write to");
        assert!(is_readable(&mut signal));
        assert_eq!(signal.lower(), 1);
        assert!(!is_readable(&mut signal));
    }

    #[test]
    fn a_target_that_comes_late_misses_nothing() {
        let forward = Arc::new(EventFd::new().unwrap());
        let is_signalled =
            || wait_readable([forward.number()], Some(Instant::now())).unwrap() == [true];
        let mut signal = PoolSignal::default();
        signal.get_or_make().unwrap();
        signal.raise();
        signal.forward_to(Arc::clone(&forward));
        assert!(is_signalled());
        forward.drain();
        signal.lower();
        assert_eq!(signal.raise(), 2);
        assert!(is_signalled());
    }
}
