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

/// The right to do the work. Dropped rather than left, as by a panic, it lets the next one in; word that was left is lost then.
#[derive(Debug)]
pub(crate) struct Passage<'a>(Option<&'a Turnstile>);

impl Turnstile {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(FREE))
    }

    /// The work is the caller's, who has to [`leave`](Passage::leave). `None`: whoever has it does it again.
    pub(crate) fn enter(&self) -> Option<Passage<'_>> {
        // What the caller did before is seen by the one who goes round again, and the other way about.
        let before = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(if state == FREE { TAKEN } else { AGAIN }));
        (before == Ok(FREE)).then_some(Passage(Some(self)))
    }
}

impl Passage<'_> {
    /// Over; or, if somebody has asked meanwhile, the work is to be done again.
    pub(crate) fn leave(mut self) -> Result<(), Self> {
        let Some(turnstile) = self.0.take() else { return Ok(()) };
        if turnstile.0.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Ok(());
        }
        // Of those who come from here on, word is left anew.
        turnstile.0.swap(TAKEN, Ordering::AcqRel);
        Err(Self(Some(turnstile)))
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if let Some(turnstile) = self.0 {
            turnstile.0.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_that_was_left_is_heard() {
        let turnstile = Turnstile::new();
        let passage = turnstile.enter().expect("nobody has it");
        assert!(turnstile.enter().is_none());
        let passage = passage.leave().expect_err("somebody has asked");
        assert!(passage.leave().is_ok());
        assert!(turnstile.enter().is_some(), "a passage that is dropped is over too");
        assert!(turnstile.enter().is_some());
    }
}
