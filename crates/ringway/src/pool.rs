//! The buffer pool: memory for pooled reads, kept for the next read when a block is dropped.
//!
//! Faulting in the pages of a fresh buffer costs more than a cached read into it. So the pool
//! allocates buffers in size classes that many reads share, and keeps returned buffers up to a
//! limit of bytes. The classes are whole pages, eight to each doubling, so a buffer is at most an
//! eighth larger than requested. A buffer that would waste more (a few pages or less, and not
//! nearly a whole number of pages) is allocated with its exact size and not kept; neither is one
//! above 4 MiB. Buffers for direct I/O are always page aligned and at least a page long.
//!
//! The pool does not write to large buffers: the kernel zeroes their pages when the read first
//! touches them.
//!
//! Buffers are kept in local pools, one for each processor. A thread uses its own local pool, so
//! threads seldom share a cache line. If that has no suitable buffer, the thread tries the other
//! local pools before it allocates. Half of the limit is divided among the local pools as their
//! shares, so that none can use all of it; the other half is for whichever needs more.
//!
//! No thread waits for a local pool: one that is locked is skipped, and a buffer that would go
//! there is freed. So a forked child never waits for a thread that it does not have.

use crate::block::Block;
use crate::thread;
use ringway_core::{AlignedBuffer, Arena, Buffer};
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// The alignment of buffers: a multiple of every block size in use.
const PAGE: usize = 4096;

/// The number of size classes: 1 to 8 pages, then eight sizes per doubling, up to 4 MiB.
const CLASSES: usize = 64;
/// At most this fraction of the requested size may be wasted.
const WASTE: usize = 8;

/// A pool of buffers. Buffers may outlive it, and are then freed.
pub(crate) struct Pool {
    locals: Box<[Arc<LocalPool>]>,
    arena: Option<Arena>,
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
        let local =
            || LocalPool { lists: Mutex::default(), share, shared_left: shared_left.clone() };
        Self { locals: (0..count).map(|_| Arc::new(local())).collect(), arena: None }
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
        let Some(class) = class_for(len) else {
            return Ok(AlignedBuffer::try_new(len, PAGE)?.into());
        };
        let size = size_of_class(class);
        if !direct && size - len > len / WASTE {
            return Ok(vec![0; len].into());
        }
        let kept = self
            .local()
            .take(class)
            .or_else(|| self.locals.iter().find_map(|other| other.take(class)));
        let buffer = match kept {
            Some(buffer) => buffer,
            None => AlignedBuffer::try_new(size, PAGE)?,
        };
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
    /// Bytes that may be kept here regardless of other local pools.
    share: usize,
    /// Bytes that all local pools together may still keep beyond their shares.
    shared_left: Arc<AtomicUsize>,
}

struct FreeLists {
    /// Free buffers by class, the most recently used one last: it is likely to be in the
    /// processor's cache.
    free: [Vec<AlignedBuffer>; CLASSES],
    /// Bytes in all free buffers.
    bytes: usize,
    /// The part of `bytes` that exceeds the share, taken from the shared half of the limit.
    borrowed: usize,
    /// When each class was last used, as a value of `clock`.
    last_used: [u64; CLASSES],
    clock: u64,
}

impl Default for FreeLists {
    fn default() -> Self {
        let free = std::array::from_fn(|_| Vec::new());
        Self { free, bytes: 0, borrowed: 0, last_used: [0; CLASSES], clock: 0 }
    }
}

impl LocalPool {
    /// Takes a buffer of this class, if there is one and the local pool is not locked.
    fn take(&self, class: usize) -> Option<AlignedBuffer> {
        let mut lists = self.lists()?;
        lists.touch(class);
        self.pop(&mut lists, class)
    }

    /// Keeps a buffer, if its size is that of a class. If the limit is reached, buffers of the
    /// least recently used class are freed for it; if there are none, the buffer is freed.
    fn put(&self, buffer: Buffer) {
        // Dropping an arena's buffer returns it to its arena.
        let Ok(buffer) = AlignedBuffer::try_from(buffer) else { return };
        let size = buffer.len();
        let class =
            class_for(size).filter(|class| size_of_class(*class) == size && buffer.align() >= PAGE);
        let Some(class) = class else { return };
        // Freed at the end, after the local pool is unlocked.
        let mut evicted = Vec::new();
        let Some(mut lists) = self.lists() else { return };
        lists.touch(class);
        let others = lists.bytes - lists.free[class].len() * size;
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
        self.share - (lists.bytes - lists.borrowed) + self.shared_left.load(Ordering::Relaxed)
    }

    /// Adds `size` bytes to the count, borrowing what exceeds the share. Returns false, and changes
    /// nothing, if the limit is reached.
    fn charge(&self, lists: &mut FreeLists, size: usize) -> bool {
        let excess = (lists.bytes - lists.borrowed + size).saturating_sub(self.share);
        if excess > 0 {
            let rest = |shared_left: usize| shared_left.checked_sub(excess);
            if self.shared_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_err() {
                return false;
            }
        }
        lists.borrowed += excess;
        lists.bytes += size;
        true
    }

    /// Takes a free buffer out of its class. Borrowed bytes are returned first.
    fn pop(&self, lists: &mut FreeLists, class: usize) -> Option<AlignedBuffer> {
        let buffer = lists.free[class].pop()?;
        lists.bytes -= buffer.len();
        let repaid = lists.borrowed.min(buffer.len());
        if repaid > 0 {
            lists.borrowed -= repaid;
            self.shared_left.fetch_add(repaid, Ordering::Relaxed);
        }
        Some(buffer)
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
            self.locals.iter().map(|local| local.lists.lock().unwrap().bytes).sum()
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
            (0..10)
                .for_each(|_| pool.locals[local].put(Buffer::from(AlignedBuffer::new(PAGE, PAGE))));
            pool.locals[local].lists().unwrap().bytes / PAGE
        };
        assert_eq!((fill(0), fill(1)), (6, 2), "the second keeps its share");
        assert!(pool.locals[0].take(0).is_some());
        assert_eq!((fill(1), fill(0)), (3, 5), "the second may use what the first does not");
    }

    #[test]
    fn an_unused_size_is_evicted() {
        let pool = Pool::with_locals(8 * PAGE, 1);
        let put = |pages: usize| pool.put(Buffer::from(AlignedBuffer::new(pages * PAGE, PAGE)));
        (0..4).for_each(|_| put(1));
        (0..2).for_each(|_| put(2));
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
        pool.put(Buffer::from(AlignedBuffer::new(PAGE, PAGE)));
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
        assert_eq!(lists.bytes, PAGE, "a second buffer was allocated and freed");
    }

    #[test]
    fn a_block_may_outlive_its_pool() {
        let pool = Pool::new(1 << 20);
        let block = pool.block(pool.get(10, false).unwrap(), 10);
        drop(pool);
        assert_eq!(block.len(), 10);
    }

    #[test]
    fn an_arena_is_used_first() {
        let arena = Arena::new(8192, 1);
        let pool = Pool::new(1 << 20).with_arena(arena.clone());
        let block = pool.block(pool.get(5000, true).unwrap(), 5000);
        assert_eq!(arena.free(), 0);
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
        let large = pool.get((4 << 20) + 1, false).unwrap();
        assert_eq!((large.len(), large.as_slice().as_ptr().addr() % PAGE), ((4 << 20) + 1, 0));
        drop(pool.block(large, 4 << 20));
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn other_buffers_are_not_kept() {
        let pool = Pool::new(1 << 20);
        pool.put(Buffer::from(vec![0; PAGE]));
        pool.put(Buffer::from(AlignedBuffer::new(PAGE, 512)));
        pool.put(Buffer::from(AlignedBuffer::new(5000, PAGE)));
        pool.put(Buffer::from(AlignedBuffer::new(0, PAGE)));
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

    /// The capacity of the whole buffer that a part belongs to.
    fn capacity_of(buffer: Buffer) -> usize {
        match AlignedBuffer::try_from(buffer) {
            Ok(aligned) => aligned.len(),
            Err(plain) => Vec::try_from(plain).unwrap().capacity(),
        }
    }

    #[test]
    fn classes_are_all_sizes_in_order() {
        let sizes: Vec<_> = (0..CLASSES).map(size_of_class).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((sizes[0], sizes[CLASSES - 1]), (PAGE, 4 << 20));
        for (class, size) in sizes.iter().enumerate() {
            assert_eq!((class_for(*size), class_for(size - 1)), (Some(class), Some(class)));
            assert_eq!(class_for(size + 1), Some(class + 1).filter(|next| *next < CLASSES));
        }
        assert_eq!((class_for(0), class_for(usize::MAX)), (Some(0), None));
    }

    #[test]
    fn buffers_are_not_much_larger_than_requested() {
        let pool = Pool::new(0);
        for (count, len) in
            [(2000, 300 << 10), (20_000, 100), (1000, 4096), (1000, 5000), (10, 5 << 20)]
        {
            let blocks: Vec<_> = (0..count).map(|_| pool.get(len, false).unwrap()).collect();
            let taken: usize = blocks.into_iter().map(capacity_of).sum();
            assert!(taken <= count * (len + len / WASTE), "{count} of {len}: {taken}");
        }
    }

    proptest! {
        #[test]
        fn little_is_wasted(len in prop_oneof![0usize..100_000, 0usize..6 << 20], direct: bool) {
            let buffer = Pool::new(0).get(len, direct).unwrap();
            prop_assert_eq!(buffer.len(), len);
            if direct {
                prop_assert_eq!(buffer.as_slice().as_ptr().addr() % PAGE, 0);
                let pages = len.next_multiple_of(PAGE).max(PAGE);
                prop_assert!(capacity_of(buffer) <= pages + pages / WASTE);
            } else {
                prop_assert!(capacity_of(buffer) <= len + len / WASTE);
            }
        }

        /// Any sizes, put back in any order to any local pool: no buffer is handed out twice, each
        /// is long enough, and the count of kept bytes is right and within the limit.
        #[test]
        fn kept_bytes_are_counted_right(
            cap in 0usize..40 * PAGE,
            count in 1usize..4,
            steps in proptest::collection::vec((0usize..6 * PAGE, any::<bool>()), 0..100),
        ) {
            let pool = Pool::with_locals(cap, count);
            let mut in_use: Vec<Buffer> = Vec::new();
            for (len, take) in steps {
                if take {
                    let buffer = pool.get(len, len % 2 == 0).unwrap();
                    prop_assert_eq!(buffer.len(), len);
                    let first = buffer.as_slice().as_ptr();
                    let is_new = in_use.iter().all(|other| other.as_slice().as_ptr() != first);
                    prop_assert!(len == 0 || is_new);
                    in_use.push(buffer);
                } else if !in_use.is_empty() {
                    pool.locals[len % count].put(in_use.swap_remove(len % in_use.len()));
                }
                let mut borrowed = 0;
                for local in &pool.locals {
                    let lists = local.lists().unwrap();
                    let bytes: usize = lists.free.iter().flatten().map(|buffer| buffer.len()).sum();
                    prop_assert_eq!(lists.bytes, bytes);
                    prop_assert!(lists.bytes - lists.borrowed <= local.share);
                    borrowed += lists.borrowed;
                }
                let shared_left = pool.locals[0].shared_left.load(Ordering::Relaxed);
                prop_assert_eq!(shared_left + borrowed + pool.locals[0].share * count, cap);
                prop_assert!(pool.kept() <= cap);
            }
        }
    }
}
