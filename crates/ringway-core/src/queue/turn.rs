//! Whose turn it is: barriers, and chains of which one operation follows another.

use super::Table;
use super::in_flight::Ending;
use crate::slots::{Key, State};

impl<T: Default> Table<T> {
    /// Lets an operation that has just been pushed wait behind a barrier, or have its turn.
    pub(super) fn stage(&mut self, key: Key) {
        self.staged.push_back(key);
        self.unstage();
    }

    /// Lets through what no barrier holds back any more.
    pub(super) fn unstage(&mut self) {
        while let Some(key) = self.staged.front().copied() {
            let drain = match self.slots.get(key) {
                Some(flight) if self.slots.state(key) == Some(State::Held) => {
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

    /// An operation's turn has come.
    #[inline]
    pub(super) fn release(&mut self, key: Key) {
        self.slots.set_state(key, State::Held, State::Queued);
        self.pending.push_back(key);
        if let Some(flight) = self.slots.get_mut(key)
            && !std::mem::replace(&mut flight.counted, true)
        {
            self.active += 1;
        }
    }

    /// The next of a chain, whose turn has come.
    pub(super) fn go_on(&mut self, key: Key) {
        if self.slots.state(key) == Some(State::Held) {
            self.held -= 1;
            self.release(key);
        }
        // A carried one is linked, and the kernel has begun it or will answer ECANCELED, upon which
        // it is tried again.
    }

    /// The next of a chain, which has failed or was cancelled. Gives it back if it is over with
    /// that.
    pub(super) fn break_off(&mut self, key: Key, ending: Ending) -> Option<Key> {
        let state = self.slots.state(key);
        if let Some(flight) = self.slots.get_mut(key)
            && flight.ending == Ending::Natural
        {
            flight.ending = ending;
        }
        match state {
            Some(State::Held) => {
                self.held -= 1;
                Some(key)
            }
            // Linked: the kernel cancels it.
            _ => None,
        }
    }
}
