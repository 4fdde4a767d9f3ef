//! The hash of one input. Blocks are read ahead, hashed into parts on any core, and combined in
//! order.

use super::digest::{Algorithm, Crc32c, Digest};
use super::options::SumArgs;
use super::progress::Progress;
use super::source::{Input, Source, Stream, is_of_len};
use super::tree::Tree;
use ringway::Block;
use ringway::fs::{Caching, File};
use sha2::Sha256;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use tokio::task::JoinHandle;
use twox_hash::XxHash3_64;

/// How inputs are read.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) direct: bool,
    pub(super) dont_cache: bool,
    /// Blocks in flight, for each file.
    pub(super) depth: usize,
    /// Bytes of a block: a power of two, at least 1024.
    pub(super) block: usize,
    pub(super) progress: Progress,
}

impl Reading {
    /// The settings of the options.
    pub(super) fn new(args: &SumArgs, progress: &Progress) -> Self {
        let (depth, block) = (args.depth.into(), args.block);
        let SumArgs { direct, dont_cache, .. } = *args;
        Self { direct, dont_cache, depth, block, progress: progress.clone() }
    }
}

/// The hash of an input.
#[derive(Debug)]
pub(super) struct Hashed {
    pub(super) hash: Vec<u8>,
    /// Why it was not read with direct I/O, if that was requested.
    pub(super) not_direct: Option<io::Error>,
    /// What it has left in the page cache.
    pub(super) caching: Caching,
}

/// Hashes an input.
///
/// # Errors
///
/// Those of opening and reading it.
pub(super) async fn hash(
    input: &Input,
    algorithm: Algorithm,
    reading: &Reading,
) -> io::Result<Hashed> {
    let (source, not_direct) = Source::open(input, reading.direct).await?;
    let source = source.with_dont_cache(reading.dont_cache);
    let file = source.file().cloned();
    let hash = match algorithm {
        Algorithm::Blake3 => digest::<Tree>(source, reading).await,
        Algorithm::Sha256 => digest::<Sha256>(source, reading).await,
        Algorithm::Crc32c => digest::<Crc32c>(source, reading).await,
        Algorithm::Xxh3 => digest::<XxHash3_64>(source, reading).await,
    }?;
    let caching = file.map_or(Caching::Kept, |file| file.caching());
    Ok(Hashed { hash, not_direct, caching })
}

async fn digest<D: Digest>(source: Source, reading: &Reading) -> io::Result<Vec<u8>> {
    match source {
        Source::File(file, len) => of_file::<D>(file, len, reading).await,
        Source::Stream(stream) => of_stream::<D>(stream, reading).await,
    }
}

/// `len` was the length when the file was opened. The file is read until its end is reached, as in
/// a sequential read.
async fn of_file<D: Digest>(file: File, len: u64, reading: &Reading) -> io::Result<Vec<u8>> {
    let block = reading.block as u64;
    if (1..block).contains(&len) {
        // Most files are small: one read, often from the page cache, and no task for it.
        let (part, read) = part::<D>(&file, 0..len, reading).await?;
        if read == len && is_of_len(&file, len) {
            let mut digest = D::default();
            digest.add(part);
            return Ok(digest.finish());
        }
    }
    let mut digest = D::default();
    let mut offset = 0;
    let mut ahead = Ahead(VecDeque::new());
    loop {
        while ahead.0.len() < reading.depth && (offset < len || ahead.0.is_empty()) {
            let (file, range, reading) = (file.clone(), offset..offset + block, reading.clone());
            ahead.0.push_back(tokio::spawn(async move { part::<D>(&file, range, &reading).await }));
            offset += block;
        }
        let Some(next) = ahead.0.pop_front() else { return Ok(digest.finish()) };
        let (part, read) = next.await.map_err(io::Error::other)??;
        digest.add(part);
        if read < block {
            return Ok(digest.finish());
        }
    }
}

/// The part of the digest in `range`, and the number of bytes read.
async fn part<D: Digest>(
    file: &File,
    range: Range<u64>,
    reading: &Reading,
) -> io::Result<(D::Part<Block>, u64)> {
    let offset = range.start;
    let block = file.read(range).await?;
    let read = block.len();
    reading.progress.read(read);
    Ok((D::part(offset, block), read as u64))
}

/// Reads in flight, which are cancelled when this is dropped.
struct Ahead<T>(VecDeque<JoinHandle<T>>);

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn of_stream<D: Digest>(mut stream: Stream, reading: &Reading) -> io::Result<Vec<u8>> {
    let mut digest = D::default();
    let mut offset = 0;
    loop {
        let block = stream.fill(reading.block).await?;
        let read = block.len();
        digest.add(D::part(offset, block));
        reading.progress.read(read);
        offset += read as u64;
        if read < reading.block {
            return Ok(digest.finish());
        }
    }
}
