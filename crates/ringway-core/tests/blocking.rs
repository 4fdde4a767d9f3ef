//! Tests of `op::blocking`: closures on the threads of the queue.

use ringway_core::c as libc;
use ringway_core::{BackendKind, File, Options, Queue, op};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// After this a call hangs.
const HANG_LIMIT: Duration = Duration::from_secs(30);
/// More than the queue has threads for closures.
const MANY: usize = 100;

/// A queue on each backend that this machine supports.
fn queues() -> impl Iterator<Item = Queue> {
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads].into_iter().filter_map(|kind| {
        let queue = Options::new().backend(kind).build();
        queue.inspect_err(|error| println!("skipped: {kind}: {error}")).ok()
    })
}

#[test]
fn a_closure_runs_once_on_another_thread() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        let (sender, receiver) = mpsc::channel();
        queue.push(op::blocking(move || sender.send(std::thread::current().id()).unwrap()))?;
        assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
        assert_ne!(receiver.recv().unwrap(), std::thread::current().id());
        assert!(receiver.recv().is_err(), "the closure was dropped");
    }
    Ok(())
}

#[test]
fn a_panic_fails_only_its_own_operation() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        for _ in 0..MANY {
            // A panic that prints nothing.
            queue.push(op::blocking(|| std::panic::resume_unwind(Box::new("expected"))))?;
            let errno = queue.reap(1)?.next().unwrap().result.unwrap_err().errno();
            assert_eq!(errno, libc::EIO);
        }
        queue.push(op::blocking(|| {}))?;
        assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
    }
    Ok(())
}

/// Blocked closures do not delay other operations. Closures that have not begun can be cancelled;
/// the others run to their end.
#[test]
fn blocked_closures_do_not_delay_other_operations() -> Result<(), Box<dyn std::error::Error>> {
    for mut queue in queues() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let called = Arc::new(AtomicUsize::new(0));
        let hung: Vec<_> = (0..MANY)
            .map(|_| {
                let (wait, called) = (Arc::clone(&wait), Arc::clone(&called));
                queue.push(op::blocking(move || {
                    called.fetch_add(1, Ordering::SeqCst);
                    // Blocks until the sender is dropped.
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
        // At least one must have begun, since a cancelled closure does not begin.
        while called.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for id in hung {
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
        assert_eq!(Arc::strong_count(&wait), 1, "all closures were dropped");
    }
    Ok(())
}

/// Surplus threads end when blocked calls return, but not those that are woken for new work which
/// no other thread would do.
#[test]
fn new_work_is_done_after_many_closures_were_blocked() -> io::Result<()> {
    const HANG: usize = 100;
    let mut queue = Options::new().backend(BackendKind::Threads).build()?;
    // How many closures have begun, and how many may end.
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
    // The last ones begin when the pool knows that the others are blocked.
    let (begun, waited) = changed
        .wait_timeout_while(state.lock().unwrap(), HANG_LIMIT, |(begun, _)| *begun < HANG)
        .unwrap();
    assert!(!waited.timed_out(), "{} have begun", begun.0);
    drop(begun);
    // The half that began last becomes idle before the others return.
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
        queue.reap_until(3, Instant::now() + HANG_LIMIT / 6)?.count(),
        3,
        "the new closures do not run"
    );
    Ok(())
}

/// A closure has the stack that a thread of the standard library has: `remove_dir_all` recurses as
/// deep as the directories are. (With less, an overflow ends the process. Unoptimized code takes
/// more than 2 KiB for each block.)
#[test]
fn a_closure_has_a_stack_for_the_programs_code() -> Result<(), Box<dyn std::error::Error>> {
    fn use_stack(kib: usize) -> usize {
        let block = std::hint::black_box([kib as u8; 1024]);
        if kib == 0 { 0 } else { usize::from(block[kib % 1024] == kib as u8) + use_stack(kib - 1) }
    }
    for mut queue in queues() {
        let (sender, receiver) = mpsc::channel();
        queue.push(op::blocking(move || sender.send(use_stack(700)).unwrap()))?;
        assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
        assert_eq!(receiver.recv(), Ok(700));
    }
    Ok(())
}
