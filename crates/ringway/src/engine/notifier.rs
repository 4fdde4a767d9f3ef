//! The notifier: it wakes the engine's thread, or, with
//! [`Reaping::Manual`](crate::Reaping::Manual), the program. For the program it has a timer too,
//! because no thread would otherwise handle operations that are held back.

use super::sync::{AtomicBool, Ordering};
use super::timer::Timer;
use ringway_core::BorrowedFd;
use ringway_core::wait::Event;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the program has to handle operations that are held back, before the timer wakes it.
const MANUAL_DELAY: Duration = Duration::from_millis(10);

/// Wakes the engine's thread, or the program with [`Reaping::Manual`](crate::Reaping::Manual).
pub(crate) struct Notifier {
    event: Event,
    /// The thread sleeps or is about to. With [`Reaping::Manual`](crate::Reaping::Manual): the
    /// timer is not set.
    pub(in crate::engine) asleep: AtomicBool,
    /// Wakes the program. Only with [`Reaping::Manual`](crate::Reaping::Manual).
    pub(super) timer: Option<Timer>,
}

impl Notifier {
    /// Creates a notifier for the thread or, if `manual`, for the program. Errors: EMFILE, ENFILE,
    /// ENOMEM; Unsupported if `manual`, except on Linux.
    pub(crate) fn new(manual: bool) -> io::Result<Arc<Self>> {
        let timer = if manual { Some(Timer::new()?) } else { None };
        let event = Event::new()?;
        Ok(Arc::new(Self { event, asleep: AtomicBool::new(manual), timer }))
    }

    /// Readable after [`notify`](Self::notify), until [`clear`](Self::clear).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    pub(crate) fn notify(&self) {
        self.event.signal();
    }

    /// Resets the descriptor.
    pub(crate) fn clear(&self) {
        self.event.clear();
    }

    /// Resets the timer, and returns whether it had expired. The caller must then drive the shards,
    /// which set the timer again if needed.
    pub(crate) fn timer_expired(&self) -> bool {
        let timer_expired = self.timer.as_ref().is_some_and(Timer::expired);
        if timer_expired {
            self.asleep.store(true, Ordering::SeqCst);
        }
        timer_expired
    }

    /// Call this when a shard holds operations back until a runtime comes, which may be late, or
    /// until completions come, which may hang. Notifies the thread if it sleeps; sets the timer if
    /// it is not set.
    #[inline]
    pub(crate) fn notify_if_asleep(&self) {
        // The shard notes what it holds back under a lock that the thread takes after it has set
        // `asleep`, so one of the two sees the other.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            match &self.timer {
                Some(timer) => timer.set(MANUAL_DELAY),
                None => self.notify(),
            }
        }
    }
}
