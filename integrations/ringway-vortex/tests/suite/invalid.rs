//! Files and ranges that cannot be read.

use crate::support::{Sample, bytes, engines, host, io_error, readers};
use futures::StreamExt;
use ringway_vortex::{OpenWithRingway, RingwayReadAt};
use std::io::ErrorKind;
use std::sync::Arc;
use vortex::VortexSessionDefault;
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
    let error = options.open_path_with_ringway(path).await.err().unwrap();
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
        assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    }
    let options = VortexSession::default().open_options();
    let error = options.open_path_with_ringway(dir.path().to_owned()).await.err().unwrap();
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

/// No memory is allocated for what the file does not have.
#[tokio::test]
async fn a_huge_range_is_an_error() {
    let sample = Sample::of(&bytes(100_000));
    for reader in readers(&sample.path).await {
        for length in [65 << 20, 1 << 40, isize::MAX as usize, usize::MAX] {
            let found = failure(&reader, 0, length).await;
            assert_eq!(found, ErrorKind::UnexpectedEof, "{length}");
        }
        for offset in [i64::MAX as u64, u64::MAX] {
            assert_eq!(failure(&reader, offset, 100).await, ErrorKind::InvalidInput, "{offset}");
        }
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
        let ours = session.open_options().open_path_with_ringway(sample.path.clone()).await;
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(ours.err().unwrap().to_string()), first(theirs.to_string()));
    }
}
