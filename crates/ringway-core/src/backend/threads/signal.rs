//! The descriptor of a pool that is readable when there may be events.
//!
//! A thread of the pool decides under the pool's mutex that the descriptor is to become readable,
//! and makes it so after it has released the mutex: the thread that waits for the descriptor runs at
//! once, on another processor, and takes the mutex. Meanwhile the descriptor may be lowered, and
//! raised again. So one byte says what is to happen next, and whoever is about to write to the
//! descriptor looks at it afterwards.

use crate::sys::eventfd::{EventFd, LazyEventFd, Numbers};
use crate::sys::{Number, RawFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Not readable.
const LOW: u8 = 0;
/// A thread is about to make it readable.
const RAISING: u8 = 1;
/// Readable, or to be made readable once it exists.
const HIGH: u8 = 2;
/// Lowered while a thread was raising it, which drains it.
const LOWERED: u8 = 3;
/// The same, and raised once more since. What that thread has written may be drained, so it writes
/// again.
const AGAIN: u8 = 4;

/// The descriptor. Its methods are called under the pool's mutex.
#[derive(Default)]
pub(super) struct PoolSignal {
    fd: LazyEventFd,
    /// The eventfd of the main backend, if this pool is its fallback and the program polls it.
    forward_to: Option<Arc<EventFd>>,
    state: Arc<AtomicU8>,
}

/// The duty to make the descriptor readable, with no lock held.
pub(super) struct Raise {
    fd: Option<Arc<EventFd>>,
    forward_to: Option<Arc<EventFd>>,
    state: Arc<AtomicU8>,
}

impl PoolSignal {
    /// Decides that the descriptor becomes readable. `None` if that has been decided before, or if
    /// there is no descriptor yet.
    #[must_use]
    pub fn begin_raise(&self) -> Option<Raise> {
        let before =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                LOW => Some(RAISING),
                LOWERED => Some(AGAIN),
                _ => None,
            });
        if before != Ok(LOW) {
            return None;
        }
        if self.fd.get().is_none() && self.forward_to.is_none() {
            self.state.store(HIGH, Ordering::Release);
            return None;
        }
        let (fd, forward_to) = (self.fd.share(), self.forward_to.clone());
        Some(Raise { fd, forward_to, state: Arc::clone(&self.state) })
    }

    /// Makes the descriptor unreadable; a thread that is raising it may make it readable for a
    /// moment. Returns the number of system calls.
    pub fn lower(&self) -> u64 {
        let before =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                HIGH => Some(LOW),
                RAISING | AGAIN => Some(LOWERED),
                _ => None,
            });
        match self.fd.get() {
            Some(fd) if before.is_ok() => {
                fd.drain();
                1
            }
            _ => 0,
        }
    }

    /// The number of the descriptor, which the first call makes.
    ///
    /// Errors: those of `eventfd(2)`.
    pub fn get_or_make(&mut self) -> io::Result<RawFd> {
        let is_new = self.fd.get().is_none();
        let fd = self.fd.get_or_make()?;
        if is_new && self.state.load(Ordering::Acquire) != LOW {
            fd.signal();
        }
        Ok(fd.number())
    }

    pub fn share(&self) -> Option<Arc<EventFd>> {
        self.fd.share()
    }

    /// Signals this eventfd too. Only its owner drains it.
    pub fn forward_to(&mut self, eventfd: Arc<EventFd>) {
        if self.state.load(Ordering::Acquire) != LOW {
            eventfd.signal();
        }
        self.forward_to = Some(eventfd);
    }

    pub fn numbers(&self) -> Numbers {
        self.fd.numbers()
    }

    pub fn close(&mut self) {
        self.fd.close();
        self.forward_to = None;
    }
}

impl Raise {
    /// The number of system calls that [`finish`](Self::finish) makes.
    pub fn calls(&self) -> u64 {
        u64::from(self.fd.is_some()) + u64::from(self.forward_to.is_some())
    }

    /// Makes the descriptor readable, unless it was lowered meanwhile.
    pub fn finish(self) {
        self.write();
        while !self.is_settled() {
            self.write();
        }
    }

    fn write(&self) {
        for fd in self.fd.iter().chain(&self.forward_to) {
            fd.signal();
        }
    }

    /// Records what has become of the descriptor. False if it has to be written to once more.
    fn is_settled(&self) -> bool {
        let change = |from, to| {
            self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        if change(RAISING, HIGH) {
            return true;
        }
        // It was lowered after the decision, before the write or after it.
        if let Some(fd) = &self.fd {
            fd.drain();
        }
        loop {
            if change(LOWERED, LOW) {
                return true;
            }
            if change(AGAIN, RAISING) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::wait_readable;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    fn is_readable(signal: &mut PoolSignal) -> bool {
        let fd = signal.get_or_make().unwrap();
        wait_readable([fd], Some(Instant::now())).unwrap() == [true]
    }

    /// Whether the descriptor is readable in the end, when another thread does this before a raise
    /// writes, and when after it.
    fn raise_and(meanwhile: impl Fn(&PoolSignal)) -> [bool; 2] {
        [true, false].map(|before| {
            let mut signal = PoolSignal::default();
            signal.get_or_make().unwrap();
            let raise = signal.begin_raise().expect("it was low");
            if before {
                meanwhile(&signal);
                raise.finish();
            } else {
                raise.write();
                meanwhile(&signal);
                if !raise.is_settled() {
                    raise.finish();
                }
            }
            is_readable(&mut signal)
        })
    }

    #[test]
    fn the_last_decision_counts() {
        let lower = |signal: &PoolSignal| assert_eq!(signal.lower(), 1);
        let again = |signal: &PoolSignal| {
            lower(signal);
            assert!(signal.begin_raise().is_none(), "the first thread writes");
        };
        assert_eq!(raise_and(|_| {}), [true; 2]);
        assert_eq!(raise_and(lower), [false; 2]);
        assert_eq!(raise_and(again), [true; 2]);
        assert_eq!(raise_and(|signal| (again(signal), lower(signal)).1), [false; 2]);
        assert_eq!(raise_and(|signal| (again(signal), again(signal)).1), [true; 2]);
    }

    #[test]
    fn a_descriptor_that_is_made_late_is_readable() {
        let mut signal = PoolSignal::default();
        assert!(signal.begin_raise().is_none(), "there is nothing to write to");
        assert!(is_readable(&mut signal));
        assert_eq!(signal.lower(), 1);
        assert!(!is_readable(&mut signal));
        assert_eq!(signal.lower(), 0, "it is low");
    }

    /// Threads that raise, and one that lowers and looks for what they have left: it always finds
    /// the descriptor readable when something is left.
    #[test]
    fn nothing_is_lost_and_nothing_is_left() {
        let shared = Mutex::new((PoolSignal::default(), 0));
        let fd = shared.lock().unwrap().0.get_or_make().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let mut state = shared.lock().unwrap();
                            state.1 += 1;
                            let raise = state.0.begin_raise();
                            drop(state);
                            if let Some(raise) = raise {
                                raise.finish();
                            }
                        }
                    })
                })
                .collect();
            let reaper = scope.spawn(|| {
                let mut taken = 0;
                while taken < 60_000 {
                    let soon = Instant::now() + Duration::from_secs(20);
                    assert_eq!(wait_readable([fd], Some(soon)).unwrap(), [true], "{taken}");
                    let mut state = shared.lock().unwrap();
                    state.0.lower();
                    taken += std::mem::take(&mut state.1);
                }
                done.store(true, Ordering::Relaxed);
            });
            for thread in threads {
                thread.join().unwrap();
            }
            reaper.join().unwrap();
        });
        assert!(done.load(Ordering::Relaxed));
        let mut state = shared.into_inner().unwrap();
        state.0.lower();
        assert!(!is_readable(&mut state.0));
    }
}
