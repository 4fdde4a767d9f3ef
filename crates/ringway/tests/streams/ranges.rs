//! Ranges as a stream: each is answered once with its bytes, the number of reads in flight stays at
//! the depth and within the limits, and errors and drops affect no other range.

use crate::common::watchdog::Watchdog;
use crate::common::{BACKENDS, build_or_skip, open, pattern, poll_once, wait_until_idle};
use crate::files::{engines, failing, sample};
use futures::StreamExt;
use futures::executor::block_on;
use proptest::prelude::*;
use ringway::{Block, Coalesce, Engine, Reaping};
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const LEN: usize = 300_000;

/// The bytes of a range, as far as the file has them.
fn expected(content: &[u8], range: &Range<u64>) -> Vec<u8> {
    let end = content.len().min(range.end as usize);
    content[(range.start as usize).min(end)..end].to_vec()
}

#[derive(Clone, Debug)]
struct Case {
    ranges: Vec<Range<u64>>,
    coalesce: Coalesce,
    depth: usize,
    max_bytes: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let len = prop_oneof![Just(0u64), 1u64..5000, 0u64..100_000];
    let range = (0u64..LEN as u64 + 10_000, len).prop_map(|(start, len)| start..start + len);
    let coalesce = prop_oneof![Just(Coalesce::never()), Just(Coalesce::default())];
    let max_bytes = prop_oneof![Just(0), Just(20_000), Just(1 << 30)];
    (proptest::collection::vec(range, 0..60), coalesce, 1usize..40, max_bytes).prop_map(
        |(ranges, coalesce, depth, max_bytes)| Case { ranges, coalesce, depth, max_bytes },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any ranges, on each backend, with and without operations that are delayed, shortened and
    /// retried.
    #[test]
    fn each_range_is_answered_once_with_its_bytes(case in cases(), direct: bool) {
        let content = pattern(0, LEN);
        let (_dir, path) = sample(&content);
        for engine in engines() {
            let stream = open(engine, &path, direct).read_ranges_stream(case.ranges.clone());
            let stream = stream.coalesce(case.coalesce).depth(case.depth).max_bytes(case.max_bytes);
            let mut seen = vec![false; case.ranges.len()];
            for read in block_on(stream.collect::<Vec<_>>()) {
                prop_assert_eq!(&read.range, &case.ranges[read.index]);
                let was_seen = std::mem::replace(&mut seen[read.index], true);
                prop_assert!(!was_seen, "range {} was answered twice", read.index);
                let block = read.result.unwrap();
                prop_assert!(block == expected(&content, &read.range), "range {}", read.index);
            }
            prop_assert!(!seen.contains(&false), "a range is missing");
            wait_until_idle(engine);
        }
    }
}

/// Runs a stream on engines that reap manually. Calls `look` after each range with the engine and
/// the number of ranges so far.
fn with_manual_reaping(
    depth: usize,
    max_bytes: usize,
    len: u64,
    count: u64,
    mut look: impl FnMut(&Engine, u64),
) {
    let content = pattern(0, LEN);
    let (_dir, path) = sample(&content);
    for kind in BACKENDS {
        let builder = Engine::builder().shards(1).reaping(Reaping::Manual);
        let Some(engine) = build_or_skip(kind, builder) else { continue };
        let _watch = Watchdog::new("a stream with manual reaping");
        let ranges = (0..count).map(|at| {
            let start = at * 7 % 32 * 4096;
            start..start + len
        });
        let stream = open(&engine, &path, true).read_ranges_stream(ranges);
        let mut stream = pin!(stream.depth(depth).max_bytes(max_bytes).coalesce(Coalesce::never()));
        let mut yielded = 0;
        loop {
            match stream.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(read)) => {
                    read.result.unwrap();
                    yielded += 1;
                    look(&engine, yielded);
                }
                Poll::Ready(None) => break,
                Poll::Pending => _ = engine.reap(),
            }
        }
        assert_eq!(yielded, count);
    }
}

#[test]
fn the_depth_is_kept_across_windows() {
    const DEPTH: u64 = 8;
    const COUNT: u64 = 1500;
    // Equal ranges that are planned together share one read, so these ranges are all different.
    let different = |at: u64| at * 4096..at * 4096 + 512;
    let content = pattern(0, 4096 * COUNT as usize);
    let (_dir, path) = sample(&content);
    let engine = Engine::builder().shards(1).reaping(Reaping::Manual).build().unwrap();
    let mut stream = open(&engine, &path, true).read_ranges_stream((0..COUNT).map(different));
    stream = stream.depth(DEPTH as usize).coalesce(Coalesce::never());
    let _watch = Watchdog::new("the_depth_is_kept_across_windows");
    let mut yielded = 0;
    while yielded < COUNT {
        let polled = stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(read) = polled {
            read.unwrap().result.unwrap();
            yielded += 1;
            // The read of the last range is replaced at the next poll.
            let submitted = (yielded + DEPTH - 1).min(COUNT);
            assert_eq!(engine.stats().counts.pushed, submitted, "after {yielded} ranges");
        } else {
            engine.reap();
        }
    }
}

#[test]
fn memory_in_flight_is_bounded() {
    let most = |depth, max_bytes, len| {
        let mut most = 0;
        with_manual_reaping(depth, max_bytes, len, 40, |engine, _| {
            most = most.max(engine.stats().counts.in_flight)
        });
        most
    };
    assert!(most(16, 1 << 30, 65_536) <= 16);
    assert!(most(16, 4 * 65_536, 65_536) <= 4);
    assert!(most(16, 0, 65_536) <= 1, "a read that exceeds the limit is submitted alone");
}

#[test]
fn an_endless_iterator_of_ranges() {
    let content = pattern(0, LEN);
    let (_dir, path) = sample(&content);
    for engine in engines() {
        for direct in [false, true] {
            let taken = std::cell::Cell::new(0u64);
            // Too far apart to coalesce, also in blocks of 4 KiB.
            let ranges = (0u64..).map(|at| {
                taken.set(taken.get() + 1);
                at % 15 * 20_000..at % 15 * 20_000 + 100
            });
            let mut stream = open(engine, &path, direct).read_ranges_stream(ranges).depth(4);
            block_on(async {
                for _ in 0..1000 {
                    let read = stream.next().await.unwrap();
                    assert!(read.result.unwrap() == expected(&content, &read.range));
                }
            });
            drop(stream);
            assert!(taken.get() <= 1000 + 2 * 256, "{} ranges were taken", taken.get());
            wait_until_idle(engine);
        }
    }
}

#[test]
fn each_range_has_its_own_error() {
    let content = pattern(0, LEN);
    let (_dir, path) = sample(&content);
    let backwards = Range { start: 9, end: 3 };
    let mut ranges: Vec<_> = (0..200).map(|at| at * 1000..at * 1000 + 10).collect();
    ranges.extend([backwards, 0..u64::MAX, 5..5]);
    let file = open(&failing(300), &path, false);
    let mut results: Vec<Option<io::Result<Block>>> = ranges.iter().map(|_| None).collect();
    for read in block_on(
        file.read_ranges_stream(ranges.clone()).coalesce(Coalesce::never()).collect::<Vec<_>>(),
    ) {
        assert!(results[read.index].replace(read.result).is_none());
    }
    let results: Vec<_> = results.into_iter().map(Option::unwrap).collect();
    let failed = results[..200].iter().filter(|result| result.is_err()).count();
    assert!((1..200).contains(&failed), "{failed} of 200");
    for (range, result) in ranges.iter().zip(&results).take(200) {
        match result {
            Ok(block) => assert!(*block == expected(&content, range)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
        }
    }
    for bad in &results[200..202] {
        assert_eq!(bad.as_ref().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(results[202].as_ref().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_be_dropped_at_any_point() {
    let (_dir, path) = sample(&pattern(0, LEN));
    for engine in engines() {
        for direct in [false, true] {
            for yielded in 0..6 {
                let ranges = (0..100u64).map(|at| at * 2500..at * 2500 + 2000);
                let mut stream = open(engine, &path, direct).read_ranges_stream(ranges).depth(8);
                for _ in 0..yielded {
                    stream.next().await.unwrap().result.unwrap();
                }
                let mut next = Box::pin(stream.next());
                let _ = futures::poll!(&mut next);
                drop(next);
                drop(stream);
                wait_until_idle(engine);
            }
        }
    }
}

/// The task that polled last is woken: a stream that one task began continues in another.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_moves_between_tasks() {
    let content = pattern(0, LEN);
    let (_dir, path) = sample(&content);
    for engine in engines() {
        let ranges = (0..300u64).map(|at| at * 1000..at * 1000 + 1000);
        let mut stream = open(engine, &path, true)
            .read_ranges_stream(ranges)
            .depth(8)
            .coalesce(Coalesce::never());
        let _watch = Watchdog::new("a_stream_moves_between_tasks");
        let mut seen = 0;
        loop {
            {
                // A poll with a waker that wakes nobody.
                let mut next = pin!(stream.next());
                if let Poll::Ready(read) = poll_once(next.as_mut()) {
                    if read.is_none() {
                        break;
                    }
                    seen += 1;
                }
            }
            let task = tokio::spawn(async move {
                let read = stream.next().await;
                (stream, read)
            });
            let (back, read) = task.await.unwrap();
            stream = back;
            let Some(read) = read else { break };
            assert!(read.result.unwrap() == expected(&content, &read.range));
            seen += 1;
        }
        assert_eq!(seen, 300);
    }
}
