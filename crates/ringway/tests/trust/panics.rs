//! A panic in a waker, a task, a buffer or a thread affects nothing else.

use crate::common::in_child;
use crate::guarded::PAGE;
use crate::watchdog::Watchdog;
use crate::world::{MS, counts, direct, granted, pattern, put, scratch, settled, wait_for};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::fs::File;
use ringway::{AlignedBuffer, BackendKind, Buffer, CustomBuffer, Engine, Position};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

struct Scene {
    engine: Engine,
    reader: File,
    writer: std::io::PipeWriter,
    file: File,
    _dir: tempfile::TempDir,
}

/// Each test runs in a process of its own, so that the others still run if it hangs.
fn on_each_backend(name: &str, test: impl Fn(Scene)) {
    in_child(
        &format!("panics::{name}"),
        |_| {},
        || {
            for kind in granted() {
                let _watch = Watchdog::new(&format!("{kind} {name}"));
                test(Scene::new(kind));
            }
        },
    );
}

impl Scene {
    fn new(kind: BackendKind) -> Self {
        let dir = scratch();
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = File::from_fd(OwnedFd::from(reader), &engine);
        let file = direct(&engine, dir.path(), 16);
        Self { engine, reader, writer, file, _dir: dir }
    }

    /// Checks that the engine works for everybody else.
    fn goes_on(&self) {
        block_on(async {
            for number in 0..20u64 {
                let (read, buffer) = self
                    .file
                    .read_at(AlignedBuffer::new(PAGE, PAGE), number % 16 * PAGE as u64)
                    .await;
                assert_eq!(
                    (read.unwrap(), &buffer[..]),
                    (PAGE, &pattern(number % 16 * PAGE as u64, PAGE)[..])
                );
            }
        });
        counts(&self.engine);
    }
}

struct Panics(AtomicU32);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, as the test wants");
    }
}

struct Counts(AtomicU32);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_that_panics() {
    on_each_backend("a_waker_that_panics", |scene| {
        let panics = Arc::new(Panics(AtomicU32::new(0)));
        let fine = Arc::new(Counts(AtomicU32::new(0)));
        let mut reads: Vec<_> = (0..10)
            .map(|_| Box::pin(scene.reader.read_at(vec![0; 1], Position::Current)))
            .collect();
        for (number, read) in reads.iter_mut().enumerate() {
            let waker = if number % 2 == 0 {
                Waker::from(panics.clone())
            } else {
                Waker::from(fine.clone())
            };
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        put(&scene.writer, b"0123456789");
        wait_for("every waker", || {
            panics.0.load(Ordering::SeqCst) == 5 && fine.0.load(Ordering::SeqCst) == 5
        });
        scene.goes_on();
        let mut bytes: Vec<u8> = reads.into_iter().map(|read| block_on(read).1[0]).collect();
        bytes.sort();
        assert_eq!(bytes, b"0123456789");
        settled(&scene.engine);
        assert_eq!(fine.0.load(Ordering::SeqCst), 5, "each is woken once");
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
    let test = |scene: Scene| {
        let (reader, other) = (scene.reader.clone(), scene.reader.clone());
        let mut owned: futures::future::BoxFuture<'static, ()> =
            Box::pin(async move { drop(other.read_at(vec![0; 1], Position::Current).await) });
        assert!(block_on(poll_immediate(&mut owned)).is_none());
        let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(owned)))));
        let mut read = Box::pin(reader.read_at(vec![0; 1], Position::Current));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Now only the engine holds the first waker; the next poll replaces and drops it.
        drop(waker);
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        scene.goes_on();
        drop(read);
        settled(&scene.engine);
    };
    on_each_backend("a_waker_that_owns_a_future", test);
}

#[test]
fn a_task_that_panics_with_its_read_in_flight() {
    on_each_backend("a_task_that_panics_with_its_read_in_flight", |scene| {
        for runtime in [
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        ] {
            for _ in 0..10 {
                let (reader, file) = (scene.reader.clone(), scene.file.clone());
                let task = runtime.spawn(async move {
                    let mut wait = Box::pin(reader.read_at(vec![0; 1], Position::Current));
                    assert!(poll_immediate(&mut wait).await.is_none());
                    let mut read = Box::pin(file.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                    _ = poll_immediate(&mut read).await;
                    panic!("a task that panics, as the test wants");
                });
                assert!(runtime.block_on(task).unwrap_err().is_panic());
                scene.goes_on();
            }
        }
        settled(&scene.engine);
        // No read of a panicked task takes bytes.
        put(&scene.writer, b"x");
        assert_eq!(block_on(scene.reader.read_at(vec![0; 1], Position::Current)).1, b"x");
    });
}

/// A custom buffer that panics when it is dropped.
struct Fragile(Box<[u8]>);

impl Drop for Fragile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a buffer that panics, as the test wants");
        }
    }
}

// SAFETY: the bytes of a boxed slice stay in place when the box moves, and only this value owns
// them.
unsafe impl CustomBuffer for Fragile {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

#[test]
fn a_buffer_that_panics_when_it_is_dropped() {
    on_each_backend("a_buffer_that_panics_when_it_is_dropped", |scene| {
        for _ in 0..5 {
            let buffer = Buffer::custom(Box::new(Fragile(vec![0; 8].into())));
            let mut read = Box::pin(scene.reader.read_at(buffer, Position::Current));
            assert!(block_on(poll_immediate(&mut read)).is_none());
            // The thread that picks up the completion drops the buffer: this one or another.
            _ = catch_unwind(AssertUnwindSafe(|| drop(read)));
            std::thread::sleep(MS);
            _ = catch_unwind(AssertUnwindSafe(|| scene.engine.reap()));
            scene.goes_on();
        }
        settled(&scene.engine);
    });
}

/// A thread dies in the middle of a read, on the blocking pool and without a runtime.
#[test]
fn a_thread_that_dies() {
    on_each_backend("a_thread_that_dies", |scene| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reader = scene.reader.clone();
        let dies = move || {
            let mut read = Box::pin(reader.read_at(vec![0; 1], Position::Current));
            assert!(block_on(poll_immediate(&mut read)).is_none());
            panic!("a thread that dies, as the test wants");
        };
        assert!(runtime.block_on(runtime.spawn_blocking(dies.clone())).unwrap_err().is_panic());
        scene.goes_on();
        std::thread::spawn(dies).join().unwrap_err();
        scene.goes_on();
        // A thread that merely exits: the kernel cancels the operations that it submitted, and the
        // engine retries them.
        let reader = scene.reader.clone();
        let mut read = std::thread::spawn(move || {
            let mut read: futures::future::BoxFuture<'static, _> =
                Box::pin(async move { reader.read_at(vec![0; 1], Position::Current).await });
            assert!(block_on(poll_immediate(&mut read)).is_none());
            read
        })
        .join()
        .unwrap();
        scene.goes_on();
        match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => put(&scene.writer, b"x"),
            Poll::Ready(early) => panic!("nothing was written yet: {early:?}"),
        }
        assert_eq!(block_on(read).1, b"x");
        settled(&scene.engine);
    });
}
