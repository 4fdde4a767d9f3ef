//! Writes that go on when their event loop has ended, or may have: a thread runs them to their end,
//! and the exit of the interpreter waits for such threads.

use crate::call;
use crate::engine::{Task, Work};
use crate::raw::drop_released;
use crate::system::{self, block_signals};
use futures_util::stream::{FuturesUnordered, StreamExt};
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How often a thread that waits looks at what wakes nobody: signals, and other threads' reaping.
const LOOK: Duration = Duration::from_millis(50);

/// Threads that run writes. Not a lock, which a forked child may find locked.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The work that was taken from tasks, and the tasks, which get its results.
type Works = Vec<(Work, Arc<Task>)>;

/// Runs the work to its end on a thread, or here if none can be started.
pub fn run(engine: &ringway::Engine, works: Works) {
    RUNNING.fetch_add(1, Ordering::AcqRel);
    let works = Arc::new(Mutex::new(works));
    let (theirs, engine) = (Arc::clone(&works), engine.clone());
    let on_thread = engine.clone();
    let started = thread::Builder::new().name("ringway-finish".into()).spawn(move || {
        block_signals();
        let mut tasks = finish(&on_thread, take(&theirs));
        drop(on_thread);
        // Nothing is released while the interpreter ends: whoever waits for this thread, waits.
        let _ = Python::try_attach(|py| {
            tasks.clear();
            drop_released(py);
        });
        // They have references to Python's objects.
        std::mem::forget(tasks);
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        drop(finish(&engine, take(&works)));
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

fn take(works: &Mutex<Works>) -> Works {
    std::mem::take(&mut *works.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls the work until all of it has ended, and delivers each result. Returns the tasks.
fn finish(engine: &ringway::Engine, works: Works) -> Vec<Arc<Task>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let works: FuturesUnordered<_> = works
        .into_iter()
        .map(|(work, task)| async move {
            Arc::clone(&task).deliver(work.await);
            task
        })
        .collect();
    let mut all = pin!(works.collect::<Vec<_>>());
    loop {
        match all.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(tasks) => return tasks,
            Poll::Pending => system::reap(engine, LOOK),
        }
    }
}

/// Waits for the writes of loops that have ended, at most for some seconds. Returns whether all of
/// them have ended. Errors: those of a handler of a signal, such as KeyboardInterrupt.
#[pyfunction]
pub fn finish_writes(py: Python<'_>, seconds: f64) -> PyResult<bool> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut pause = Duration::from_micros(100);
    while RUNNING.load(Ordering::Acquire) > 0 {
        if Instant::now() >= until {
            return Ok(false);
        }
        py.detach(|| thread::sleep(pause));
        pause = (2 * pause).min(LOOK);
        call::check_signals(py)?;
    }
    Ok(true)
}

/// In a forked child: the threads are the parent's.
#[pyfunction]
pub fn forget_writes() {
    RUNNING.store(0, Ordering::Release);
}
