//! The writes that a writer has on their way, and what is to be written again.

use super::eager::Eager;
use crate::fs::File;
use ringway_core::Buffer;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

/// One chunk to be written.
struct WriteJob {
    start: u64,
    buffer: Buffer,
    truncation: Option<Truncation>,
}

/// The file is to end within the block that is written, the rest of which are zeroes.
struct Truncation {
    end: u64,
    /// As long as this the file may be by such zeroes, of a try that came no further.
    zeroes: u64,
}

/// Writes in the order of their offsets. Dropping them cancels them.
pub(super) struct WriteBehind {
    file: File,
    writes: VecDeque<PendingWrite>,
    /// All before this offset has been written.
    written: u64,
    /// The first write's error has been reported, and it has not been written since.
    reported: bool,
    /// See [`Truncation::zeroes`].
    zeroes: u64,
}

struct PendingWrite {
    end: u64,
    truncates: bool,
    running: Eager<(io::Result<()>, WriteJob)>,
    failed: Option<Failed>,
    /// Of this one's failure has been told already, with that of one before it.
    covered: bool,
}

/// A write that is over and was for nothing.
struct Failed {
    job: WriteJob,
    /// Until it is reported.
    error: Option<io::Error>,
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
    /// Cutting the file must not take anything away that was in it before.
    async fn check(&self, file: &File) -> io::Result<()> {
        let (end, len) = (self.end, file.metadata().await?.len());
        if len > end.max(self.zeroes) {
            let text = format!(
                "direct write: it ends within a block, at {end}, and the file goes on behind, to {len}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }
}

impl WriteBehind {
    /// Writes to come, from an offset on.
    pub(super) fn new(file: File, start: u64) -> Self {
        Self { file, writes: VecDeque::new(), written: start, reported: false, zeroes: 0 }
    }

    /// Begins a write, behind the others. There must be no truncation among them: it would take away what
    /// is written here.
    pub(super) fn begin(&mut self, start: u64, buffer: Buffer) {
        let end = start + buffer.len() as u64;
        self.push(end, WriteJob { start, buffer, truncation: None });
    }

    /// As `begin`, with the file to end at `end`, which lies within the buffer.
    pub(super) fn begin_truncating(&mut self, start: u64, buffer: Buffer, end: u64) {
        self.push(
            end,
            WriteJob { start, buffer, truncation: Some(Truncation { end, zeroes: self.zeroes }) },
        );
    }

    fn push(&mut self, end: u64, job: WriteJob) {
        debug_assert!(!self.truncates(), "a write overtakes a truncation");
        let truncates = job.truncation.is_some();
        self.writes.push_back(PendingWrite {
            end,
            truncates,
            running: start(&self.file, job),
            failed: None,
            covered: false,
        });
    }

    /// Waits until no more than `most` writes are on their way.
    ///
    /// Errors: that of the first write in order, once. Then it is tried again, and so are those
    /// that were on their way with it, when this is called the next time. But a truncation is dropped:
    /// what it was to write, there may be more of by then.
    pub(super) fn poll_at_most(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        self.retry();
        self.reap(cx);
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        if self.writes.len() <= most { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Lets go of what has been written, up to the first write that has not.
    pub(super) fn reap(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.writes.front_mut() {
            if first.failed.is_some() {
                return;
            }
            let Poll::Ready((result, job)) = first.running.poll(cx) else { return };
            match result {
                Ok(()) => {
                    self.file.engine().inner.pool.put(job.buffer);
                    (self.written, self.reported, self.zeroes) = (first.end, false, 0);
                    self.writes.pop_front();
                }
                Err(_) if std::mem::take(&mut first.covered) => {
                    first.running = start(&self.file, job)
                }
                Err(error) => {
                    self.zeroes = job.truncation.as_ref().map_or(0, |truncation| truncation.zeroes);
                    first.failed = Some(Failed { job, error: Some(error) });
                }
            }
        }
    }

    /// True when the first write has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.writes.front().is_some_and(|first| first.failed.is_some())
    }

    /// True when a write is on its way that truncates the file.
    pub(super) fn truncates(&self) -> bool {
        self.writes.back().is_some_and(|last| last.truncates)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Where the last of them ends, or else what has been written.
    pub(super) fn end(&self) -> u64 {
        self.writes.back().map_or(self.written, |last| last.end)
    }

    /// All before this offset has been written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// An error has been reported, and what it is about has not been written since.
    pub(super) fn error_reported(&self) -> bool {
        self.reported
    }

    /// The first write's error, once for all that are on their way with it.
    fn take_error(&mut self) -> Option<io::Error> {
        let first = self.writes.front_mut()?;
        let error = first.failed.as_mut()?.error.take()?;
        if first.truncates {
            self.writes.clear(); // It was the last.
        }
        self.writes.iter_mut().skip(1).for_each(|other| other.covered = true);
        self.reported = true;
        Some(error)
    }

    /// Begins the first write again, if it has failed and that was reported.
    fn retry(&mut self) {
        if let Some(first) = self.writes.front_mut()
            && let Some(failed) = first.failed.take_if(|failed| failed.error.is_none())
        {
            first.running = start(&self.file, failed.job);
        }
    }
}

/// Begins a write. It wakes nobody: only for the first of all writes does anybody wait.
fn start(file: &File, job: WriteJob) -> Eager<(io::Result<()>, WriteJob)> {
    Eager::early(job.run(file.clone()))
}
