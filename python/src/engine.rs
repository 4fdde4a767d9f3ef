//! The engine of an event loop, and its operations: each runs a future of the crate on the loop's
//! thread. One callback of the loop reaps, and sets the results of all that have completed.

use crate::answer::Answer;
use crate::call::{self, Held};
use crate::errors::os_error;
use crate::finish;
use crate::raw::{drop_released, has_released};
use crate::system;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};
use ringway::{BuildError, Reaping};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::pin::Pin;
use std::process;
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
    /// Operations that nobody waits for, and that go on until they have ended.
    going_on: Mutex<Vec<Arc<Task>>>,
    /// Perhaps nobody reaps any more: the loop was closed or freed, or the interpreter ends.
    is_over: AtomicBool,
    /// The process that built the engine.
    process: u32,
    /// A weak reference to the event loop.
    event_loop: Py<PyWeakrefReference>,
    owner: ThreadId,
}

/// One operation in flight.
pub struct Task {
    /// Weak, because the engine holds the task's waker as long as the operation is in flight.
    shared: Weak<Shared>,
    state: Mutex<State>,
    /// It is in the list of those to be polled.
    queued: AtomicBool,
    /// A weak reference to the operation, so that nothing here keeps Python's objects alive.
    operation: Mutex<Option<Py<PyWeakrefReference>>>,
}

/// Where the work of an operation is. It is polled and dropped without the lock: both may drop
/// objects of the program, whose code may cancel the same operation or let other threads run.
enum State {
    Waiting(Work),
    Polled,
    /// It has ended or was cancelled.
    Ended,
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
        shared.schedule_from_elsewhere();
    }
}

/// Of memory that a cancelled operation may keep: when it is dropped, the loop releases what was.
pub struct Releases(Weak<Shared>);

impl Releases {
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.schedule_from_elsewhere();
        }
    }
}

impl Task {
    fn new(shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::downgrade(shared),
            state: Mutex::new(State::Ended),
            queued: AtomicBool::new(false),
            operation: Mutex::new(None),
        })
    }

    /// Polls the work. Returns its result if it has ended.
    fn poll(self: &Arc<Self>) -> Option<io::Result<Answer>> {
        self.queued.store(false, Ordering::Release);
        let mut work = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, State::Polled) {
                State::Waiting(work) => work,
                other => {
                    *state = other;
                    return None;
                }
            }
        };
        let waker = Waker::from(Arc::clone(self));
        let poll = work.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = lock(&self.state);
        match poll {
            Poll::Ready(result) => {
                *state = State::Ended;
                Some(result)
            }
            Poll::Pending => {
                // Otherwise it was cancelled meanwhile.
                if matches!(*state, State::Polled) {
                    *state = State::Waiting(work);
                }
                None
            }
        }
    }

    /// Gives a task whose work was taken the result of that work, for its loop to deliver. It does
    /// nothing if there is no such loop any more.
    pub fn deliver(self: Arc<Self>, result: io::Result<Answer>) {
        *lock(&self.state) = State::Waiting(Box::pin(std::future::ready(result)));
        self.wake();
    }

    /// Takes the work, for others to poll.
    fn take(&self) -> Option<Work> {
        match std::mem::replace(&mut *lock(&self.state), State::Ended) {
            State::Waiting(work) => Some(work),
            State::Polled | State::Ended => None,
        }
    }

    /// Drops the work, which cancels it.
    fn end(&self) {
        drop(self.take());
    }
}

impl Shared {
    /// Lets the loop call `process` soon, if operations are to be polled or memory is to be
    /// released. Errors: what the loop raises; the next call tries again.
    fn schedule(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let is_idle = lock(&self.ready).is_empty() && !has_released();
        if is_idle || self.scheduled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let scheduled = self.call_soon(py);
        if scheduled.is_err() {
            self.scheduled.store(false, Ordering::Release);
        }
        scheduled
    }

    fn call_soon(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        // Without a loop nobody waits.
        let Some(event_loop) = self.event_loop.bind(py).upgrade() else { return Ok(()) };
        let here = thread::current().id() == self.owner;
        let waits = AtomicBool::new(true);
        let process = Bound::new(py, Process { shared: Arc::downgrade(self), waits })?;
        let name =
            if here { intern!(py, "call_soon") } else { intern!(py, "call_soon_threadsafe") };
        let called = call::method(&event_loop, name, (&process,));
        if called.is_err() {
            process.get().waits.store(false, Ordering::Release);
        }
        called.map(drop)
    }

    /// The same by another thread: the loop's own does it after every call.
    fn schedule_from_elsewhere(self: &Arc<Self>) {
        if thread::current().id() == self.owner {
            return;
        }
        // At the end of the interpreter it does nothing: nobody waits then.
        let _ = Python::try_attach(|py| {
            let Err(error) = self.schedule(py) else { return };
            if self.is_loop_closed(py) {
                self.end();
            }
            // Its traceback has the loop, which PyO3 would keep without the interpreter's lock.
            drop(Held::new(error.into_value(py).into_any()));
        });
    }

    /// Whether the loop has ended.
    fn is_loop_closed(&self, py: Python<'_>) -> bool {
        let Some(event_loop) = self.event_loop.bind(py).upgrade() else { return true };
        let closed = call::method(&event_loop, intern!(py, "is_closed"), ());
        closed.and_then(|closed| closed.is_truthy()).unwrap_or(false)
    }

    /// Polls the operations that are ready, and sets the results of those that have ended.
    ///
    /// Errors: the first that a method of the loop or of a future has raised, such as the
    /// KeyboardInterrupt of a signal; all operations were processed nevertheless.
    fn process(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.scheduled.store(false, Ordering::Release);
        let ready = std::mem::take(&mut *lock(&self.ready));
        let mut outcome = Ok(());
        for task in ready {
            let Some(result) = task.poll() else { continue };
            lock(&self.going_on).retain(|other| !Arc::ptr_eq(other, &task));
            let operation = lock(&task.operation).take();
            let operation = operation.and_then(|operation| operation.bind(py).upgrade());
            if let Some(operation) = operation.and_then(|any| any.cast_into::<Operation>().ok()) {
                outcome = outcome.and(operation.get().finish(py, result));
            }
        }
        drop_released(py);
        outcome.and(self.schedule(py))
    }

    /// Starts an operation: returns its result if it has completed in place, otherwise an
    /// `Operation`.
    pub fn start(
        self: &Arc<Self>,
        py: Python<'_>,
        path: Option<&Py<PyAny>>,
        work: impl Future<Output = io::Result<Answer>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let mut work: Work = Box::pin(work);
        let task = Task::new(self);
        let waker = Waker::from(Arc::clone(&task));
        if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            drop(work);
            let result = convert(py, result, path);
            drop_released(py);
            self.schedule(py)?;
            return result;
        }
        // If anything here fails, the work is dropped, which cancels it.
        let future = Held::new(create_future(py)?);
        let path = path.map(|path| path.clone_ref(py));
        let operation = Operation { task: Arc::clone(&task), future, path, goes_on: false.into() };
        let operation = Bound::new(py, operation)?;
        *lock(&task.operation) = Some(PyWeakrefReference::new(&operation)?.unbind());
        *lock(&task.state) = State::Waiting(work);
        self.schedule(py)?;
        Ok(operation.into_any().unbind())
    }
}

impl Shared {
    /// The loop may not reap any more: a thread runs what goes on to its end. A loop that runs
    /// again gets the results nevertheless.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.hand_over();
    }

    fn hand_over(&self) {
        let going_on = std::mem::take(&mut *lock(&self.going_on));
        let taken = going_on.into_iter().filter_map(|task| Some((task.take()?, task)));
        let works: Vec<(Work, Arc<Task>)> = taken.collect();
        // Those in a forked child are the parent's.
        if !works.is_empty() && self.process == process::id() {
            finish::run(&self.engine, works);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.hand_over();
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
    // This one is no code of Python.
    let event_loop = running.call0()?;
    Ok(call::method(&event_loop, intern!(py, "create_future"), ())?.unbind())
}

/// The engine of one event loop in one process.
#[pyclass(frozen, weakref, module = "ringway._ringway")]
pub struct Engine {
    pub shared: Arc<Shared>,
}

#[pymethods]
impl Engine {
    /// Builds an engine. With `manual` its descriptor shows when `reap` has something to do;
    /// otherwise a thread of the engine wakes the loop.
    ///
    /// Errors: OSError if the system refuses every backend; NotImplementedError with `manual` where
    /// an engine has no such descriptor, which is everywhere but on Linux.
    #[new]
    fn new(py: Python<'_>, event_loop: &Bound<'_, PyAny>, manual: bool) -> PyResult<Self> {
        let reaping = if manual { Reaping::Manual } else { Reaping::Thread };
        let builder = ringway::Engine::builder().reaping(reaping).shards(1).close_wait(CLOSE_WAIT);
        let engine = builder.build().map_err(|error| match error.kind() {
            // A backend that was refused has the same kind, for ENOSYS and EOPNOTSUPP.
            io::ErrorKind::Unsupported
                if manual && error.get_ref().is_none_or(|own| !own.is::<BuildError>()) =>
            {
                PyNotImplementedError::new_err(())
            }
            _ => os_error(py, &error, None),
        })?;
        let shared = Shared {
            engine,
            ready: Mutex::default(),
            scheduled: AtomicBool::new(false),
            going_on: Mutex::default(),
            is_over: AtomicBool::new(false),
            process: process::id(),
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            owner: thread::current().id(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The descriptor that is readable when `reap` has something to do.
    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        system::readable(&self.shared.engine).map_err(|error| os_error(py, &error, None))
    }

    /// What the loop calls to pick up completions, and to set their results. The loop drops it when
    /// it is closed.
    fn reaper(&self) -> Reaper {
        Reaper { shared: Arc::clone(&self.shared) }
    }

    /// Perhaps nothing reaps any more: a thread runs writes that go on to their end. A loop that
    /// runs again gets their results.
    fn end(&self) {
        self.shared.end();
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

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The loop's callback that picks up completions.
#[pyclass(frozen, module = "ringway._ringway")]
struct Reaper {
    shared: Arc<Shared>,
}

#[pymethods]
impl Reaper {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.shared.engine.reap());
        self.shared.process(py)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The loop's callback that polls what is ready. It keeps no engine alive.
#[pyclass(frozen, module = "ringway._ringway")]
struct Process {
    shared: Weak<Shared>,
    /// The loop has it, and has not called it yet.
    waits: AtomicBool,
}

#[pymethods]
impl Process {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.waits.store(false, Ordering::Release);
        self.shared.upgrade().map_or(Ok(()), |shared| shared.process(py))
    }
}

impl Drop for Process {
    /// A loop that is closed drops callbacks that it has not called.
    fn drop(&mut self) {
        if *self.waits.get_mut()
            && let Some(shared) = self.shared.upgrade()
        {
            shared.end();
        }
    }
}

/// An operation in flight, and the future of the event loop that gets its result.
#[pyclass(frozen, weakref, module = "ringway._ringway")]
pub struct Operation {
    task: Arc<Task>,
    future: Held,
    path: Option<Py<PyAny>>,
    /// It goes on when this is dropped.
    goes_on: AtomicBool,
}

impl Operation {
    /// Errors: what the future's methods raise. It has its result nevertheless, if it takes it at a
    /// second attempt.
    fn finish(&self, py: Python<'_>, result: io::Result<Answer>) -> PyResult<()> {
        let future = self.future.bind(py);
        let is_done =
            || call::method(future, intern!(py, "done"), ()).and_then(|done| done.is_truthy());
        if is_done().unwrap_or(false) {
            return Ok(()); // Cancelled.
        }
        let (method, value) = match convert(py, result, self.path.as_ref()) {
            Ok(value) => (intern!(py, "set_result"), value),
            Err(error) => (intern!(py, "set_exception"), error.into_value(py).into_any()),
        };
        let set = call::method(future, method, (&value,));
        if set.is_err() && !is_done().unwrap_or(false) {
            let _ = call::method(future, method, (&value,));
        }
        set.map(drop)
    }
}

#[pymethods]
impl Operation {
    #[getter]
    fn future(&self, py: Python<'_>) -> Py<PyAny> {
        self.future.clone_ref(py)
    }

    /// Cancels it. The kernel may finish what it has begun; what it uses is kept until then.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.task.end();
        drop_released(py);
        self.task.shared.upgrade().map_or(Ok(()), |shared| shared.schedule(py))
    }

    /// Lets it go on when this object is dropped. The engine then keeps it, and not its future: an
    /// engine must not keep the loop that keeps the engine.
    fn go_on(&self) {
        if !self.goes_on.swap(true, Ordering::AcqRel)
            && let Some(shared) = self.task.shared.upgrade()
            && !matches!(*lock(&self.task.state), State::Ended)
        {
            lock(&shared.going_on).push(Arc::clone(&self.task));
            if shared.is_over.load(Ordering::Acquire) {
                shared.hand_over();
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.future)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !*self.goes_on.get_mut() {
            self.task.end();
        }
    }
}
