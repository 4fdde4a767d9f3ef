//! Yielding: an operation that copies from the page cache lets other tasks run about every 256 KiB,
//! whichever function copies.

use crate::common::watchdog::Watchdog;
use crate::common::{WakeCounter, current_thread, multi_thread, open, pattern, poll_once};
use crate::files::{Cached, engines, sample};
use ringway::Engine;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const LEN: usize = 8 << 20;
/// The most bytes that one poll may copy: the rest of one step, and one more step.
const MOST: usize = 512 * KIB;

/// The bytes that a future has copied so far, as it reports them.
type Progress = Rc<Cell<usize>>;

/// Polls a future to its end. Returns its output, the number of polls, and the most bytes that one
/// poll copied.
fn polls<T>(make: impl FnOnce(Progress) -> T) -> (T::Output, usize, usize)
where
    T: Future,
{
    let _watch = Watchdog::new("a future that yields");
    let counter = WakeCounter::new();
    let waker = counter.clone().into();
    let mut cx = Context::from_waker(&waker);
    let progress = Progress::default();
    let mut future = pin!(make(progress.clone()));
    let (mut polls, mut most) = (0, 0);
    loop {
        let (before, wakeups) = (progress.get(), counter.wakeups());
        let polled = future.as_mut().poll(&mut cx);
        polls += 1;
        most = most.max(progress.get() - before);
        if let Poll::Ready(output) = polled {
            return (output, polls, most);
        }
        while counter.wakeups() == wakeups {
            std::thread::park();
        }
    }
}

/// Engines that copy from the page cache at once.
fn copying() -> impl Iterator<Item = &'static Engine> {
    // The first engine of each backend.
    engines().iter().step_by(3)
}

/// A cached read that must yield first has taken no memory yet.
#[test]
fn a_read_that_yields_has_no_buffer() {
    let _watch = Watchdog::new("reads that yield");
    let content = pattern(0, 256 * KIB);
    let (_dir, path) = sample(&content);
    for engine in copying() {
        // Another engine would count the buffers of other tests.
        let engine = Engine::builder().shards(1).backend(engine.backend()).build().unwrap();
        let file = open(&engine, &path, false);
        // The first read changes the access time, so on ext4 it is an operation.
        drop(futures::executor::block_on(file.read(0..content.len() as u64)).unwrap());
        let mut yielded = 0;
        for _ in 0..8 {
            let mut read = pin!(file.read(0..content.len() as u64));
            let block = match poll_once(read.as_mut()) {
                Poll::Ready(block) => block,
                Poll::Pending => {
                    yielded += 1;
                    assert_eq!(engine.stats().pool.in_use, 0);
                    futures::executor::block_on(read)
                }
            };
            assert!(block.unwrap() == content);
        }
        assert!(yielded > 0, "some of them yield");
    }
}

#[test]
fn loops_yield() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt};
    let content = pattern(0, LEN);
    let (_dir, path) = sample(&content);
    let _cached = Cached::new(&path);
    for engine in copying() {
        let file = open(engine, &path, false);
        let check = |what: &str, (read, polls, most): (usize, usize, usize)| {
            assert_eq!(read, LEN, "{what}");
            assert!(most <= MOST, "{what}: {most} bytes in one poll");
            assert!(polls >= LEN / MOST, "{what}: {polls} polls");
        };
        for chunk in [4 * KIB, 64 * KIB, 256 * KIB] {
            let reader = || file.reader().chunk(chunk);
            check(
                &format!("next_block by {chunk}"),
                polls(async |progress: Progress| {
                    let mut reader = reader();
                    while let Some(block) = reader.next_block().await.unwrap() {
                        progress.set(progress.get() + block.len());
                    }
                    progress.get()
                }),
            );
            check(
                &format!("RangeStream::next by {chunk}"),
                polls(async |progress: Progress| {
                    let ranges =
                        (0..LEN / chunk).map(|at| (at * chunk) as u64..((at + 1) * chunk) as u64);
                    let mut stream =
                        file.read_ranges_stream(ranges).coalesce(ringway::Coalesce::never());
                    while let Some(read) = stream.next().await {
                        progress.set(progress.get() + read.result.unwrap().len());
                    }
                    progress.get()
                }),
            );
            check(
                &format!("Reader::read by {chunk}"),
                polls(async |progress: Progress| {
                    let (mut reader, mut bytes) = (reader(), vec![0; 100_000]);
                    loop {
                        match reader.read(&mut bytes).await.unwrap() {
                            0 => return progress.get(),
                            read => progress.set(progress.get() + read),
                        }
                    }
                }),
            );
            check(
                &format!("tokio's AsyncRead by {chunk}"),
                polls(async |progress: Progress| {
                    let (mut reader, mut bytes) = (reader(), vec![0; 8 * KIB]);
                    loop {
                        match AsyncReadExt::read(&mut reader, &mut bytes).await.unwrap() {
                            0 => return progress.get(),
                            read => progress.set(progress.get() + read),
                        }
                    }
                }),
            );
            check(
                &format!("futures' AsyncRead by {chunk}"),
                polls(async |progress: Progress| {
                    let (mut reader, mut bytes) = (reader(), vec![0; 8 * KIB]);
                    loop {
                        match futures::AsyncReadExt::read(&mut reader, &mut bytes).await.unwrap() {
                            0 => return progress.get(),
                            read => progress.set(progress.get() + read),
                        }
                    }
                }),
            );
            check(
                &format!("fill_buf by {chunk}"),
                polls(async |progress: Progress| {
                    let mut reader = reader();
                    loop {
                        match reader.fill_buf().await.unwrap().len() {
                            0 => return progress.get(),
                            read => {
                                AsyncBufReadExt::consume(&mut reader, read);
                                progress.set(progress.get() + read);
                            }
                        }
                    }
                }),
            );
        }
        for len in [1000, 4 * KIB, 256 * KIB, 1 << 20] {
            let file = file.clone();
            let (_, polls, most) = polls(async |progress: Progress| {
                let mut buffer = vec![0; len];
                for _ in 0..LEN / len {
                    let (read, back) = file.read_at(buffer, 0).await;
                    buffer = back;
                    progress.set(progress.get() + read.unwrap());
                }
            });
            // A read that is longer than a step is counted at its end.
            assert!(
                most <= MOST.max(len) && polls >= LEN / MOST,
                "read_at of {len}: {most} bytes, {polls} polls"
            );
        }
    }
}

#[test]
fn single_calls_yield() {
    let content = pattern(0, LEN);
    let (dir, path) = sample(&content);
    let _cached = Cached::new(&path);
    let enough = |what: &str, polls: usize| {
        assert!(polls >= LEN / MOST, "{what}: {polls} polls for {LEN} bytes");
    };
    for engine in copying() {
        let file = open(engine, &path, false);
        let (block, times, _) = polls(|_| file.read(0..LEN as u64 + 10));
        assert!(block.unwrap() == content);
        enough("File::read", times);
        let ((read, bytes), times, _) = polls(|_| file.read_at(vec![0; LEN + 10], 0));
        assert!(read.unwrap() == LEN && bytes[..LEN] == content && bytes[LEN..] == [0; 10]);
        enough("read_at", times);
        let ((read, bytes), times, _) = polls(|_| file.read_exact_at(vec![0; LEN - 1], 1));
        assert!(read.is_ok() && bytes == content[1..]);
        enough("read_exact_at", times);
        for len in [100, 10_000, 100_000] {
            let ranges: Vec<_> =
                (0..LEN / len).map(|at| (at * len) as u64..(at * len + len) as u64).collect();
            let (parts, times, _) =
                polls(async |_| file.read_ranges_each(&ranges, ringway::Coalesce::never()).await);
            assert!(
                parts
                    .unwrap()
                    .iter()
                    .zip(content.chunks(len))
                    .all(|(part, part_of)| *part.as_ref().unwrap() == part_of)
            );
            enough("read_ranges_each", times);
        }
        let (block, times, _) = polls(async |_| file.reader().chunk(LEN).next_block().await);
        assert!(block.unwrap().unwrap() == content);
        enough("next_block of a large chunk", times);
        let (ranges, times, _) = polls(async |_| {
            let mut stream = file.read_ranges_stream(std::iter::repeat_n(5..5, 100_000));
            let mut ranges = 0;
            while let Some(read) = stream.next().await {
                assert!(read.result.unwrap().is_empty());
                ranges += 1;
            }
            ranges
        });
        assert!(ranges == 100_000 && times > 20, "ranges of nothing: {times} polls");
        let (read, times, _) =
            polls(async |_| file.read_ranges_stream(std::iter::once(0..LEN as u64)).next().await);
        assert!(read.unwrap().result.unwrap() == content);
        enough("a stream of one long range", times);
        let (taken, times, _) = polls(async |_| {
            let mut writer = open(engine, &dir.path().join("file"), false).writer();
            writer.write_all(&content).await?;
            writer.flush().await
        });
        taken.unwrap();
        enough("Writer::write_all", times);
        let (taken, times, _) = polls(async |_| {
            let mut writer = open(engine, &dir.path().join("file"), false).writer().chunk(LEN);
            tokio::io::AsyncWriteExt::write_all(&mut writer, &content).await?;
            futures::AsyncWriteExt::flush(&mut writer).await
        });
        taken.unwrap();
        enough("tokio's AsyncWrite", times);
        // An unaligned direct read copies from an aligned buffer.
        let direct = open(engine, &path, true);
        let ((read, bytes), times, _) = polls(|_| direct.read_at(vec![0; LEN], 1));
        assert!(read.unwrap() == LEN - 1 && bytes[..LEN - 1] == content[1..]);
        enough("a direct read that is not aligned", times);
    }
    let (bytes, times, _) = polls(|_| ringway::fs::read(&path));
    assert!(bytes.unwrap() == content);
    enough("fs::read", times);
    // A thread copies the file, so the task need not yield.
    let (copied, ..) = polls(|_| ringway::fs::copy(&path, dir.path().join("copy")));
    assert_eq!(copied.unwrap(), LEN as u64);
    assert!(std::fs::read(dir.path().join("copy")).unwrap() == content);
}

/// A task that has used up tokio's budget yields before it copies.
#[test]
fn tokio_budget_is_respected() {
    use futures::FutureExt;
    let content = pattern(0, 64 * KIB);
    let (_dir, path) = sample(&content);
    for engine in copying() {
        let file = open(engine, &path, false);
        let runtime = current_thread();
        let task = async move {
            let mut reader = file.reader();
            reader.read(&mut [0; 10]).await.unwrap();
            let mut writer = file.writer();
            writer.write_all(b"1").await.unwrap();
            tokio::task::yield_now().await;
            while tokio::task::coop::has_budget_remaining() {
                tokio::task::consume_budget().await;
            }
            assert!(reader.read(&mut [0; 10]).now_or_never().is_none());
            assert!(writer.write_all(b"1").now_or_never().is_none());
            assert!(file.read(0..10).now_or_never().is_none());
            assert!(file.read_at(vec![0; 10], 0).now_or_never().is_none());
            tokio::task::yield_now().await;
            assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 10);
            writer.abandon();
        };
        runtime.block_on(async { tokio::spawn(task).await.unwrap() });
    }
}

/// A read that is always ready comes first in a `select!`, and a timer second: the timer fires,
/// whatever share of tokio's budget the rest of the loop uses.
#[test]
fn a_timer_fires_beside_cached_reads() {
    async fn until_the_timer(mut read: impl AsyncFnMut(), spent: u32) {
        let (begun, mut reads) = (Instant::now(), 0);
        let mut timer = pin!(tokio::time::sleep(Duration::from_millis(2)));
        loop {
            tokio::select! {
                biased;
                () = read() => reads += 1,
                () = &mut timer => return,
            }
            for _ in 0..spent {
                tokio::task::consume_budget().await;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no timer after {reads} reads");
        }
    }
    let content = pattern(0, 64 * KIB);
    let (_dir, path) = sample(&content);
    let _cached = Cached::new(&path);
    for engine in copying() {
        for runtime in [current_thread(), multi_thread(1)] {
            let file = open(engine, &path, false);
            runtime.block_on(async {
                for spent in [0, 1, 3] {
                    let one = file.clone();
                    let byte =
                        async move || assert_eq!(one.read_at(vec![0], 0).await.0.unwrap(), 1);
                    tokio::spawn(until_the_timer(byte, spent)).await.unwrap();
                    let one = file.clone();
                    let block = async move || assert_eq!(one.read(0..1).await.unwrap().len(), 1);
                    until_the_timer(block, spent).await;
                    let mut reader = file.reader();
                    let next = async move || {
                        reader.seek_to(0);
                        reader.read(&mut [0]).await.unwrap();
                    };
                    until_the_timer(next, spent).await;
                }
            });
        }
    }
}
