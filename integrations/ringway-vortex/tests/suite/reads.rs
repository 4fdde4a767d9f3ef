//! Reads of ranges.

use crate::support::{Counting, Sample, bytes, engines, files, host, readers};
use futures::StreamExt;
use ringway::{BackendKind, Engine};
use ringway_vortex::RingwayReadAt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vortex::array::memory::BufferAllocatorRef;
use vortex::buffer::Alignment;
use vortex::io::{CoalesceConfig, ReadAtRequest, VortexReadAt};

const LEN: usize = 3_000_000;

/// Ranges of many lengths and alignments, each within [`LEN`].
fn requests() -> Vec<ReadAtRequest> {
    let lengths = [1, 7, 100, 4096, 5000, 30_000, 65_536, 1_000_003];
    let mut requests = Vec::new();
    for (index, length) in lengths.into_iter().enumerate() {
        for align in [1, 8, 64, 512, 4096, 65_536] {
            let offset = (index * 130_001) % (LEN - length);
            for offset in [offset, offset - offset % align] {
                requests.push(ReadAtRequest::new(offset as u64, length, Alignment::new(align)));
            }
        }
    }
    requests
}

fn expected(content: &[u8], request: ReadAtRequest) -> &[u8] {
    &content[request.offset as usize..][..request.length]
}

#[tokio::test]
async fn each_range_has_its_bytes_and_its_alignment() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    for reader in readers(&sample.path).await {
        assert_eq!(reader.size().await.unwrap(), LEN as u64);
        for request in requests() {
            let ReadAtRequest { offset, length, alignment } = request;
            let found = host(reader.read_at(offset, length, alignment).await.unwrap()).await;
            assert!(*found == *expected(&content, request), "{request:?}");
            assert!(found.alignment().is_aligned_to(alignment), "{request:?}");
            assert_eq!(found.as_ptr().addr() % alignment.as_usize(), 0, "{request:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_has_each_request_once() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    for reader in readers(&sample.path).await {
        let requests: Arc<[ReadAtRequest]> = requests().into();
        let found: Vec<_> = reader.read_ranges(Arc::clone(&requests)).collect().await;
        assert_eq!(found.len(), requests.len());
        let mut left: Vec<_> = requests.to_vec();
        for (request, result) in found {
            let at = left.iter().position(|left| *left == request).expect("asked for");
            left.swap_remove(at);
            let found = host(result.unwrap()).await;
            assert!(*found == *expected(&content, request), "{request:?}");
            assert_eq!(found.as_ptr().addr() % request.alignment.as_usize(), 0, "{request:?}");
        }
        assert!(left.is_empty());
    }
}

#[tokio::test]
async fn a_failed_range_keeps_none_of_the_others_back() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    for reader in readers(&sample.path).await {
        let at = |offset| ReadAtRequest::new(offset, 1000, Alignment::none());
        let requests: Arc<[_]> = [at(LEN as u64 - 1), at(0), at(u64::MAX), at(5000)].into();
        let found: Vec<_> = reader.read_ranges(requests).collect().await;
        let good: HashSet<_> =
            found.iter().filter(|(_, found)| found.is_ok()).map(|(at, _)| at.offset).collect();
        assert_eq!((found.len(), good), (4, HashSet::from([0, 5000])));
    }
}

#[tokio::test]
async fn vortex_gets_the_settings() {
    let sample = Sample::of(b"content");
    let reader = RingwayReadAt::open(&sample.path).await.unwrap();
    assert_eq!(reader.uri().unwrap().as_ref(), sample.path.to_str().unwrap());
    let file = CoalesceConfig::file();
    let found = reader.coalesce_config().unwrap();
    assert_eq!((found.distance, found.max_size), (file.distance, file.max_size));
    assert_eq!(reader.concurrency(), 32);
    let reader = reader.with_concurrency(0).with_coalesce_config(CoalesceConfig::new(1, 2));
    // Vortex panics if it is 0.
    assert_eq!(reader.concurrency(), 1);
    let reader = reader.with_concurrency(usize::MAX);
    // There are no more in a stream of ranges.
    assert_eq!(reader.concurrency(), 1024);
    let found = reader.coalesce_config().unwrap();
    assert_eq!((found.distance, found.max_size), (1, 2));
}

#[tokio::test]
async fn reads_use_the_allocator() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    for reader in readers(&sample.path).await {
        let live = Arc::new(AtomicUsize::new(0));
        let allocator = BufferAllocatorRef::new(Counting::new(Arc::clone(&live), Arc::default()));
        let reader = reader.with_allocator(allocator);
        let mut all = Vec::new();
        let mut stream = reader.read_ranges(requests().into());
        while let Some((request, result)) = stream.next().await {
            let found = host(result.unwrap()).await;
            assert!(*found == *expected(&content, request), "{request:?}");
            assert_eq!(found.as_ptr().addr() % request.alignment.as_usize(), 0, "{request:?}");
            all.push(found);
        }
        assert!(live.load(Ordering::Relaxed) >= all.iter().map(|found| found.len()).sum());
        drop(all);
        assert_eq!(live.load(Ordering::Relaxed), 0);
    }
}

/// Memory of the engine's pool is in use as long as Vortex has it, and no longer.
#[tokio::test]
async fn memory_returns_to_the_pool() {
    let sample = Sample::of(&bytes(LEN));
    for engine in engines() {
        let reader = RingwayReadAt::new(engine.open(&sample.path).await.unwrap(), "sample");
        let found = host(reader.read_at(0, 1 << 20, Alignment::new(64)).await.unwrap()).await;
        let part = found.slice(0..64);
        drop(found);
        assert!(engine.stats().pool.in_use >= 1 << 20);
        drop(part);
        assert_eq!(engine.stats().pool.in_use, 0);
    }
}

/// A range within another one is read with it, and does not keep its memory.
#[tokio::test]
async fn a_small_range_does_not_keep_a_long_one() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    for engine in engines() {
        for file in files(&sample.path, &engine).await {
            let reader = RingwayReadAt::new(file, "sample");
            let small = ReadAtRequest::new(1 << 20, 500, Alignment::new(256));
            let requests = [ReadAtRequest::new(0, LEN, Alignment::new(64)), small];
            let found: HashMap<_, _> = reader
                .read_ranges(requests.into())
                .map(|(request, found)| (request.length, found.unwrap()))
                .collect()
                .await;
            assert!(engine.stats().pool.in_use >= LEN as u64);
            let kept = host(found[&500].clone()).await;
            drop(found);
            assert_eq!(engine.stats().pool.in_use, 0);
            assert!(*kept == *expected(&content, small));
            assert_eq!(kept.as_ptr().addr() % 256, 0);
        }
    }
}

#[test]
fn any_executor_will_do() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    for engine in [Engine::builder().build().unwrap(), threads] {
        let found = futures::executor::block_on(async {
            let reader = RingwayReadAt::new(engine.open(&sample.path).await.unwrap(), "sample");
            host(reader.read_at(10, LEN - 10, Alignment::none()).await.unwrap()).await
        });
        assert!(*found == content[10..]);
    }
}
