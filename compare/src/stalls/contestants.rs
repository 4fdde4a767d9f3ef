//! The contestants: the same tasks through the interface of each library, on one thread.

use super::measure::Run;
use super::{BLOCK, Operation, whole};
use crate::buffer::{Buffer, aligned};
use compio::buf::BufResult;
use compio::io::{AsyncReadAt, AsyncWriteAt};
use ringway::{BackendKind, Engine};
use ringway_measure::rounds::Turn;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The period of the timer.
const TICK: Duration = Duration::from_millis(1);

pub struct Contestant {
    pub name: &'static str,
    pub run: fn(&Run) -> anyhow::Result<Turn>,
}

pub static ALL: &[Contestant] = &[
    Contestant { name: "ringway", run: |run| ringway(run, BackendKind::Uring) },
    Contestant { name: "ringway-kaio", run: |run| ringway(run, BackendKind::Kaio) },
    Contestant { name: "ringway-threads", run: |run| ringway(run, BackendKind::Threads) },
    Contestant { name: "tokio-fs", run: tokio_fs },
    Contestant { name: "compio", run: compio },
];

fn tokio_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A timer next to the tasks, until the time is over.
async fn tick<F: Future>(run: &Run, sleep: impl Fn() -> F) {
    while Instant::now() < run.until {
        run.tick(TICK, sleep()).await;
    }
}

/// Runs all futures at once.
async fn join(
    futures: impl Iterator<Item: Future<Output = anyhow::Result<()>>>,
) -> anyhow::Result<()> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        let mut error = None;
        waiting.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                error = error.take().or(result.err());
                false
            }
        });
        match error {
            Some(error) => Poll::Ready(Err(error)),
            None if waiting.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

fn ringway(run: &Run, backend: BackendKind) -> anyhow::Result<Turn> {
    let engine = Engine::builder().backend(backend).build()?;
    tokio_runtime()?.block_on(async {
        let file = ringway::fs::OpenOptions::new()
            .read(true)
            .write(run.operation == Operation::Overwrite)
            .direct(run.direct())
            .engine(&engine)
            .open(&run.file)
            .await?;
        let task = async |number| {
            let mut buffer = aligned(BLOCK);
            for offset in run.offsets(number) {
                let (result, back) = match run.operation {
                    Operation::Overwrite => run.timed(file.write_at(buffer, offset)).await,
                    _ => run.timed(file.read_at(buffer, offset)).await,
                };
                whole(result?)?;
                buffer = back;
                run.count();
                tokio::task::yield_now().await;
            }
            Ok(())
        };
        let ticks = tick(run, || tokio::time::sleep(TICK));
        let (done, ()) = tokio::join!(join((0..run.tasks).map(task)), ticks);
        done.map(|()| run.turn())
    })
}

/// As `tokio::fs` does it; with an aligned buffer and an offset, which it does not have.
fn tokio_fs(run: &Run) -> anyhow::Result<Turn> {
    let file = Arc::new(run.open()?);
    tokio_runtime()?.block_on(async {
        let task = async |number| {
            let mut buffer = Buffer::new(BLOCK);
            for offset in run.offsets(number) {
                let (file, writes) = (file.clone(), run.operation == Operation::Overwrite);
                let blocking = tokio::task::spawn_blocking(move || {
                    let result = if writes {
                        file.write_at(&buffer, offset)
                    } else {
                        file.read_at(&mut buffer, offset)
                    };
                    (result, buffer)
                });
                let (result, back) = run.timed(blocking).await?;
                whole(result?)?;
                buffer = back;
                run.count();
                tokio::task::yield_now().await;
            }
            Ok(())
        };
        let ticks = tick(run, || tokio::time::sleep(TICK));
        let (done, ()) = tokio::join!(join((0..run.tasks).map(task)), ticks);
        done.map(|()| run.turn())
    })
}

fn compio(run: &Run) -> anyhow::Result<Turn> {
    let runtime = compio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let flags = if run.direct() { libc::O_DIRECT } else { 0 };
        let file = compio::fs::OpenOptions::new()
            .read(true)
            .write(run.operation == Operation::Overwrite)
            .custom_flags(flags)
            .open(&run.file)
            .await?;
        let file = Rc::new(file);
        let task = async |number| {
            let mut buffer = Buffer::new(BLOCK);
            for offset in run.offsets(number) {
                let BufResult(result, back) = match run.operation {
                    Operation::Overwrite => run.timed((&*file).write_at(buffer, offset)).await,
                    _ => run.timed(file.read_at(buffer, offset)).await,
                };
                whole(result?)?;
                buffer = back;
                run.count();
            }
            Ok(())
        };
        let ticks = tick(run, || compio::runtime::time::sleep(TICK));
        let (done, ()) = futures_lite::future::zip(join((0..run.tasks).map(task)), ticks).await;
        done.map(|()| run.turn())
    })
}
