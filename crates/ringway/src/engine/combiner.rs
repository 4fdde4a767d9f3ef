//! The combining lock: one thread at a time, the combiner, submits and reaps for all. Nobody waits for it: a thread that
//! finds it taken sets a flag, and the combiner goes round again, up to a bound. Then it leaves the next round to the
//! engine's thread or the program.

use super::reactor::Place;
use super::shard::{Own, Round, Shard, State, wake_all};
use super::sync::{AtomicU8, Ordering};
use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Somebody came while it was taken.
const AGAIN: u8 = 2;

/// The most rounds that one thread makes in a row, and the most operations that it submits in them.
const MOST_ROUNDS: usize = 16;
const MOST_OPERATIONS: usize = 256;

/// Lets one thread at a time do some work that all ask for, so that no request is lost: work asked for while
/// it is being done is done again.
#[derive(Debug)]
pub(crate) struct Combiner {
    state: AtomicU8,
    /// A thread has made the most rounds, and left the next to whoever hears the alarm.
    left_over: AtomicBool,
}

/// The right to do the work. Dropped rather than left, as by a panic, it lets the next thread in; a flag that was set is
/// lost then.
#[derive(Debug)]
pub(crate) struct Passage<'a>(Option<&'a Combiner>);

impl Shard {
    /// Makes rounds for all, until nobody asks for another or this thread has made the most. `state`: the lock, if it is
    /// held already; `comes_back`: the caller will do this again when the tasks that it wakes have run. How many futures
    /// were woken.
    pub(super) fn combine<'a>(
        &'a self,
        mut passage: Passage<'a>,
        mut state: Option<MutexGuard<'a, State>>,
        place: Place,
        mut own: Option<Own<'_>>,
        comes_back: bool,
    ) -> usize {
        let mut round = Round::default();
        let mut woken = 0;
        for number in 1.. {
            self.round(state.take(), place, &mut own, comes_back, &mut round);
            let left = passage.leave();
            woken += round.wakers.len();
            wake_all(&mut round.wakers);
            let again = match left {
                Ok(()) if !round.more => break,
                // What completed made room, or a group.
                Ok(()) => self.combiner.enter(),
                // A thread has found it taken.
                Err(passage) => Some(passage),
            };
            let goes_on = number < MOST_ROUNDS && round.submitted < MOST_OPERATIONS && !round.enough;
            match again {
                None => break,
                Some(again) if goes_on => passage = again,
                // The others go on without this thread: whoever comes next, and at the latest the engine's.
                Some(again) => {
                    self.combiner.left_over.store(true, Ordering::Release);
                    drop(again);
                    self.alarm.ring();
                    break;
                }
            }
        }
        // What nobody waits for is dropped where nobody waits for it, while others may combine: it may free memory, run
        // code of the program's, or close a file.
        round.drop_rest();
        woken
    }

    /// Makes the rounds that another thread has left over, if any.
    pub(crate) fn take_over(&self) {
        if self.combiner.left_over.swap(false, Ordering::AcqRel) {
            self.turn(Place::Elsewhere);
        }
    }
}

impl Combiner {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(FREE), left_over: AtomicBool::new(false) }
    }

    /// The work is the caller's, who has to [`leave`](Passage::leave). `None`: whoever has it does it again.
    pub(crate) fn enter(&self) -> Option<Passage<'_>> {
        // What the caller did before is seen by the one who goes round again, and the other way about.
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(if state == FREE { TAKEN } else { AGAIN }));
        // (Not `then_some`: a passage that is made and not given away would be dropped, and let a second one in.)
        (before == Ok(FREE)).then(|| Passage(Some(self)))
    }
}

impl Passage<'_> {
    /// Over; or, if somebody has asked meanwhile, the work is to be done again.
    pub(crate) fn leave(mut self) -> Result<(), Self> {
        let Some(combiner) = self.0.take() else { return Ok(()) };
        if combiner.state.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Ok(());
        }
        // Of those who come from here on, word is left anew.
        combiner.state.swap(TAKEN, Ordering::AcqRel);
        Err(Self(Some(combiner)))
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if let Some(combiner) = self.0 {
            combiner.state.swap(FREE, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn word_that_was_left_is_heard() {
        let combiner = Combiner::new();
        let passage = combiner.enter().expect("nobody has it");
        assert!(combiner.enter().is_none());
        assert!(combiner.enter().is_none(), "who is turned away lets nobody in");
        let passage = passage.leave().expect_err("somebody has asked");
        assert!(passage.leave().is_ok());
        assert!(combiner.enter().is_some(), "a passage that is dropped is over too");
        assert!(combiner.enter().is_some());
    }
}

/// Every order in which threads can meet, with up to `LOOM_MAX_PREEMPTIONS` interruptions: `make loom`.
#[cfg(all(test, ringway_loom))]
mod every_order {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A shard in small: what futures leave under a lock, and a ring that is for whoever is through the combiner.
    struct Small {
        front: Mutex<Front>,
        combiner: Combiner,
        /// What is entered and has not completed.
        ring: Mutex<Vec<u32>>,
        /// Touched by whoever is at work: loom tells of two at once, and of one that does not see what the other did.
        alone: UnsafeCell<()>,
    }

    #[derive(Default)]
    struct Front {
        operations: Vec<u32>,
        cancels: Vec<u32>,
        room: usize,
        done: Vec<u32>,
    }

    impl Small {
        fn new(room: usize) -> Arc<Self> {
            let front = Mutex::new(Front { room, ..Front::default() });
            let (ring, alone) = (Mutex::default(), UnsafeCell::new(()));
            Arc::new(Self { front, combiner: Combiner::new(), ring, alone })
        }

        /// As `Shard::go`.
        fn go(&self) {
            let Some(mut passage) = self.combiner.enter() else { return };
            loop {
                let more = self.go_round();
                passage = match passage.leave() {
                    Ok(()) if !more => return,
                    Ok(()) => match self.combiner.enter() {
                        Some(passage) => passage,
                        None => return,
                    },
                    Err(passage) => passage,
                };
            }
        }

        /// As `Shard::go_round`: what is cancelled completes, and so does the oldest of the others.
        fn go_round(&self) -> bool {
            self.alone.with_mut(|_| {});
            let mut ring = self.ring.try_lock().expect("two are at work");
            let cancels = {
                let mut front = self.front.lock().unwrap();
                while front.room > 0 && !front.operations.is_empty() {
                    front.room -= 1;
                    ring.push(front.operations.remove(0));
                }
                std::mem::take(&mut front.cancels)
            };
            let oldest = ring.first().copied();
            let done: Vec<u32> = ring.extract_if(.., |one| cancels.contains(one) || Some(*one) == oldest).collect();
            let mut front = self.front.lock().unwrap();
            front.room += done.len();
            front.done.extend(done);
            front.room > 0 && !front.operations.is_empty()
        }

        fn push(&self, operation: u32) {
            self.front.lock().unwrap().operations.push(operation);
            self.go();
        }

        fn cancel(&self, operation: u32) {
            self.front.lock().unwrap().cancels.push(operation);
            self.go();
        }

        /// All threads have gone.
        fn check(&self, operations: u32) {
            let mut front = self.front.lock().unwrap();
            assert!(front.operations.is_empty() && front.cancels.is_empty(), "work is left undone");
            let mut all = std::mem::take(&mut *self.ring.lock().unwrap());
            all.append(&mut front.done);
            all.sort();
            assert!(all.iter().copied().eq(0..operations), "an operation is lost, or there twice: {all:?}");
            assert!(self.combiner.enter().is_some(), "the combiner is free");
        }
    }

    #[test]
    fn submitters_who_meet_leave_nothing_undone() {
        loom::model(|| {
            let small = Small::new(3);
            let others = [1, 2].map(|operation| {
                let small = small.clone();
                thread::spawn(move || small.push(operation))
            });
            small.push(0);
            others.into_iter().for_each(|other| other.join().unwrap());
            small.check(3);
        });
    }

    #[test]
    fn a_submitter_a_reaper_and_a_drop() {
        loom::model(|| {
            let small = Small::new(1);
            small.push(0);
            let submitter = {
                let small = small.clone();
                thread::spawn(move || small.push(1))
            };
            let reaper = {
                let small = small.clone();
                thread::spawn(move || small.go())
            };
            // The future of the first operation goes.
            small.cancel(0);
            submitter.join().unwrap();
            reaper.join().unwrap();
            small.check(2);
        });
    }

    /// A round that panics lets the next one in, whatever it leaves undone.
    #[test]
    fn a_passage_that_is_dropped_locks_nobody_out() {
        loom::model(|| {
            let small = Small::new(2);
            let panics = {
                let small = small.clone();
                thread::spawn(move || drop(small.combiner.enter()))
            };
            small.push(0);
            panics.join().unwrap();
            // Word that was left meanwhile may be lost; who comes next does the work.
            small.go();
            small.check(1);
        });
    }
}
