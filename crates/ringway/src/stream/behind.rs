//! The writes that a writer has on their way, and what is to be written again.

use super::started::Started;
use crate::fs::File;
use ringway_core::Buffer;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

/// One chunk to be written.
struct Job {
    start: u64,
    buffer: Buffer,
    cut: Option<Cut>,
}

/// The file is to end within the block that is written, the rest of which are zeroes.
struct Cut {
    end: u64,
    /// As long as this the file may be by such zeroes, of a try that came no further.
    zeroes: u64,
}

/// Writes in the order of their offsets. Dropping them cancels them.
pub(super) struct Behind {
    file: File,
    writes: VecDeque<Write>,
    /// All before this offset has been written.
    done: u64,
    /// The first write's error has been told, and it has not been written since.
    told: bool,
    /// See [`Cut::zeroes`].
    zeroes: u64,
}

struct Write {
    end: u64,
    cuts: bool,
    running: Started<(io::Result<()>, Job)>,
    failed: Option<Failed>,
    /// Of this one's failure has been told already, with that of one before it.
    covered: bool,
}

/// A write that is over and was for nothing.
struct Failed {
    job: Job,
    /// Until it is told.
    error: Option<io::Error>,
}

impl Job {
    /// Writes all of it.
    async fn run(mut self, file: File) -> (io::Result<()>, Self) {
        if let Some(cut) = &mut self.cut {
            if let Err(error) = cut.check(&file).await {
                return (Err(error), self);
            }
            cut.zeroes = self.start + self.buffer.len() as u64;
        }
        let (mut result, buffer) = file.write_all_at(self.buffer, self.start).await;
        self.buffer = buffer;
        if let (Ok(()), Some(cut)) = (&result, &self.cut) {
            result = file.set_len(cut.end).await;
        }
        (result, self)
    }
}

impl Cut {
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

impl Behind {
    /// Writes to come, from an offset on.
    pub(super) fn new(file: File, start: u64) -> Self {
        Self { file, writes: VecDeque::new(), done: start, told: false, zeroes: 0 }
    }

    /// Begins a write, behind the others. There must be no cut among them: it would take away what
    /// is written here.
    pub(super) fn begin(&mut self, start: u64, buffer: Buffer) {
        let end = start + buffer.len() as u64;
        self.push(end, Job { start, buffer, cut: None });
    }

    /// As `begin`, with the file to end at `end`, which lies within the buffer.
    pub(super) fn begin_cut(&mut self, start: u64, buffer: Buffer, end: u64) {
        self.push(end, Job { start, buffer, cut: Some(Cut { end, zeroes: self.zeroes }) });
    }

    fn push(&mut self, end: u64, job: Job) {
        debug_assert!(!self.cuts(), "a write overtakes a cut");
        let cuts = job.cut.is_some();
        self.writes.push_back(Write {
            end,
            cuts,
            running: start(&self.file, job),
            failed: None,
            covered: false,
        });
    }

    /// Waits until no more than `most` writes are on their way.
    ///
    /// Errors: that of the first write in order, once. Then it is tried again, and so are those
    /// that were on their way with it, when this is called the next time. But a cut is dropped:
    /// what it was to write, there may be more of by then.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        self.retry();
        self.settle(cx);
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        if self.writes.len() <= most { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Lets go of what has been written, up to the first write that has not.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) {
        while let Some(first) = self.writes.front_mut() {
            if first.failed.is_some() {
                return;
            }
            let Poll::Ready((result, job)) = first.running.poll(cx) else { return };
            match result {
                Ok(()) => {
                    self.file.engine().inner.pool.put(job.buffer);
                    (self.done, self.told, self.zeroes) = (first.end, false, 0);
                    self.writes.pop_front();
                }
                Err(_) if std::mem::take(&mut first.covered) => {
                    first.running = start(&self.file, job)
                }
                Err(error) => {
                    self.zeroes = job.cut.as_ref().map_or(0, |cut| cut.zeroes);
                    first.failed = Some(Failed { job, error: Some(error) });
                }
            }
        }
    }

    /// True when the first write has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.writes.front().is_some_and(|first| first.failed.is_some())
    }

    /// True when a write is on its way that cuts the file.
    pub(super) fn cuts(&self) -> bool {
        self.writes.back().is_some_and(|last| last.cuts)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Where the last of them ends, or else what has been written.
    pub(super) fn end(&self) -> u64 {
        self.writes.back().map_or(self.done, |last| last.end)
    }

    /// All before this offset has been written.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// An error has been told, and what it is about has not been written since.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    /// The first write's error, once for all that are on their way with it.
    fn take_error(&mut self) -> Option<io::Error> {
        let first = self.writes.front_mut()?;
        let error = first.failed.as_mut()?.error.take()?;
        if first.cuts {
            self.writes.clear(); // It was the last.
        }
        self.writes.iter_mut().skip(1).for_each(|other| other.covered = true);
        self.told = true;
        Some(error)
    }

    /// Begins the first write again, if it has failed and that was told.
    fn retry(&mut self) {
        if let Some(first) = self.writes.front_mut()
            && let Some(failed) = first.failed.take_if(|failed| failed.error.is_none())
        {
            first.running = start(&self.file, failed.job);
        }
    }
}

/// Begins a write. It wakes nobody: only for the first of all writes does anybody wait.
fn start(file: &File, job: Job) -> Started<(io::Result<()>, Job)> {
    Started::early(job.run(file.clone()))
}
