//! Memory for reads that ringway lends: taken for a read, borrowed_buffers out with what came, and kept for the
//! next one.
//!
//! To fault the pages of a fresh buffer in costs more than a cached read into it does. So buffers
//! are made in sizes that many reads share, and those that come back are kept, up to a cap of
//! bytes. The sizes are whole pages, eight to each doubling: a buffer is at most an eighth larger
//! than what was asked for. What would waste more (all that is less than some pages and not nearly
//! a whole number of them) is allocated as it is and kept by nobody; so is what is larger than 4
//! MiB. For direct I/O every buffer is page aligned, and at least a page.
//!
//! Nothing here writes to a large buffer: the kernel zeroes its pages when the read first touches
//! them.
//!
//! They are kept on locals, one for each processor, and a thread uses one of its own, so that
//! threads seldom share a cache line. A thread whose local has nothing for it looks at the others
//! before it asks for fresh memory. Half of the cap is shared out among the locals, so that nobody
//! can take all of it; the other half is for whoever needs more.
//!
//! Nobody waits for a local: one that is in use is passed over, and what would go back to it is
//! freed. So neither does a forked child wait for a thread that it does not have.

use crate::block::Block;
use crate::thread;
use ringway_core::{AlignedBuffer, Arena, Buffer};
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// What buffers are aligned to: a multiple of every block size in use.
const PAGE: usize = 4096;

/// Sizes of which buffers are kept: 1 to 8 pages, then eight sizes to each doubling, up to 4 MiB.
const CLASSES: usize = 64;
/// Of what was asked for, this part may be wasted.
const WASTE: usize = 8;

/// Lends memory for reads. What is borrowed_buffers may outlive it, and is freed then rather than kept.
pub(crate) struct Pool {
    locals: Box<[Arc<LocalPool>]>,
    arena: Option<Arena>,
}

impl Pool {
    /// A pool that keeps at most `cap` bytes of what is not in use. 0: it keeps nothing.
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

    /// Asks this arena first, for whatever fits into a block of it. One whose blocks are not page
    /// aligned is not asked.
    pub fn with_arena(self, arena: Arena) -> Self {
        let aligned = arena.block_size().is_multiple_of(PAGE);
        Self { arena: aligned.then_some(arena), ..self }
    }

    /// A buffer of `len` bytes, with whatever was in it before; page aligned if it is for direct
    /// I/O.
    ///
    /// It is for [`lend`](Self::lend) or [`put`](Self::put) in the end; one that is dropped is
    /// freed.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` for what cannot be had.
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

    /// The first `len` bytes of a buffer that was taken and read into, or all where there are
    /// fewer. The memory comes back with the last clone and slice of them.
    pub fn into_block(&self, buffer: Buffer, len: usize) -> Block {
        Block::new(PooledBuffer { buffer, local: Arc::downgrade(self.local()) }, len)
    }

    /// Takes back a buffer that is not needed after all.
    pub fn put(&self, buffer: Buffer) {
        self.local().put(buffer);
    }

    /// The local of the thread that calls.
    fn local(&self) -> &Arc<LocalPool> {
        &self.locals[thread::number() % self.locals.len()]
    }
}

/// A buffer in a reader's hands. Dropping it puts it back, if its pool is still there.
pub(crate) struct PooledBuffer {
    buffer: Buffer,
    local: Weak<LocalPool>,
}

impl PooledBuffer {
    /// A buffer that no pool waits for.
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

/// What some threads keep.
#[repr(align(128))] // Two cache lines, which processors fetch together.
struct LocalPool {
    lists: Mutex<FreeLists>,
    /// Bytes that may be kept here whatever other locals keep.
    share: usize,
    /// Bytes that locals may still keep beyond their shares, all of them together.
    shared_left: Arc<AtomicUsize>,
}

struct FreeLists {
    /// Free buffers by class, the one used last on top: it is likely to be in the processor's
    /// cache.
    free: [Vec<AlignedBuffer>; CLASSES],
    /// Bytes of all of them.
    bytes: usize,
    /// Those of `bytes` that exceed the share, and count towards the shared_left part of the cap.
    borrowed: usize,
    /// When each class was last taken from or added to, as a number of `clock`.
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
    /// A buffer of this class, if there is one and nobody else is at the local.
    fn take(&self, class: usize) -> Option<AlignedBuffer> {
        let mut lists = self.lists()?;
        lists.touch(class);
        self.pop(&mut lists, class)
    }

    /// Keeps a buffer, if it is of a size to be kept. When the cap is reached, buffers of the class
    /// that has not been used for longest make room; when there are none, it is freed.
    fn put(&self, buffer: Buffer) {
        // Dropping is how a block of an arena goes back to its arena.
        let Ok(buffer) = AlignedBuffer::try_from(buffer) else { return };
        let size = buffer.len();
        let class =
            class_for(size).filter(|class| size_of_class(*class) == size && buffer.align() >= PAGE);
        let Some(class) = class else { return };
        // Freed at the end, when the local is unlocked.
        let mut evicted = Vec::new();
        let Some(mut lists) = self.lists() else { return };
        lists.touch(class);
        let others = lists.bytes - lists.free[class].len() * size;
        if size > self.capacity_left(&lists) + others {
            return; // They would make room in vain.
        }
        while !self.charge(&mut lists, size) {
            let Some(other) = lists.least_recently_used_except(class) else { return };
            evicted.extend(self.pop(&mut lists, other));
        }
        lists.free[class].push(buffer);
    }

    /// Bytes that could be kept besides those that are.
    fn capacity_left(&self, lists: &FreeLists) -> usize {
        self.share - (lists.bytes - lists.borrowed) + self.shared_left.load(Ordering::Relaxed)
    }

    /// Counts `size` bytes more: what exceeds the share is borrowed. False, and nothing done, when
    /// the cap is reached.
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

    /// A buffer off the local; what is borrowed is given back first.
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

    /// What is here; `None` while somebody else is at it.
    fn lists(&self) -> Option<MutexGuard<'_, FreeLists>> {
        match self.lists.try_lock() {
            Ok(lists) => Some(lists),
            // The lists is right at every moment: a panic elsewhere cannot have left it half
            // changed.
            Err(TryLockError::Poisoned(lists)) => Some(lists.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl FreeLists {
    /// The class that has not been used for longest, other than this one, of those that there is
    /// something of.
    fn least_recently_used_except(&self, class: usize) -> Option<usize> {
        let others = (0..CLASSES).filter(|other| *other != class && !self.free[*other].is_empty());
        others.min_by_key(|other| self.last_used[*other])
    }

    fn touch(&mut self, class: usize) {
        self.clock += 1;
        self.last_used[class] = self.clock;
    }
}

/// The class of the smallest buffers that hold `len` bytes; `None` for more than the largest hold.
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
        /// Bytes that are kept now.
        fn kept(&self) -> usize {
            self.locals.iter().map(|local| local.lists.lock().unwrap().bytes).sum()
        }
    }

    #[test]
    fn what_came_back_is_lent_again() {
        let pool = Pool::new(1 << 20);
        let buffer = pool.get(5000, true).unwrap();
        assert_eq!((buffer.len(), buffer.as_slice().as_ptr().addr() % PAGE), (5000, 0));
        let first = buffer.as_slice().as_ptr();
        let block = pool.into_block(buffer, 100);
        let part = block.slice(50..60);
        drop(block);
        assert_eq!((part.len(), pool.kept()), (10, 0), "a slice is still there");
        drop(part);
        assert_eq!(pool.kept(), 8192);
        assert_eq!(pool.get(8192, false).unwrap().as_slice().as_ptr(), first);
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn half_of_the_cap_is_for_whoever_needs_it() {
        let pool = Pool::with_locals(8 * PAGE, 2);
        let fill = |local: usize| {
            (0..10)
                .for_each(|_| pool.locals[local].put(Buffer::from(AlignedBuffer::new(PAGE, PAGE))));
            pool.locals[local].lists().unwrap().bytes / PAGE
        };
        assert_eq!((fill(0), fill(1)), (6, 2), "its share is left to the second");
        assert!(pool.locals[0].take(0).is_some());
        assert_eq!((fill(1), fill(0)), (3, 5), "what the first does not need, the second may have");
    }

    #[test]
    fn a_size_that_is_used_no_more_makes_room() {
        let pool = Pool::with_locals(8 * PAGE, 1);
        let put = |pages: usize| pool.put(Buffer::from(AlignedBuffer::new(pages * PAGE, PAGE)));
        (0..4).for_each(|_| put(1));
        (0..2).for_each(|_| put(2));
        put(4);
        let lists = pool.locals[0].lists().unwrap();
        assert_eq!([1, 2, 4].map(|pages| lists.free[pages - 1].len()), [0, 2, 1]);
        drop(lists);
        put(16);
        assert_eq!(pool.kept(), 8 * PAGE, "nothing makes room for what is larger than the cap");
    }

    #[test]
    fn another_threads_shelf_helps_out() {
        let pool = Pool::with_locals(1 << 20, 3);
        pool.put(Buffer::from(AlignedBuffer::new(PAGE, PAGE)));
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| pool.put(pool.get(1, true).unwrap())).join().unwrap()
            });
            assert_eq!(pool.kept(), PAGE, "it was never made anew");
        }
    }

    #[test]
    fn nobody_waits_for_a_shelf() {
        let pool = Pool::with_locals(1 << 20, 1);
        pool.put(pool.get(1, true).unwrap());
        let lists = pool.locals[0].lists().unwrap();
        let buffer = pool.get(1, true).unwrap();
        drop(pool.into_block(buffer, 1));
        assert_eq!(lists.bytes, PAGE, "another was borrowed_buffers, and freed");
    }

    #[test]
    fn a_block_may_outlive_its_pool() {
        let pool = Pool::new(1 << 20);
        let block = pool.into_block(pool.get(10, false).unwrap(), 10);
        drop(pool);
        assert_eq!(block.len(), 10);
    }

    #[test]
    fn an_arena_is_asked_first() {
        let arena = Arena::new(8192, 1);
        let pool = Pool::new(1 << 20).with_arena(arena.clone());
        let block = pool.into_block(pool.get(5000, true).unwrap(), 5000);
        assert_eq!(arena.free(), 0);
        pool.put(pool.get(5000, true).unwrap());
        assert_eq!(pool.kept(), 8192, "the arena had none left");
        drop(block);
        assert_eq!((arena.free(), pool.kept()), (1, 8192));
        let odd = Pool::new(0).with_arena(Arena::new(5000, 2));
        assert_eq!(odd.get(1, true).unwrap().as_slice().as_ptr().addr() % PAGE, 0);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let pool = Pool::new(1 << 20);
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(pool.get(len, false).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
        let large = pool.get((4 << 20) + 1, false).unwrap();
        assert_eq!((large.len(), large.as_slice().as_ptr().addr() % PAGE), ((4 << 20) + 1, 0));
        drop(pool.into_block(large, 4 << 20));
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
    fn threads_share_what_is_kept() {
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
                        let block = pool.into_block(Buffer::from(memory), len);
                        assert!(block.iter().all(|byte| *byte == mark));
                        assert!(pool.kept() <= 64 * PAGE);
                    }
                });
            }
        });
    }

    /// Bytes of the whole buffer of which a part was taken.
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
    fn what_is_kept_by_readers_is_not_much_larger_than_they_asked() {
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

        /// Any sizes, given back in any order to any local: none is borrowed_buffers twice at a time, what is
        /// borrowed_buffers is long enough, and what is kept is counted right and within the cap.
        #[test]
        fn the_count_is_right(
            cap in 0usize..40 * PAGE,
            count in 1usize..4,
            steps in proptest::collection::vec((0usize..6 * PAGE, any::<bool>()), 0..100),
        ) {
            let pool = Pool::with_locals(cap, count);
            let mut borrowed_buffers: Vec<Buffer> = Vec::new();
            for (len, take) in steps {
                if take {
                    let buffer = pool.get(len, len % 2 == 0).unwrap();
                    prop_assert_eq!(buffer.len(), len);
                    let first = buffer.as_slice().as_ptr();
                    prop_assert!(len == 0 || borrowed_buffers.iter().all(|other| other.as_slice().as_ptr() != first));
                    borrowed_buffers.push(buffer);
                } else if !borrowed_buffers.is_empty() {
                    pool.locals[len % count].put(borrowed_buffers.swap_remove(len % borrowed_buffers.len()));
                }
                let mut borrowed = 0;
                for local in &pool.locals {
                    let lists = local.lists().unwrap();
                    prop_assert_eq!(lists.bytes, lists.free.iter().flatten().map(|buffer| buffer.len()).sum::<usize>());
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
