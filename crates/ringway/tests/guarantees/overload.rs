//! Overload: more operations than fit in flight, operations that never complete, and futures that
//! are never polled again.

use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{
    MS, PAGE, direct, drop_cached_pages, fifo, has_reader, on_each_backend, pattern, put,
    reap_until_idle, until, wait_for, wait_readable,
};
use futures::future::{join_all, maybe_done, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine, EngineBuilder, FaultPlan, Position, Reaping};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

fn page_buffer() -> AlignedBuffer {
    AlignedBuffer::new(PAGE, PAGE)
}

fn on_each_setup(
    name: &str,
    executor: Executor,
    engine: fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(Setup),
) {
    on_each_backend(name, |kind| test(Setup::new(kind, executor, engine)));
}

struct CompletionOrder {
    number: usize,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Wake for CompletionOrder {
    fn wake(self: Arc<Self>) {
        self.order.lock().unwrap().push(self.number);
    }
}

/// A thousand reads with four in flight start in the order of their first polls. So when one has
/// completed, all before it have started, and at most three of those can still be in flight.
#[test]
fn waiting_for_a_free_slot_is_fair() {
    on_each_setup(
        "waiting_for_a_free_slot_is_fair",
        Executor::OwnLoop,
        |builder| builder.shards(1).in_flight(4),
        |setup| {
            let file = direct(&setup.engine, setup.dir.path(), 256);
            // Direct reads of cached pages may complete when they are submitted.
            drop_cached_pages(&setup.dir.path().join("direct"));
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut reads: Vec<_> = (0..1000)
                .map(|number| {
                    Box::pin(file.read_at(page_buffer(), number as u64 * 7 % 256 * PAGE as u64))
                })
                .collect();
            // A task that submits does not wake the others whose reads it finds complete. So a read
            // that completes in its own poll may come before their wakeups, but not before they
            // have started.
            let mut done = vec![false; 1000];
            for (number, read) in reads.iter_mut().enumerate() {
                let waker = Waker::from(Arc::new(CompletionOrder { number, order: order.clone() }));
                if read.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    let queued = setup.engine.stats().queued;
                    assert_eq!(queued, 0, "{number} completed before {queued} reads had started");
                    done[number] = true;
                }
            }
            let woken = done.iter().filter(|done| !**done).count();
            wait_for("all reads", || {
                setup.engine.reap();
                order.lock().unwrap().len() == woken
            });
            let order = order.lock().unwrap();
            let mut first_missing = 0;
            for (rank, number) in order.iter().enumerate() {
                let before = (first_missing..*number).filter(|before| !done[*before]).count();
                assert!(
                    before <= 3,
                    "{number} was number {rank} to complete, with {before} earlier ones in flight"
                );
                assert!(!std::mem::replace(&mut done[*number], true), "{number} was woken twice");
                while first_missing < 1000 && done[first_missing] {
                    first_missing += 1;
                }
            }
            drop(reads);
            reap_until_idle(&setup.engine);
        },
    );
}

/// Hundreds of pipe reads that never complete, with each way to reap.
#[test]
fn endless_reads_do_not_delay_others() {
    for executor in [Executor::TokioThreads, Executor::OwnLoop] {
        on_each_setup(
            "endless_reads_do_not_delay_others",
            executor,
            |builder| builder.shards(1).in_flight(4),
            |setup| {
                setup.run(|setup| async move {
                    let (reader, _writer) = setup.pipe();
                    let mut waiting: Vec<_> = (0..400)
                        .map(|_| Box::pin(reader.read_at(vec![0; 1], Position::Current)))
                        .collect();
                    for read in &mut waiting {
                        assert_eq!(setup.submit(read).await, 0);
                    }
                    let file = setup.file("file", &pattern(0, 64 * PAGE), true).await;
                    let reads = (0..200u64)
                        .map(|number| file.read_at(page_buffer(), number % 64 * PAGE as u64));
                    assert!(
                        join_all(reads).await.into_iter().all(|(read, _)| read.unwrap() == PAGE)
                    );
                    file.sync_all().await.unwrap();
                    assert!(setup.counts().in_flight >= 400);
                });
            },
        );
    }
}

/// Any number of pipe reads, with the default limits, delay no open, sync or metadata call.
#[test]
fn idle_pipe_reads_do_not_delay_other_operations() {
    for (executor, pipes) in
        [(Executor::TokioThreads, 1024), (Executor::OwnLoop, 1024), (Executor::TokioCurrent, 5000)]
    {
        on_each_setup(
            "idle_pipe_reads_do_not_delay_other_operations",
            executor,
            |builder| builder.shards(1),
            |setup| {
                setup.run(move |setup| async move {
                    let (reader, writer) = setup.pipe();
                    let mut waiting: Vec<_> = (0..pipes)
                        .map(|_| Box::pin(reader.read_at(vec![0; 1], Position::Current)))
                        .collect();
                    for read in &mut waiting {
                        assert_eq!(setup.submit(read).await, 0);
                    }
                    let file = setup.file("file", &pattern(0, 16 * PAGE), true).await;
                    file.sync_all().await.unwrap();
                    file.sync_data().await.unwrap();
                    assert_eq!(file.metadata().await.unwrap().len(), 16 * PAGE as u64);
                    file.set_len(PAGE as u64).await.unwrap();
                    let (read, _) = file.read_at(page_buffer(), 0).await;
                    assert_eq!(read.unwrap(), PAGE);
                    file.close().await.unwrap();
                    assert!(setup.counts().in_flight >= pipes);
                    // The waiting reads still complete when there is data.
                    put(&writer, &vec![7; pipes as usize]);
                    for (read, _) in join_all(waiting).await {
                        assert_eq!(read.unwrap(), 1);
                    }
                });
            },
        );
    }
}

/// Opens of FIFOs without a reader, more than a shard can have in flight, delay no open of a file.
#[test]
fn blocked_opens_do_not_delay_other_opens() {
    on_each_setup(
        "blocked_opens_do_not_delay_other_opens",
        Executor::TokioThreads,
        |builder| builder.shards(1).close_wait(MS),
        |setup| {
            setup.run(|setup| async move {
                let path = setup.path("fifo");
                fifo(&path);
                let options = OpenOptions::new().write(true).engine(&setup.engine).clone();
                let mut opens: Vec<_> = (0..1500).map(|_| Box::pin(options.open(&path))).collect();
                for open in &mut opens {
                    if let Some(early) = poll_immediate(open).await {
                        // The queue limits those separately.
                        assert_eq!(early.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
                    }
                }
                let file = setup.file("file", &pattern(0, 16 * PAGE), true).await;
                file.sync_all().await.unwrap();
                assert_eq!(file.metadata().await.unwrap().len(), 16 * PAGE as u64);
                drop(opens);
                until("the opens to complete", || {
                    has_reader(&path);
                    setup.counts().in_flight == 0
                })
                .await;
            });
        },
    );
}

/// Any number of timers delay no metadata call, and a later timer none that ends sooner.
#[test]
fn timers_do_not_delay_other_operations() {
    for executor in [Executor::TokioThreads, Executor::OwnLoop] {
        on_each_setup(
            "timers_do_not_delay_other_operations",
            executor,
            |builder| builder.shards(1),
            |setup| {
                setup.run(|setup| async move {
                    let engine = &setup.engine;
                    let mut timers: Vec<_> =
                        (0..5000).map(|_| Box::pin(engine.sleep(3_600_000 * MS))).collect();
                    for timer in &mut timers {
                        assert!(poll_immediate(timer).await.is_none());
                    }
                    assert!(engine.fs().metadata(setup.dir.path()).await.unwrap().is_dir());
                    engine.fs().create_dir(setup.path("new")).await.unwrap();
                    engine.sleep(MS).await.unwrap();
                    drop(timers);
                    setup.until_idle().await;
                });
            },
        );
    }
}

/// Syncs that never complete, as on a hung disk, delay no open, read or metadata call.
#[test]
fn hung_syncs_do_not_delay_other_operations() {
    for executor in [Executor::TokioThreads, Executor::OwnLoop] {
        on_each_setup(
            "hung_syncs_do_not_delay_other_operations",
            executor,
            |builder| {
                let hangs = |plan: FaultPlan, sync| {
                    plan.late(FaultStep::Opcode(Opcode::Fsync, sync), Late::Forever)
                };
                builder.shards(1).close_wait(MS).faults((0..3000).fold(FaultPlan::new(0), hangs))
            },
            |setup| {
                let engine = setup.engine.clone();
                setup.executor.run(&engine, &setup.spawned, {
                    let setup = setup.clone();
                    async move {
                        let file = setup.file("file", &pattern(0, 16 * PAGE), true).await;
                        let mut syncs: Vec<_> =
                            (0..2000).map(|_| Box::pin(file.sync_data())).collect();
                        for sync in &mut syncs {
                            assert!(poll_immediate(sync).await.is_none());
                        }
                        let other = setup.file("other", &pattern(0, 16 * PAGE), true).await;
                        assert_eq!(other.metadata().await.unwrap().len(), 16 * PAGE as u64);
                        assert_eq!(other.read_at(page_buffer(), 0).await.0.unwrap(), PAGE);
                        other.close().await.unwrap();
                    }
                });
                reap_until_idle(&engine);
            },
        );
    }
}

/// An operation frees its slot when it completes, whether or not anything polls its future.
#[test]
fn unpolled_futures_do_not_delay_others() {
    for executor in [Executor::TokioCurrent, Executor::Smol, Executor::OwnLoop] {
        on_each_setup(
            "unpolled_futures_do_not_delay_others",
            executor,
            |builder| builder.shards(1).in_flight(4).in_flight_pipes(4),
            |setup| {
                setup.run(|setup| async move {
                    let file = setup.file("file", &pattern(0, 64 * PAGE), true).await;
                    let mut forgotten: Vec<_> = (0..100)
                        .map(|_| Box::pin(maybe_done(file.read_at(page_buffer(), 0))))
                        .collect();
                    let mut synced: Vec<_> =
                        (0..20).map(|_| Box::pin(maybe_done(file.sync_data()))).collect();
                    for read in &mut forgotten {
                        _ = poll_immediate(read).await;
                    }
                    for sync in &mut synced {
                        _ = poll_immediate(sync).await;
                    }
                    let reads = (0..50u64)
                        .map(|number| file.read_at(page_buffer(), number % 64 * PAGE as u64));
                    assert!(
                        join_all(reads).await.into_iter().all(|(read, _)| read.unwrap() == PAGE)
                    );
                    file.metadata().await.unwrap();
                    // The forgotten futures have their results too.
                    for mut read in forgotten {
                        read.as_mut().await;
                        assert_eq!(read.as_mut().take_output().unwrap().0.unwrap(), PAGE);
                    }
                });
            },
        );
    }
}

/// One future has more reads than fit in flight, next to other futures.
#[test]
fn more_ranges_than_fit_in_flight() {
    on_each_setup(
        "more_ranges_than_fit_in_flight",
        Executor::TokioCurrent,
        |builder| builder.shards(1).in_flight(4),
        |setup| {
            setup.run(|setup| async move {
                let file = setup.file("file", &pattern(0, 256 * PAGE), true).await;
                let ranges: Vec<_> =
                    (0..256).map(|page| page * PAGE as u64 + 9..page * PAGE as u64 + 99).collect();
                let never = ringway::Coalesce::never();
                let all = join_all((0..4).map(|_| file.read_ranges_each(&ranges, never))).await;
                for parts in all {
                    for (part, range) in parts.unwrap().into_iter().zip(&ranges) {
                        assert_eq!(part.unwrap()[..], pattern(range.start, 90));
                    }
                }
                // Dropped in the middle.
                _ = poll_immediate(Box::pin(file.read_ranges_each(&ranges, never))).await;
                setup.until_idle().await;
            });
        },
    );
}

/// Opens of FIFOs wait for another process, too. Fewer of them than the engine has threads leave
/// threads for others.
#[test]
fn waiting_opens_leave_threads_for_others() {
    on_each_setup(
        "waiting_opens_leave_threads_for_others",
        Executor::TokioThreads,
        |builder| builder.shards(1),
        |setup| {
            setup.run(|setup| async move {
                let paths: Vec<_> =
                    (0..12).map(|number| setup.path(&format!("fifo-{number}"))).collect();
                for path in &paths {
                    fifo(path);
                }
                let options = OpenOptions::new().read(true).engine(&setup.engine).clone();
                let mut opens: Vec<_> =
                    paths.iter().map(|path| Box::pin(options.open(path))).collect();
                for open in &mut opens {
                    let early = poll_immediate(open).await;
                    assert!(early.is_none() || setup.kind == BackendKind::Uring, "{early:?}");
                }
                let file = setup.file("file", &pattern(0, 16 * PAGE), true).await;
                assert_eq!(file.read(5..9).await.unwrap()[..], pattern(5, 4));
                file.sync_all().await.unwrap();
                drop(opens);
                until("the opens to complete", || {
                    for path in &paths {
                        _ = has_reader(path)
                    }
                    setup.counts().in_flight == 0
                })
                .await;
            });
        },
    );
}

thread_local! {
    /// Futures of other threads that this thread has woken during its current poll.
    static WOKEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A waker for threads that wait by polling a flag, so that other threads submit while one is
/// combining.
struct PolledFlag(AtomicBool);

impl Wake for PolledFlag {
    fn wake(self: Arc<Self>) {
        WOKEN.set(WOKEN.get() + 1);
        self.0.store(true, Ordering::Release);
    }
}

/// Several threads submit one operation after the other. The thread that submits and wakes for the
/// others does so for a bounded number of rounds: in each round it can wake each of them once.
#[test]
fn combining_for_others_is_bounded() {
    const THREADS: usize = 4;
    /// Operations per thread.
    const EACH: usize = 30_000;
    const MOST_ROUNDS: usize = 16;
    for reaping in [Reaping::Thread, Reaping::Manual] {
        let _watch = Watchdog::new("combining_for_others_is_bounded");
        let engine = Engine::builder()
            .backend(BackendKind::Null)
            .shards(1)
            .reaping(reaping)
            .build()
            .unwrap();
        let file = File::from_fd(tempfile::tempfile().unwrap().into(), &engine);
        let left = AtomicUsize::new(THREADS);
        let submitter = || {
            let mut most = 0;
            for _ in 0..EACH {
                let flag = Arc::new(PolledFlag(AtomicBool::new(true)));
                let waker = Waker::from(flag.clone());
                let mut sync = pin!(file.sync_data());
                loop {
                    while !flag.0.swap(false, Ordering::AcqRel) {
                        std::thread::yield_now();
                    }
                    WOKEN.set(0);
                    let result = sync.as_mut().poll(&mut Context::from_waker(&waker));
                    most = most.max(WOKEN.get());
                    if let Poll::Ready(result) = result {
                        result.unwrap();
                        break;
                    }
                }
            }
            left.fetch_sub(1, Ordering::Release);
            most
        };
        let most = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(submitter)).collect();
            // Completions that remain go to the thread that reaps.
            if reaping == Reaping::Manual {
                scope.spawn(|| {
                    while left.load(Ordering::Acquire) > 0 {
                        if wait_readable(engine.readable().unwrap(), 20 * MS) {
                            engine.reap();
                        }
                    }
                });
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
        });
        println!("{reaping:?}: at most {most} futures of other threads woken in one poll");
        assert!(
            most <= MOST_ROUNDS * (THREADS - 1),
            "{most} futures of other threads woken in one poll"
        );
        reap_until_idle(&engine);
    }
}
