//! Several runtimes in one process on one engine: driven, not driven, without I/O, nested, and
//! dropped.

use crate::common::executor::{Executor, WakePipe};
use crate::common::process::in_child;
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{
    BACKENDS, MS, PAGE, build_or_skip, counts, current_thread, descriptors_and_threads, direct,
    multi_thread, on_each_backend, pattern, pipe, poll_once, put, read_page, reap_until_idle,
    scratch, wait_for,
};
use futures::executor::block_on;
use futures::future::{join_all, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine, Position, Reaping};
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

async fn read_some(file: &File, count: u64) {
    for number in 0..count {
        read_page(file, number).await;
    }
}

fn engine(kind: BackendKind) -> Engine {
    Engine::builder().backend(kind).shards(1).build().unwrap()
}

#[test]
fn runtimes_of_every_kind_share_an_engine() {
    on_each_backend("runtimes_of_every_kind_share_an_engine", |kind| {
        let dir = scratch();
        let file = direct(&engine(kind), dir.path(), 16);
        let runtimes: Vec<Runtime> = vec![current_thread(), current_thread(), multi_thread(2)];
        std::thread::scope(|scope| {
            for runtime in runtimes {
                let file = file.clone();
                scope.spawn(move || runtime.block_on(read_some(&file, 200)));
            }
            scope.spawn(|| smol::block_on(read_some(&file, 200)));
            scope.spawn(|| block_on(read_some(&file, 200)));
        });
        reap_until_idle(file.engine());
    });
}

/// An undriven runtime does not reap, although the shard relies on its driver. Others on the shard
/// get their completions all the same, as does its own future when polled elsewhere.
#[test]
fn an_undriven_runtime_delays_no_other() {
    on_each_backend("an_undriven_runtime_delays_no_other", |kind| {
        let dir = scratch();
        let file = direct(&engine(kind), dir.path(), 16);
        let undriven = current_thread();
        let mut reads: Vec<_> = (0..64)
            .map(|number| {
                Box::pin(file.read_at(AlignedBuffer::new(PAGE, PAGE), number % 16 * PAGE as u64))
            })
            .collect();
        {
            let _inside = undriven.enter();
            for read in &mut reads {
                _ = poll_once(read.as_mut());
            }
        }
        // Nothing drives that runtime from here on.
        current_thread().block_on(read_some(&file, 20));
        block_on(read_some(&file, 20));
        {
            // Within its context, but on another executor.
            let _inside = undriven.enter();
            block_on(read_some(&file, 3));
        }
        wait_for("the reads of an undriven runtime", || file.engine().stats().queued == 0);
        drop(reads);
        reap_until_idle(file.engine());
        drop(undriven);
        block_on(read_some(&file, 20));
    });
}

#[test]
fn a_blocked_runtime_delays_no_other() {
    on_each_backend("a_blocked_runtime_delays_no_other", |kind| {
        let dir = scratch();
        let file = direct(&engine(kind), dir.path(), 16);
        let (resume, blocked) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let other = file.clone();
            scope.spawn(move || {
                current_thread().block_on(async {
                    read_some(&other, 5).await;
                    let mut read = Box::pin(other.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                    let early = poll_immediate(&mut read).await;
                    begun.send(()).unwrap();
                    // The task blocks, so its runtime cannot reap.
                    blocked.recv().unwrap();
                    if early.is_none() {
                        assert_eq!(read.await.0.unwrap(), PAGE);
                    }
                });
            });
            has_begun.recv().unwrap();
            current_thread().block_on(read_some(&file, 20));
            block_on(read_some(&file, 20));
            resume.send(()).unwrap();
        });
    });
}

/// Detecting a runtime without I/O must not call the program's panic hook, because many programs
/// abort in theirs. The hook stays the program's own.
#[test]
fn a_runtime_without_io_calls_no_panic_hook() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static HOOK_CALLS: AtomicUsize = AtomicUsize::new(0);
    in_child(
        "runtimes::a_runtime_without_io_calls_no_panic_hook",
        |_| {},
        || {
            std::panic::set_hook(Box::new(|info| {
                HOOK_CALLS.fetch_add(1, Ordering::Relaxed);
                if info.payload().downcast_ref::<&str>() != Some(&"expected") {
                    std::process::abort();
                }
            }));
            on_each_backend("a_runtime_without_io_calls_no_panic_hook", |kind| {
                let before = HOOK_CALLS.load(Ordering::Relaxed);
                let dir = scratch();
                let file = direct(&engine(kind), dir.path(), 16);
                for _ in 0..50 {
                    Builder::new_current_thread().build().unwrap().block_on(read_some(&file, 1))
                }
                assert_eq!(HOOK_CALLS.load(Ordering::Relaxed), before);
                assert!(std::panic::catch_unwind(|| panic!("expected")).is_err());
                assert_eq!(HOOK_CALLS.load(Ordering::Relaxed) - before, 1);
                let threads =
                    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
                let other = file.clone();
                threads
                    .block_on(threads.spawn(async move { read_some(&other, 20).await }))
                    .unwrap();
                // In a panicking thread, where hooks cannot be changed.
                struct Reads(File);
                impl Drop for Reads {
                    fn drop(&mut self) {
                        Builder::new_current_thread()
                            .build()
                            .unwrap()
                            .block_on(read_some(&self.0, 3));
                    }
                }
                let reads = Reads(file.clone());
                let panics = std::thread::spawn(move || {
                    let _reads = reads;
                    panic!("expected");
                });
                assert!(panics.join().is_err());
                assert_eq!(HOOK_CALLS.load(Ordering::Relaxed) - before, 2);
            });
        },
    );
}

#[test]
fn reaping_in_the_runtime() {
    on_each_backend("reaping_in_the_runtime", |kind| {
        let dir = scratch();
        let engine =
            Engine::builder().backend(kind).shards(1).reaping(Reaping::Runtime).build().unwrap();
        let file = direct(&engine, dir.path(), 16);
        current_thread().block_on(read_some(&file, 20));
        block_on(read_some(&file, 20));
        reap_until_idle(&engine);
    });
}

#[test]
fn one_executor_inside_another() {
    on_each_backend("one_executor_inside_another", |kind| {
        let dir = scratch();
        let file = direct(&engine(kind), dir.path(), 16);
        // In the context of a runtime, but polled by another executor.
        let runtime = multi_thread(1);
        {
            let _inside = runtime.enter();
            block_on(read_some(&file, 20));
        }
        // On a thread of its blocking pool, and on a worker that blocks.
        let other = file.clone();
        runtime.block_on(runtime.spawn_blocking(move || block_on(read_some(&other, 20)))).unwrap();
        let other = file.clone();
        let nested = runtime.spawn(async move {
            read_some(&other, 5).await;
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(read_some(&other, 20))
            });
            tokio::task::block_in_place(|| smol::block_on(read_some(&other, 20)));
            read_some(&other, 5).await;
        });
        runtime.block_on(nested).unwrap();
        reap_until_idle(file.engine());
    });
}

/// A future that was begun in one runtime completes in another, after the first was dropped.
#[test]
fn a_future_outlives_the_runtime_that_polled_it() {
    on_each_backend("a_future_outlives_the_runtime_that_polled_it", |kind| {
        let engine = engine(kind);
        for _ in 0..20 {
            let (reader, writer) = pipe(&engine);
            let mut read = Box::pin(reader.read_at(vec![0; 4], Position::Current));
            let first = current_thread();
            first.block_on(async { assert!(poll_immediate(&mut read).await.is_none()) });
            drop(first);
            put(&writer, b"text");
            let (read, buffer) = current_thread().block_on(read);
            assert_eq!((read.unwrap(), &buffer[..]), (4, &b"text"[..]));
        }
    });
}

#[test]
fn a_runtime_is_dropped_with_operations_in_flight() {
    on_each_backend("a_runtime_is_dropped_with_operations_in_flight", |kind| {
        let dir = scratch();
        let file = direct(&engine(kind), dir.path(), 16);
        let (reader, _writer) = pipe(file.engine());
        for round in 0..10 {
            let runtime = match round % 2 {
                0 => current_thread(),
                _ => multi_thread(2),
            };
            for _ in 0..20 {
                let (file, reader) = (file.clone(), reader.clone());
                runtime.spawn(async move {
                    join_all([read_some(&file, 1000), read_some(&file, 1000)]).await
                });
                runtime.spawn(async move { reader.read_at(vec![0; 1], Position::Current).await });
            }
            runtime.block_on(read_some(&file, 5));
            match round % 3 {
                0 => drop(runtime),
                1 => runtime.shutdown_background(),
                _ => runtime.shutdown_timeout(MS),
            }
            counts(file.engine());
            // Others continue meanwhile.
            block_on(read_some(&file, 5));
        }
        reap_until_idle(file.engine());
    });
}

/// Every test of a suite creates a runtime: dropped runtimes must not accumulate in an engine that
/// outlives them.
#[test]
fn dropped_runtimes_leave_nothing_behind() {
    in_child(
        "runtimes::dropped_runtimes_leave_nothing_behind",
        |_| {},
        || {
            on_each_backend("dropped_runtimes_leave_nothing_behind", |kind| {
                let dir = scratch();
                let file = direct(&engine(kind), dir.path(), 16);
                let round = || current_thread().block_on(read_some(&file, 5));
                for _ in 0..5 {
                    round();
                }
                let before = descriptors_and_threads().0;
                for _ in 0..100 {
                    round();
                }
                wait_for("descriptors of dropped runtimes", || {
                    descriptors_and_threads().0 <= before + 3
                });
            });
        },
    );
}

/// A program may wait for the engine's descriptor and its own wakeups in one `poll(2)`, without any
/// other thread.
#[test]
fn an_engine_with_manual_reaping_has_no_thread() {
    in_child(
        "runtimes::an_engine_with_manual_reaping_has_no_thread",
        |_| {},
        || {
            for kind in BACKENDS {
                // `available` would build an engine with a thread, which ends some time later.
                let builder = Engine::builder().reaping(Reaping::Manual);
                if build_or_skip(kind, builder).is_none() {
                    continue;
                }
                let _watch = Watchdog::new("an_engine_with_manual_reaping_has_no_thread");
                let setup = Setup::new(kind, Executor::OwnLoop, |builder| builder);
                setup.run(|setup| async move {
                    let file = setup.file("file", &pattern(0, 16 * PAGE), true).await;
                    read_some(&file, 50).await;
                });
                // Kernel workers of the ring (`iou-wrk`) do not count.
                let tasks = std::fs::read_dir("/proc/self/task").unwrap();
                let names = tasks.filter_map(|task| {
                    std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
                });
                assert!(names.into_iter().all(|name| name.trim() != "ringway"));
                // Readability is a hint, and without completions it does not persist.
                let wakeups = WakePipe::new();
                for _ in 0..5 {
                    _ = setup.engine.reap();
                }
                std::task::Wake::wake(wakeups.clone());
                assert!(wakeups.wait(setup.engine.readable().unwrap()));
            }
        },
    );
}

/// With manual reaping, two threads may reap at the same time.
#[test]
fn several_threads_may_reap() {
    on_each_backend("several_threads_may_reap", |kind| {
        let setup = Setup::new(kind, Executor::OwnLoop, |builder| builder.shards(2));
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    setup.engine.reap();
                    std::thread::yield_now();
                }
            });
            // Polled by another executor, because the reaping loop picks up completions for all
            // futures.
            block_on(async {
                let path = setup.path("file");
                std::fs::write(&path, pattern(0, 16 * PAGE)).unwrap();
                let file = OpenOptions::new()
                    .read(true)
                    .direct(true)
                    .engine(&setup.engine)
                    .open(&path)
                    .await
                    .unwrap();
                read_some(&file, 100).await;
            });
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        reap_until_idle(&setup.engine);
    });
}
