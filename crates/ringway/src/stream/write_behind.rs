//! The writes that a writer has in flight, and those that must be retried.

use super::eager::Eager;
use crate::fs::File;
use ringway_core::Buffer;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

/// One chunk to write.
struct WriteJob {
    start: u64,
    buffer: Buffer,
    truncation: Option<Truncation>,
}

/// Truncates the file to `end`, within the written block, whose rest is padding.
struct Truncation {
    end: u64,
    /// The file may already have this length because of padding that an earlier attempt wrote.
    zeroes: u64,
}

/// Writes in the order of their offsets. Dropping them cancels them.
pub(super) struct WriteBehind {
    file: File,
    writes: VecDeque<PendingWrite>,
    /// Everything before this offset has been written.
    written: u64,
    /// An error was reported, and the caller has done nothing about it yet.
    reported: bool,
    /// See [`Truncation::zeroes`].
    zeroes: u64,
}

struct PendingWrite {
    end: u64,
    truncates: bool,
    write: WriteState,
    /// This write's error was already reported, together with that of an earlier one.
    covered: bool,
}

/// How far a write is.
enum WriteState {
    Running(Eager<(io::Result<()>, WriteJob)>),
    /// It has failed, and nobody knows the error.
    Failed(WriteJob, io::Error),
    /// To be started when it is the first: its error was reported, or it was deferred.
    Waiting(WriteJob),
    /// Between two of these.
    Taken,
}

impl WriteJob {
    /// Writes all of it.
    async fn run(mut self, file: File) -> (io::Result<()>, Self) {
        if let Some(truncation) = &mut self.truncation {
            if let Err(error) = truncation.check(&file).await {
                return (Err(error), self);
            }
            truncation.zeroes = self.start + self.buffer.len() as u64;
        }
        let (mut result, buffer) = file.write_all_at(self.buffer, self.start).await;
        self.buffer = buffer;
        if let (Ok(()), Some(truncation)) = (&result, &self.truncation) {
            result = file.set_len(truncation.end).await;
        }
        (result, self)
    }
}

impl Truncation {
    /// Checks that truncating the file does not remove data that it had before.
    async fn check(&self, file: &File) -> io::Result<()> {
        let (end, len) = (self.end, file.metadata().await?.len());
        if len > end.max(self.zeroes) {
            let text = format!(
                "direct write: it ends within a block, at {end}, but the file continues to {len}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }
}

impl WriteBehind {
    /// Creates a queue for writes from an offset on.
    pub(super) fn new(file: File, start: u64) -> Self {
        Self { file, writes: VecDeque::new(), written: start, reported: false, zeroes: 0 }
    }

    /// Makes the writes that start from now on with this handle of the file.
    pub(super) fn use_file(&mut self, file: File) {
        self.file = file;
    }

    /// Starts a write after the others. None of them may truncate the file, which would remove this
    /// write's data.
    pub(super) fn begin(&mut self, start: u64, buffer: Buffer) {
        let end = start + buffer.len() as u64;
        self.push(end, WriteJob { start, buffer, truncation: None });
    }

    /// As `begin`, and truncates the file to `end`, which lies within the buffer.
    pub(super) fn begin_truncating(&mut self, start: u64, buffer: Buffer, end: u64) {
        self.push(
            end,
            WriteJob { start, buffer, truncation: Some(Truncation { end, zeroes: self.zeroes }) },
        );
    }

    /// As `begin`, but the write starts once all others are written: after an error, which other
    /// writes may meet as well. So it may follow one that truncates the file.
    pub(super) fn defer(&mut self, start: u64, buffer: Buffer) {
        let end = start + buffer.len() as u64;
        self.push_write(
            end,
            WriteState::Waiting(WriteJob { start, buffer, truncation: None }),
            false,
        );
    }

    fn push(&mut self, end: u64, job: WriteJob) {
        debug_assert!(!self.truncates(), "a write beside a truncation");
        let truncates = job.truncation.is_some();
        self.reported = false;
        self.push_write(end, WriteState::Running(start(&self.file, job)), truncates);
    }

    fn push_write(&mut self, end: u64, write: WriteState, truncates: bool) {
        self.writes.push_back(PendingWrite { end, truncates, write, covered: false });
    }

    /// Waits until at most `most` writes are in flight.
    ///
    /// Errors: that of the first failed write in order, once. The next call retries it together
    /// with those that were in flight with it. A write with a truncation is dropped instead,
    /// because there may be more to write by then.
    pub(super) fn poll_at_most(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        loop {
            self.start_first();
            self.reap(cx);
            if !self
                .writes
                .front()
                .is_some_and(|first| matches!(first.write, WriteState::Waiting(_)))
            {
                break;
            }
        }
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        if self.writes.len() <= most { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Removes completed writes, up to the first one that is not.
    pub(super) fn reap(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.writes.front_mut()
            && let WriteState::Running(running) = &mut first.write
        {
            let Poll::Ready((result, job)) = running.poll(cx) else { return };
            match result {
                Ok(()) => {
                    self.file.engine().inner.pool.put(job.buffer);
                    (self.written, self.zeroes) = (first.end, 0);
                    self.writes.pop_front();
                }
                Err(_) if std::mem::take(&mut first.covered) => {
                    first.write = WriteState::Running(start(&self.file, job));
                }
                Err(error) => {
                    self.zeroes = job.truncation.as_ref().map_or(0, |truncation| truncation.zeroes);
                    first.write = WriteState::Failed(job, error);
                }
            }
        }
    }

    /// Whether the first write has failed, or waits because another one has.
    pub(super) fn has_failed(&self) -> bool {
        self.writes.front().is_some_and(|first| !matches!(first.write, WriteState::Running(_)))
    }

    /// Whether a write among them truncates the file. Until it has ended, no other may begin.
    pub(super) fn truncates(&self) -> bool {
        self.writes.iter().any(|write| write.truncates)
    }

    /// The number of writes.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// The end of the last write, or else of what has been written.
    pub(super) fn end(&self) -> u64 {
        self.writes.back().map_or(self.written, |last| last.end)
    }

    /// Everything before this offset has been written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// After an error that was reported, the caller writes more.
    pub(super) fn goes_on(&mut self) {
        self.reported = false;
    }

    /// Whether an error was reported for what is unwritten, and nothing was written or started
    /// after that.
    pub(super) fn error_reported(&self) -> bool {
        self.reported
    }

    /// The first write's error, once for all writes that were in flight with it.
    fn take_error(&mut self) -> Option<io::Error> {
        let first = self.writes.front_mut()?;
        let error = match std::mem::replace(&mut first.write, WriteState::Taken) {
            WriteState::Failed(job, error) => {
                first.write = WriteState::Waiting(job);
                error
            }
            other => {
                first.write = other;
                return None;
            }
        };
        if first.truncates {
            // Its bytes are also in what was deferred, or in the chunk that is being filled.
            self.writes.pop_front();
        }
        for other in &mut self.writes {
            other.covered = matches!(other.write, WriteState::Running(_));
        }
        self.reported = true;
        Some(error)
    }

    /// Starts the first write if it waits for that.
    fn start_first(&mut self) {
        let Some(first) = self.writes.front_mut() else { return };
        first.write = match std::mem::replace(&mut first.write, WriteState::Taken) {
            WriteState::Waiting(job) => {
                self.reported = false;
                WriteState::Running(start(&self.file, job))
            }
            other => other,
        };
    }
}

/// Starts a write. It wakes no task, because a task waits only for the first of all writes.
fn start(file: &File, job: WriteJob) -> Eager<(io::Result<()>, WriteJob)> {
    Eager::early(job.run(file.clone()))
}
