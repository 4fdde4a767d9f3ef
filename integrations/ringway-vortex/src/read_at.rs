//! The reader of one file.

use crate::error::failed;
use crate::memory::Memory;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use ringway::fs::File;
use ringway::{Block, Coalesce, CustomBuffer};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use vortex_array::buffer::BufferHandle;
use vortex_array::memory::BufferAllocatorRef;
use vortex_buffer::{Alignment, ByteBuffer};
use vortex_error::{VortexError, VortexResult};
use vortex_io::{CoalesceConfig, ReadAtRequest, ReadAtStream, VortexReadAt};

/// Reads in flight per file by default, as many as Vortex's own reader of local files has.
const CONCURRENCY: usize = 32;
/// The most: those of a [`RangeStream`](ringway::RangeStream).
const MAX_CONCURRENCY: usize = 1024;
/// Of a longer range, the last page is read first: if that fails, the range fails as it does, and
/// without memory for all of it. The size of the file would not do: it is 0 for block devices and
/// files of procfs.
const UNCHECKED: usize = 64 << 20;
const PAGE: u64 = 4096;
/// How many bytes of memory a range keeps at most for each of its own.
const MAX_RETAINED: usize = 4;

/// A local file that Vortex reads through ringway. Clones share the open file.
///
/// The bytes are read into the engine's [pool](ringway::PoolStats), and Vortex gets them without a
/// copy, unless they are not aligned there as it asks. That may be so for ranges of less than
/// 36 KiB, for alignments above 4096, and for direct I/O at offsets that are not multiples of the
/// alignment. Such a range is copied as a whole, without yielding to other tasks. So is one that is
/// less than a quarter of the memory of its read, as a part of another range may be. The memory
/// returns to the pool with the last array that uses it. Set an [allocator](Self::with_allocator)
/// to have it elsewhere.
///
/// Nothing is read before a future or a stream is polled. Dropping one cancels its reads; their
/// memory and the file belong to the kernel until it has ended them.
///
/// # Errors
///
/// Errors name the operation and the file. Their source is the [`io::Error`] with the system's
/// error number: EISDIR for a directory, UnexpectedEof if the file ends within the range,
/// InvalidInput for a range that ends above `i64::MAX`, with direct I/O also if only its last block
/// does. An empty range is read from nothing, so it never fails. No memory is allocated for a range
/// of more than 64 MiB that the file does not have.
#[derive(Clone)]
pub struct RingwayReadAt {
    file: File,
    uri: Arc<str>,
    /// `None` for the engine's pool.
    allocator: Option<BufferAllocatorRef>,
    coalesce: CoalesceConfig,
    concurrency: usize,
}

impl RingwayReadAt {
    /// Opens a file with the [global engine](ringway::Engine::global).
    ///
    /// Errors: those of `open(2)` and of the engine. If the future is dropped, no descriptor is
    /// left open.
    pub async fn open(path: impl AsRef<Path>) -> VortexResult<Self> {
        let path = path.as_ref();
        let opened = File::open(path).await;
        let file =
            opened.map_err(|error| failed(format_args!("open {}", path.display()), error))?;
        Ok(Self::new(file, uri(path)))
    }

    /// Reads from a file that was opened with any [options](ringway::fs::OpenOptions): another
    /// engine, direct I/O. Vortex names its cache entries and messages after `uri`: give each file
    /// its own, also where a path is not UTF-8.
    pub fn new(file: File, uri: impl Into<Arc<str>>) -> Self {
        Self {
            file,
            uri: uri.into(),
            allocator: None,
            coalesce: CoalesceConfig::file(),
            concurrency: CONCURRENCY,
        }
    }

    /// Reads into memory of this allocator. Vortex's usual one, which has no memory of its own,
    /// stands for the engine's pool, the default. The memory of each read is allocated and zeroed
    /// by the task that polls it.
    pub fn with_allocator(mut self, allocator: BufferAllocatorRef) -> Self {
        let usual = allocator.ptr_eq(&BufferAllocatorRef::statically_allocated());
        self.allocator = (!usual).then_some(allocator);
        self
    }

    /// Sets which segments Vortex joins to one read. Default: [`CoalesceConfig::file`].
    pub fn with_coalesce_config(mut self, config: CoalesceConfig) -> Self {
        self.coalesce = config;
        self
    }

    /// Sets how many reads Vortex has in flight. Default: 32. Numbers outside 1 to 1024 are
    /// clamped.
    pub fn with_concurrency(mut self, reads: usize) -> Self {
        self.concurrency = reads.clamp(1, MAX_CONCURRENCY);
        self
    }

    async fn read(self, request: ReadAtRequest) -> VortexResult<BufferHandle> {
        let bytes = self.bytes(request).await.map_err(|error| self.unread(request, error))?;
        Ok(BufferHandle::new_host(bytes))
    }

    async fn bytes(&self, request: ReadAtRequest) -> io::Result<ByteBuffer> {
        let ReadAtRequest { offset, length, alignment } = request;
        if length == 0 {
            return Ok(ByteBuffer::empty_aligned(alignment));
        }
        if length > UNCHECKED {
            self.file.read_exact(end(request) - PAGE..end(request)).await?;
        }
        match &self.allocator {
            None => Ok(aligned(self.file.read_exact(offset..end(request)).await?, alignment)),
            Some(allocator) => {
                let memory = Memory::new(allocator, length, alignment);
                let memory: Box<dyn CustomBuffer> = Box::new(memory);
                let (result, memory) = self.file.read_exact_at(memory, offset).await;
                result.map(|()| Memory::returned(memory))
            }
        }
    }

    fn unread(&self, request: ReadAtRequest, error: io::Error) -> VortexError {
        let ReadAtRequest { offset, length, .. } = request;
        failed(format_args!("read {length} bytes at {offset} of {}", self.uri), error)
    }
}

impl VortexReadAt for RingwayReadAt {
    fn uri(&self) -> Option<&Arc<str>> {
        Some(&self.uri)
    }

    fn coalesce_config(&self) -> Option<CoalesceConfig> {
        Some(self.coalesce)
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn size(&self) -> BoxFuture<'static, VortexResult<u64>> {
        let this = self.clone();
        async move {
            let found = this.file.metadata().await;
            let found = found.map_err(|error| failed(format_args!("stat {}", this.uri), error))?;
            Ok(found.len())
        }
        .boxed()
    }

    fn read_at(
        &self,
        offset: u64,
        length: usize,
        alignment: Alignment,
    ) -> BoxFuture<'static, VortexResult<BufferHandle>> {
        self.clone().read(ReadAtRequest::new(offset, length, alignment)).boxed()
    }

    fn read_ranges(&self, requests: Arc<[ReadAtRequest]>) -> ReadAtStream {
        let this = self.clone();
        if self.allocator.is_some() || requests.iter().any(|request| request.length > UNCHECKED) {
            let reads: Vec<_> = requests.iter().copied().collect();
            let reads = reads.into_iter().map(move |request| {
                let read = this.clone().read(request);
                async move { (request, read.await) }
            });
            return stream::iter(reads).buffer_unordered(self.concurrency).boxed();
        }
        let all = Arc::clone(&requests);
        let ranges = (0..all.len()).map(move |at| match all[at] {
            ReadAtRequest { length: 0, .. } => 0..0,
            request => request.offset..end(request),
        });
        // Vortex has joined what it wants joined, and limits how much it asks for at a time.
        let reads = self.file.read_ranges_stream(ranges).depth(self.concurrency);
        let reads = reads.coalesce(Coalesce::never()).max_bytes(usize::MAX);
        reads
            .map(move |read| {
                let request = requests[read.index];
                let result = read.result.and_then(|block| whole(block, request));
                (request, result.map_err(|error| this.unread(request, error)))
            })
            .boxed()
    }
}

impl fmt::Debug for RingwayReadAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingwayReadAt").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The name of a file, which no other path has: the path, quoted and escaped if it is not UTF-8 or
/// looks as if it were quoted.
pub(crate) fn uri(path: &Path) -> String {
    match path.to_str() {
        Some(path) if !path.starts_with('"') => path.to_owned(),
        _ => format!("{path:?}"),
    }
}

/// The end of a range. One that ends above `u64::MAX` is not read, as any above `i64::MAX`.
fn end(request: ReadAtRequest) -> u64 {
    request.offset.saturating_add(request.length as u64)
}

/// All bytes of a request.
///
/// Errors: UnexpectedEof if there are fewer.
fn whole(block: Block, request: ReadAtRequest) -> io::Result<BufferHandle> {
    if block.len() != request.length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(BufferHandle::new_host(aligned(block, request.alignment)))
}

/// The bytes where they are, if they are aligned there, or a copy. A small part of a longer read,
/// which another range asked for, is copied, too: it would keep the memory of all of it.
fn aligned(block: Block, alignment: Alignment) -> ByteBuffer {
    if block.retained() / MAX_RETAINED > block.len() {
        return ByteBuffer::copy_from_aligned(&block[..], alignment);
    }
    ByteBuffer::from(Bytes::from(block)).aligned(alignment)
}
