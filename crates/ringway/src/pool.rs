//! The buffer pool: memory for pooled reads, kept for the next read when a block is dropped.
//!
//! Faulting in the pages of a fresh buffer costs more than a cached read into it. So the pool
//! allocates buffers in size classes that many reads share, and keeps returned buffers up to a
//! limit of bytes. The classes are whole pages, eight to each doubling, so a buffer is at most an
//! eighth larger than requested. A buffer that would waste more (a few pages or less, and not
//! nearly a whole number of pages) is allocated with its exact size and not kept; neither is one
//! above 32 MiB. Buffers for direct I/O are always page aligned and at least a page long.
//!
//! The pool does not write to buffers of 4 MiB and more: the kernel zeroes their pages when the
//! read first touches them. Smaller ones are zeroed once, when they are allocated.
//!
//! Buffers are kept in local pools, one for each processor. A thread uses its own local pool, so
//! threads seldom share a cache line. If that has no suitable buffer, the thread tries the other
//! local pools before it allocates. Half of the limit is divided among the local pools as their
//! shares, so that none can use all of it; the other half is for whichever needs more.
//!
//! The pool is bounded: its buffers, free and in use together, take at most [`POOLED`] times the
//! limit. A consumer that keeps more blocks than that does not delay reads, because only the
//! consumer could end the delay. Instead further buffers are allocated beyond the bound: with
//! their exact size, and freed when they are dropped.
//!
//! Gauges count every buffer from its allocation until it is freed, wherever that happens: a
//! cancelled read's buffer is freed by the queue. Bytes in use are those allocated and not free. So
//! a buffer that is used again and again is counted only once, and costs nothing to count.
//!
//! No thread waits for a local pool: one that is locked is skipped, and a buffer that would go
//! there is freed. So a forked child never waits for a thread that it does not have.

use crate::block::Block;
use crate::thread;
use ringway_core::{AlignedBuffer, Arena, Buffer, MemoryGauge};
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// The alignment of buffers: a multiple of every block size in use.
const PAGE: usize = 4096;

/// The number of size classes: 1 to 8 pages, then eight sizes per doubling, up to 32 MiB:
/// column chunks of Parquet files are often that large.
const CLASSES: usize = 88;
/// At most this fraction of the requested size may be wasted.
const WASTE: usize = 8;
/// The pool's buffers take at most this many times the limit of free bytes: enough for the reads
/// that fill the queue of a fast device, and for what consumers usually keep.
const POOLED: usize = 4;

/// A pool of buffers. Buffers may outlive it, and are then freed.
pub(crate) struct Pool {
    locals: Box<[Arc<LocalPool>]>,
    /// Counts the buffers of the size classes, free and in use.
    pooled: Arc<MemoryGauge>,
    /// Counts the buffers that were allocated because `pooled` had reached its limit.
    beyond: Arc<MemoryGauge>,
    /// How many those were.
    beyond_count: AtomicU64,
    /// The most bytes kept free.
    limit: usize,
    arena: Option<Arena>,
}

/// The memory of an engine's pooled reads and writers. From [`Stats::pool`](crate::Stats::pool).
///
/// Pooled reads return [blocks](crate::Block), whose memory a consumer may keep for as long as it
/// likes. The pool keeps the buffers of dropped blocks for later reads, up to a
/// [limit](crate::EngineBuilder::pool_bytes). Its buffers, free and in use, take at most
/// [`max_pooled`](Self::max_pooled) bytes. Reads never wait for the pool: while consumers keep all
/// of that, buffers are allocated with their exact size and freed when they are dropped. If
/// [`beyond_count`](Self::beyond_count) grows, some consumer keeps much memory, or the limit is too
/// small for the reads in flight.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let engine = ringway::Engine::builder().build()?;
/// let block = engine.open("/etc/passwd").await?.read(0..4096).await?;
/// let pool = engine.stats().pool;
/// assert_eq!((pool.in_use, pool.free), (4096, 0));
/// drop(block);
/// let pool = engine.stats().pool;
/// assert_eq!((pool.in_use, pool.free), (0, 4096));
/// # Ok(()) }
/// ```
///
/// The figures are read one after the other while other threads go on, so they may differ by the
/// buffers that are allocated and freed meanwhile. In a forked child they are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes of free buffers, which the pool keeps for later reads.
    pub free: u64,
    /// Bytes of buffers in use: of blocks with their clones and slices, of reads in flight
    /// (including cancelled ones that the kernel has not ended yet), and of writers.
    pub in_use: u64,
    /// The part of `in_use` in buffers that were allocated because the pool had reached
    /// `max_pooled`. They are freed when they are dropped.
    pub beyond: u64,
    /// How many buffers were allocated beyond `max_pooled` so far.
    pub beyond_count: u64,
    /// The most bytes that are kept free: [`EngineBuilder::pool_bytes`].
    ///
    /// [`EngineBuilder::pool_bytes`]: crate::EngineBuilder::pool_bytes
    pub max_free: u64,
    /// The most bytes of the pool's buffers, free and in use: four times `max_free`. Buffers that
    /// the pool never keeps (short reads of an odd length, and those above 32 MiB) and
    /// [registered ones](crate::EngineBuilder::fixed_buffers) are counted in `in_use`, but not
    /// limited.
    pub max_pooled: u64,
}

impl Pool {
    /// Creates a pool that keeps at most `cap` bytes of free buffers; 0 keeps none.
    pub fn new(cap: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_locals(cap, processors)
    }

    fn with_locals(cap: usize, count: usize) -> Self {
        let share = cap / 2 / count;
        let shared_left = Arc::new(AtomicUsize::new(cap - share * count));
        let pooled = Arc::new(MemoryGauge::new(cap.saturating_mul(POOLED)));
        let local = || LocalPool {
            lists: Mutex::default(),
            free: AtomicUsize::new(0),
            share,
            shared_left: shared_left.clone(),
            pooled: pooled.clone(),
            unpooled: Arc::new(MemoryGauge::new(usize::MAX)),
        };
        Self {
            locals: (0..count).map(|_| Arc::new(local())).collect(),
            pooled: pooled.clone(),
            beyond: Arc::new(MemoryGauge::new(usize::MAX)),
            beyond_count: AtomicU64::new(0),
            limit: cap,
            arena: None,
        }
    }

    /// Uses this arena first for what fits into its buffers. An arena whose buffers are not page
    /// aligned is not used.
    pub fn with_arena(self, arena: Arena) -> Self {
        let aligned = arena.block_size().is_multiple_of(PAGE);
        Self { arena: aligned.then_some(arena), ..self }
    }

    /// Returns a buffer of `len` bytes with unspecified content. It is page aligned if it is for
    /// direct I/O.
    ///
    /// Pass it to [`block`](Self::block) or [`put`](Self::put) in the end; if it is
    /// dropped, it is freed.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if it cannot be allocated.
    pub fn get(&self, len: usize, direct: bool) -> io::Result<Buffer> {
        let of_arena =
            self.arena.as_ref().filter(|arena| len <= arena.block_size()).and_then(Arena::take);
        if let Some(block) = of_arena {
            return Ok(Buffer::from(block).slice(..len));
        }
        let local = self.local();
        let Some(class) = class_for(len) else {
            return Ok(AlignedBuffer::try_counted(len, PAGE, &local.unpooled)?.into());
        };
        let size = size_of_class(class);
        if !direct && size - len > len / WASTE {
            return Ok(AlignedBuffer::try_counted(len, 1, &local.unpooled)?.into());
        }
        let kept =
            local.take(class).or_else(|| self.locals.iter().find_map(|other| other.take(class)));
        let buffer = match kept {
            Some(buffer) => buffer,
            None => match AlignedBuffer::try_counted(size, PAGE, &self.pooled) {
                Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                    return self.get_beyond(len, direct);
                }
                buffer => buffer?,
            },
        };
        Ok(Buffer::from(buffer).slice(..len))
    }

    /// Allocates a buffer that the pool does not keep.
    #[cold]
    fn get_beyond(&self, len: usize, direct: bool) -> io::Result<Buffer> {
        let size = if direct { len.next_multiple_of(PAGE).max(PAGE) } else { len };
        let buffer = AlignedBuffer::try_counted(size, PAGE, &self.beyond)?;
        self.beyond_count.fetch_add(1, Ordering::Relaxed);
        Ok(Buffer::from(buffer).slice(..len))
    }

    /// Makes a block of the first `len` bytes of a buffer from [`get`](Self::get), or of all of
    /// them if there are fewer. The buffer returns to the pool with the last clone or slice of the
    /// block.
    pub fn block(&self, buffer: Buffer, len: usize) -> Block {
        Block::new(PooledBuffer { buffer, local: Arc::downgrade(self.local()) }, len)
    }

    /// Puts back a buffer that is not needed.
    pub fn put(&self, buffer: Buffer) {
        self.local().put(buffer);
    }

    /// Takes no lock except the arena's.
    pub fn stats(&self) -> PoolStats {
        let free: usize = self.locals.iter().map(|local| local.free.load(Ordering::Relaxed)).sum();
        let unpooled =
            self.locals.iter().fold(0, |sum, local| local.unpooled.bytes().wrapping_add(sum));
        let fixed = self
            .arena
            .as_ref()
            .map_or(0, |arena| (arena.count() - arena.free()) * arena.block_size());
        let beyond = self.beyond.bytes();
        let in_use = self.pooled.bytes().saturating_sub(free) + unpooled + beyond + fixed;
        PoolStats {
            free: free as u64,
            in_use: in_use as u64,
            beyond: beyond as u64,
            beyond_count: self.beyond_count.load(Ordering::Relaxed),
            max_free: self.limit as u64,
            max_pooled: self.pooled.limit() as u64,
        }
    }

    /// The local pool of the calling thread.
    fn local(&self) -> &Arc<LocalPool> {
        &self.locals[thread::number() % self.locals.len()]
    }
}

/// A buffer in use. Dropping it puts it back, if its pool still exists.
pub(crate) struct PooledBuffer {
    buffer: Buffer,
    local: Weak<LocalPool>,
}

impl PooledBuffer {
    /// A buffer that belongs to no pool.
    pub fn unpooled(buffer: Buffer) -> Self {
        Self { buffer, local: Weak::new() }
    }

    /// The bytes of memory of the whole buffer.
    pub fn memory_size(&self) -> usize {
        self.buffer.memory_size()
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(local) = self.local.upgrade() {
            local.put(std::mem::replace(&mut self.buffer, Buffer::from(Vec::new())));
        }
    }
}

/// A local pool: the free buffers that some threads keep.
#[repr(align(128))] // Two cache lines, which processors fetch together.
struct LocalPool {
    lists: Mutex<FreeLists>,
    /// Bytes in all free buffers. Written only while the lists are locked.
    free: AtomicUsize,
    /// Bytes that may be kept here regardless of other local pools.
    share: usize,
    /// Bytes that all local pools together may still keep beyond their shares.
    shared_left: Arc<AtomicUsize>,
    /// Counts the buffers of all local pools.
    pooled: Arc<MemoryGauge>,
    /// Counts the buffers that the threads of this local pool allocated and that are never kept.
    unpooled: Arc<MemoryGauge>,
}

struct FreeLists {
    /// Free buffers by class, the most recently used one last: it is likely to be in the
    /// processor's cache.
    free: [Vec<AlignedBuffer>; CLASSES],
    /// The part of the free bytes that exceeds the share, taken from the shared half of the limit.
    borrowed: usize,
    /// When each class was last used, as a value of `clock`.
    last_used: [u64; CLASSES],
    clock: u64,
}

impl Default for FreeLists {
    fn default() -> Self {
        let free = std::array::from_fn(|_| Vec::new());
        Self { free, borrowed: 0, last_used: [0; CLASSES], clock: 0 }
    }
}

impl LocalPool {
    /// Takes a buffer of this class, if there is one and the local pool is not locked.
    fn take(&self, class: usize) -> Option<AlignedBuffer> {
        let mut lists = self.lists()?;
        lists.touch(class);
        self.pop(&mut lists, class)
    }

    /// Keeps a buffer of the pool; frees any other. If the limit is reached, buffers of the
    /// least recently used class are freed for it; if there are none, the buffer is freed.
    fn put(&self, buffer: Buffer) {
        // Dropping an arena's buffer returns it to its arena.
        let Ok(buffer) = AlignedBuffer::try_from(buffer) else { return };
        if !buffer.is_counted_by(&self.pooled) {
            return;
        }
        let size = buffer.len();
        let Some(class) = class_for(size) else { return };
        // Freed at the end, after the local pool is unlocked.
        let mut evicted = Vec::new();
        let Some(mut lists) = self.lists() else { return };
        lists.touch(class);
        let others = self.free() - lists.free[class].len() * size;
        if size > self.capacity_left(&lists) + others {
            return; // Freeing the others would not be enough.
        }
        while !self.charge(&mut lists, size) {
            let Some(other) = lists.least_recently_used_except(class) else { return };
            evicted.extend(self.pop(&mut lists, other));
        }
        lists.free[class].push(buffer);
    }

    /// Bytes that could be kept in addition.
    fn capacity_left(&self, lists: &FreeLists) -> usize {
        self.share - (self.free() - lists.borrowed) + self.shared_left.load(Ordering::Relaxed)
    }

    /// Adds `size` bytes to the count, borrowing what exceeds the share. Returns false, and changes
    /// nothing, if the limit is reached.
    fn charge(&self, lists: &mut FreeLists, size: usize) -> bool {
        let excess = (self.free() - lists.borrowed + size).saturating_sub(self.share);
        if excess > 0 {
            let rest = |shared_left: usize| shared_left.checked_sub(excess);
            if self.shared_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_err() {
                return false;
            }
        }
        lists.borrowed += excess;
        self.free.store(self.free() + size, Ordering::Relaxed);
        true
    }

    /// Takes a free buffer out of its class. Borrowed bytes are returned first.
    fn pop(&self, lists: &mut FreeLists, class: usize) -> Option<AlignedBuffer> {
        let buffer = lists.free[class].pop()?;
        self.free.store(self.free() - buffer.len(), Ordering::Relaxed);
        let repaid = lists.borrowed.min(buffer.len());
        if repaid > 0 {
            lists.borrowed -= repaid;
            self.shared_left.fetch_add(repaid, Ordering::Relaxed);
        }
        Some(buffer)
    }

    /// Bytes in all free buffers.
    fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Locks the free lists; `None` if they are locked.
    fn lists(&self) -> Option<MutexGuard<'_, FreeLists>> {
        match self.lists.try_lock() {
            Ok(lists) => Some(lists),
            // The lists are consistent at every moment, so a panic elsewhere did no damage.
            Err(TryLockError::Poisoned(lists)) => Some(lists.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl FreeLists {
    /// The least recently used class that has a buffer, other than this one.
    fn least_recently_used_except(&self, class: usize) -> Option<usize> {
        let others = (0..CLASSES).filter(|other| *other != class && !self.free[*other].is_empty());
        others.min_by_key(|other| self.last_used[*other])
    }

    fn touch(&mut self, class: usize) {
        self.clock += 1;
        self.last_used[class] = self.clock;
    }
}

/// The class of the smallest buffers that hold `len` bytes; `None` if even the largest do not.
fn class_for(len: usize) -> Option<usize> {
    let pages = len.div_ceil(PAGE).max(1);
    let class = match pages.next_power_of_two().trailing_zeros() as usize {
        0..=3 => pages - 1,
        doubling => (doubling - 3) * 8 + pages.div_ceil(1 << (doubling - 4)) - 9,
    };
    Some(class).filter(|class| *class < CLASSES)
}

fn size_of_class(class: usize) -> usize {
    let pages = match class / 8 {
        0 => class + 1,
        doubling => (class % 8 + 9) << (doubling - 1),
    };
    pages * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Pool {
        /// Bytes kept now.
        fn kept(&self) -> usize {
            self.locals.iter().map(|local| local.free()).sum()
        }

        /// A new buffer of the pool.
        fn fresh(&self, size: usize) -> Buffer {
            AlignedBuffer::try_counted(size, PAGE, &self.pooled).unwrap().into()
        }
    }

    #[test]
    fn a_returned_buffer_is_used_again() {
        let pool = Pool::new(1 << 20);
        let buffer = pool.get(5000, true).unwrap();
        assert_eq!((buffer.len(), buffer.as_slice().as_ptr().addr() % PAGE), (5000, 0));
        let first = buffer.as_slice().as_ptr();
        let block = pool.block(buffer, 100);
        let part = block.slice(50..60);
        drop(block);
        assert_eq!((part.len(), pool.kept()), (10, 0), "a slice still exists");
        drop(part);
        assert_eq!(pool.kept(), 8192);
        assert_eq!(pool.get(8192, false).unwrap().as_slice().as_ptr(), first);
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn half_of_the_limit_is_shared() {
        let pool = Pool::with_locals(8 * PAGE, 2);
        let fill = |local: usize| {
            for _ in 0..10 {
                pool.locals[local].put(pool.fresh(PAGE));
            }
            pool.locals[local].free() / PAGE
        };
        assert_eq!((fill(0), fill(1)), (6, 2), "the second keeps its share");
        assert!(pool.locals[0].take(0).is_some());
        assert_eq!((fill(1), fill(0)), (3, 5), "the second may use what the first does not");
    }

    #[test]
    fn an_unused_size_is_evicted() {
        let pool = Pool::with_locals(8 * PAGE, 1);
        let put = |pages: usize| pool.put(pool.fresh(pages * PAGE));
        for _ in 0..4 {
            put(1);
        }
        for _ in 0..2 {
            put(2);
        }
        put(4);
        let lists = pool.locals[0].lists().unwrap();
        assert_eq!([1, 2, 4].map(|pages| lists.free[pages - 1].len()), [0, 2, 1]);
        drop(lists);
        put(16);
        assert_eq!(pool.kept(), 8 * PAGE, "nothing is freed for a buffer above the limit");
    }

    #[test]
    fn buffers_of_other_threads_are_used() {
        let pool = Pool::with_locals(1 << 20, 3);
        pool.put(pool.fresh(PAGE));
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| pool.put(pool.get(1, true).unwrap())).join().unwrap()
            });
            assert_eq!(pool.kept(), PAGE, "it was never allocated again");
        }
    }

    #[test]
    fn a_locked_local_pool_is_skipped() {
        let pool = Pool::with_locals(1 << 20, 1);
        pool.put(pool.get(1, true).unwrap());
        let lists = pool.locals[0].lists().unwrap();
        let buffer = pool.get(1, true).unwrap();
        drop(pool.block(buffer, 1));
        drop(lists);
        assert_eq!(pool.kept(), PAGE, "a second buffer was allocated and freed");
    }

    #[test]
    fn a_block_may_outlive_its_pool() {
        let pool = Pool::new(1 << 20);
        let blocks = [10, PAGE].map(|len| pool.block(pool.get(len, false).unwrap(), len));
        pool.put(pool.get(2 * PAGE, false).unwrap());
        let (pooled, unpooled) = (pool.pooled.clone(), pool.local().unpooled.clone());
        drop(pool);
        assert_eq!((pooled.bytes(), unpooled.bytes()), (PAGE, 10), "the free buffer is freed");
        assert_eq!(blocks.each_ref().map(|block| block.len()), [10, PAGE]);
        drop(blocks);
        assert_eq!((pooled.bytes(), unpooled.bytes()), (0, 0));
    }

    #[test]
    fn buffers_beyond_the_bound_are_exact_and_not_kept() {
        let pool = Pool::with_locals(4 * PAGE, 1);
        let get = |len, direct| pool.block(pool.get(len, direct).unwrap(), len);
        let stats = pool.stats();
        assert_eq!((stats.max_free, stats.max_pooled), (4 * PAGE as u64, 16 * PAGE as u64));
        let mut pooled: Vec<_> = (0..4 * POOLED).map(|_| get(PAGE, false)).collect();
        assert_eq!(pool.stats().beyond_count, 0);
        let beyond = [get(PAGE, true), get(9 * PAGE - 100, false), get(9 * PAGE - 100, true)];
        assert_eq!(
            beyond.each_ref().map(Block::retained),
            [PAGE, 9 * PAGE - 100, 9 * PAGE],
            "whole pages for direct I/O only"
        );
        let stats = pool.stats();
        assert_eq!((stats.beyond_count, stats.beyond), (3, (19 * PAGE - 100) as u64));
        assert_eq!(stats.in_use, (4 * POOLED * PAGE + 19 * PAGE - 100) as u64);
        drop(beyond);
        let stats = pool.stats();
        assert_eq!((stats.free, stats.beyond, stats.beyond_count), (0, 0, 3));
        // A buffer that comes back makes room.
        pooled.pop();
        assert_eq!(pool.stats().free, PAGE as u64);
        pooled.push(get(PAGE, true));
        let stats = pool.stats();
        assert_eq!((stats.free, stats.beyond, stats.beyond_count), (0, 0, 3));
        drop(pooled);
        let stats = pool.stats();
        assert_eq!((stats.free, stats.in_use), (4 * PAGE as u64, 0));
    }

    #[test]
    fn blocks_are_dropped_on_other_threads() {
        let pool = Pool::with_locals(1 << 20, 3);
        for len in [100, PAGE, 33 << 20] {
            let block = pool.block(pool.get(len, false).unwrap(), len);
            let slice = block.slice(..1);
            assert_eq!(pool.stats().in_use, block.retained() as u64);
            std::thread::scope(|scope| {
                scope.spawn(move || drop(block));
                scope.spawn(move || drop(slice));
            });
            assert_eq!((pool.stats().in_use, pool.stats().free), (0, pool.kept() as u64));
        }
        assert_eq!(pool.kept(), PAGE);
    }

    #[test]
    fn an_arena_is_used_first() {
        let arena = Arena::new(8192, 1);
        let pool = Pool::new(1 << 20).with_arena(arena.clone());
        let block = pool.block(pool.get(5000, true).unwrap(), 5000);
        assert_eq!((arena.free(), pool.stats().in_use), (0, 8192));
        pool.put(pool.get(5000, true).unwrap());
        assert_eq!(pool.kept(), 8192, "the arena had none left");
        drop(block);
        assert_eq!((arena.free(), pool.kept()), (1, 8192));
        let odd = Pool::new(0).with_arena(Arena::new(5000, 2));
        assert_eq!(odd.get(1, true).unwrap().as_slice().as_ptr().addr() % PAGE, 0);
    }

    #[test]
    fn impossible_sizes_are_out_of_memory() {
        let pool = Pool::new(1 << 20);
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(pool.get(len, false).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
        let large = pool.get((32 << 20) + 1, false).unwrap();
        assert_eq!((large.len(), large.as_slice().as_ptr().addr() % PAGE), ((32 << 20) + 1, 0));
        drop(pool.block(large, 32 << 20));
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn other_buffers_are_not_kept() {
        let pool = Pool::new(1 << 20);
        pool.put(Buffer::from(vec![0; PAGE]));
        pool.put(Buffer::from(AlignedBuffer::new(PAGE, PAGE)));
        pool.put(Pool::new(1 << 20).fresh(PAGE));
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn threads_share_kept_buffers() {
        let pool = Pool::new(64 * PAGE);
        std::thread::scope(|scope| {
            for mark in 0..4u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for turn in 0..500 {
                        let mut memory =
                            AlignedBuffer::try_from(pool.get(PAGE << (turn % 3), false).unwrap())
                                .unwrap();
                        memory.fill(mark);
                        let len = memory.len();
                        let block = pool.block(Buffer::from(memory), len);
                        assert!(block.iter().all(|byte| *byte == mark));
                        assert!(pool.kept() <= 64 * PAGE);
                    }
                });
            }
        });
    }

    #[test]
    fn classes_are_all_sizes_in_order() {
        let sizes: Vec<_> = (0..CLASSES).map(size_of_class).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((sizes[0], sizes[CLASSES - 1]), (PAGE, 32 << 20));
        for (class, size) in sizes.iter().enumerate() {
            assert_eq!((class_for(*size), class_for(size - 1)), (Some(class), Some(class)));
            assert_eq!(class_for(size + 1), Some(class + 1).filter(|next| *next < CLASSES));
        }
        assert_eq!((class_for(0), class_for(usize::MAX)), (Some(0), None));
    }

    #[test]
    fn buffers_are_not_much_larger_than_requested() {
        let pool = Pool::new(0);
        for (count, len) in [
            (2000, 300 << 10),
            (20_000, 100),
            (1000, 4096),
            (1000, 5000),
            (10, 5 << 20),
            (2, 40 << 20),
        ] {
            let blocks: Vec<_> = (0..count).map(|_| pool.get(len, false).unwrap()).collect();
            let taken: usize = blocks.iter().map(Buffer::memory_size).sum();
            assert!(taken <= count * (len + len / WASTE), "{count} of {len}: {taken}");
        }
    }

    proptest! {
        #[test]
        fn little_is_wasted(len in prop_oneof![0usize..100_000, 0usize..48 << 20], direct: bool) {
            let buffer = Pool::new(0).get(len, direct).unwrap();
            prop_assert_eq!(buffer.len(), len);
            if direct {
                prop_assert_eq!(buffer.as_slice().as_ptr().addr() % PAGE, 0);
                let pages = len.next_multiple_of(PAGE).max(PAGE);
                prop_assert!(buffer.memory_size() <= pages + pages / WASTE);
            } else {
                prop_assert!(buffer.memory_size() <= len + len / WASTE);
            }
        }

        /// Any sizes, put back in any order to any local pool, or freed: no buffer is handed out
        /// twice, each is long enough, the counts are right and within their limits.
        #[test]
        fn bytes_are_counted_right(
            cap in 0usize..40 * PAGE,
            count in 1usize..4,
            steps in proptest::collection::vec((0usize..6 * PAGE, 0..4), 0..100),
        ) {
            let pool = Pool::with_locals(cap, count);
            let mut in_use: Vec<Buffer> = Vec::new();
            for (len, step) in steps {
                if step < 2 {
                    let buffer = pool.get(len, len % 2 == 0).unwrap();
                    prop_assert_eq!(buffer.len(), len);
                    let first = buffer.as_slice().as_ptr();
                    let is_new = in_use.iter().all(|other| other.as_slice().as_ptr() != first);
                    prop_assert!(len == 0 || is_new);
                    in_use.push(buffer);
                } else if !in_use.is_empty() {
                    let buffer = in_use.swap_remove(len % in_use.len());
                    match step {
                        2 => pool.locals[len % count].put(buffer),
                        // As the queue does after a cancelled read.
                        _ => drop(buffer),
                    }
                }
                let mut borrowed = 0;
                for local in &pool.locals {
                    let lists = local.lists().unwrap();
                    let bytes: usize = lists.free.iter().flatten().map(|buffer| buffer.len()).sum();
                    prop_assert_eq!(local.free(), bytes);
                    prop_assert!(bytes - lists.borrowed <= local.share);
                    borrowed += lists.borrowed;
                }
                let shared_left = pool.locals[0].shared_left.load(Ordering::Relaxed);
                prop_assert_eq!(shared_left + borrowed + pool.locals[0].share * count, cap);
                let stats = pool.stats();
                let bytes: usize = in_use.iter().map(Buffer::memory_size).sum();
                prop_assert_eq!((stats.in_use, stats.free), (bytes as u64, pool.kept() as u64));
                prop_assert!(stats.free <= stats.max_free && stats.beyond <= stats.in_use);
                prop_assert!(pool.pooled.bytes() as u64 <= stats.max_pooled);
            }
            drop(in_use);
            prop_assert_eq!(pool.stats().in_use, 0);
        }
    }
}
