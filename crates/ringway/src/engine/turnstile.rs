//! One at a time, and nobody waits: who finds the turnstile taken leaves word, and who has it goes round again.

use super::sync::{AtomicU8, Ordering};

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Somebody came while it was taken.
const AGAIN: u8 = 2;

/// Lets one thread at a time do some work that all ask for, so that no request is lost: work asked for while
/// it is being done is done again.
#[derive(Debug)]
pub(crate) struct Turnstile(AtomicU8);

impl Turnstile {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(FREE))
    }

    /// True: the work is the caller's, until [`leave`](Self::leave) says so. False: whoever has it does it again.
    pub(crate) fn enter(&self) -> bool {
        // What the caller did before is seen by the one who goes round again, and the other way about.
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(if state == FREE { TAKEN } else { AGAIN }))
            .is_ok_and(|before| before == FREE)
    }

    /// True: over. False: somebody has asked meanwhile, and the work is to be done again.
    pub(crate) fn leave(&self) -> bool {
        if self.0.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        // Of those who come from here on, word is left anew.
        self.0.swap(TAKEN, Ordering::AcqRel);
        false
    }
}
