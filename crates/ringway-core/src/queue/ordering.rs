//! The order of operations: barriers, and chains in which one operation follows another.

use super::in_flight::CancelCause;
use super::table::Table;
use crate::slots::{Key, SlotState};

impl<T: Default> Table<T> {
    /// Releases an operation that was just started, or holds it behind a barrier.
    pub(super) fn stage(&mut self, key: Key) {
        self.staged.push_back(key);
        self.unstage();
    }

    /// Releases the operations that no barrier holds any more.
    pub(super) fn unstage(&mut self) {
        while let Some(key) = self.staged.front().copied() {
            let drain = match self.slots.get(key) {
                Some(flight) if self.slots.state(key) == Some(SlotState::Held) => {
                    flight.operation.drain
                }
                // Cancelled while it waited.
                _ => {
                    self.staged.pop_front();
                    continue;
                }
            };
            if self.draining || (drain && self.active > 0) {
                return;
            }
            self.draining = drain;
            self.staged.pop_front();
            self.release(key);
        }
    }

    /// Makes a held operation pending.
    #[inline]
    pub(super) fn release(&mut self, key: Key) {
        self.slots.set_state(key, SlotState::Held, SlotState::Pending);
        self.pending.push_back(key);
        if let Some(flight) = self.slots.get_mut(key)
            && !std::mem::replace(&mut flight.is_active, true)
        {
            self.active += 1;
        }
    }

    /// Releases the next operation of a chain.
    pub(super) fn release_next(&mut self, key: Key) {
        if self.slots.state(key) == Some(SlotState::Held) {
            self.held -= 1;
            self.release(key);
        }
        // A submitted one is linked: the kernel has started it, or it fails with ECANCELED and is
        // retried.
    }

    /// Cancels the next operation of a chain. Returns it if it has not been submitted and so ends
    /// now.
    pub(super) fn cancel_next(&mut self, key: Key, cancel_cause: CancelCause) -> Option<Key> {
        let state = self.slots.state(key);
        if let Some(flight) = self.slots.get_mut(key)
            && flight.cancel_cause == CancelCause::None
        {
            flight.cancel_cause = cancel_cause;
        }
        match state {
            Some(SlotState::Held) => {
                self.held -= 1;
                Some(key)
            }
            // Linked: the kernel cancels it.
            _ => None,
        }
    }
}
