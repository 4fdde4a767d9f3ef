//! Closures on the queue's threads: `op::blocking`.

use ringway_core::{BackendKind, File, Options, Queue, op};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// After this something hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than there are threads for closures.
const MANY: usize = 100;

/// A queue on each backend that this machine supports.
fn queues() -> impl Iterator<Item = Queue> {
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads].into_iter().filter_map(|kind| {
        let queue = Options::new().backend(kind).build();
        queue.inspect_err(|error| println!("skipped: {kind}: {error}")).ok()
    })
}

#[test]
fn a_closure_is_called_once_and_elsewhere() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        let (tell, told) = mpsc::channel();
        queue.push(op::blocking(move || tell.send(std::thread::current().id()).unwrap()))?;
        assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
        assert_ne!(told.recv().unwrap(), std::thread::current().id());
        assert!(told.recv().is_err(), "the closure has gone");
    }
    Ok(())
}

#[test]
fn a_panic_is_an_error_of_its_operation_alone() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        for _ in 0..MANY {
            queue.push(op::blocking(|| panic!("as the test wants it")))?;
            let errno = queue.reap(1)?.next().unwrap().result.unwrap_err().errno();
            assert_eq!(errno, libc::EIO);
        }
        queue.push(op::blocking(|| {}))?;
        assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
    }
    Ok(())
}

/// Stuck closures keep nothing else waiting; those that have not begun are cancelled, those that
/// have run to their end.
#[test]
fn stuck_closures_are_alone_with_that() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let called = Arc::new(AtomicUsize::new(0));
        let stuck: Vec<_> = (0..MANY)
            .map(|_| {
                let (wait, called) = (Arc::clone(&wait), Arc::clone(&called));
                queue.push(op::blocking(move || {
                    called.fetch_add(1, Ordering::SeqCst);
                    // Until the sender has gone.
                    let _ = wait.lock().unwrap().recv();
                }))
            })
            .collect::<Result<_, _>>()?;
        queue.submit()?;
        let file = File::open("/etc/passwd")?;
        queue.push(op::read(&file, vec![0; 16], 0).user_data(1))?;
        queue.push(op::statx("/etc/passwd").user_data(1))?;
        queue.push(op::fsync(&file).user_data(1))?;
        for _ in 0..3 {
            let done = queue.reap(1)?.next().unwrap();
            assert_eq!(done.user_data, 1, "{:?}", done.result);
        }
        // Before the cancels, which keep from beginning whatever has not begun.
        while called.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for id in stuck {
            queue.cancel(id);
        }
        drop(go);
        let mut cancelled = 0;
        for left in (0..MANY).rev() {
            let done = queue.reap(1)?.next().unwrap();
            match done.result {
                Ok(0) => {}
                Err(error) if error.errno() == libc::ECANCELED => cancelled += 1,
                other => panic!("{left} left: {other:?}"),
            }
        }
        let called = called.load(Ordering::SeqCst);
        assert_eq!(called + cancelled, MANY);
        assert_eq!(Arc::strong_count(&wait), 1, "all closures have gone");
    }
    Ok(())
}

/// Threads that have come back from calls that hung are too many, and end: not those that are woken
/// for new work before somebody else sees to it.
#[test]
fn work_that_comes_after_many_have_hung_is_done() -> io::Result<()> {
    const HANG: usize = 100;
    let mut queue = Options::new().backend(BackendKind::Threads).build()?;
    // How many have begun, and how many may end.
    let gate = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    for number in 0..HANG {
        let gate = gate.clone();
        queue.push(op::blocking(move || {
            let (state, changed) = &*gate;
            let mut state = state.lock().unwrap();
            state.0 += 1;
            changed.notify_all();
            drop(changed.wait_while(state, |(_, may_end)| number + *may_end < HANG).unwrap());
        }))?;
    }
    queue.submit()?;
    let (state, changed) = &*gate;
    // The last ones begin when the others are known to hang.
    let (begun, waited) = changed
        .wait_timeout_while(state.lock().unwrap(), PATIENCE, |(begun, _)| *begun < HANG)
        .unwrap();
    assert!(!waited.timed_out(), "{} have begun", begun.0);
    drop(begun);
    // Those that began last fall asleep before the others come back.
    for half in [HANG / 2, HANG] {
        state.lock().unwrap().1 = half;
        changed.notify_all();
        assert_eq!(queue.reap(HANG / 2)?.count(), HANG / 2);
        std::thread::sleep(Duration::from_millis(100));
    }
    for _ in 0..3 {
        queue.push(op::blocking(|| {}))?;
    }
    assert_eq!(
        queue.reap_until(3, Instant::now() + PATIENCE / 6)?.count(),
        3,
        "nobody does the rest"
    );
    Ok(())
}
