//! Answers about devices that take many system calls to find. They are kept for a moment: a caller
//! that makes a [`File`](crate::File) for each operation would have them found for each. An
//! administrator may change what they depend on (the table of a mapped device, the devices of a
//! file system), and nothing tells of that.

use crate::sys::libc;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, TryLockError};

/// For how many nanoseconds an answer counts that may change; and after how many something is asked
/// again that could not be found.
pub(super) const MOMENT: u64 = 100_000_000;

/// The end of an answer that never changes.
pub(super) const FOR_EVER: u64 = u64::MAX;

/// How many answers are kept.
const MOST_ANSWERS: usize = 64;

/// An answer, and until when it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer<V> {
    pub value: V,
    pub until: u64,
}

#[derive(Debug)]
pub(super) struct Answers<K, V>(Mutex<BTreeMap<K, Answer<V>>>);

impl<K: Ord, V: Copy> Answers<K, V> {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The answer at the time `now`. Holds no lock while it is looked up, and waits for none: in a
    /// forked child it may be held by a thread that the child does not have.
    pub fn of(
        &self,
        now: u64,
        key: K,
        look_up: impl FnOnce() -> io::Result<Answer<V>>,
    ) -> io::Result<Answer<V>> {
        let known = self.with(|answers| answers.get(&key).copied()).flatten();
        if let Some(known) = known.filter(|known| now < known.until) {
            return Ok(known);
        }
        let answer = look_up()?;
        self.with(|answers| {
            if answers.len() >= MOST_ANSWERS {
                answers.clear();
            }
            answers.insert(key, answer)
        });
        Ok(answer)
    }

    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<K, Answer<V>>) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut answers) => Some(work(&mut answers)),
            Err(TryLockError::Poisoned(answers)) => Some(work(&mut answers.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// What was read; `None` if it is not there. Errors: those after which another try may succeed.
pub(super) fn found<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if is_transient(&error) => Err(error),
        read => Ok(read.ok()),
    }
}

/// Whether another try may succeed, so that nothing is concluded.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn answers_are_kept_as_long_as_they_count() {
        let answers = Answers::new();
        let asked = Cell::new(0);
        let of = |now, key, answer: Result<(bool, u64), i32>| {
            let look_up = || {
                asked.set(asked.get() + 1);
                let found = answer.map(|(value, until)| Answer { value, until });
                found.map_err(io::Error::from_raw_os_error)
            };
            (answers.of(now, key, look_up).ok().map(|answer| answer.value), asked.get())
        };
        assert_eq!(of(1, 1, Err(libc::EMFILE)), (None, 1));
        assert_eq!(of(1, 1, Ok((true, 5))), (Some(true), 2), "an error is not kept");
        assert_eq!(of(4, 1, Ok((false, 5))), (Some(true), 2));
        assert_eq!(of(5, 1, Ok((false, FOR_EVER))), (Some(false), 3), "it may have changed");
        assert_eq!(of(1 << 60, 1, Ok((true, 5))), (Some(false), 3));
        assert_eq!(of(1, 2, Ok((true, FOR_EVER))), (Some(true), 4), "another device");
        let held = answers.0.lock();
        assert_eq!(of(1, 2, Ok((false, FOR_EVER))), (Some(false), 5), "no lock is waited for");
        drop(held);
        for key in 0..1000 {
            of(1, key, Ok((false, FOR_EVER)));
        }
        assert!(answers.0.lock().unwrap().len() <= MOST_ANSWERS);
    }
}
