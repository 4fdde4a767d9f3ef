//! Loom tests of the shard: submission, combining, drops and wakeups together, in every order in
//! which a few threads can interleave. Run them with `make loom`; `LOOM_MAX_PREEMPTIONS` limits the
//! preemptions. The combiner's bounds are small here.
//!
//! The backend completes everything at once, except operations that are set to hang until
//! cancelled. So when all threads are done, each operation is either done or in a state that the
//! notifier reports.

use super::executor::Executor;
use super::notifier::Notifier;
use super::shard::{Group, Shard};
use super::submission::{Lane, Schedule};
use super::sync::Ordering;
use loom::thread;
use ringway_core::{BackendKind, FaultPlan, FaultStep, Late, Operation, Options, op, wait};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};
use std::time::Duration;

const CALL: Schedule = Schedule::Immediate(Lane::Call);
/// A lane with capacity for one operation.
const WAIT: Schedule = Schedule::Immediate(Lane::Wait);

/// A shard on the null backend. The jobs in `hang` never complete unless they are cancelled.
fn shard(hang: &[u64]) -> Arc<Shard> {
    let plan = hang
        .iter()
        .fold(FaultPlan::new(0), |plan, job| plan.late(FaultStep::Job(*job), Late::Forever));
    let options = Options::new().backend(BackendKind::Null);
    let options = if hang.is_empty() { options } else { options.faults(plan) };
    Arc::new(Shard::new(&options, 1, 4, 1, Notifier::new(false).unwrap()).unwrap())
}

/// Counts how often a task is woken.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A future that has been polled once, and what its operation owns.
struct Task {
    group: Group,
    woken: Arc<WakeCount>,
    owned: Arc<()>,
    has_result: bool,
}

impl Task {
    /// Pushes an operation, as a future's first poll does.
    fn push(shard: &Shard, schedule: Schedule) -> Self {
        let (woken, owned) = (Arc::new(WakeCount::default()), Arc::new(()));
        let waker = Waker::from(woken.clone());
        let (mut own, operation) = (None, operation(&owned));
        let mut pushed =
            shard.push(schedule, Executor::Other, &waker, &mut Some(operation), &mut own);
        let has_result = own.is_some()
            || pushed.may_be_done
                && shard.take(&mut pushed.group, Executor::Other, &waker).is_some();
        Self { group: pushed.group, woken, owned, has_result }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed) > 0
    }

    /// Checks that the task was woken once and finds the result, unless the push already returned
    /// it.
    fn check(mut self, shard: &Shard) {
        if !self.has_result {
            assert_eq!(self.woken.0.load(Ordering::Relaxed), 1, "times woken");
            assert!(
                shard.take(&mut self.group, Executor::Other, Waker::noop()).is_some(),
                "the task was woken, but there is no result"
            );
        }
        assert!(
            shard
                .take(&mut self.group, Executor::Other, Waker::noop())
                .is_none_or(|results| results.is_empty()),
            "a result was delivered twice"
        );
        assert_eq!(Arc::strong_count(&self.owned), 1, "the operation still owns its data");
    }

    /// Drops the future.
    fn drop(self, shard: &Shard) -> Arc<()> {
        if !self.has_result {
            shard.abandon(&self.group);
        }
        self.owned
    }
}

/// An operation that owns something. The null backend does not run it.
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

/// Pushes operations that stay pending, as after a combiner that panicked.
fn push_pending<const N: usize>(shard: &Shard) -> [Task; N] {
    let guard = shard.combiner.try_lock().expect("the lock is free");
    let tasks = std::array::from_fn(|_| Task::push(shard, CALL));
    drop(guard);
    tasks
}

/// Returns true once after each notification.
fn was_notified(shard: &Shard) -> bool {
    let heard = wait::readable(&[shard.notifier.fd()], Some(Duration::ZERO));
    let heard = heard.is_ok_and(|ready| ready[0]);
    shard.notifier.clear();
    heard
}

/// What the engine's thread does after all others: it serves the notifier, and does not sleep while
/// something is held back.
fn run_thread(shard: &Shard) {
    while was_notified(shard) {
        shard.run_delegated();
    }
    if shard.holds_back() {
        shard.flush();
    }
}

/// Checks that nothing is in flight, and the counts.
fn check(shard: &Shard, delivered: u64, orphaned: u64) {
    let (counts, pending) = shard.counts();
    assert_eq!((counts.pushed, counts.delivered), (delivered + orphaned, delivered));
    assert_eq!((counts.orphaned, counts.in_flight, pending), (orphaned, 0, 0));
    assert!(shard.combiner.try_lock().is_some(), "the combiner is free");
}

#[test]
fn concurrent_submitters_leave_nothing_pending() {
    loom::model(|| {
        let shard = shard(&[]);
        let others = [CALL, Schedule::Paced]
            .map(|schedule| spawn(&shard, move |shard| Task::push(&shard, schedule)));
        let own = Task::push(&shard, CALL);
        let others = others.map(|other| other.join().unwrap());
        run_thread(&shard);
        own.check(&shard);
        for other in others {
            other.check(&shard);
        }
        check(&shard, 3, 0);
    });
}

/// The lane has capacity for one operation, which hangs. Dropping it frees capacity for the other.
#[test]
fn a_submitter_a_reaper_and_a_drop() {
    loom::model(|| {
        let shard = shard(&[0]);
        let hangs = Task::push(&shard, WAIT);
        assert!(!hangs.has_result);
        let submitter = spawn(&shard, |shard| Task::push(shard, WAIT));
        let reaper = spawn(&shard, |shard| _ = shard.drive(Executor::Other));
        let owned = hangs.drop(&shard);
        reaper.join().unwrap();
        let pushed = submitter.join().unwrap();
        run_thread(&shard);
        pushed.check(&shard);
        assert_eq!(Arc::strong_count(&owned), 1, "the dropped operation still owns its data");
        check(&shard, 1, 1);
    });
}

/// Two threads reap while a future is dropped whose operation may be pending, in flight or done.
#[test]
fn a_completion_and_a_drop() {
    loom::model(|| {
        let shard = shard(&[]);
        let [goes, stays] = push_pending(&shard);
        let reactors = [(); 2].map(|()| spawn(&shard, |shard| _ = shard.drive(Executor::Other)));
        let owned = goes.drop(&shard);
        for reaper in reactors {
            reaper.join().unwrap();
        }
        run_thread(&shard);
        stays.check(&shard);
        assert_eq!(Arc::strong_count(&owned), 1, "the dropped operation still owns its data");
        check(&shard, 1, 1);
    });
}

/// A task looks with another waker while its operation completes: the last waker is called, or the
/// look finds the result.
#[test]
fn a_completion_and_a_change_of_wakers() {
    loom::model(|| {
        let shard = shard(&[]);
        let [mut task] = push_pending(&shard);
        let reaper = spawn(&shard, |shard| _ = shard.drive(Executor::Other));
        let later = Arc::new(WakeCount::default());
        let has_result =
            shard.take(&mut task.group, Executor::Other, &Waker::from(later.clone())).is_some();
        reaper.join().unwrap();
        run_thread(&shard);
        if !has_result {
            assert_eq!((later.0.load(Ordering::Relaxed), task.is_woken()), (1, false));
            assert!(shard.take(&mut task.group, Executor::Other, Waker::noop()).is_some());
        }
        check(&shard, 1, 0);
    });
}

/// A thread that reaches its bound delegates to the engine's thread, which may be busy with
/// something else.
#[test]
fn delegated_rounds_are_made() {
    loom::model(|| {
        let shard = shard(&[]);
        let thread = spawn(&shard, |shard| {
            was_notified(shard);
            shard.run_delegated();
        });
        let other = spawn(&shard, |shard| [(); 2].map(|()| Task::push(shard, CALL)));
        let own = [(); 2].map(|()| Task::push(&shard, CALL));
        thread.join().unwrap();
        let others = other.join().unwrap();
        run_thread(&shard);
        for task in own.into_iter().chain(others) {
            task.check(&shard);
        }
        check(&shard, 4, 0);
    });
}

/// Futures were woken and do not look: the thread learns of what waits for them, even if it is
/// about to sleep.
#[test]
fn deferred_operations_reach_the_thread() {
    loom::model(|| {
        let shard = shard(&[]);
        let woken: [Task; 2] = push_pending(&shard);
        assert_eq!(shard.drive(Executor::Other), 2);
        // As in the thread's `sleep`.
        let thread = spawn(&shard, |shard| {
            shard.notifier.asleep.store(true, Ordering::SeqCst);
            shard.holds_back()
        });
        let other = spawn(&shard, |shard| Task::push(shard, CALL));
        let own = Task::push(&shard, CALL);
        let other = other.join().unwrap();
        let stays_awake = thread.join().unwrap();
        if stays_awake || was_notified(&shard) {
            shard.run_delegated();
            shard.flush();
        }
        for task in woken.into_iter().chain([own, other]) {
            task.check(&shard);
        }
        check(&shard, 4, 0);
    });
}

/// Statistics are read while others submit: the order of locks is the same.
#[test]
fn a_submitter_and_a_statistics_reader() {
    loom::model(|| {
        let shard = shard(&[]);
        let submitter = spawn(&shard, |shard| Task::push(shard, CALL));
        let counts = shard.with_stats(|stats, _| stats.counts);
        assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight);
        submitter.join().unwrap().check(&shard);
        check(&shard, 1, 0);
    });
}
