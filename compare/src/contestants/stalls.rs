//! The contestants of `compare stalls`: the same tasks through the interface of each library, on
//! one thread, with a timer next to them.

use super::{COMPIO, Contestant, RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS, TOKIO_FS, tasks};
use crate::buffer::{Buffer, aligned};
use crate::disturbance;
use crate::job::Job;
use crate::reader::Reader;
use crate::tally::{Poll, Tally};
use anyhow::Context;
use compio::buf::BufResult;
use compio::io::{AsyncReadAt, AsyncWriteAt};
use ringway::{BackendKind, Engine};
use ringway_measure::clock;
use ringway_measure::rounds::Turn;
use std::fs::File;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::task;
use std::thread;
use std::time::{Duration, Instant};

/// The period of the timer.
const TICK: Duration = Duration::from_millis(1);

pub static ALL: &[&Contestant] = &[
    &Contestant::new(RINGWAY, "one thread; ringway::fs::File on the uring backend", |job| {
        measure(job, |job| ringway(job, BackendKind::Uring))
    }),
    &Contestant::new(RINGWAY_KAIO, "the same on the kaio backend", |job| {
        measure(job, |job| ringway(job, BackendKind::Kaio))
    }),
    &Contestant::new(RINGWAY_THREADS, "the same on the threads backend", |job| {
        measure(job, |job| ringway(job, BackendKind::Threads))
    }),
    &Contestant::new(
        TOKIO_FS,
        "one thread; spawn_blocking, as tokio::fs does it; with an aligned buffer and an offset",
        |job| measure(job, tokio_fs),
    ),
    &Contestant::new(COMPIO, "one thread; io_uring driver; default settings", |job| {
        measure(job, compio)
    }),
];

/// Measures what a contestant does on a thread, next to what disturbs it.
fn measure(job: &'static Job, run: fn(&'static Job) -> anyhow::Result<()>) -> anyhow::Result<Turn> {
    disturbance::start(job);
    job.expect_readers(job.workload.readers);
    thread::spawn(move || {
        if let Err(error) = run(job) {
            job.fail(format!("{error:#}"));
        }
    });
    job.measure()
}

fn tokio_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn ringway(job: &'static Job, backend: BackendKind) -> anyhow::Result<()> {
    let engine = Engine::builder().backend(backend).build()?;
    tokio_runtime()?.block_on(async {
        let (writes, thread) = (job.workload.operation.writes(), Thread::this(job)?);
        let file = ringway::fs::OpenOptions::new()
            .read(true)
            .write(writes)
            .direct(job.workload.direct)
            .engine(&engine)
            .open(&job.file)
            .await?;
        let task = |reader: Reader| {
            let (tally, file, thread) = (reader.tally(), &file, &thread);
            tasks::blocks(reader, aligned(job.workload.block), async move |buffer, offset| {
                let done = if writes {
                    thread.timed(tally, file.write_at(buffer, offset)).await
                } else {
                    thread.timed(tally, file.read_at(buffer, offset)).await
                };
                tokio::task::yield_now().await;
                Some(done)
            })
        };
        let tasks = join(Reader::all(job).into_iter().map(task));
        tokio::join!(tasks, thread.tick(|| tokio::time::sleep(TICK)));
        Ok(())
    })
}

fn tokio_fs(job: &'static Job) -> anyhow::Result<()> {
    let file = Arc::new(job.open()?);
    tokio_runtime()?.block_on(async {
        let (writes, thread) = (job.workload.operation.writes(), Thread::this(job)?);
        let task = |reader: Reader| {
            let (tally, file, thread) = (reader.tally(), &file, &thread);
            let operate = async move |mut buffer: Buffer, offset| {
                let file = file.clone();
                let blocking = tokio::task::spawn_blocking(move || {
                    let result = if writes {
                        file.write_at(&buffer, offset)
                    } else {
                        file.read_at(&mut buffer, offset)
                    };
                    (result, buffer)
                });
                let done = thread.timed(tally, blocking).await.ok();
                tokio::task::yield_now().await;
                done
            };
            tasks::blocks(reader, Buffer::new(job.workload.block), operate)
        };
        let tasks = join(Reader::all(job).into_iter().map(task));
        tokio::join!(tasks, thread.tick(|| tokio::time::sleep(TICK)));
        Ok(())
    })
}

fn compio(job: &'static Job) -> anyhow::Result<()> {
    compio::runtime::Runtime::new()?.block_on(async {
        let (writes, thread) = (job.workload.operation.writes(), Thread::this(job)?);
        let mut options = compio::fs::OpenOptions::new();
        options.read(true).write(writes).custom_flags(job.open_flags());
        let file = options.open(&job.file).await?;
        let task = |reader: Reader| {
            let (tally, file, thread) = (reader.tally(), &file, &thread);
            tasks::blocks(reader, Buffer::new(job.workload.block), async move |buffer, offset| {
                let BufResult(result, buffer) = if writes {
                    thread.timed(tally, (&*file).write_at(buffer, offset)).await
                } else {
                    thread.timed(tally, file.read_at(buffer, offset)).await
                };
                Some((result, buffer))
            })
        };
        let tasks = join(Reader::all(job).into_iter().map(task));
        let timer = thread.tick(|| compio::runtime::time::sleep(TICK));
        futures_lite::future::zip(tasks, timer).await;
        Ok(())
    })
}

/// Runs all futures at once.
async fn join(futures: impl Iterator<Item: Future<Output = ()>>) {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        waiting.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if waiting.is_empty() { task::Poll::Ready(()) } else { task::Poll::Pending }
    })
    .await;
}

/// The thread that runs the tasks, and what the kernel knows of it.
struct Thread {
    job: &'static Job,
    statistics: File,
}

impl Thread {
    /// The thread that calls this, and later all of these functions.
    fn this(job: &'static Job) -> anyhow::Result<Self> {
        let statistics =
            File::open("/proc/thread-self/schedstat").context("no scheduler statistics")?;
        Ok(Self { job, statistics })
    }

    /// How many nanoseconds it has been ready to run without a processor.
    fn ready(&self) -> u64 {
        let mut text = [0; 64];
        let len = self.statistics.read_at(&mut text, 0).unwrap_or(0);
        let mut words = str::from_utf8(&text[..len]).unwrap_or("").split_ascii_whitespace();
        words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Awaits a future and times each of its polls.
    async fn timed<F: Future>(&self, tally: &Tally, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let (ready, cpu, begun) = (self.ready(), clock::thread_cpu(), clock::now());
            let polled = future.as_mut().poll(cx);
            let (wall, cpu) = (clock::now() - begun, clock::thread_cpu().saturating_sub(cpu));
            let ready = self.ready().saturating_sub(ready);
            if self.job.is_measuring() {
                tally.record_poll(Poll { wall, cpu, ready });
            }
            polled
        })
        .await
    }

    /// Sleeps repeatedly, and records how late each sleep ended, except for the time when other
    /// threads had the processors.
    async fn tick<F: Future>(&self, sleep: impl Fn() -> F) {
        while !self.job.is_over() {
            let (begun, ready) = (Instant::now(), self.ready());
            sleep().await;
            let ready = Duration::from_nanos(self.ready().saturating_sub(ready));
            self.job.record_latency(begun.elapsed().saturating_sub(TICK).saturating_sub(ready));
        }
    }
}
