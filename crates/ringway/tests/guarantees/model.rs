//! The life of operations, on several threads: futures on the null backend, whose completions are
//! delayed, shortened, failed, retried and reordered, are polled by tasks with changing wakers,
//! awaited and dropped in any order.
//!
//! Each operation completes once and returns its own buffer unchanged. Each dropped one is freed
//! once. The counts always add up. A lost wakeup would hang.

use crate::common::buffers::Pages;
use crate::common::watchdog::Watchdog;
use crate::common::{PAGE, WakeCounter, counts, direct, multi_thread, reap_until_idle, scratch};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringway::fs::File;
use ringway::{BackendKind, Buffer, Engine, FaultPlan};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

const THREADS: u64 = 4;
const STEPS: usize = 400;
/// Per thread, at a time.
const MOST_TASKS: usize = 30;

type ReadResult = (io::Result<usize>, Buffer);

struct Task {
    future: Pin<Box<dyn Future<Output = ReadResult>>>,
    number: u64,
    /// The waker of the last poll.
    waker: Arc<WakeCounter>,
    /// The wakeups of that waker before the last poll.
    seen: u64,
}

struct Model {
    engine: Engine,
    file: File,
    pages: Pages,
    may_fail: bool,
    numbers: AtomicU64,
    completed: AtomicU64,
    dropped: AtomicU64,
}

fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PAGE / 8)
}

impl Model {
    fn task(&self, rng: &mut Rng) -> Task {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut buffer = self.pages.take();
        buffer.as_mut_slice().unwrap().copy_from_slice(&content(number));
        let (file, at) = (self.file.clone(), rng.u64(..16) * PAGE as u64);
        let future: Pin<Box<dyn Future<Output = ReadResult>>> = if rng.bool() {
            Box::pin(async move { file.read_at(buffer, at).await })
        } else {
            Box::pin(async move {
                let (written, buffer) = file.write_all_at(buffer, at).await;
                (written.map(|()| PAGE), buffer)
            })
        };
        Task { future, number, waker: WakeCounter::new(), seen: 0 }
    }

    /// Returns true when the task is over.
    fn poll(&self, task: &mut Task) -> bool {
        task.seen = task.waker.wakeups();
        let waker = Waker::from(task.waker.clone());
        let Poll::Ready((result, buffer)) =
            task.future.as_mut().poll(&mut Context::from_waker(&waker))
        else {
            return false;
        };
        match result {
            Ok(done) => assert!((1..=PAGE).contains(&done), "{done} bytes"),
            Err(error) => assert!(
                self.may_fail && matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)),
                "no such fault was injected: {error}"
            ),
        }
        assert!(
            buffer.as_slice() == content(task.number),
            "another or a changed buffer was returned"
        );
        self.completed.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn thread(&self, mut rng: Rng) {
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..STEPS {
            let one = (!tasks.is_empty()).then(|| rng.usize(..tasks.len()));
            match (rng.u32(..8), one) {
                (0..4, _) if tasks.len() < MOST_TASKS => {
                    let mut task = self.task(&mut rng);
                    if !self.poll(&mut task) {
                        tasks.push(task);
                    }
                }
                (0..4, _) | (_, None) => std::thread::yield_now(),
                // The task moves to another waker, or is polled without a wakeup.
                (choice @ 4..6, Some(at)) => {
                    if choice == 4 {
                        tasks[at].waker = WakeCounter::new();
                    }
                    if self.poll(&mut tasks[at]) {
                        drop(tasks.swap_remove(at));
                    }
                }
                (6, Some(at)) => {
                    drop(tasks.swap_remove(at));
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                _ => self.poll_woken(&mut tasks),
            }
        }
        while !tasks.is_empty() {
            let before = tasks.len();
            self.poll_woken(&mut tasks);
            if tasks.len() == before {
                // Only a wakeup of one of the tasks ends this.
                std::thread::park();
            }
        }
    }

    fn poll_woken(&self, tasks: &mut Vec<Task>) {
        tasks.retain_mut(|task| !(task.waker.wakeups() != task.seen && self.poll(task)));
    }
}

fn run(seed: u64, plan: FaultPlan, may_fail: bool) {
    let _watch = Watchdog::new(&format!("model {seed} {plan:?}"));
    let dir = scratch();
    let engine = Engine::builder()
        .backend(BackendKind::Null)
        .faults(plan)
        .shards(2)
        .in_flight(16)
        .build()
        .unwrap();
    let model = Model {
        file: direct(&engine, dir.path(), 16),
        engine,
        pages: Pages::default(),
        may_fail,
        numbers: AtomicU64::new(1),
        completed: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    };
    let runtime = multi_thread(1);
    let mut rng = Rng::with_seed(seed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                counts(&model.engine);
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (rng, model, runtime) = (rng.fork(), &model, &runtime);
                // Half of the threads poll within a runtime, whose driver reaps for them.
                scope.spawn(move || {
                    let _entered = (number % 2 == 0).then(|| runtime.enter());
                    model.thread(rng);
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        for ended in ended {
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    reap_until_idle(&model.engine);
    let (counts, dropped) = (counts(&model.engine), model.dropped.load(Ordering::Relaxed));
    assert_eq!(counts.delivered, model.completed.load(Ordering::Relaxed), "{counts:?}");
    // A dropped future may have yielded before it submitted anything.
    assert!(counts.orphaned <= dropped, "{counts:?}, {dropped} dropped");
    model.pages.inspect(std::time::Duration::ZERO);
    assert_eq!(model.pages.counts().0, 0, "buffers were not freed");
}

#[test]
fn every_operation_completes_once() {
    let rate = || prop_oneof![Just(0u16), 1u16..400];
    let rates = (any::<u64>(), rate(), rate(), rate(), rate(), rate());
    let mut runner =
        TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let result = runner.run(&rates, |(seed, short, errors, retryable, delay, reorder)| {
        let plan = FaultPlan::new(seed).short(short).errors(errors).retryable(retryable);
        run(seed, plan.delay(delay, 3).reorder(reorder), errors > 0);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
