//! Futures and streams that are dropped.

use crate::support::{Counting, Sample, bytes, engines, host};
use futures::{FutureExt, StreamExt};
use ringway::Engine;
use ringway_vortex::RingwayReadAt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vortex::array::memory::BufferAllocatorRef;
use vortex::buffer::Alignment;
use vortex::io::{ReadAtRequest, VortexReadAt};

const LEN: usize = 8 << 20;

/// How many descriptors of this process lead to a file.
fn descriptors(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path)).count()
}

/// Readers of the file with memory of the engine's pool, and of an allocator that counts `live`.
async fn readers(engine: &Engine, live: &Arc<AtomicUsize>, path: &Path) -> [RingwayReadAt; 2] {
    let pooled = RingwayReadAt::new(engine.open(path).await.unwrap(), "sample");
    let other = RingwayReadAt::new(engine.open(path).await.unwrap(), "sample");
    let allocator = Counting::new(Arc::clone(live), Arc::default());
    [pooled, other.with_allocator(BufferAllocatorRef::new(allocator))]
}

/// Waits until the file is closed, and nothing of the engine or the allocator is in flight or in
/// use.
async fn settles(engine: Option<&Engine>, live: &AtomicUsize, path: &Path) {
    let stats = || engine.map(Engine::stats);
    let live = || live.load(Ordering::Relaxed);
    for _ in 0..1000 {
        let idle = stats().is_none_or(|now| now.counts.in_flight == 0 && now.pool.in_use == 0);
        if idle && live() == 0 && descriptors(path) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}, {} bytes, {} descriptors", stats(), live(), descriptors(path));
}

/// Drops pages from the cache, so that a read takes some time.
fn evict(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[tokio::test]
async fn dropped_reads_leave_nothing() {
    let content = bytes(LEN);
    let sample = Sample::of(&content);
    let live = Arc::default();
    for engine in engines() {
        for polls in 0..4 {
            for reader in readers(&engine, &live, &sample.path).await {
                evict(&sample.path);
                let at = |index: usize| {
                    ReadAtRequest::new((index * 500_000) as u64, 500_000, Alignment::new(64))
                };
                let mut alone = reader.read_at(0, LEN, Alignment::none()).fuse();
                let mut batch = reader.read_ranges((0..16).map(at).collect::<Vec<_>>().into());
                // The file stays open for what is in flight.
                drop(reader);
                for _ in 0..polls {
                    let _ = (&mut alone).now_or_never();
                    let _ = batch.next().now_or_never();
                    tokio::task::yield_now().await;
                }
                drop((alone, batch));
            }
            settles(Some(&engine), &live, &sample.path).await;
        }
        let reader = RingwayReadAt::new(engine.open(&sample.path).await.unwrap(), "sample");
        let found = host(reader.read_at(0, LEN, Alignment::none()).await.unwrap()).await;
        assert!(*found == *content);
    }
}

/// Vortex drops its stream with the runtime.
#[test]
fn a_runtime_that_ends_leaves_nothing() {
    let sample = Sample::of(&bytes(LEN));
    let live = Arc::default();
    for engine in engines() {
        evict(&sample.path);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for reader in runtime.block_on(readers(&engine, &live, &sample.path)) {
            for index in 0..16 {
                let read = reader.read_at(index * 500_000, 500_000, Alignment::none());
                runtime.spawn(read);
            }
        }
        drop(runtime);
        let after = tokio::runtime::Runtime::new().unwrap();
        after.block_on(settles(Some(&engine), &live, &sample.path));
    }
}

#[tokio::test]
async fn a_dropped_open_leaves_nothing() {
    let sample = Sample::of(&bytes(10));
    for _ in 0..50 {
        let mut open = std::pin::pin!(RingwayReadAt::open(&sample.path));
        let _ = (&mut open).now_or_never();
    }
    // Other tests use the global engine.
    settles(None, &AtomicUsize::new(0), &sample.path).await;
}
