//! One turn: tasks that operate until the time is over, each poll timed, and a timer next to them.

use super::{BLOCK, BLOCKS, Operation};
use anyhow::Context;
use hdrhistogram::Histogram;
use ringway_measure::clock;
use ringway_measure::rounds::Turn;
use ringway_measure::stats::latency_histogram;
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

/// The figures of a turn; times are in milliseconds.
pub const OPERATIONS: &str = "operations";
pub const POLLS: &str = "polls";
/// p99.99 of the polls, and the longest.
pub const LONG: &str = "p99.99";
pub const LONGEST: &str = "longest";
/// The same of the part in which the thread slept.
pub const WAITED_LONG: &str = "waited p99.99";
pub const WAITED: &str = "waited longest";
/// The longest part in which other threads had the processors.
pub const PREEMPTED: &str = "preempted";
/// How late the timer was at most: the runtime's thread slept or computed for so long.
pub const LATE: &str = "late";

/// What a contestant does, and until when.
pub struct Run {
    pub file: PathBuf,
    pub operation: Operation,
    pub tasks: usize,
    pub until: Instant,
    thread: Thread,
    polls: RefCell<Polls>,
    late: Cell<Duration>,
    operations: Cell<u64>,
}

/// The times of all polls.
struct Polls {
    /// From begin to end.
    whole: Histogram<u64>,
    /// As far as the thread slept: it waited in a system call.
    waited: Histogram<u64>,
    /// As far as the thread was ready to run, but other threads had the processors.
    ready: Histogram<u64>,
}

/// What the kernel knows of the thread that runs.
struct Thread(File);

impl Thread {
    /// The thread that calls this, and later all of these functions.
    fn this() -> anyhow::Result<Self> {
        File::open("/proc/thread-self/schedstat").map(Self).context("no scheduler statistics")
    }

    /// How long it has been ready to run without a processor.
    fn ready(&self) -> Duration {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        let mut words = str::from_utf8(&text[..len]).unwrap_or("").split_ascii_whitespace();
        Duration::from_nanos(words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0))
    }

    /// How long it has run.
    fn ran(&self) -> Duration {
        Duration::from_nanos(clock::thread_cpu())
    }
}

impl Run {
    /// For a run on the thread that calls this.
    pub fn new(
        file: PathBuf,
        operation: Operation,
        tasks: usize,
        time: Duration,
    ) -> anyhow::Result<Self> {
        let [whole, waited, ready] = [(); 3].map(|()| latency_histogram());
        Ok(Self {
            file,
            operation,
            tasks,
            until: Instant::now() + time,
            thread: Thread::this()?,
            polls: RefCell::new(Polls { whole, waited, ready }),
            late: Cell::default(),
            operations: Cell::default(),
        })
    }

    /// Whether the file is open for direct I/O.
    pub fn direct(&self) -> bool {
        self.operation != Operation::Cached
    }

    /// The file, as std opens it.
    pub fn open(&self) -> anyhow::Result<File> {
        let flags = if self.direct() { libc::O_DIRECT } else { 0 };
        OpenOptions::new()
            .read(true)
            .write(self.operation == Operation::Overwrite)
            .custom_flags(flags)
            .open(&self.file)
            .context("cannot open the file")
    }

    /// The offsets of one task.
    pub fn offsets(&self, task: usize) -> impl Iterator<Item = u64> + use<'_> {
        let next = (task as u64 * 37..).map(|number| number * 37 % BLOCKS * BLOCK as u64);
        next.take_while(|_| Instant::now() < self.until)
    }

    /// Counts one operation of a task that ended.
    pub fn count(&self) {
        self.operations.set(self.operations.get() + 1);
    }

    /// Awaits a future and times each of its polls.
    pub async fn timed<F: Future>(&self, future: F) -> F::Output {
        Timed { future: pin!(future), run: self }.await
    }

    /// Sleeps, and records how late the sleep ended, except for the time when other threads had the
    /// processors.
    pub async fn tick(&self, time: Duration, sleep: impl Future) {
        let (begun, ready) = (Instant::now(), self.thread.ready());
        sleep.await;
        let ready = self.thread.ready().saturating_sub(ready);
        let late = begun.elapsed().saturating_sub(time).saturating_sub(ready);
        self.late.set(self.late.get().max(late));
    }

    /// The figures of the run.
    pub fn turn(&self) -> Turn {
        let polls = self.polls.borrow();
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let long = |times: &Histogram<u64>| milliseconds(times.value_at_quantile(0.9999));
        let mut turn = Turn::default();
        turn.set(OPERATIONS, self.operations.get() as f64);
        turn.set(POLLS, polls.whole.len() as f64);
        turn.set(LONG, long(&polls.whole));
        turn.set(LONGEST, milliseconds(polls.whole.max()));
        turn.set(WAITED_LONG, long(&polls.waited));
        turn.set(WAITED, milliseconds(polls.waited.max()));
        turn.set(PREEMPTED, milliseconds(polls.ready.max()));
        turn.set(LATE, self.late.get().as_secs_f64() * 1e3);
        turn
    }
}

struct Timed<'a, F> {
    future: Pin<&'a mut F>,
    run: &'a Run,
}

impl<F: Future> Future for Timed<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let thread = &self.run.thread;
        let (ready, ran, begun) = (thread.ready(), thread.ran(), Instant::now());
        let polled = self.future.as_mut().poll(cx);
        let (whole, ran) = (begun.elapsed(), thread.ran().saturating_sub(ran));
        let thread = &self.run.thread;
        let ready = thread.ready().saturating_sub(ready);
        let waited = whole.saturating_sub(ran + ready);
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut polls = self.run.polls.borrow_mut();
        polls.whole.saturating_record(nanoseconds(whole));
        polls.waited.saturating_record(nanoseconds(waited));
        polls.ready.saturating_record(nanoseconds(ready));
        polled
    }
}
