//! Checks that the counters of a table agree with its slots, in debug builds and tests.

use super::table::Table;
use crate::slots::SlotState;

/// A table of at most `ALWAYS_CHECKED` slots is checked each time; a larger one each time that
/// `NOW_AND_THEN` operations have been pushed.
const ALWAYS_CHECKED: usize = 64;
const NOW_AND_THEN: u64 = 1024;

impl<T: Default> Table<T> {
    /// Checks that the counters agree with each other, and occasionally with the slots, so that
    /// debug builds stay fast.
    ///
    /// # Panics
    ///
    /// If they disagree.
    pub(super) fn check_now_and_then(&self) {
        let counts = self.counts();
        assert_eq!(
            counts.pushed,
            counts.delivered + counts.orphaned + counts.in_flight,
            "{counts:?}"
        );
        // (An operation that is retried behind another one of its chain counts as active and held.)
        let known = self.new + self.ready + self.active + self.held + self.staged.len();
        assert!(
            self.in_flight() <= known,
            "{} in flight, of which {known} are known",
            self.in_flight()
        );
        if self.slots.allocated() <= ALWAYS_CHECKED || counts.pushed.is_multiple_of(NOW_AND_THEN) {
            self.check();
        }
    }

    /// Checks all counters and lists against the slots. It does not allocate, since some tests
    /// count allocations.
    ///
    /// # Panics
    ///
    /// If they disagree.
    pub(super) fn check(&self) {
        let (mut new, mut held, mut done, mut active, mut abandoned) = (0, 0, 0, 0, 0);
        let (mut draining, mut in_flight) = (false, 0);
        for key in self.slots.keys() {
            let (Some(state), Some(flight)) = (self.slots.state(key), self.slots.get(key)) else {
                continue;
            };
            in_flight += 1;
            match state {
                SlotState::Free => unreachable!("a free slot has no key"),
                SlotState::New => {
                    new += 1;
                    continue;
                }
                SlotState::Done => {
                    done += 1;
                    assert!(!flight.abandoned, "{key:?} is done and abandoned");
                    continue;
                }
                SlotState::Held => held += usize::from(!self.staged.contains(&key)),
                SlotState::Pending => {
                    assert!(self.pending.contains(&key), "{key:?} is pending, and not in the list")
                }
                SlotState::Submitted => {
                    assert!(flight.is_active, "{key:?} is submitted and not active")
                }
            }
            active += usize::from(flight.is_active);
            abandoned += usize::from(flight.abandoned);
            draining |= flight.operation.drain && flight.is_active;
        }
        let is_active = (
            self.in_flight(),
            self.new,
            self.held,
            self.ready,
            self.active,
            self.abandoned,
            self.draining,
        );
        let found = (in_flight, new, held, done, active, abandoned, draining);
        assert_eq!(
            is_active, found,
            "in flight, new, held, ready, active, abandoned, draining: counted, and found"
        );
    }
}
