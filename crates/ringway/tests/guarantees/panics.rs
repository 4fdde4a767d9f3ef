//! A panic in a waker, a task, a buffer or a thread affects nothing else.

use crate::common::buffers::PanickingBuffer;
use crate::common::process::in_child;
use crate::common::{
    MS, PAGE, WakeCounter, counts, current_thread, direct, multi_thread, on_each_backend, pipe,
    poll_once, put, read_page, reap_until_idle, scratch, wait_for,
};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::fs::File;
use ringway::{AlignedBuffer, BackendKind, Engine, Position};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

struct Fixture {
    engine: Engine,
    reader: File,
    writer: std::io::PipeWriter,
    file: File,
    _dir: tempfile::TempDir,
}

/// Each test runs in a process of its own, so that the others still run if it hangs.
fn on_each_fixture(name: &str, test: impl Fn(Fixture)) {
    in_child(
        &format!("panics::{name}"),
        |_| {},
        || {
            on_each_backend(name, |kind| test(Fixture::new(kind)));
        },
    );
}

impl Fixture {
    fn new(kind: BackendKind) -> Self {
        let dir = scratch();
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let (reader, writer) = pipe(&engine);
        let file = direct(&engine, dir.path(), 16);
        Self { engine, reader, writer, file, _dir: dir }
    }

    /// Checks that the engine works for everybody else.
    fn assert_works(&self) {
        block_on(async {
            for number in 0..20 {
                read_page(&self.file, number).await;
            }
        });
        counts(&self.engine);
    }
}

struct PanickingWaker(AtomicU32);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, as the test wants");
    }
}

#[test]
fn a_waker_that_panics() {
    on_each_fixture("a_waker_that_panics", |fixture| {
        let panics = Arc::new(PanickingWaker(AtomicU32::new(0)));
        let counter = WakeCounter::new();
        let mut reads: Vec<_> = (0..10)
            .map(|_| Box::pin(fixture.reader.read_at(vec![0; 1], Position::Current)))
            .collect();
        for (number, read) in reads.iter_mut().enumerate() {
            let waker = if number % 2 == 0 {
                Waker::from(panics.clone())
            } else {
                Waker::from(counter.clone())
            };
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        put(&fixture.writer, b"0123456789");
        wait_for("every waker", || panics.0.load(Ordering::SeqCst) == 5 && counter.wakeups() == 5);
        fixture.assert_works();
        let mut bytes: Vec<u8> = reads.into_iter().map(|read| block_on(read).1[0]).collect();
        bytes.sort();
        assert_eq!(bytes, b"0123456789");
        reap_until_idle(&fixture.engine);
        assert_eq!(counter.wakeups(), 5, "a waker was woken twice");
    });
}

/// A waker may own the task that it wakes, and that task the future that holds the waker. Dropping
/// a waker may thus drop a future of the same engine.
#[test]
fn a_waker_that_owns_a_future() {
    struct Owns(
        #[expect(dead_code, reason = "held to be dropped")]
        Mutex<Option<futures::future::BoxFuture<'static, ()>>>,
    );
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {}
    }
    let test = |fixture: Fixture| {
        let (reader, other) = (fixture.reader.clone(), fixture.reader.clone());
        let mut owned: futures::future::BoxFuture<'static, ()> =
            Box::pin(async move { drop(other.read_at(vec![0; 1], Position::Current).await) });
        assert!(block_on(poll_immediate(&mut owned)).is_none());
        let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(owned)))));
        let mut read = Box::pin(reader.read_at(vec![0; 1], Position::Current));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Now only the engine holds the first waker; the next poll replaces and drops it.
        drop(waker);
        assert!(poll_once(read.as_mut()).is_pending());
        fixture.assert_works();
        drop(read);
        reap_until_idle(&fixture.engine);
    };
    on_each_fixture("a_waker_that_owns_a_future", test);
}

#[test]
fn a_task_that_panics_with_its_read_in_flight() {
    on_each_fixture("a_task_that_panics_with_its_read_in_flight", |fixture| {
        for runtime in [multi_thread(1), current_thread()] {
            for _ in 0..10 {
                let (reader, file) = (fixture.reader.clone(), fixture.file.clone());
                let task = runtime.spawn(async move {
                    let mut wait = Box::pin(reader.read_at(vec![0; 1], Position::Current));
                    assert!(poll_immediate(&mut wait).await.is_none());
                    let mut read = Box::pin(file.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                    _ = poll_immediate(&mut read).await;
                    panic!("a task that panics, as the test wants");
                });
                assert!(runtime.block_on(task).unwrap_err().is_panic());
                fixture.assert_works();
            }
        }
        reap_until_idle(&fixture.engine);
        // No read of a panicked task takes bytes.
        put(&fixture.writer, b"x");
        assert_eq!(block_on(fixture.reader.read_at(vec![0; 1], Position::Current)).1, b"x");
    });
}

#[test]
fn a_buffer_that_panics_in_drop() {
    on_each_fixture("a_buffer_that_panics_in_drop", |fixture| {
        for _ in 0..5 {
            let buffer = PanickingBuffer::buffer(&[0; 8]);
            let mut read = Box::pin(fixture.reader.read_at(buffer, Position::Current));
            assert!(block_on(poll_immediate(&mut read)).is_none());
            // The thread that picks up the completion drops the buffer: this one or another.
            _ = catch_unwind(AssertUnwindSafe(|| drop(read)));
            std::thread::sleep(MS);
            _ = catch_unwind(AssertUnwindSafe(|| fixture.engine.reap()));
            fixture.assert_works();
        }
        reap_until_idle(&fixture.engine);
    });
}

/// A thread dies in the middle of a read, on the blocking pool and without a runtime.
#[test]
fn a_thread_that_dies() {
    on_each_fixture("a_thread_that_dies", |fixture| {
        let runtime = current_thread();
        let reader = fixture.reader.clone();
        let dies = move || {
            let mut read = Box::pin(reader.read_at(vec![0; 1], Position::Current));
            assert!(block_on(poll_immediate(&mut read)).is_none());
            panic!("a thread that dies, as the test wants");
        };
        assert!(runtime.block_on(runtime.spawn_blocking(dies.clone())).unwrap_err().is_panic());
        fixture.assert_works();
        std::thread::spawn(dies).join().unwrap_err();
        fixture.assert_works();
        // A thread that merely exits: the kernel cancels the operations that it submitted, and the
        // engine retries them.
        let reader = fixture.reader.clone();
        let mut read = std::thread::spawn(move || {
            let mut read: futures::future::BoxFuture<'static, _> =
                Box::pin(async move { reader.read_at(vec![0; 1], Position::Current).await });
            assert!(block_on(poll_immediate(&mut read)).is_none());
            read
        })
        .join()
        .unwrap();
        fixture.assert_works();
        match poll_once(read.as_mut()) {
            Poll::Pending => put(&fixture.writer, b"x"),
            Poll::Ready(early) => panic!("nothing was written yet: {early:?}"),
        }
        assert_eq!(block_on(read).1, b"x");
        reap_until_idle(&fixture.engine);
    });
}

#[test]
fn a_call_that_panics() {
    on_each_fixture("a_call_that_panics", |fixture| {
        block_on(async {
            let panics = || -> std::io::Result<()> { panic!("expected") };
            // More than there are threads for calls.
            for _ in 0..40 {
                let error = fixture.engine.call(panics).await.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
            }
            assert_eq!(fixture.engine.call(|| Ok(7)).await.unwrap(), 7);
        });
        fixture.assert_works();
    });
}
