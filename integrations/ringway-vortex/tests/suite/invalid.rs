//! Files and ranges that cannot be read.

use crate::support::{Counting, Sample, bytes, engines, files, host, io_error, readers};
use futures::StreamExt;
use ringway_vortex::{OpenWithRingway, RingwayReadAt};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vortex::VortexSessionDefault;
use vortex::array::memory::BufferAllocatorRef;
use vortex::buffer::Alignment;
use vortex::file::OpenOptionsSessionExt;
use vortex::io::{ReadAtRequest, VortexReadAt};
use vortex::session::VortexSession;

#[tokio::test]
async fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing");
    let error = RingwayReadAt::open(&path).await.unwrap_err();
    assert_eq!(io_error(&error).raw_os_error(), Some(2));
    let text = error.to_string();
    assert!(text.contains("ringway: open") && text.contains(path.to_str().unwrap()), "{text}");
    let options = VortexSession::default().open_options();
    let error = options.open_path_with_ringway(&path).await.err().unwrap();
    assert_eq!(io_error(&error).raw_os_error(), Some(2));
}

#[tokio::test]
async fn a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let file = engine.open(dir.path()).await.unwrap();
        let reader = RingwayReadAt::new(file, dir.path().to_string_lossy());
        let error = reader.read_at(0, 10, Alignment::none()).await.unwrap_err();
        assert_eq!(io_error(&error).raw_os_error(), Some(21), "{error}");
        let huge = reader.read_at(0, 65 << 20, Alignment::none()).await.unwrap_err();
        assert_eq!(io_error(&huge).raw_os_error(), Some(21), "{huge}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    }
    let options = VortexSession::default().open_options();
    let error = options.open_path_with_ringway(dir.path()).await.err().unwrap();
    assert_eq!(io_error(&error).raw_os_error(), Some(21), "{error}");
}

/// What a read of a range fails with, alone and in a batch.
async fn failure(reader: &RingwayReadAt, offset: u64, length: usize) -> ErrorKind {
    let alone = reader.read_at(offset, length, Alignment::new(64)).await.unwrap_err();
    let text = alone.to_string();
    assert!(text.contains(&format!("read {length} bytes at {offset} of /")), "{text}");
    let request = ReadAtRequest::new(offset, length, Alignment::new(64));
    let mut batch = reader.read_ranges(Arc::from([request, request]));
    for _ in 0..2 {
        let (found, result) = batch.next().await.unwrap();
        assert_eq!(found, request);
        assert_eq!(io_error(&result.unwrap_err()).kind(), io_error(&alone).kind());
    }
    assert!(batch.next().await.is_none());
    io_error(&alone).kind()
}

#[tokio::test]
async fn a_range_beyond_the_end_is_an_error() {
    let sample = Sample::of(&bytes(100_000));
    for reader in readers(&sample.path).await {
        let all = reader.read_at(0, 100_000, Alignment::none()).await.unwrap();
        assert!(*host(all).await == *bytes(100_000));
        for (offset, length) in [(0, 100_001), (99_999, 2), (100_000, 1), (1 << 40, 1)] {
            let found = failure(&reader, offset, length).await;
            assert_eq!(found, ErrorKind::UnexpectedEof, "{length} at {offset}");
        }
    }
}

#[tokio::test]
async fn a_huge_range_is_an_error() {
    let sample = Sample::of(&bytes(100_000));
    for reader in readers(&sample.path).await {
        for length in [65 << 20, 1 << 40, isize::MAX as usize - (1 << 20)] {
            let found = failure(&reader, 0, length).await;
            assert_eq!(found, ErrorKind::UnexpectedEof, "{length}");
        }
        // As its last byte alone: the block of direct I/O around it ends above i64::MAX.
        let last = i64::MAX as u64;
        let alone = failure(&reader, last - 1, 1).await;
        assert_eq!(failure(&reader, 0, isize::MAX as usize).await, alone);
        assert!([ErrorKind::UnexpectedEof, ErrorKind::InvalidInput].contains(&alone), "{alone}");
        let huge = [(0, usize::MAX), (last, 65 << 20), (last - 50, 65 << 20), (u64::MAX, 65 << 20)];
        for (offset, length) in [(last, 100), (u64::MAX, 100)].into_iter().chain(huge) {
            let found = failure(&reader, offset, length).await;
            assert_eq!(found, ErrorKind::InvalidInput, "{length} at {offset}");
        }
    }
}

/// No memory is allocated for what the file does not have, from above 64 MiB on.
#[tokio::test]
async fn a_huge_range_takes_no_memory() {
    let sample = Sample::of(&bytes(100_000));
    for engine in engines() {
        for file in files(&sample.path, &engine).await {
            let allocated = Arc::new(AtomicUsize::new(0));
            let pooled = RingwayReadAt::new(file.clone(), "sample");
            let allocator = Counting::new(Arc::default(), Arc::clone(&allocated));
            let reader = pooled.clone().with_allocator(BufferAllocatorRef::new(allocator));
            for length in [65 << 20, 1 << 40] {
                let request = ReadAtRequest::new(0, length, Alignment::new(64));
                let mut reads =
                    [pooled.read_ranges([request].into()), reader.read_ranges([request].into())];
                for read in &mut reads {
                    let found = poll_fn(|context| {
                        let found = read.poll_next_unpin(context);
                        let in_use = engine.stats().pool.in_use;
                        assert!(in_use < 1 << 20, "{in_use}");
                        found
                    });
                    assert!(found.await.unwrap().1.is_err());
                }
            }
            assert_eq!(allocated.load(Ordering::Relaxed), 0);
        }
    }
}

/// The size of such a file is 0.
#[tokio::test]
async fn a_huge_range_is_read_whatever_the_size_says() {
    let path = Path::new("/proc/self/pagemap");
    // A kernel may be without it.
    if !path.exists() {
        return;
    }
    let length = (64 << 20) + 4096;
    for reader in readers(path).await {
        assert_eq!(reader.size().await.unwrap(), 0);
        let found = reader.read_at(0, length, Alignment::none()).await.unwrap();
        assert_eq!(found.len(), length);
    }
}

#[tokio::test]
async fn an_empty_range_is_read_from_nothing() {
    let sample = Sample::of(&bytes(10));
    for reader in readers(&sample.path).await {
        for offset in [0, 10, 11, u64::MAX] {
            let request = ReadAtRequest::new(offset, 0, Alignment::new(4096));
            let alone = reader.read_at(offset, 0, request.alignment).await.unwrap();
            let batch: Vec<_> = reader.read_ranges(Arc::from([request])).collect().await;
            let [(found, Ok(batched))] = &batch[..] else { panic!("{batch:?}") };
            assert_eq!(*found, request);
            for found in [alone, batched.clone()] {
                let found = host(found).await;
                assert!(found.is_empty() && found.alignment() == request.alignment);
            }
        }
        assert!(reader.read_ranges(Arc::from([])).next().await.is_none());
    }
}

/// Vortex's own reader says the same of them.
#[tokio::test]
async fn no_vortex_file_is_an_error() {
    for content in [vec![], bytes(7), bytes(200_000)] {
        let sample = Sample::of(&content);
        let session = VortexSession::default();
        let theirs = session.open_options().open_path(&sample.path).await.err().unwrap();
        let ours = session.open_options().open_path_with_ringway(&sample.path).await;
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(ours.err().unwrap().to_string()), first(theirs.to_string()));
    }
}
