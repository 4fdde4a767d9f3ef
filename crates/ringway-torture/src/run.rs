//! Runs a script: the queue, the files and the steps. `make` makes the operations, `verify` checks
//! their results.

mod make;
mod verify;

use crate::exclusive::ExclusiveFile;
use crate::order::Order;
use crate::script::{Script, Step};
use crate::shared::SharedFile;
use ringway_core::wait::readable;
use ringway_core::{
    Arena, BackendKind, BuildError, Completion, Counts, FaultPlan, File, OpId, OpenOptions,
    Options, Queue, QueueStats, SqPoll,
};
use std::fmt;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verify::{Op, lines};

/// The environment of a run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The backend, forced.
    pub backend: BackendKind,
    /// Half of the files are open for direct I/O.
    pub direct: bool,
    /// The injected faults.
    pub faults: Option<Faults>,
}

/// The rates of a [`FaultPlan`], per thousand. They decide which results are allowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// [`FaultPlan::new`]
    pub seed: u64,
    /// [`FaultPlan::short`]
    pub short: u16,
    /// [`FaultPlan::errors`]
    pub errors: u16,
    /// [`FaultPlan::retryable`] and [`FaultPlan::missed_cancels`]
    pub retryable: u16,
    /// [`FaultPlan::delay`] and [`FaultPlan::late_cancels`]
    pub delay: u16,
    /// [`FaultPlan::reorder`]
    pub reorder: u16,
    /// [`FaultPlan::starve`]
    pub starve: u16,
    /// [`FaultPlan::sync_errors`]
    pub sync_errors: u16,
}

impl Faults {
    fn plan(&self) -> FaultPlan {
        FaultPlan::new(self.seed)
            .short(self.short)
            .errors(self.errors)
            .retryable(self.retryable)
            .delay(self.delay, 4)
            .reorder(self.reorder)
            .starve(self.starve)
            .sync_errors(self.sync_errors)
            .missed_cancels(self.retryable)
            .late_cancels(self.delay)
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The counters of the queue, from just before its end.
    pub stats: QueueStats,
    /// Bytes read and compared.
    pub compared: u64,
}

/// A violated invariant, or a backend that is refused.
#[derive(Debug)]
pub struct Failure {
    /// The backend is refused here, so nothing was tested.
    pub refused: bool,
    /// The step; the number of steps stands for the end.
    pub step: usize,
    /// The violation.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.text)
    }
}

impl std::error::Error for Failure {}

/// Every operation that ends does so within this time, on the slowest disk.
const END_LIMIT: Duration = Duration::from_secs(60);
/// The wait for operations that may never complete.
const STALL_WAIT: Duration = Duration::from_millis(2);
/// Bytes of a buffer of the arena.
const BLOCK: usize = 4096;

/// Runs `script` in `dir`, an empty directory.
///
/// # Errors
///
/// The first violated invariant.
pub fn run(script: &Script, conditions: &Conditions, dir: &Path) -> Result<Report, Failure> {
    let fail = |refused, step, text| Failure { refused, step, text };
    let queue = options(script, conditions).build().map_err(|error| {
        let refused = matches!(error, BuildError::Refused(_));
        fail(refused, 0, text_of(error))
    })?;
    let mut run = Run::new(script, conditions, dir, queue).map_err(|text| fail(false, 0, text))?;
    let result = run.steps().and_then(|()| {
        run.end()?;
        run.compare_files()
    });
    match result {
        Ok(()) => Ok(run.report),
        Err(text) => Err(fail(false, run.step, text)),
    }
}

fn options(script: &Script, conditions: &Conditions) -> Options {
    let setup = script.setup;
    let mut options = Options::new()
        .backend(conditions.backend)
        .entries(setup.entries)
        .in_flight(setup.in_flight)
        .eventfd(setup.eventfd)
        .single_issuer(setup.single_issuer)
        .threads(4)
        .sync_threads(1)
        .close_wait(END_LIMIT);
    if setup.tight {
        options = options.completion_entries(setup.entries);
    }
    if setup.sqpoll && conditions.backend == BackendKind::Uring {
        options = options.sqpoll(SqPoll::new(Duration::from_millis(1)));
    }
    match &conditions.faults {
        Some(faults) => options.faults(faults.plan()),
        None => options,
    }
}

struct Run<'a> {
    script: &'a Script,
    conditions: &'a Conditions,
    step: usize,
    moves: usize,
    queue: Option<Queue>,
    arena: Option<Arena>,
    ops: Vec<Op>,
    order: Order,
    /// Operations whose completion is expected.
    live: usize,
    delivered: u64,
    /// Abandoned operations that are not known to be over.
    abandoned: Vec<usize>,
    all_abandoned: u64,
    closed: bool,
    shared: Vec<SharedFile>,
    exclusive: Vec<ExclusiveFile>,
    /// A directory with a file and a directory that nothing changes.
    names: PathBuf,
    /// A directory in which each file is written by one operation.
    written: PathBuf,
    opened: Vec<File>,
    pipes: Pipes,
    report: Report,
}

/// One pipe that is polled, and one that is read.
struct Pipes {
    polled: File,
    read: File,
    feed_polled: PipeWriter,
    feed_read: Option<PipeWriter>,
    fed: bool,
    /// Bytes written to the second pipe: 0, 1, 2 ...
    sent: u8,
    /// Bytes read from the second pipe.
    received: Vec<u8>,
    /// An abandoned read may have taken bytes.
    leaks: bool,
}

fn file_of(pipe: PipeReader) -> File {
    File::from(ringway_core::OwnedFd::from(pipe))
}

type Checked = Result<(), String>;

fn text_of(error: impl fmt::Display) -> String {
    error.to_string()
}

impl<'a> Run<'a> {
    fn new(
        script: &'a Script,
        conditions: &'a Conditions,
        dir: &Path,
        mut queue: Queue,
    ) -> Result<Self, String> {
        let setup = script.setup;
        let open = |path: &Path, direct: bool| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .direct(direct)
                .open(path)
                .map_err(text_of)
        };
        let mut shared = Vec::new();
        let mut exclusive = Vec::new();
        for number in 0..2 {
            // Windows has no direct I/O here.
            let direct = conditions.direct && number == 0 && !cfg!(windows);
            let len = if setup.large && number == 0 { 10 << 20 } else { 128 << 10 };
            let path = dir.join(format!("shared{number}"));
            std::fs::write(&path, SharedFile::initial_content(len)).map_err(text_of)?;
            shared.push(SharedFile::new(open(&path, direct)?, path, direct, len));
            let path = dir.join(format!("exclusive{number}"));
            exclusive.push(ExclusiveFile::new(open(&path, direct)?, path, direct));
        }
        let arena = setup.fixed.then(|| Arena::new(BLOCK, 8));
        if let Some(arena) = &arena {
            // Without a ring or lockable memory, unregistered buffers and files are used.
            let _ = queue.register_arena(arena);
            let _ = queue.register_file(&shared[0].file);
            let _ = queue.register_file(&exclusive[1].file);
        }
        let names = dir.join("names");
        std::fs::create_dir_all(names.join("dir")).map_err(text_of)?;
        std::fs::write(names.join("file"), "").map_err(text_of)?;
        let written = dir.join("written");
        std::fs::create_dir_all(&written).map_err(text_of)?;
        let (polled, feed_polled) = std::io::pipe().map_err(text_of)?;
        let (read, feed_read) = std::io::pipe().map_err(text_of)?;
        let pipes = Pipes {
            polled: file_of(polled),
            read: file_of(read),
            feed_polled,
            feed_read: Some(feed_read),
            fed: false,
            sent: 0,
            received: Vec::new(),
            leaks: false,
        };
        Ok(Self {
            script,
            conditions,
            step: 0,
            moves: 0,
            queue: Some(queue),
            arena,
            ops: Vec::new(),
            order: Order::default(),
            live: 0,
            delivered: 0,
            abandoned: Vec::new(),
            all_abandoned: 0,
            closed: false,
            shared,
            exclusive,
            names,
            written,
            opened: Vec::new(),
            pipes,
            report: Report::default(),
        })
    }

    fn steps(&mut self) -> Checked {
        let script = self.script;
        while let Some(step) = script.steps.get(self.step) {
            if self.queue.is_none() {
                self.step = script.steps.len();
                return Ok(());
            }
            if matches!(step, Step::Move) && !script.setup.single_issuer && self.moves < 4 {
                self.moves += 1;
                self.step += 1;
                return std::thread::scope(|scope| match scope.spawn(|| self.steps()).join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
            }
            self.take_step(step)?;
            self.check_counts()?;
            self.step += 1;
        }
        Ok(())
    }

    fn take_step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Push(push) => self.push(std::slice::from_ref(push), false),
            Step::Chain(pushes) => self.push(pushes, true),
            Step::Cancel(which) => self.cancel(*which),
            Step::Abandon(which) => self.abandon(*which),
            Step::CancelAll => {
                self.note_cancel_all();
                self.queue()?.cancel_all();
                Ok(())
            }
            Step::Submit => {
                let live = self.live;
                let ready = self.queue()?.submit().map_err(text_of)?;
                if ready <= live {
                    Ok(())
                } else {
                    Err(format!("{ready} ready of {live} in flight"))
                }
            }
            Step::Reap(at_least) => self.reap(usize::from(*at_least)),
            Step::Take(most) => {
                let done: Vec<Completion> =
                    self.queue()?.reap(0).map_err(text_of)?.take(usize::from(*most)).collect();
                self.verify_all(done)
            }
            Step::ReapFor(at_least, time) => {
                let until = Instant::now() + *time;
                let done: Vec<Completion> = self
                    .queue()?
                    .reap_until(usize::from(*at_least), until)
                    .map_err(text_of)?
                    .collect();
                self.verify_all(done)
            }
            Step::Poll(at_least) => self.poll(usize::from(*at_least)),
            Step::Feed(which) => self.feed(*which),
            Step::Close(wait) => {
                self.note_cancel_all();
                self.closed = true;
                let left = self.queue()?.close(*wait).map_err(text_of)?;
                let possible = self.live + self.abandoned.len();
                if left <= possible { Ok(()) } else { Err(format!("{left} left of {possible}")) }
            }
            Step::Drop => self.drop_queue(),
            Step::Move => Ok(()),
        }
    }

    fn queue(&mut self) -> Result<&mut Queue, String> {
        self.queue.as_mut().ok_or_else(|| "the queue has been dropped".to_owned())
    }

    /// The operation that a number of the script selects: usually one in flight.
    fn choose(&self, which: u8) -> Option<usize> {
        let known = |number: &usize| self.ops[*number].id.is_some();
        let live: Vec<usize> =
            (0..self.ops.len()).filter(|number| self.ops[*number].live).filter(known).collect();
        let all: Vec<usize> = (0..self.ops.len()).filter(known).collect();
        let from = if which < 224 && !live.is_empty() { live } else { all };
        (!from.is_empty()).then(|| from[usize::from(which) % from.len()])
    }

    fn cancel(&mut self, which: u8) -> Checked {
        let Some(number) = self.choose(which) else { return Ok(()) };
        let Some(id) = self.ops[number].id else { return Ok(()) };
        let found = self.queue()?.cancel(id);
        if !found {
            return Ok(());
        }
        // An abandoned operation is in flight for a while.
        if !self.ops[number].live && !self.abandoned.contains(&number) {
            return Err(format!("operation {number} is over, but was cancelled"));
        }
        self.note_cancel(number);
        Ok(())
    }

    fn note_cancel(&mut self, number: usize) {
        self.ops[number].cancelled = true;
        self.order.cancelled(number);
    }

    fn note_cancel_all(&mut self) {
        for number in 0..self.ops.len() {
            if self.ops[number].live {
                self.note_cancel(number);
            }
        }
    }

    fn abandon(&mut self, which: u8) -> Checked {
        let Some(number) = self.choose(which) else { return Ok(()) };
        let Some(id) = self.ops[number].id else { return Ok(()) };
        let abandoned = self.queue()?.abandon(id);
        if !self.ops[number].live {
            let possible = self.abandoned.contains(&number) || !abandoned;
            return if possible {
                Ok(())
            } else {
                Err(format!("operation {number} is over, but was abandoned"))
            };
        }
        if !abandoned {
            return Err(format!("operation {number} is in flight, but was not abandoned"));
        }
        self.note_cancel(number);
        self.mark_abandoned(number);
        self.all_abandoned += 1;
        Ok(())
    }

    /// The result of this operation will not be known.
    fn mark_abandoned(&mut self, number: usize) {
        self.ops[number].live = false;
        self.ops[number].known = verify::KnownResult::Unknown;
        self.ops[number].ended = verify::Ended::Perhaps;
        self.live -= 1;
        self.abandoned.push(number);
        self.begin_uncertainty(number);
    }

    /// Blocks only for operations that must complete.
    fn reap(&mut self, at_least: usize) -> Checked {
        let want = at_least.min(self.live);
        if self.may_stall() {
            let until = Instant::now() + STALL_WAIT;
            let done: Vec<Completion> =
                self.queue()?.reap_until(at_least, until).map_err(text_of)?.collect();
            return self.verify_all(done);
        }
        let done: Vec<Completion> = self.queue()?.reap(at_least).map_err(text_of)?.collect();
        let count = done.len();
        self.verify_all(done)?;
        if count >= want { Ok(()) } else { Err(format!("reaped {count}, expected {want}")) }
    }

    /// Reaps as an event loop with poll(2) does.
    fn poll(&mut self, at_least: usize) -> Checked {
        let want = at_least.min(self.live);
        self.queue()?.poll_fd().map_err(text_of)?;
        let ready = self.queue()?.submit().map_err(text_of)?;
        // With SQPOLL, the kernel thread is slow to run the nop that makes a ring readable.
        let at_once = if self.script.setup.sqpoll { END_LIMIT } else { Duration::ZERO };
        if ready > 0 && !self.is_readable(at_once)? {
            return Err(format!(
                "{ready} completions are ready, but the descriptor is not readable"
            ));
        }
        let limit = if self.may_stall() { STALL_WAIT } else { END_LIMIT };
        let mut count = 0;
        while count < want {
            if !self.is_readable(limit)? {
                if limit == STALL_WAIT {
                    break;
                }
                let waiting: Vec<&Op> = self.ops.iter().filter(|op| op.live).collect();
                return Err(format!(
                    "the descriptor did not become readable for{}",
                    lines(waiting)
                ));
            }
            let done: Vec<Completion> = self.queue()?.reap(0).map_err(text_of)?.collect();
            count += done.len();
            self.verify_all(done)?;
        }
        Ok(())
    }

    /// Whether the queue's descriptor becomes readable within this time.
    fn is_readable(&mut self, within: Duration) -> Result<bool, String> {
        let fd = self.queue()?.poll_fd().map_err(text_of)?;
        Ok(readable(&[fd], Some(within)).map_err(text_of)?[0])
    }

    fn feed(&mut self, which: u8) -> Checked {
        if which.is_multiple_of(4) {
            // Writing more than the pipe holds would block.
            if !std::mem::replace(&mut self.pipes.fed, true) {
                self.pipes.feed_polled.write_all(&[1]).map_err(text_of)?;
            }
        } else if self.pipes.sent < u8::MAX
            && let Some(feed) = &mut self.pipes.feed_read
        {
            feed.write_all(&[self.pipes.sent]).map_err(text_of)?;
            self.pipes.sent += 1;
        }
        Ok(())
    }

    /// Checks the counters, after every step.
    fn check_counts(&mut self) -> Checked {
        let Some(queue) = &self.queue else { return Ok(()) };
        let stats = queue.stats();
        let Counts { pushed, delivered, orphaned, in_flight, .. } = stats.counts;
        let in_order = pushed == delivered + orphaned + in_flight
            && pushed == self.ops.len() as u64
            && delivered == self.delivered
            && orphaned <= self.all_abandoned
            && in_flight == self.live as u64 + self.all_abandoned - orphaned
            && in_flight == queue.in_flight() as u64
            && queue.free_slots() as u64 == u64::from(self.script.setup.in_flight) - in_flight
            && stats.late == 0;
        if !in_order {
            let (own, live) = (self.ops.len(), self.live);
            return Err(format!(
                "{stats:?}, expected {own} pushed, {live} in flight, {} delivered",
                self.delivered
            ));
        }
        self.report.stats = stats;
        if orphaned == self.all_abandoned {
            for number in std::mem::take(&mut self.abandoned) {
                self.end_uncertainty(number)?;
            }
        }
        Ok(())
    }

    fn drop_queue(&mut self) -> Checked {
        let begun = Instant::now();
        self.queue = None;
        if begun.elapsed() >= END_LIMIT {
            return Err("the queue was dropped with operations that had not ended".to_owned());
        }
        for number in 0..self.ops.len() {
            if self.ops[number].live {
                self.mark_abandoned(number);
            }
        }
        Ok(())
    }

    /// Ends the run: all operations complete, and those that may not do so are cancelled first.
    fn end(&mut self) -> Checked {
        if self.queue.is_none() {
            return std::mem::take(&mut self.abandoned)
                .into_iter()
                .try_for_each(|number| self.end_uncertainty(number));
        }
        if self.may_stall() {
            self.note_cancel_all();
            self.queue()?.cancel_all();
        }
        let until = Instant::now() + END_LIMIT;
        while self.live > 0 {
            let live = self.live;
            let done: Vec<Completion> =
                self.queue()?.reap_until(live, until).map_err(text_of)?.collect();
            self.verify_all(done)?;
            self.check_counts()?;
            if self.live > 0 && Instant::now() >= until {
                let lost: Vec<&Op> = self.ops.iter().filter(|op| op.live).collect();
                return Err(format!(
                    "lost:{}\n{:?}",
                    lines(lost),
                    self.queue.as_ref().map(Queue::stats)
                ));
            }
        }
        let left = self.queue()?.close(END_LIMIT).map_err(text_of)?;
        if left > 0 {
            return Err(format!("{left} abandoned operations do not end"));
        }
        self.check_counts()?;
        let counts = self.queue()?.stats().counts;
        if counts.in_flight > 0 || !self.abandoned.is_empty() {
            return Err(format!("after the end: {counts:?}"));
        }
        self.queue = None;
        Ok(())
    }

    /// Compares the real files with the model, when all operations are over.
    fn compare_files(&mut self) -> Checked {
        if self.conditions.backend == BackendKind::Null {
            return Ok(());
        }
        for file in &self.shared {
            let found = std::fs::read(&file.path).map_err(text_of)?;
            if found.len() as u64 != file.len {
                return Err(format!("{}: {} bytes", file.path.display(), found.len()));
            }
            file.check(&self.order, None, 0, &found).map_err(|text| {
                format!("at the end, {}: {text}{}", file.path.display(), lines(&self.ops))
            })?;
        }
        for file in &mut self.exclusive {
            file.look().map_err(|text| format!("at the end, {}: {text}", file.path.display()))?;
        }
        // Without its writer, the pipe ends.
        drop(self.pipes.feed_read.take());
        let received = &mut self.pipes.received;
        self.pipes.read.with_std(|mut pipe| pipe.read_to_end(received)).map_err(text_of)?;
        self.pipes.received.sort_unstable();
        let sent: Vec<u8> = (0..self.pipes.sent).collect();
        if self.pipes.received == sent || self.pipes.leaks {
            Ok(())
        } else {
            Err(format!(
                "bytes 0 to {} were written to a pipe, and {:?} read",
                self.pipes.sent, self.pipes.received
            ))
        }
    }

    /// Whether an operation in flight may never complete.
    fn may_stall(&self) -> bool {
        let endless = |op: &Op| op.live && op.may_stall(self.pipes.fed);
        self.conditions.backend != BackendKind::Null
            && (self.ops.iter().any(endless)
                || self.abandoned.iter().any(|number| self.ops[*number].may_stall(self.pipes.fed)))
    }

    fn number_of(&self, id: OpId) -> Option<usize> {
        (0..self.ops.len())
            .find(|number| self.ops[*number].live && self.ops[*number].id == Some(id))
    }
}
