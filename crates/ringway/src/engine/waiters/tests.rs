//! Any sequence of what happens to futures and their operations, against a model that keeps a list of all of it.

use super::*;
use proptest::prelude::*;
use ringway_core::{BackendKind, Options, Queue, op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

/// What happens next; the numbers choose among those to whom it can happen.
#[derive(Clone, Debug)]
enum Step {
    /// A future with so many operations is polled for the first time.
    Insert(u32),
    /// The turn of one of its operations comes.
    Next(usize),
    /// An operation ends.
    Answer(usize),
    /// It is polled again, by the same task or another one.
    Take(usize, bool),
    /// It is dropped.
    GiveUp(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1u32..6).prop_map(Step::Insert),
        6 => any::<usize>().prop_map(Step::Next),
        5 => any::<usize>().prop_map(Step::Answer),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, other)| Step::Take(which, other)),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ];
    proptest::collection::vec(step, 0..200)
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One future, as the model sees it. Operation `place` of future `number` has the user data `number * 100 + place`.
struct Future {
    key: Key,
    number: u64,
    total: u32,
    /// How many the queue has been given.
    given: u32,
    /// Given, and not answered.
    outstanding: Vec<(u32, Completion)>,
    answered: u32,
    /// It has been polled by the second task last.
    other: bool,
    dropped: bool,
    woken: [Arc<Woken>; 2],
}

impl Future {
    fn wakes(&self) -> u32 {
        self.woken.iter().map(|woken| woken.0.load(Ordering::Relaxed)).sum()
    }
}

/// An operation as a queue carries it: its name, and the completion to come.
fn carry(queue: &mut Queue, operation: Operation) -> (OpId, Completion) {
    let id = queue.push(operation).unwrap();
    (id, queue.reap(1).unwrap().next().unwrap())
}

fn choose(futures: &mut [Future], which: usize, able: impl Fn(&Future) -> bool) -> Option<(usize, &mut Future)> {
    let able: Vec<usize> = (0..futures.len()).filter(|at| able(&futures[*at])).collect();
    let at = *able.get(which.checked_rem(able.len())?)?;
    Some((at, &mut futures[at]))
}

proptest! {
    #[test]
    fn every_answer_finds_its_future_once(steps in steps()) {
        let mut queue = Options::new().backend(BackendKind::Null).build().unwrap();
        let mut waiters = Waiters::default();
        let mut futures: Vec<Future> = Vec::new();
        let mut stale: Vec<Key> = Vec::new();
        let mut expected = Counts::default();
        for (number, step) in (1u64..).zip(steps) {
            match step {
                Step::Insert(total) => {
                    let woken = [Arc::default(), Arc::default()];
                    let waker = Waker::from(Arc::clone(&woken[0]));
                    let operations = (0..u64::from(total)).map(|place| op::nop().user_data(number * 100 + place));
                    let key = waiters.insert(&waker, |waiting| waiting.extend(operations));
                    prop_assert!(futures.iter().all(|future| future.key != key) && !stale.contains(&key));
                    let (dropped, other) = (false, false);
                    futures.push(Future { key, number, total, given: 0, outstanding: vec![], answered: 0, other, dropped, woken });
                    expected.pushed += u64::from(total);
                    expected.in_flight += u64::from(total);
                }
                Step::Next(which) => {
                    let Some((_, future)) = choose(&mut futures, which, |future| !future.dropped && future.given < future.total) else { continue };
                    prop_assert_eq!(waiters.waiting(future.key), (future.total - future.given) as usize);
                    let next = waiters.next(future.key).unwrap();
                    prop_assert_eq!((next.place, next.last), (future.given, future.given + 1 == future.total));
                    let (id, done) = carry(&mut queue, next.operation);
                    prop_assert_eq!(done.user_data, future.number * 100 + u64::from(next.place));
                    waiters.carried(future.key.index(), id);
                    future.outstanding.push((next.place, done));
                    future.given += 1;
                }
                Step::Answer(which) => {
                    let Some((at, future)) = choose(&mut futures, which, |future| !future.outstanding.is_empty()) else { continue };
                    let (place, done) = future.outstanding.swap_remove(which % future.outstanding.len());
                    future.answered += 1;
                    match waiters.answer(future.key.index(), place, Ok(done)) {
                        Answered::Orphaned(_) => {
                            prop_assert!(future.dropped);
                            expected.orphaned += 1;
                            expected.in_flight -= 1;
                            if future.outstanding.is_empty() {
                                stale.push(futures.swap_remove(at).key);
                            }
                        }
                        Answered::Complete(waker) => {
                            prop_assert!(!future.dropped && future.answered == future.total && future.wakes() == 0);
                            waker.expect("its task waits").wake();
                            // Whoever polled it last.
                            prop_assert_eq!(future.woken[usize::from(future.other)].0.load(Ordering::Relaxed), 1);
                        }
                        Answered::Partly => prop_assert!(!future.dropped && future.answered < future.total),
                    }
                }
                Step::Take(which, other) => {
                    let Some((at, future)) = choose(&mut futures, which, |future| !future.dropped) else { continue };
                    let ready = future.answered == future.total;
                    future.other = if ready { future.other } else { other };
                    let waker = Waker::from(future.woken[usize::from(other)].clone());
                    let taken = match future.total {
                        1 => waiters.take_one(future.key, &waker).map(|outcome| vec![outcome]),
                        _ => waiters.take_all(future.key, &waker),
                    };
                    prop_assert_eq!(taken.is_ok(), ready);
                    if let Ok(outcomes) = taken {
                        let places = outcomes.into_iter().map(|outcome| outcome.unwrap().user_data - future.number * 100);
                        prop_assert!(places.eq(0..u64::from(future.total)), "each its own, in order");
                        prop_assert_eq!(future.wakes(), 1);
                        expected.delivered += u64::from(future.total);
                        expected.in_flight -= u64::from(future.total);
                        stale.push(futures.swap_remove(at).key);
                    }
                }
                Step::GiveUp(which) => {
                    let Some((at, future)) = choose(&mut futures, which, |future| !future.dropped) else { continue };
                    let mut cancels = Vec::new();
                    prop_assert!(waiters.give_up(future.key, &mut cancels).is_some());
                    prop_assert!(future.outstanding.iter().all(|(_, done)| cancels.contains(&done.id)));
                    prop_assert!(cancels.len() <= future.given as usize);
                    future.dropped = true;
                    let over = u64::from(future.total) - future.outstanding.len() as u64;
                    expected.orphaned += over;
                    expected.in_flight -= over;
                    if future.outstanding.is_empty() {
                        stale.push(futures.swap_remove(at).key);
                    }
                }
            }
            let counts = waiters.counts();
            prop_assert_eq!(counts, expected);
            prop_assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight);
            for key in &stale {
                let mut cancels = Vec::new();
                prop_assert!(waiters.next(*key).is_none() && waiters.waiting(*key) == 0);
                prop_assert!(waiters.give_up(*key, &mut cancels).is_none() && cancels.is_empty());
                prop_assert!(waiters.take_all(*key, Waker::noop()).is_err());
            }
        }
        for future in futures.iter().filter(|future| !future.dropped) {
            prop_assert_eq!(future.wakes(), u32::from(future.answered == future.total));
        }
    }
}
