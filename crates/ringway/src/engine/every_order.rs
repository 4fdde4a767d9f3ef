//! The shard itself, in every order in which a few threads can meet: submission, combining, drops
//! and wake-ups together. `make loom`, with up to `LOOM_MAX_PREEMPTIONS` interruptions. A
//! combiner's bounds are small here.
//!
//! The backend completes everything at once, but for what is told never to complete unless it is
//! cancelled. So when all threads are through, every operation is done or stands where the notifier
//! tells somebody of it.

use super::reactor::Executor;
use super::reactor::manual::Notifier;
use super::shard::{Group, Shard};
use super::submission::{Lane, Schedule};
use super::sync::Ordering;
use loom::thread;
use ringway_core::{BackendKind, Counts, FaultPlan, FaultStep, Late, Operation, Options, op};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

const CALL: Schedule = Schedule::Immediate(Lane::Call);
/// A lane with room for one operation.
const WAIT: Schedule = Schedule::Immediate(Lane::Wait);

/// A shard on the null backend, of which some jobs never complete unless they are cancelled.
fn shard(hang: &[u64]) -> Arc<Shard> {
    let plan = hang
        .iter()
        .fold(FaultPlan::new(0), |plan, job| plan.late(FaultStep::Job(*job), Late::Forever));
    let options = Options::new().backend(BackendKind::Null);
    let options = if hang.is_empty() { options } else { options.faults(plan) };
    Arc::new(Shard::new(&options, 4, 1, Notifier::new(false).unwrap()).unwrap())
}

/// Counts how often a task is woken.
#[derive(Default)]
struct WokenFutures(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A future that has been polled once, and what its operation owns.
struct Task {
    group: Group,
    woken: Arc<Woken>,
    owned: Arc<()>,
    is_told: bool,
}

impl Task {
    /// As a future's first poll.
    fn push(shard: &Shard, schedule: Schedule) -> Self {
        let (woken, owned) = (Arc::new(Woken::default()), Arc::new(()));
        let waker = Waker::from(woken.clone());
        let (mut own, operation) = (None, operation(&owned));
        let mut pushed =
            shard.push(schedule, Executor::Other, &waker, [operation].into_iter(), &mut own);
        let is_told = own.is_some()
            || pushed.may_be_done
                && shard.take(&mut pushed.group, Executor::Other, &waker).is_some();
        Self { group: pushed.group, woken, owned, is_told }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed) > 0
    }

    /// Its task has been woken, once, and finds the result, unless it had it at once.
    fn check(mut self, shard: &Shard) {
        if !self.is_told {
            assert_eq!(self.woken.0.load(Ordering::Relaxed), 1, "how often it is woken");
            assert!(
                shard.take(&mut self.group, Executor::Other, Waker::noop()).is_some(),
                "it is woken, and nothing is there"
            );
        }
        assert!(
            shard
                .take(&mut self.group, Executor::Other, Waker::noop())
                .is_none_or(|results| results.is_empty()),
            "told twice"
        );
        assert_eq!(Arc::strong_count(&self.owned), 1, "what the operation owned is still there");
    }

    /// Its future is dropped.
    fn drop(self, shard: &Shard) -> Arc<()> {
        if !self.is_told {
            shard.give_up(&self.group);
        }
        self.owned
    }
}

/// An operation that owns something; the null backend does not run it.
fn operation(owned: &Arc<()>) -> Operation {
    let owned = owned.clone();
    op::blocking(move || drop(owned))
}

fn spawn<T: 'static>(
    shard: &Arc<Shard>,
    run: impl FnOnce(&Shard) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shard = shard.clone();
    thread::spawn(move || run(&shard))
}

/// Operations that are pending, as after a combiner that panicked.
fn left_pending<const N: usize>(shard: &Shard) -> [Task; N] {
    let guard = shard.combiner.try_lock().expect("nobody is at it");
    let tasks = std::array::from_fn(|_| Task::push(shard, CALL));
    drop(guard);
    tasks
}

/// True once after the notifier was rung.
fn heard(shard: &Shard) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(shard.notifier.fd(), PollFlags::IN)];
    let heard = poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    shard.notifier.clear();
    heard
}

/// The engine's thread, when all others are through: it does what it is called for, and does not
/// sleep while something is held back.
fn thread_comes(shard: &Shard) {
    while heard(shard) {
        shard.run_delegated();
    }
    if shard.holds_back() {
        shard.flush();
    }
}

/// Nothing is in flight, and so many operations were told and given up.
fn check(shard: &Shard, delivered: u64, orphaned: u64) {
    let expected = Counts { pushed: delivered + orphaned, delivered, orphaned, in_flight: 0 };
    assert_eq!(shard.counts(), (expected, 0));
    assert!(shard.combiner.try_lock().is_some(), "the combiner is free");
}

#[test]
fn submitters_who_meet_leave_nothing_undone() {
    loom::model(|| {
        let shard = shard(&[]);
        let others = [CALL, Schedule::Paced]
            .map(|schedule| spawn(&shard, move |shard| Task::push(&shard, schedule)));
        let own = Task::push(&shard, CALL);
        let others = others.map(|other| other.join().unwrap());
        thread_comes(&shard);
        own.check(&shard);
        others.into_iter().for_each(|other| other.check(&shard));
        check(&shard, 3, 0);
    });
}

/// The lane has room for one, which hangs: its drop makes room for the other.
#[test]
fn a_submitter_a_reaper_and_a_drop() {
    loom::model(|| {
        let shard = shard(&[0]);
        let hangs = Task::push(&shard, WAIT);
        assert!(!hangs.is_told);
        let submitter = spawn(&shard, |shard| Task::push(shard, WAIT));
        let reaper = spawn(&shard, |shard| _ = shard.drive(Executor::Other));
        let owned = hangs.drop(&shard);
        reaper.join().unwrap();
        let pushed = submitter.join().unwrap();
        thread_comes(&shard);
        pushed.check(&shard);
        assert_eq!(Arc::strong_count(&owned), 1, "what was given up is still there");
        check(&shard, 1, 1);
    });
}

/// Two threads reap, while a future goes whose operation may be pending, in flight or done.
#[test]
fn a_completion_and_a_drop() {
    loom::model(|| {
        let shard = shard(&[]);
        let [goes, stays] = left_pending(&shard);
        let reactors = [(); 2].map(|()| spawn(&shard, |shard| _ = shard.drive(Executor::Other)));
        let owned = goes.drop(&shard);
        reactors.into_iter().for_each(|reaper| reaper.join().unwrap());
        thread_comes(&shard);
        stays.check(&shard);
        assert_eq!(Arc::strong_count(&owned), 1, "what was given up is still there");
        check(&shard, 1, 1);
    });
}

/// A task looks with another waker, while its operation completes: whichever looked last is woken,
/// or finds it.
#[test]
fn a_completion_and_a_change_of_wakers() {
    loom::model(|| {
        let shard = shard(&[]);
        let [mut task] = left_pending(&shard);
        let reaper = spawn(&shard, |shard| _ = shard.drive(Executor::Other));
        let later = Arc::new(Woken::default());
        let is_told =
            shard.take(&mut task.group, Executor::Other, &Waker::from(later.clone())).is_some();
        reaper.join().unwrap();
        thread_comes(&shard);
        if !is_told {
            assert_eq!((later.0.load(Ordering::Relaxed), task.is_woken()), (1, false));
            assert!(shard.take(&mut task.group, Executor::Other, Waker::noop()).is_some());
        }
        check(&shard, 1, 0);
    });
}

/// Whoever has made the most rounds leaves the next to the engine's thread, which may be there for
/// something else.
#[test]
fn rounds_that_are_left_over_are_made() {
    loom::model(|| {
        let shard = shard(&[]);
        let thread = spawn(&shard, |shard| {
            heard(shard);
            shard.run_delegated();
        });
        let other = spawn(&shard, |shard| [(); 2].map(|()| Task::push(shard, CALL)));
        let own = [(); 2].map(|()| Task::push(&shard, CALL));
        thread.join().unwrap();
        let others = other.join().unwrap();
        thread_comes(&shard);
        own.into_iter().chain(others).for_each(|task| task.check(&shard));
        check(&shard, 4, 0);
    });
}

/// Futures were woken, and do not look: the thread hears of what waits for it, even if it is about
/// to sleep.
#[test]
fn what_is_deferred_is_watched() {
    loom::model(|| {
        let shard = shard(&[]);
        let woken: [Task; 2] = left_pending(&shard);
        assert_eq!(shard.drive(Executor::Other), 2);
        // As the thread's `sleep`.
        let thread = spawn(&shard, |shard| {
            shard.notifier.asleep.store(true, Ordering::SeqCst);
            shard.holds_back()
        });
        let other = spawn(&shard, |shard| Task::push(shard, CALL));
        let own = Task::push(&shard, CALL);
        let other = other.join().unwrap();
        let stays_awake = thread.join().unwrap();
        if stays_awake || heard(&shard) {
            shard.run_delegated();
            shard.flush();
        }
        woken.into_iter().chain([own, other]).for_each(|task| task.check(&shard));
        check(&shard, 4, 0);
    });
}

/// Figures are read while others submit: the locks are taken in one order.
#[test]
fn a_submitter_and_a_look_at_the_figures() {
    loom::model(|| {
        let shard = shard(&[]);
        let submitter = spawn(&shard, |shard| Task::push(shard, CALL));
        let counts = shard.with_stats(|stats, _| stats.counts);
        assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight);
        submitter.join().unwrap().check(&shard);
        check(&shard, 1, 0);
    });
}
