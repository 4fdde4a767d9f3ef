//! A server that does not answer holds up no thread that polls or drops a future of the store, in
//! tokio or outside.

use super::RingwayFileSystem;
use super::object_store::ObjectStoreExt;
use crate::common::{engines, runtime, skip, until, until_unstaged};
use futures::FutureExt;
use futures::executor::block_on;
use ringway::Engine;
use ringway_hostile::Hostile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

/// Longer than any work takes that waits for nothing.
const LONG: Duration = Duration::from_secs(20);

fn store(hostile: &Hostile, engine: &Engine) -> RingwayFileSystem {
    RingwayFileSystem::new_with_prefix(hostile.path()).unwrap().with_engine(engine)
}

/// Does some work on a thread of its own while the server does not answer these operations.
fn ends_without<T: Send + 'static>(
    hostile: &Hostile,
    operations: &[&str],
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    for operation in operations {
        hostile.set(&format!("* {operation} freeze")).unwrap();
    }
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(work()));
    let done = receiver.recv_timeout(LONG);
    hostile.set("clear").unwrap();
    done.unwrap_or_else(|_| panic!("it waited for one of {operations:?}"))
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future once, which makes this operation, and waits until it could go on.
fn begin<T>(hostile: &Hostile, operation: &str, future: &mut (impl Future<Output = T> + Unpin)) {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    hostile.set(&format!("* {operation} freeze")).unwrap();
    assert!(future.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    hostile.set("clear").unwrap();
    runtime().block_on(until("a wakeup", || woken.0.load(Ordering::Relaxed)));
}

#[test]
fn a_dropped_upload_waits_for_no_removal() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    for engine in engines() {
        let store = store(&hostile, &engine);
        let upload = block_on(store.put_multipart(&"object".into())).unwrap();
        ends_without(&hostile, &["unlink", "flush"], move || drop(upload));
        runtime().block_on(until_unstaged(&hostile.backing()));
    }
}

#[test]
fn a_dropped_put_waits_for_no_close() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    for engine in engines() {
        let store = store(&hostile, &engine);
        let mut put =
            async move { store.put(&"object".into(), vec![7; 100_000].into()).await }.boxed();
        begin(&hostile, "create", &mut put);
        assert!(hostile.backing().join("object#1").exists());
        ends_without(&hostile, &["unlink", "flush"], move || drop(put));
        runtime().block_on(until_unstaged(&hostile.backing()));
    }
}

#[test]
fn a_copy_waits_in_no_poll() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    std::fs::write(hostile.backing().join("object"), b"content").unwrap();
    for engine in engines() {
        for (to, dont_cache) in [("object", false), ("copy", false), ("copy", true)] {
            let store = store(&hostile, &engine).with_dont_cache(dont_cache);
            let copy = async move { store.copy(&"object".into(), &to.into()).await };
            let mut copy = copy.boxed();
            begin(&hostile, "getattr", &mut copy);
            let polled = ends_without(&hostile, &["getattr", "flush"], move || {
                let done = copy.poll_unpin(&mut Context::from_waker(Waker::noop()));
                (copy, done.is_ready())
            });
            match polled {
                (_, true) => assert_eq!(to, "object"),
                (copy, false) => block_on(copy).unwrap(),
            }
            assert_eq!(std::fs::read(hostile.backing().join(to)).unwrap(), b"content");
        }
    }
}
