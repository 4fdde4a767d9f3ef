//! The descriptor of a pool that is readable when there may be events.
//!
//! A thread of the pool decides under the pool's mutex that the descriptor is to become readable,
//! and makes it so after it has released the mutex: the thread that waits for the descriptor runs
//! at once, on another processor, and takes the mutex. Meanwhile the descriptor may be lowered. So
//! one byte says what has been decided, and whoever has written to the descriptor looks at it
//! afterwards, and writes again rather than drain: the program may be about to read the descriptor,
//! which it has found readable. So it may be readable once too often.

use crate::sys::eventfd::{EventFd, LazyEventFd, Numbers};
use crate::sys::{Number, RawFd};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Not readable.
const LOW: u8 = 0;
/// A thread is about to make it readable.
const RAISING: u8 = 1;
/// Readable, or to be made readable once it exists.
const HIGH: u8 = 2;
/// Lowered while a thread was raising it. What that thread has written may be drained, so it writes
/// again.
const LOWERED: u8 = 3;

/// The descriptor. Its methods are called under the pool's mutex.
#[derive(Default)]
pub(super) struct PoolSignal {
    fd: LazyEventFd,
    shared: Arc<SharedSignal>,
}

/// What a thread needs that raises the signal without the pool's mutex.
#[derive(Default)]
struct SharedSignal {
    state: AtomicU8,
    targets: Mutex<Targets>,
}

/// The eventfds to write to, as far as they exist.
#[derive(Clone, Default)]
struct Targets {
    own: Option<Arc<EventFd>>,
    /// That of the main backend, if this pool is its fallback and the program polls it.
    forward_to: Option<Arc<EventFd>>,
}

/// The duty to make the descriptor readable, which is done when this is dropped.
pub(super) struct Raise(Arc<SharedSignal>);

impl PoolSignal {
    /// Decides that the descriptor becomes readable. `None` if that has been decided before, or if
    /// there is no descriptor yet.
    #[must_use]
    pub fn begin_raise(&self) -> Option<Raise> {
        self.shared.change(|state| (state == LOW).then_some(RAISING)).ok()?;
        if self.shared.targets().is_empty() {
            self.shared.state.store(HIGH, Ordering::Release);
            return None;
        }
        Some(Raise(Arc::clone(&self.shared)))
    }

    /// Makes the descriptor unreadable; a thread that is raising it makes it readable once more.
    /// Returns the number of system calls.
    pub fn lower(&self) -> u64 {
        let before = self.shared.change(|state| match state {
            HIGH => Some(LOW),
            RAISING | LOWERED => Some(LOWERED),
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
        let number = self.fd.get_or_make()?.number();
        if is_new {
            self.shared.targets().own = self.fd.share();
            self.signal_if_raised(self.fd.get());
        }
        Ok(number)
    }

    pub fn share(&self) -> Option<Arc<EventFd>> {
        self.fd.share()
    }

    /// Signals this eventfd too. Only its owner drains it.
    pub fn forward_to(&mut self, eventfd: Arc<EventFd>) {
        self.shared.targets().forward_to = Some(Arc::clone(&eventfd));
        self.signal_if_raised(Some(&*eventfd));
    }

    /// A new target is readable if the descriptor would be.
    fn signal_if_raised(&self, target: Option<&EventFd>) {
        if self.shared.state.load(Ordering::Acquire) != LOW
            && let Some(target) = target
        {
            target.signal();
        }
    }

    pub fn numbers(&self) -> Numbers {
        self.fd.numbers()
    }

    /// Whether a thread is about to write to the descriptor. It may need the pool's mutex first.
    pub fn is_being_raised(&self) -> bool {
        !matches!(self.shared.state.load(Ordering::Acquire), LOW | HIGH)
    }

    /// Closes the descriptor.
    pub fn close(&mut self) {
        *self.shared.targets() = Targets::default();
        self.fd.close();
    }
}

impl SharedSignal {
    fn targets(&self) -> MutexGuard<'_, Targets> {
        // No code panics while it holds the lock.
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state. The result is the state before, as an error if it stays.
    fn change(&self, to: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, to)
    }

    fn write(&self) {
        // A copy: whoever the first write wakes may need the lock.
        let targets = self.targets().clone();
        for fd in targets.own.iter().chain(&targets.forward_to) {
            fd.signal();
        }
    }

    /// Records what has become of the descriptor. False if it has to be written to once more.
    fn is_settled(&self) -> bool {
        if self.change(|state| (state == RAISING).then_some(HIGH)).is_ok() {
            return true;
        }
        // It was lowered after the decision, before the write or after it.
        let _ = self.change(|state| (state == LOWERED).then_some(RAISING));
        false
    }
}

impl Targets {
    fn is_empty(&self) -> bool {
        self.own.is_none() && self.forward_to.is_none()
    }
}

impl Raise {
    /// The number of system calls that its end makes, unless the descriptor is lowered meanwhile.
    pub fn calls(&self) -> u64 {
        let targets = self.0.targets();
        u64::from(targets.own.is_some()) + u64::from(targets.forward_to.is_some())
    }
}

impl Drop for Raise {
    fn drop(&mut self) {
        self.0.write();
        while !self.0.is_settled() {
            self.0.write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::wait_readable;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    fn is_readable(signal: &mut PoolSignal) -> bool {
        let fd = signal.get_or_make().unwrap();
        wait_readable([fd], Some(Instant::now())).unwrap() == [true]
    }

    /// Whether the descriptor is readable in the end, when another thread does this before a raise
    /// writes, and when after it.
    fn raise_and(meanwhile: impl Fn(&mut PoolSignal)) -> [bool; 2] {
        [true, false].map(|before| {
            let mut signal = PoolSignal::default();
            signal.get_or_make().unwrap();
            let raise = signal.begin_raise().expect("it was low");
            if !before {
                raise.0.write();
            }
            meanwhile(&mut signal);
            // The drop of a raise writes first, so this is what is left of it.
            if before || !raise.0.is_settled() {
                drop(raise);
            } else {
                std::mem::forget(raise);
            }
            is_readable(&mut signal)
        })
    }

    #[test]
    fn it_is_readable_whatever_happens_meanwhile() {
        let lower = |signal: &mut PoolSignal| assert_eq!(signal.lower(), 1);
        let again = |signal: &mut PoolSignal| {
            lower(signal);
            assert!(signal.begin_raise().is_none(), "the first thread writes");
        };
        assert_eq!(raise_and(|_| {}), [true; 2]);
        // Once too often, and never drained behind the back of who has found it readable.
        assert_eq!(raise_and(lower), [true; 2]);
        assert_eq!(raise_and(again), [true; 2]);
        assert_eq!(raise_and(|signal| (again(signal), lower(signal)).1), [true; 2]);
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

    /// Another eventfd becomes a target while a thread is about to write to the first.
    #[test]
    fn a_target_that_comes_late_misses_nothing() {
        let forward = Arc::new(EventFd::new().unwrap());
        let is_signalled =
            || wait_readable([forward.number()], Some(Instant::now())).unwrap() == [true];
        let mut signal = PoolSignal::default();
        signal.get_or_make().unwrap();
        let raise = signal.begin_raise().expect("it was low");
        signal.forward_to(Arc::clone(&forward));
        assert!(is_signalled());
        forward.drain();
        signal.lower();
        assert!(signal.begin_raise().is_none(), "the first thread writes");
        drop(raise);
        assert!(is_signalled());
    }

    /// Nobody spins on what a thread has written late.
    #[test]
    fn a_late_write_is_drained_by_the_next_that_lowers() {
        let mut signal = PoolSignal::default();
        signal.get_or_make().unwrap();
        let raise = signal.begin_raise().expect("it was low");
        signal.lower();
        raise.0.write();
        assert!(is_readable(&mut signal));
        signal.lower();
        assert!(!is_readable(&mut signal));
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
                            drop(raise);
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
