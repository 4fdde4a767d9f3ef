//! Runs many jobs at a time and returns their results in the order of the jobs.

use anyhow::Context;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// The maximum number of results that wait for an earlier job, which may take hours.
const WAITING: usize = 4096;

/// Runs the `jobs` in order, at most `at_once` at a time, and passes their results to `done` in the
/// same order. Jobs come in batches, because each transfer to another thread may have to wake it.
///
/// # Errors
///
/// An error of `done`, which ends the loop; a job that panicked.
pub(super) async fn in_order<J, W, F>(
    mut jobs: mpsc::Receiver<Vec<J>>,
    at_once: usize,
    mut work: W,
    mut done: impl FnMut(F::Output) -> anyhow::Result<()> + Send,
) -> anyhow::Result<()>
where
    J: Send + 'static,
    W: FnMut(J) -> F + Send + 'static,
    F: Future<Output: Send> + Send + 'static,
{
    let (started, mut results) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(at_once));
        while let Some(batch) = jobs.recv().await {
            for job in batch {
                // The semaphore is never closed.
                let Ok(slot) = slots.clone().acquire_owned().await else { return };
                let job = work(job);
                let task = tokio::spawn(async move {
                    let result = job.await;
                    drop(slot);
                    result
                });
                if started.send(task).await.is_err() {
                    return;
                }
            }
        }
    });
    while let Some(task) = results.recv().await {
        done(task.await.context("a task panicked")?)?;
    }
    Ok(())
}

/// Whether the reader of standard output has gone, as `head` does: then nothing more is wanted of a
/// loop that prints.
///
/// # Errors
///
/// Any other error.
pub(super) fn is_closed_early(printed: anyhow::Result<()>) -> anyhow::Result<bool> {
    match printed {
        Ok(()) => Ok(false),
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn results_are_in_order_and_jobs_within_the_limit() {
        let (send, jobs) = mpsc::channel(1);
        tokio::spawn(async move {
            for batch in 0..10u64 {
                send.send((batch * 10..batch * 10 + 10).collect()).await.unwrap();
            }
        });
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let counted = (running.clone(), most.clone());
        let work = move |job: u64| {
            let (running, most) = counted.clone();
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_micros(job * 37 % 10 * 100)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                job
            }
        };
        let mut results = Vec::new();
        let collect = |result| {
            results.push(result);
            Ok(())
        };
        in_order(jobs, 4, work, collect).await.unwrap();
        assert_eq!(results, (0..100).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn an_error_ends_the_loop() {
        let (send, jobs) = mpsc::channel(1);
        let feed = tokio::spawn(async move { while send.send(vec![()]).await.is_ok() {} });
        let mut left = 3;
        let done = |()| {
            left -= 1;
            if left == 0 { anyhow::bail!("enough") } else { Ok(()) }
        };
        assert_eq!(in_order(jobs, 4, |()| async {}, done).await.unwrap_err().to_string(), "enough");
        feed.await.unwrap();
    }
}
