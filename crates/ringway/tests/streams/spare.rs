//! Reads into spare capacity: the buffer grows by exactly the bytes that were read, also after an
//! error.

use crate::common::{open, pattern, poll_once, wait_until_idle};
use crate::files::{engines, failing, sample};
use bytes::BytesMut;
use futures::executor::block_on;
use proptest::prelude::*;
use ringway::fs::File;
use ringway::{BackendKind, Engine, SpareBuffer};
use std::io;
use std::pin::pin;

const LEN: usize = 700_000;

/// A growing buffer, for tests that run with each type.
trait Grows: SpareBuffer + AsRef<[u8]> {
    fn with(capacity: usize, before: &[u8]) -> Self;
    fn spare_len(&self) -> usize;
}

impl Grows for Vec<u8> {
    fn with(capacity: usize, before: &[u8]) -> Self {
        let mut new = Self::with_capacity(capacity);
        new.extend_from_slice(before);
        new
    }
    fn spare_len(&self) -> usize {
        self.capacity() - self.len()
    }
}

impl Grows for BytesMut {
    fn with(capacity: usize, before: &[u8]) -> Self {
        let mut new = Self::with_capacity(capacity);
        new.extend_from_slice(before);
        new
    }
    fn spare_len(&self) -> usize {
        self.capacity() - self.len()
    }
}

/// Reads with both functions and compares the result with the content of the file.
fn check<B: Grows>(file: &File, content: &[u8], before: &[u8], spare: usize, offset: usize) {
    let buffer = || B::with(before.len() + spare, before);
    let rest = &content[offset.min(content.len())..];
    let (read, exact) = (buffer(), buffer());
    let spare = exact.spare_len();
    let (result, exact) = block_on(file.read_buf_exact_at(exact, offset as u64));
    if rest.len() < spare {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof)
    } else {
        result.unwrap()
    }
    let expected = [before, &rest[..spare.min(rest.len())]].concat();
    assert!(exact.as_ref() == expected);
    let (result, read) = block_on(file.read_buf_at(read, offset as u64));
    let count = result.unwrap();
    assert!(count > 0 || spare == 0 || rest.is_empty());
    assert!(read.as_ref() == &expected[..before.len() + count]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_buffer_grows_by_the_bytes_read(
        before in proptest::collection::vec(any::<u8>(), 0..40),
        spare in prop_oneof![0usize..100, Just(4096usize), 0usize..600_000],
        offset in prop_oneof![Just(0usize), Just(8192), 0..LEN + 1000],
        direct: bool,
    ) {
        let content = pattern(0, LEN);
        let (_dir, path) = sample(&content);
        for engine in engines() {
            let file = open(engine, &path, direct);
            check::<Vec<u8>>(&file, &content, &before, spare, offset);
            check::<BytesMut>(&file, &content, &before, spare, offset);
        }
    }
}

#[test]
fn an_error_leaves_the_buffer_unchanged() {
    let (_dir, path) = sample(&pattern(0, LEN));
    let engine = failing(1000);
    for direct in [false, true] {
        let file = open(&engine, &path, direct);
        for offset in [0, 77] {
            let (result, buffer) = block_on(file.read_buf_at(Vec::with(5000, b"before"), offset));
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
            assert_eq!((&buffer[..], buffer.capacity()), (&b"before"[..], 5000));
        }
        let (result, buffer) = block_on(file.read_buf_at(Vec::with_capacity(10), u64::MAX));
        assert_eq!((result.unwrap_err().kind(), buffer.len()), (io::ErrorKind::InvalidInput, 0));
    }
}

#[test]
fn a_read_may_be_dropped_at_any_point() {
    let (_dir, path) = sample(&pattern(0, LEN));
    for engine in engines() {
        for direct in [false, true] {
            let file = open(engine, &path, direct);
            for spare in [100, 4096, 300_000] {
                for _ in 0..10 {
                    let mut read = pin!(file.read_buf_at(Vec::with_capacity(spare), 4096));
                    let _ = poll_once(read.as_mut());
                }
            }
        }
        wait_until_idle(engine);
    }
}

/// Memory that a backend did not fill reads as zeros, never as uninitialised bytes.
#[test]
fn bytes_not_read_are_zero() {
    let (_dir, path) = sample(&pattern(0, LEN));
    let engine = Engine::builder().backend(BackendKind::Null).try_cached(false).build().unwrap();
    let (result, buffer) =
        block_on(open(&engine, &path, false).read_buf_at(Vec::with_capacity(4096), 0));
    assert_eq!(result.unwrap(), 4096);
    assert_eq!(buffer, [0; 4096]);
}
