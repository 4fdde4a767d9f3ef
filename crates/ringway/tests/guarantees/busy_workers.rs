//! A worker that computes delays nobody else: another thread that is awake picks up the
//! completions.
//!
//! Proven by order: the worker computes until the reader has its result, and gives up only after a
//! time that nothing but a hang reaches.

use crate::common::watchdog::Watchdog;
use crate::common::{
    MS, available, current_thread, direct, multi_thread, pipe, put, read_page, scratch, wait_for,
};
use futures::future::poll_immediate;
use ringway::fs::File;
use ringway::{BackendKind, Engine, Position, Reaping};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Rounds of each case, because tokio decides which worker has the driver.
const ROUNDS: u64 = 20;
/// The longest time that a worker computes without success.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Computes until `done` is set. Returns false if that takes too long.
fn compute_until(done: &AtomicBool) -> bool {
    let until = Instant::now() + TIME_LIMIT;
    while !done.load(Ordering::Acquire) {
        if Instant::now() > until {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

fn on_each_file(name: &str, test: impl Fn(BackendKind, File, Runtime)) {
    for kind in available() {
        let _watch = Watchdog::with_timeout(&format!("{kind} {name}"), Duration::from_secs(120));
        let dir = scratch();
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let file = direct(&engine, dir.path(), 16);
        test(kind, file, multi_thread(2));
    }
}

/// The main thread waits in `block_on` while every worker computes.
#[test]
fn a_read_in_block_on() {
    on_each_file("a_read_in_block_on", |kind, file, runtime| {
        for number in 0..ROUNDS {
            let (done, computing) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (done, computing) = (done.clone(), computing.clone());
                    runtime.spawn(async move {
                        computing.fetch_add(1, Ordering::Release);
                        compute_until(&done)
                    })
                })
                .collect();
            while computing.load(Ordering::Acquire) < 2 {
                // One worker may have taken both tasks without notifying the other. A further task
                // notifies it, and it steals the second.
                runtime.spawn(async {});
                std::thread::sleep(MS);
            }
            runtime.block_on(read_page(&file, number));
            done.store(true, Ordering::Release);
            for worker in workers {
                assert!(
                    runtime.block_on(worker).unwrap(),
                    "{kind}: a worker saw no result in round {number}"
                );
            }
        }
    });
}

/// Notes that a task was woken, and wakes it.
struct NotingWaker {
    woken: Arc<AtomicBool>,
    task: Waker,
}

impl Wake for NotingWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// Polls a future with [`NotingWaker`]s.
async fn noting<F: Future + Unpin>(mut future: F, woken: Arc<AtomicBool>) -> F::Output {
    poll_fn(|cx| {
        let task = cx.waker().clone();
        let waker = Waker::from(Arc::new(NotingWaker { woken: woken.clone(), task }));
        Pin::new(&mut future).poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// A task waits for a read while a worker computes, perhaps the one that has tokio's driver.
///
/// The task is woken. That the other worker then runs it is tokio's part, which it may miss: a
/// worker that was about to search while the computing one did so parks without having looked for
/// tasks (tokio's issue 6847). So further tasks make it look.
#[test]
fn a_read_in_a_task() {
    on_each_file("a_read_in_a_task", |kind, file, runtime| {
        for number in 0..ROUNDS {
            let (end, writer) = pipe(file.engine());
            let (submitted, is_submitted) = std::sync::mpsc::channel();
            let (computes, is_computing) = std::sync::mpsc::channel();
            let (woken, done) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let reader = {
                let (woken, done) = (woken.clone(), done.clone());
                runtime.spawn(async move {
                    let read = Box::pin(end.read_at(vec![0; 1], Position::Current));
                    let mut read = Box::pin(noting(read, woken));
                    assert!(poll_immediate(&mut read).await.is_none());
                    submitted.send(()).unwrap();
                    assert_eq!(read.await.0.unwrap(), 1);
                    done.store(true, Ordering::Release);
                })
            };
            is_submitted.recv().unwrap();
            let computing = {
                let done = done.clone();
                runtime.spawn(async move {
                    computes.send(()).unwrap();
                    compute_until(&done)
                })
            };
            is_computing.recv().unwrap();
            put(&writer, b"x");
            wait_for("the task to be woken", || woken.load(Ordering::Acquire));
            while !computing.is_finished() {
                runtime.spawn(async {});
                std::thread::sleep(MS);
            }
            assert!(
                runtime.block_on(computing).unwrap(),
                "{kind}: a worker saw no result in round {number}"
            );
            runtime.block_on(reader).unwrap();
        }
    });
}

/// The worker that submitted the read computes, and another thread waits for the read.
#[test]
fn a_read_submitted_by_the_busy_worker() {
    on_each_file("a_read_submitted_by_the_busy_worker", |kind, file, runtime| {
        for number in 0..ROUNDS {
            let done = Arc::new(AtomicBool::new(false));
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let worker = {
                let (done, file) = (done.clone(), file.clone());
                runtime.spawn(async move {
                    let mut read = Box::pin(async move { read_page(&file, number).await });
                    let early = poll_immediate(&mut read).await.is_some();
                    _ = sender.send((!early).then_some(read));
                    compute_until(&done)
                })
            };
            runtime.block_on(async {
                if let Some(read) = receiver.await.unwrap() {
                    read.await;
                }
            });
            done.store(true, Ordering::Release);
            assert!(
                runtime.block_on(worker).unwrap(),
                "{kind}: the worker saw no result in round {number}"
            );
        }
    });
}

/// Two runtimes share a shard, and one of them computes.
#[test]
fn a_read_in_another_runtime() {
    for reaping in [Reaping::Automatic, Reaping::Thread] {
        for kind in available() {
            let _watch = Watchdog::with_timeout(
                &format!("{kind} a_read_in_another_runtime"),
                Duration::from_secs(120),
            );
            let dir = scratch();
            let engine =
                Engine::builder().backend(kind).shards(1).reaping(reaping).build().unwrap();
            let file = direct(&engine, dir.path(), 16);
            let done = Arc::new(AtomicBool::new(false));
            let (submitted, is_submitted) = std::sync::mpsc::channel();
            let busy = {
                let (done, file) = (done.clone(), file.clone());
                std::thread::spawn(move || {
                    current_thread().block_on(async {
                        let mut read = Box::pin(read_page(&file, 3));
                        let early = poll_immediate(&mut read).await.is_some();
                        submitted.send(()).unwrap();
                        let found = compute_until(&done);
                        if !early {
                            read.await;
                        }
                        found
                    })
                })
            };
            is_submitted.recv().unwrap();
            let runtime = current_thread();
            for number in 0..ROUNDS {
                runtime.block_on(read_page(&file, number));
            }
            smol::block_on(read_page(&file, 5));
            done.store(true, Ordering::Release);
            assert!(busy.join().unwrap(), "{kind}: a runtime saw no result");
        }
    }
}
