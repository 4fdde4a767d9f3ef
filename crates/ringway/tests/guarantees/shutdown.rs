//! Shutdown: engines, files and futures dropped in every order, with and without operations in
//! flight. Nothing hangs, and descriptors and threads return to their earlier number.

use crate::common::process::in_child;
use crate::common::watchdog::Watchdog;
use crate::common::{
    MS, PAGE, available, descriptors_and_threads, direct, multi_thread, on_each_backend, pattern,
    pipe, scratch, wait_for,
};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::fs::File;
use ringway::{BackendKind, Block, Engine, Position, Reaping};
use ringway_torture::pages::Pages;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a round makes and drops.
struct Parts {
    engine: Engine,
    file: File,
    pipe: (File, std::io::PipeWriter),
    pages: Pages,
}

impl Parts {
    fn new(kind: BackendKind, reaping: Reaping, dir: &Path) -> Self {
        let engine = Engine::builder()
            .backend(kind)
            .shards(2)
            .reaping(reaping)
            .close_wait(Duration::from_secs(5))
            .build()
            .unwrap();
        let file = direct(&engine, dir, 16);
        let (reader, writer) = pipe(&engine);
        Self { engine, file, pipe: (reader, writer), pages: Pages::default() }
    }

    /// Submits reads of the file and of the pipe, and drops them.
    fn drop_reads_in_flight(&self) {
        block_on(async {
            for number in 0..20 {
                let mut storage =
                    Box::pin(self.file.read_at(self.pages.take(), number % 16 * PAGE as u64));
                let mut pipe = Box::pin(self.pipe.0.read_at(self.pages.take(), Position::Current));
                _ = poll_immediate(&mut storage).await;
                assert!(poll_immediate(&mut pipe).await.is_none());
            }
        });
    }
}

/// Runs `round` several times, and checks that descriptors and threads return to their number after
/// the first.
fn check_leaks(name: &'static str, round: impl Fn(BackendKind, Reaping, &Path) -> Option<Pages>) {
    in_child(
        &format!("shutdown::{name}"),
        |_| {},
        || {
            let dir = scratch();
            for kind in available() {
                for reaping in [Reaping::Automatic, Reaping::Thread, Reaping::Manual] {
                    let _watch = Watchdog::new(&format!("{kind} {reaping:?} {name}"));
                    round(kind, reaping, dir.path());
                    wait_for("the first round to end", || descriptors_and_threads().1 <= 3);
                    let before = descriptors_and_threads();
                    for _ in 0..5 {
                        if let Some(pages) = round(kind, reaping, dir.path()) {
                            // Each buffer was cancelled and freed; the kernel must not write to it
                            // any more.
                            wait_for("every buffer", || pages.counts().0 == 0);
                            std::thread::sleep(20 * MS);
                            pages.inspect(Duration::ZERO);
                        }
                    }
                    wait_for(
                        &format!("descriptors and threads: {before:?}, {kind} {reaping:?}"),
                        || {
                            let now = descriptors_and_threads();
                            now.0 <= before.0 && now.1 <= before.1
                        },
                    );
                }
            }
        },
    );
}

#[test]
fn an_unused_engine() {
    check_leaks("an_unused_engine", |kind, reaping, dir| {
        drop(Parts::new(kind, reaping, dir));
        None
    });
}

/// A call on one of the engine's threads drops the last handle: it does not wait for itself.
#[test]
fn in_a_call_of_the_engine() {
    check_leaks("in_a_call_of_the_engine", |kind, reaping, _| {
        let builder = Engine::builder().backend(kind).shards(1).reaping(reaping);
        let engine = builder.close_wait(Duration::from_secs(3600)).build().unwrap();
        let ((begun, has_begun), (release, released)) = (channel(), channel::<()>());
        let (dropped, is_dropped) = channel();
        let held = engine.clone();
        let mut call = Box::pin(engine.call(move || {
            begun.send(()).unwrap();
            _ = released.recv();
            drop(held);
            dropped.send(()).unwrap();
            Ok(())
        }));
        assert!(block_on(poll_immediate(&mut call)).is_none());
        has_begun.recv().unwrap();
        drop(call);
        drop((engine, release));
        is_dropped.recv_timeout(Duration::from_secs(20)).expect("the call waits for itself");
        None
    });
}

/// The thread that drops the last handle, such as that of an event loop, does not wait for a call
/// that cannot be cancelled.
#[test]
fn beside_a_call_that_hangs() {
    check_leaks("beside_a_call_that_hangs", |kind, reaping, _| {
        let builder = Engine::builder().backend(kind).shards(1).reaping(reaping);
        let engine = builder.close_wait(Duration::from_secs(3600)).build().unwrap();
        let ((begun, has_begun), (release, released)) = (channel(), channel::<()>());
        let mut call = Box::pin(engine.call(move || {
            begun.send(()).unwrap();
            _ = released.recv();
            Ok(())
        }));
        assert!(block_on(poll_immediate(&mut call)).is_none());
        has_begun.recv().unwrap();
        drop(call);
        // Otherwise the watchdog ends the test.
        drop(engine);
        drop(release);
        None
    });
}

#[test]
fn an_engine_before_its_files() {
    check_leaks("an_engine_before_its_files", |kind, reaping, dir| {
        let parts = Parts::new(kind, reaping, dir);
        drop(parts.engine);
        // The files still hold the engine.
        if reaping != Reaping::Manual {
            assert_eq!(block_on(parts.file.read(5..9)).unwrap()[..], pattern(5, 4));
        }
        assert_eq!(parts.file.engine().backend(), kind);
        None
    });
}

#[test]
fn files_before_their_engine() {
    check_leaks("files_before_their_engine", |kind, reaping, dir| {
        let parts = Parts::new(kind, reaping, dir);
        parts.drop_reads_in_flight();
        let Parts { engine, file, pipe, pages } = parts;
        drop((file, pipe));
        drop(engine);
        Some(pages)
    });
}

#[test]
fn everything_with_operations_in_flight() {
    check_leaks("everything_with_operations_in_flight", |kind, reaping, dir| {
        let parts = Parts::new(kind, reaping, dir);
        parts.drop_reads_in_flight();
        let pages = parts.pages.clone();
        drop(parts);
        Some(pages)
    });
}

#[test]
fn in_a_runtime_dropped_first() {
    check_leaks("in_a_runtime_dropped_first", |kind, reaping, dir| {
        let runtime = multi_thread(1);
        let parts = Parts::new(kind, reaping, dir);
        let pages = parts.pages.clone();
        runtime.block_on(async { parts.drop_reads_in_flight() });
        {
            let _inside = runtime.enter();
            parts.drop_reads_in_flight();
        }
        drop(runtime);
        drop(parts);
        Some(pages)
    });
}

/// The last handle of an engine is dropped with a task, on a worker of its runtime.
#[test]
fn the_last_handle_in_a_task() {
    check_leaks("the_last_handle_in_a_task", |kind, reaping, dir| {
        let runtime = multi_thread(1);
        let parts = Parts::new(kind, reaping, dir);
        let pages = parts.pages.clone();
        let task = runtime.spawn(async move {
            parts.drop_reads_in_flight();
            parts.pipe.0.read_at(vec![0; 1], Position::Current).await.0
        });
        std::thread::sleep(MS);
        task.abort();
        runtime.block_on(task).unwrap_err();
        drop(runtime);
        Some(pages)
    });
}

#[test]
fn a_block_outlives_its_engine() {
    on_each_backend("a_block_outlives_its_engine", |kind| {
        let dir = scratch();
        let parts = Parts::new(kind, Reaping::Automatic, dir.path());
        let block: Block = block_on(parts.file.read(100..200)).unwrap();
        drop(parts);
        assert_eq!(block[..], pattern(100, 100));
    });
}
