//! Reads of many files and ranges without an event loop: the calling thread waits, without the
//! interpreter's lock.

use crate::answer::Answer;
use crate::call;
use crate::errors::os_error;
use crate::file::{UNCHECKED, read_all, read_into, read_most};
use crate::raw::{Memory, drop_released};
use crate::system::duplicate;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use pyo3::prelude::*;
use ringway::Reaping;
use ringway::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How often a thread that waits looks for signals, such as that of Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);

/// An engine for threads without event loops. Its own thread picks up completions.
#[pyclass(frozen, module = "ringway._ringway")]
pub struct Reader {
    engine: ringway::Engine,
}

/// A range: its offset, and its length or `None` for all that is left.
type Range = (u64, Option<usize>);

/// A path or descriptor, the ranges, and the buffers for them, if there are any.
type Request<'py> = (Bound<'py, PyAny>, Vec<Range>, Option<Vec<Bound<'py, PyAny>>>);

/// Where a file is from: a descriptor or a path.
#[derive(FromPyObject)]
enum Source {
    Fd(i32),
    Path(PathBuf),
}

/// The reads of one file, each into its buffer if there is one.
struct Job {
    source: Source,
    reads: Vec<(Range, Option<Memory>)>,
    direct: bool,
    depth: usize,
}

#[pymethods]
impl Reader {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let engine = ringway::Engine::builder().reaping(Reaping::Thread).build();
        Ok(Self { engine: engine.map_err(|error| os_error(py, &error, None))? })
    }

    /// Which backend is used, what was refused, why, and the fix.
    fn explain(&self) -> String {
        self.engine.explain().to_string()
    }

    /// Reads ranges of files: `depth` files at a time, and `depth` ranges of each. Returns bytes
    /// for each range of each file, or the number of bytes if there are buffers. The error of the
    /// first that fails. Then no read writes to a buffer any more, unless a handler of a signal
    /// raises an exception meanwhile, which replaces that error.
    fn read(
        &self,
        py: Python<'_>,
        files: Vec<Request<'_>>,
        direct: bool,
        depth: usize,
    ) -> PyResult<Vec<Vec<Py<PyAny>>>> {
        let (mut jobs, pins) = (Vec::with_capacity(files.len()), Arc::new(()));
        for (source, ranges, buffers) in &files {
            let reads = match buffers {
                Some(buffers) => std::iter::zip(ranges, buffers)
                    .map(|(range, buffer)| {
                        Ok((*range, Some(Memory::pin(buffer, true)?.with(&pins))))
                    })
                    .collect::<PyResult<Vec<_>>>()?,
                None => ranges.iter().map(|range| (*range, None)).collect(),
            };
            jobs.push(Job { source: source.extract()?, reads, direct, depth });
        }
        let engine = &self.engine;
        let results = py.detach(|| {
            let jobs = jobs.into_iter().enumerate().map(|(index, job)| async move {
                job.run(engine).await.map_err(|error| (index, error))
            });
            match block_on(all(jobs, depth)) {
                Ok(Err(failed)) => wait_for(&pins).map(|()| Err(failed)),
                // The first exception of a handler is the one that is raised.
                Err(interrupted) => {
                    let _ = wait_for(&pins);
                    Err(interrupted)
                }
                results => results,
            }
        });
        drop_released(py);
        let results = results?;
        let names = |index: usize| files[index].0.clone().unbind();
        let results =
            results.map_err(|(index, error)| os_error(py, &error, Some(&names(index))))?;
        let objects = |answers: Vec<Answer>| {
            answers.into_iter().map(|answer| answer.into_object(py)).collect::<PyResult<Vec<_>>>()
        };
        results.into_iter().map(objects).collect()
    }
}

impl Job {
    /// Opens the file, reads, and closes it.
    async fn run(self, engine: &ringway::Engine) -> io::Result<Vec<Answer>> {
        let (file, size) = self.open(engine).await?;
        let file = &file;
        let reads = self.reads.into_iter().map(|((offset, length), memory)| async move {
            match (memory, length) {
                (Some(memory), _) => Ok(Answer::Count(read_into(file, memory, offset).await?)),
                (None, Some(length)) => {
                    // No memory is reserved for more than the file has.
                    let left = size.saturating_sub(offset).max(UNCHECKED as u64);
                    read_most(file, offset, left, length).await
                }
                (None, None) => read_all(file, offset, size.saturating_sub(offset)).await,
            }
        });
        all(reads, self.depth).await
    }

    async fn open(&self, engine: &ringway::Engine) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        options.read(true).direct(self.direct).engine(engine);
        let (file, metadata) = match &self.source {
            Source::Path(path) => options.open_with_metadata(path).await?,
            Source::Fd(fd) => {
                let file = File::from_fd(duplicate(*fd)?, engine);
                let metadata = file.metadata().await?;
                (file, metadata)
            }
        };
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok((file, metadata.len()))
    }
}

/// Runs `depth` futures at a time, and returns their values in order. Errors: that of the first
/// that fails; the others are then cancelled.
async fn all<T, E>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
    depth: usize,
) -> Result<Vec<T>, E> {
    let numbered = futures
        .enumerate()
        .map(|(index, future)| async move { future.await.map(|value| (index, value)) });
    let mut values: Vec<_> = stream::iter(numbered).buffer_unordered(depth).try_collect().await?;
    values.sort_unstable_by_key(|(index, _)| *index);
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

/// Waits until operations that were cancelled have released all memory that is pinned. They wake
/// nobody when they end, so this looks. Errors: those of a handler of a signal, which end the wait.
fn wait_for(pins: &Arc<()>) -> PyResult<()> {
    let mut pause = Duration::from_micros(50);
    while Arc::strong_count(pins) > 1 {
        thread::sleep(pause);
        pause = (2 * pause).min(SIGNALS);
        check_signals()?;
    }
    Ok(())
}

/// Runs the handlers of signals that have come. Errors: those of a handler, such as
/// KeyboardInterrupt. If the interpreter has ended this thread, a daemon, must not return to it.
fn check_signals() -> PyResult<()> {
    Python::try_attach(call::check_signals).unwrap_or_else(|| {
        loop {
            thread::park();
        }
    })
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future. Errors: those of a handler of a signal, such as KeyboardInterrupt.
fn block_on<T>(future: impl Future<Output = T>) -> PyResult<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut looked) = (pin!(future), Instant::now());
    loop {
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        if poll.is_pending() {
            thread::park_timeout(SIGNALS);
            if looked.elapsed() < SIGNALS {
                continue;
            }
            looked = Instant::now();
        }
        check_signals()?;
        if let Poll::Ready(result) = poll {
            return Ok(result);
        }
    }
}
