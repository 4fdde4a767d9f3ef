//! What the comparison with `LocalFileSystem` does not show: the memory of what is read, streams
//! that are dropped, tasks that yield, and errors in the middle.

use super::object_store::path::Path;
use super::object_store::{GetOptions, ObjectStore, ObjectStoreExt};
use super::ringway_store::RingwayFileSystem;
use crate::common::{current_thread, engines, pattern, scratch, write};
use crate::evict::{cached_pages, evict};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use ringway::{Coalesce, Engine, FaultPlan};
use ringway_object_store::{ReadAhead, read_ranges};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const CHUNK: usize = 64 << 10;
const LEN: usize = 40 * CHUNK + 100;

/// A store with the object `large` of `LEN` bytes, which is streamed in chunks.
fn large(engine: &Engine) -> (TempDir, RingwayFileSystem) {
    let dir = scratch();
    write(&dir.path().join("large"), &pattern(LEN));
    let read_ahead = ReadAhead::default().one_chunk(CHUNK as u64).chunk(CHUNK).depth(3);
    let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
    (dir, store.with_engine(engine).with_read_ahead(read_ahead))
}

fn location() -> Path {
    Path::from("large")
}

/// The address of the first byte.
fn address(bytes: &Bytes) -> usize {
    bytes.as_ptr().addr()
}

/// The address of the memory that the pool gives a read of this length on this thread.
async fn pooled(store: &RingwayFileSystem, len: u64) -> usize {
    let (file, _) = store.open(&location()).await.unwrap();
    file.read(0..len).await.unwrap().as_ptr().addr()
}

/// `Bytes` are the memory of the pool that the kernel filled: reading again after they are dropped
/// uses the same memory.
#[test]
fn nothing_is_copied() {
    for engine in engines(|builder| builder.shards(1)) {
        for direct in [false, true] {
            let (_dir, store) = large(&engine);
            let store = store.with_direct(direct);
            current_thread().block_on(async {
                let wanted = pooled(&store, CHUNK as u64).await;
                let bytes = store.get_range(&location(), 0..CHUNK as u64).await.unwrap();
                assert_eq!(address(&bytes), wanted, "get_range, direct: {direct}");
                drop(bytes);

                let ranges = [0..100, CHUNK as u64 - 50..CHUNK as u64, 200..300];
                let coalesce = Coalesce::default().max_gap(CHUNK as u64).max_amplification(1e9);
                let store = store.with_coalesce(coalesce);
                let parts = store.get_ranges(&location(), &ranges).await.unwrap();
                let offsets = [0, CHUNK - 50, 200].map(|offset| wanted + offset);
                assert_eq!(parts.iter().map(address).collect::<Vec<_>>(), offsets, "get_ranges");
                drop(parts);

                let got = store.get(&location()).await.unwrap();
                let mut chunks = got.into_stream();
                let first = chunks.next().await.unwrap().unwrap();
                assert_eq!(first.len(), CHUNK);
                let kept = address(&first);
                drop((first, chunks));
                // Reads ahead may still be in flight and have memory of their own.
                until_idle(&engine).await;
                let mut blocks = Vec::new();
                let (file, _) = store.open(&location()).await.unwrap();
                while !blocks.iter().any(|block: &ringway::Block| block.as_ptr().addr() == kept) {
                    assert!(blocks.len() < 10, "the memory of a chunk returns to the pool");
                    blocks.push(file.read(0..CHUNK as u64).await.unwrap());
                }
            });
        }
    }
}

/// A slice that is kept pins the read that it is part of, and no other. With `Coalesce::never` each
/// range has memory of its own.
#[test]
fn ranges_that_are_not_coalesced_share_no_memory() {
    for engine in engines(|builder| builder.shards(1)) {
        let (_dir, store) = large(&engine);
        let ranges = [0..4096, 4096..8192, 8192..12_288];
        current_thread().block_on(async {
            let apart = store.clone().with_coalesce(Coalesce::never());
            let parts = apart.get_ranges(&location(), &ranges).await.unwrap();
            let kept = parts[1].clone();
            drop(parts);
            let others = apart.get_ranges(&location(), &ranges).await.unwrap();
            assert!(others.iter().all(|other| address(other) != address(&kept)));
            assert_eq!(kept[..], pattern(8192)[4096..]);

            let together = store.with_coalesce(Coalesce::default().max_read(8192));
            let parts = together.get_ranges(&location(), &ranges).await.unwrap();
            assert_eq!(address(&parts[1]) - address(&parts[0]), 4096);
            assert_ne!(address(&parts[2]).wrapping_sub(address(&parts[1])), 4096, "max_read");
        });
    }
}

/// Without advice the kernel reads on after the first pages of a file.
#[test]
fn no_more_than_the_ranges_is_read() {
    for engine in engines(|builder| builder) {
        let (dir, store) = large(&engine);
        let file = std::fs::File::open(dir.path().join("large")).unwrap();
        evict(&file);
        let first = [0..4096];
        let parts = current_thread().block_on(store.get_ranges(&location(), &first)).unwrap();
        assert_eq!(parts[0], pattern(4096));
        assert!(cached_pages(&file).iter().all(|page| *page == 0), "{:?}", cached_pages(&file));

        evict(&file);
        let parts = current_thread().block_on(async {
            let (file, _) = store.open(&location()).await.unwrap();
            read_ranges(&file, &first, Coalesce::default()).await
        });
        assert_eq!(parts.unwrap()[0], pattern(4096));
        assert!(cached_pages(&file).iter().all(|page| *page == 0), "{:?}", cached_pages(&file));
    }
}

/// What `read_ranges` does with ranges that the file does not have, and with none.
#[test]
fn ranges_that_cannot_be_read() {
    for engine in engines(|builder| builder) {
        for direct in [false, true] {
            let (_dir, store) = large(&engine);
            let store = store.with_direct(direct);
            current_thread().block_on(async {
                let (file, meta) = store.open(&location()).await.unwrap();
                let coalesce = Coalesce::default();
                let len = meta.size;
                for beyond in [len - 1..len + 1, len..len + 1, 7..1 << 60, 7..u64::MAX] {
                    let ranges = [0..9, beyond.clone()];
                    let error = read_ranges(&file, &ranges, coalesce).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{beyond:?}: {error}");
                    let range = format!("{}..{}", beyond.start, beyond.end);
                    assert!(error.to_string().contains(&range), "{error}");
                }
                for backwards in [Range { start: 9, end: 2 }, Range { start: u64::MAX, end: 2 }] {
                    let ranges = [0..9, backwards];
                    let error = read_ranges(&file, &ranges, coalesce).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                }
                let ranges = [9..9, len..len, u64::MAX..u64::MAX, 0..5];
                let parts = read_ranges(&file, &ranges, coalesce).await.unwrap();
                assert_eq!(parts.concat(), pattern(5));
                assert_eq!(parts.len(), 4);
                assert!(read_ranges(&file, &[], coalesce).await.unwrap().is_empty());
            });
        }
    }
}

/// Waits until nothing is in flight.
async fn until_idle(engine: &Engine) {
    while engine.stats().counts.in_flight > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_dropped_stream_leaves_nothing_in_flight() {
    for engine in engines(|builder| builder) {
        let (_dir, store) = large(&engine);
        let store = store.with_direct(true);
        current_thread().block_on(async {
            for chunks in 0..5 {
                let got = store.get(&location()).await.unwrap();
                let read: Vec<_> = got.into_stream().take(chunks).try_collect().await.unwrap();
                assert_eq!(read.concat(), pattern(chunks * CHUNK));
            }
            // Dropped while the first read is in flight.
            let mut chunks = store.get(&location()).await.unwrap().into_stream();
            tokio::select! {
                biased;
                _ = chunks.next() => {}
                () = std::future::ready(()) => {}
            }
            drop(chunks);
            until_idle(&engine).await;
            let counts = engine.stats().counts;
            assert_eq!(counts.pushed, counts.delivered + counts.orphaned, "{counts:?}");
        });
    }
}

#[test]
fn a_stream_of_cached_data_yields() {
    for engine in engines(|builder| builder) {
        let (_dir, store) = large(&engine);
        current_thread().block_on(async {
            let ran = Arc::new(AtomicBool::new(false));
            let other = tokio::spawn({
                let ran = ran.clone();
                async move { ran.store(true, Ordering::Relaxed) }
            });
            let mut chunks = store.get(&location()).await.unwrap().into_stream();
            let mut content = Vec::new();
            while let Some(chunk) = chunks.next().await {
                content.extend_from_slice(&chunk.unwrap());
            }
            assert!(ran.load(Ordering::Relaxed), "another task ran before the stream ended");
            assert_eq!(content, pattern(LEN));
            other.await.unwrap();
        });
    }
}

/// A file that becomes shorter while it is streamed is an error with its path, after the chunks
/// before.
#[test]
fn a_stream_of_a_shortened_file_ends_with_an_error() {
    for engine in engines(|builder| builder) {
        let (dir, store) = large(&engine);
        let path = dir.path().join("large");
        current_thread().block_on(async {
            let store =
                store.with_read_ahead(ReadAhead::default().one_chunk(0).chunk(CHUNK).depth(0));
            let mut chunks = store.get(&location()).await.unwrap().into_stream();
            assert_eq!(chunks.next().await.unwrap().unwrap().len(), CHUNK);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(3 * CHUNK as u64 / 2).unwrap();
            assert_eq!(chunks.next().await.unwrap().unwrap().len(), CHUNK / 2);
            let error = chunks.next().await.unwrap().unwrap_err().to_string();
            let wanted = format!(
                "Generic RingwayFileSystem error: \
                 Out of range of file {}, expected: {}, actual: {}",
                path.canonicalize().unwrap().display(),
                3 * CHUNK / 2,
                3 * CHUNK / 2
            );
            assert_eq!(error, wanted);
            assert!(chunks.next().await.is_none());
        });
    }
}

/// A device that fails now and then: each stream has the right bytes, or ends with an error that
/// names the path.
#[test]
fn errors_in_the_middle_name_the_path() {
    let expected = pattern(LEN);
    let faulty = FaultPlan::new(11).errors(60).short(200).delay(200, 4).reorder(300);
    for engine in engines(|builder| builder.faults(faulty.clone())) {
        let (dir, store) = large(&engine);
        let store = store.with_direct(true);
        let path = dir.path().canonicalize().unwrap().join("large");
        let (mut failed, mut complete) = (0, 0);
        current_thread().block_on(async {
            for _ in 0..60 {
                let options = GetOptions::new().with_range(Some(5..LEN as u64));
                let got = match store.get_opts(&location(), options).await {
                    Ok(got) => got,
                    Err(error) => {
                        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
                        continue;
                    }
                };
                let mut chunks = got.into_stream();
                let mut content = Vec::new();
                let mut error = None;
                while let Some(chunk) = chunks.next().await {
                    assert!(error.is_none(), "nothing follows an error");
                    match chunk {
                        Ok(chunk) => content.extend_from_slice(&chunk),
                        Err(failure) => error = Some(failure.to_string()),
                    }
                }
                assert_eq!(content, expected[5..5 + content.len()]);
                match error {
                    Some(error) => {
                        assert!(error.contains(path.to_str().unwrap()), "{error}");
                        failed += 1;
                    }
                    None => {
                        assert_eq!(content.len(), LEN - 5);
                        complete += 1;
                    }
                }
            }
        });
        assert!(failed > 0, "{} {complete}", engine.backend());
    }
}
