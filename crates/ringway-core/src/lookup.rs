//! What is looked up once and then kept, without a lock.
//!
//! [`OnceLock`](std::sync::OnceLock) makes other threads wait for the one that stores a value. In a
//! forked child that thread may not exist, and then they would wait for ever. Here threads that
//! race each look the value up; the first one to store it wins.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A value that is looked up when it is first needed.
#[derive(Debug)]
pub(crate) struct Lookup<T: Send + Sync> {
    /// Null, or a box that this value owns. Once set it stays the same.
    value: AtomicPtr<T>,
}

impl<T: Send + Sync> Lookup<T> {
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value, if it is known.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or the box that `get_or_look_up` stored. It is freed when `self` is
        // dropped, and changed by nobody. Acquire: its contents were written before.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// The value. If it is not known, it is what `look_up` returns, unless another thread was
    /// quicker.
    pub fn get_or_look_up(&self, look_up: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let found = Box::into_raw(Box::new(look_up()));
        let null = ptr::null_mut();
        match self.value.compare_exchange(null, found, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the box made above, which belongs to `self` now.
            Ok(_) => unsafe { &*found },
            Err(other) => {
                // SAFETY: the box made above was not stored.
                drop(unsafe { Box::from_raw(found) });
                // SAFETY: as in `get`; it is not null, since the exchange failed.
                unsafe { &*other }
            }
        }
    }
}

impl<T: Send + Sync> Default for Lookup<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// As [`Lookup`], for a value that cannot always be looked up completely, for want of a descriptor
/// for example: it is looked up again after a pause, until it is complete.
#[derive(Debug)]
pub(crate) struct RepeatedLookup<T: Send + Sync> {
    complete: Lookup<T>,
    /// The first one that was not.
    incomplete: Lookup<T>,
    /// When it is looked up again.
    again: AtomicU64,
}

impl<T: Send + Sync> RepeatedLookup<T> {
    pub const fn new() -> Self {
        Self { complete: Lookup::new(), incomplete: Lookup::new(), again: AtomicU64::new(0) }
    }

    /// The value. `look_up` also returns whether it is complete. `pause` is the length of a pause,
    /// in units of the clock `now`.
    #[inline]
    pub fn get_or_look_up(
        &self,
        (now, pause): (fn() -> u64, u64),
        look_up: impl FnOnce() -> (T, bool),
    ) -> &T {
        match self.complete.get() {
            Some(known) => known,
            None => self.look_up(now(), pause, look_up),
        }
    }

    #[cold]
    fn look_up(&self, now: u64, pause: u64, look_up: impl FnOnce() -> (T, bool)) -> &T {
        if now < self.again.load(Ordering::Relaxed)
            && let Some(known) = self.incomplete.get()
        {
            return known;
        }
        let (found, is_complete) = look_up();
        if is_complete {
            return self.complete.get_or_look_up(|| found);
        }
        self.again.store(now.saturating_add(pause), Ordering::Relaxed);
        self.incomplete.get_or_look_up(|| found)
    }
}

impl<T: Send + Sync> Drop for Lookup<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: the box that `get_or_look_up` stored. Nobody refers to it any more, because
            // references to it borrow `self`.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_looked_up_once() {
        let lookup = Lookup::new();
        assert_eq!(lookup.get(), None::<&u32>);
        assert_eq!((*lookup.get_or_look_up(|| 1), *lookup.get_or_look_up(|| 2)), (1, 1));
        assert_eq!(lookup.get(), Some(&1));
    }

    /// A thread that looks the value up keeps nobody waiting, and the first value stays.
    #[test]
    fn nobody_waits_for_a_thread_that_looks_it_up() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let lookup = Lookup::new();
        let found = lookup.get_or_look_up(|| {
            assert_eq!(**lookup.get_or_look_up(|| second.clone()), 2);
            first.clone()
        });
        assert_eq!(**found, 2);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        drop(lookup);
        assert_eq!(Arc::strong_count(&second), 1);
    }

    #[test]
    fn what_is_incomplete_is_looked_up_again_after_a_pause() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let lookup = RepeatedLookup::new();
        let at = |now, found, is_complete| {
            NOW.store(now, Ordering::Relaxed);
            let clock = || NOW.load(Ordering::Relaxed);
            *lookup.get_or_look_up((clock, 10), || (found, is_complete))
        };
        assert_eq!((at(5, 1, false), at(14, 2, true)), (1, 1));
        assert_eq!((at(15, 3, false), at(24, 4, true)), (1, 1));
        assert_eq!((at(25, 5, true), at(26, 6, true)), (5, 5));
    }

    #[test]
    fn threads_that_race_see_one_value() {
        for _ in 0..100 {
            let lookup = Lookup::new();
            let found: Vec<u32> = std::thread::scope(|scope| {
                let lookup = &lookup;
                let racing: Vec<_> = (0..4)
                    .map(|number| scope.spawn(move || *lookup.get_or_look_up(|| number)))
                    .collect();
                racing.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(found.iter().all(|value| Some(value) == lookup.get()), "{found:?}");
        }
    }
}
