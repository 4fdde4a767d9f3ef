//! The engine of an event loop, and its operations: each runs a future of the crate on the loop's
//! thread. One callback of the loop reaps, and sets the results of all that have completed.

use crate::answer::Answer;
use crate::errors::os_error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};
use ringway::Reaping;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long the end of an engine waits for operations in flight, which it cancels.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// What an operation does.
pub type Work = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

/// What the operations of an engine share.
pub struct Shared {
    pub engine: ringway::Engine,
    /// Operations to be polled.
    ready: Mutex<VecDeque<Arc<Task>>>,
    /// The loop is going to call `process`.
    scheduled: AtomicBool,
    /// A weak reference to the event loop.
    event_loop: Py<PyWeakrefReference>,
    process: Py<PyAny>,
    owner: ThreadId,
}

/// One operation in flight.
pub struct Task {
    /// Weak, because the engine holds the task's waker as long as the operation is in flight.
    shared: Weak<Shared>,
    /// `None` once it has ended or was cancelled.
    work: Mutex<Option<Work>>,
    /// It is in the list of those to be polled.
    queued: AtomicBool,
    /// A weak reference to the operation, so that nothing here keeps Python's objects alive.
    operation: Mutex<Option<Py<PyWeakrefReference>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(shared) = self.shared.upgrade() else { return };
        lock(&shared.ready).push_back(self);
        // The loop's own thread looks at the list after every call.
        if thread::current().id() != shared.owner {
            // At the end of the interpreter nobody waits any more.
            let _ = Python::try_attach(|py| shared.schedule(py));
        }
    }
}

impl Shared {
    /// Lets the loop call `process` soon, if operations are to be polled.
    fn schedule(&self, py: Python<'_>) {
        if lock(&self.ready).is_empty() || self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(event_loop) = self.event_loop.bind(py).upgrade() else { return };
        let here = thread::current().id() == self.owner;
        let method = if here { "call_soon" } else { "call_soon_threadsafe" };
        // It fails if the loop is closed; then nobody waits.
        let _ = event_loop.call_method1(method, (&self.process,));
    }

    /// Polls the operations that are ready, and sets the results of those that have ended.
    fn process(&self, py: Python<'_>) {
        self.scheduled.store(false, Ordering::Release);
        let ready = std::mem::take(&mut *lock(&self.ready));
        for task in ready {
            task.queued.store(false, Ordering::Release);
            let result = {
                let mut work = lock(&task.work);
                let Some(future) = work.as_mut() else { continue };
                let waker = Waker::from(Arc::clone(&task));
                match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Pending => continue,
                    Poll::Ready(result) => (work.take(), result).1,
                }
            };
            let operation = lock(&task.operation).take();
            let operation = operation.and_then(|operation| operation.bind(py).upgrade());
            if let Some(operation) = operation.and_then(|any| any.cast_into::<Operation>().ok()) {
                operation.get().finish(py, result);
            }
        }
        self.schedule(py);
    }

    /// Starts an operation: returns its result if it has completed in place, otherwise an
    /// `Operation`.
    pub fn start(
        self: &Arc<Self>,
        py: Python<'_>,
        path: Option<Py<PyAny>>,
        work: impl Future<Output = io::Result<Answer>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let mut work: Work = Box::pin(work);
        let task = Arc::new(Task {
            shared: Arc::downgrade(self),
            work: Mutex::new(None),
            queued: AtomicBool::new(false),
            operation: Mutex::new(None),
        });
        let waker = Waker::from(Arc::clone(&task));
        if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.schedule(py);
            return convert(py, result, path.as_ref());
        }
        // If anything here fails, the work is dropped, which cancels it.
        let future = create_future(py)?;
        let operation = Bound::new(py, Operation { task: Arc::clone(&task), future, path })?;
        *lock(&task.operation) = Some(PyWeakrefReference::new(&operation)?.unbind());
        *lock(&task.work) = Some(work);
        self.schedule(py);
        Ok(operation.into_any().unbind())
    }
}

/// The result of an operation in Python.
fn convert(
    py: Python<'_>,
    result: io::Result<Answer>,
    path: Option<&Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    match result {
        Ok(answer) => answer.into_object(py),
        Err(error) => Err(os_error(py, &error, path)),
    }
}

/// A future of the running loop.
fn create_future(py: Python<'_>) -> PyResult<Py<PyAny>> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let running = RUNNING.import(py, "asyncio", "get_running_loop")?;
    Ok(running.call0()?.call_method0("create_future")?.unbind())
}

/// The engine of one event loop in one process.
#[pyclass(frozen, weakref, module = "ringway._ringway")]
pub struct Engine {
    pub shared: Arc<Shared>,
}

#[pymethods]
impl Engine {
    /// Builds an engine. With `manual` its descriptor shows when `reap` has something to do;
    /// otherwise a thread of the engine wakes the loop. `process` is the loop's callback for the
    /// latter.
    #[new]
    fn new(
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        process: Py<PyAny>,
        manual: bool,
    ) -> PyResult<Self> {
        let reaping = if manual { Reaping::Manual } else { Reaping::Thread };
        let builder = ringway::Engine::builder().reaping(reaping).shards(1).close_wait(CLOSE_WAIT);
        let engine = builder.build().map_err(|error| os_error(py, &error, None))?;
        let shared = Shared {
            engine,
            ready: Mutex::default(),
            scheduled: AtomicBool::new(false),
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            process,
            owner: thread::current().id(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The descriptor that is readable when `reap` has something to do.
    #[cfg(target_os = "linux")]
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        use std::os::fd::AsRawFd;
        match self.shared.engine.readable() {
            Ok(fd) => Ok(fd.as_raw_fd()),
            Err(error) => Err(os_error(py, &error, None)),
        }
    }

    /// Picks up completions, and sets their results.
    fn reap(&self, py: Python<'_>) {
        py.detach(|| self.shared.engine.reap());
        self.shared.process(py);
    }

    /// Polls the operations that are ready.
    fn process(&self, py: Python<'_>) {
        self.shared.process(py);
    }

    /// The backend: `io_uring`, `kaio` or `threads`.
    fn backend(&self) -> String {
        self.shared.engine.backend().to_string()
    }

    /// Which backend is used, what was refused, why, and the fix.
    fn explain(&self) -> String {
        self.shared.engine.explain().to_string()
    }

    /// Operations that have not been delivered: submitted, or waiting for that.
    fn in_flight(&self) -> u64 {
        let stats = self.shared.engine.stats();
        stats.counts.in_flight + stats.queued
    }
}

/// An operation in flight, and the future of the event loop that gets its result.
#[pyclass(frozen, weakref, module = "ringway._ringway")]
pub struct Operation {
    task: Arc<Task>,
    #[pyo3(get)]
    future: Py<PyAny>,
    path: Option<Py<PyAny>>,
}

impl Operation {
    fn finish(&self, py: Python<'_>, result: io::Result<Answer>) {
        let future = self.future.bind(py);
        if future.call_method0("done").and_then(|done| done.is_truthy()).unwrap_or(true) {
            return; // Cancelled.
        }
        let set = match convert(py, result, self.path.as_ref()) {
            Ok(value) => future.call_method1("set_result", (value,)),
            Err(error) => future.call_method1("set_exception", (error.into_value(py),)),
        };
        if let Err(error) = set {
            error.write_unraisable(py, Some(future));
        }
    }

    /// Drops the work, which cancels it.
    fn end(&self) {
        let work = lock(&self.task.work).take();
        drop(work);
    }
}

#[pymethods]
impl Operation {
    /// Cancels it. The kernel may finish what it has begun; what it uses is kept until then.
    fn cancel(&self, py: Python<'_>) {
        self.end();
        if let Some(shared) = self.task.shared.upgrade() {
            shared.schedule(py);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.end();
    }
}
