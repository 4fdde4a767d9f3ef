//! An arena: memory divided into equal blocks, which a queue can register as fixed buffers.
//! Registering it is the queue's part.

use super::AlignedBuffer;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Equal, aligned blocks of memory. A block that is dropped can be taken again; the memory is freed
/// when the arena and all blocks are dropped.
///
/// Once it is registered with a queue ([`Queue::register_arena`](crate::Queue::register_arena)),
/// reads into its blocks and writes from them use fixed buffers automatically. If the backend or
/// the memory limit does not allow that, the blocks work as ordinary buffers.
///
/// ```
/// use ringway_core::Arena;
/// let arena = Arena::new(4096, 32);
/// let block = arena.take().expect("nothing has been taken yet");
/// assert_eq!((block.len(), arena.free()), (4096, 31));
/// drop(block);
/// assert_eq!(arena.free(), 32);
/// ```
#[derive(Clone)]
pub struct Arena {
    inner: Arc<ArenaMemory>,
}

struct ArenaMemory {
    memory: NonNull<u8>,
    block_size: usize,
    count: usize,
    free: Mutex<Free>,
    /// Owns the memory; it is accessed only through blocks.
    owner: AlignedBuffer,
}

/// The free blocks.
struct Free {
    /// Blocks that were dropped.
    returned: Vec<u32>,
    /// The first block that was never taken; nor was any after it.
    next: u32,
}

// SAFETY: `memory` is accessed only through blocks, each of which covers its own part.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above; a lock protects the list of free blocks.
unsafe impl Sync for ArenaMemory {}

/// A multiple of every device's block size.
const ALIGN: usize = 4096;

impl Arena {
    /// Makes `count` zeroed blocks of `block_size` bytes. Their addresses are page-aligned if
    /// `block_size` is a multiple of a page.
    ///
    /// # Panics
    ///
    /// If `block_size` or `count` is 0, if `count` exceeds `u32::MAX`, or if the total exceeds the
    /// address space.
    pub fn new(block_size: usize, count: usize) -> Self {
        let blocks = u32::try_from(count).expect("1 to u32::MAX blocks");
        let bytes = block_size.checked_mul(count).expect("an arena fits into the address space");
        assert!(
            block_size > 0 && blocks > 0,
            "an arena has at least one block of at least one byte"
        );
        Self::over(AlignedBuffer::new(bytes, ALIGN), block_size, blocks)
    }

    /// As [`new`](Self::new), but returns an error where that panics or aborts.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where `new` panics; `OutOfMemory` if the memory cannot be allocated.
    pub fn try_new(block_size: usize, count: usize) -> io::Result<Self> {
        let (blocks, bytes) =
            (u32::try_from(count), block_size.checked_mul(count).filter(|bytes| *bytes > 0));
        let (Ok(blocks), Some(bytes)) = (blocks, bytes) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self::over(AlignedBuffer::try_new(bytes, ALIGN)?, block_size, blocks))
    }

    fn over(mut owner: AlignedBuffer, block_size: usize, blocks: u32) -> Self {
        let memory = NonNull::from(&mut *owner).cast();
        let free = Mutex::new(Free { returned: Vec::new(), next: 0 });
        Self {
            inner: Arc::new(ArenaMemory {
                memory,
                block_size,
                count: blocks as usize,
                free,
                owner,
            }),
        }
    }

    /// Takes a block, with the content it had before; `None` if all are taken.
    pub fn take(&self) -> Option<ArenaBuffer> {
        let mut free = self.free_list();
        let index = match free.returned.pop() {
            Some(index) => index,
            None if (free.next as usize) < self.inner.count => {
                free.next += 1;
                free.next - 1
            }
            None => return None,
        };
        drop(free);
        Some(ArenaBuffer { arena: self.clone(), index })
    }

    /// The number of blocks that can be taken now.
    pub fn free(&self) -> usize {
        let free = self.free_list();
        free.returned.len() + self.inner.count - free.next as usize
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.inner.block_size
    }

    /// The address and length of the whole memory, to register it.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.inner.memory.as_ptr(), self.inner.owner.len())
    }

    fn free_list(&self) -> std::sync::MutexGuard<'_, Free> {
        // No panic can leave the list half changed, so a poisoned lock is harmless.
        self.inner.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Arena({} blocks of {} bytes, {} free)",
            self.count(),
            self.block_size(),
            self.free()
        )
    }
}

/// A block of an [`Arena`]: a slice of bytes that returns to its arena when dropped.
pub struct ArenaBuffer {
    arena: Arena,
    index: u32,
}

impl ArenaBuffer {
    /// The arena of the block.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    fn first(&self) -> *mut u8 {
        self.arena.inner.memory.as_ptr().wrapping_add(self.index as usize * self.arena.block_size())
    }
}

impl Deref for ArenaBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block's part of the memory is initialised and lives as long as the arena,
        // which this block holds. Only this block has it: an index is either in the free list or in
        // one block.
        unsafe { std::slice::from_raw_parts(self.first(), self.arena.block_size()) }
    }
}

impl DerefMut for ArenaBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.arena.block_size()) }
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        self.arena.free_list().returned.push(self.index);
    }
}

impl fmt::Debug for ArenaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaBuffer({} of {:?})", self.index, self.arena)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks never overlap, all are returned, and no more are taken than exist.
        #[test]
        fn blocks_do_not_overlap(
            size in 1usize..300,
            count in 1usize..20,
            steps in proptest::collection::vec(any::<bool>(), 0..100),
        ) {
            let arena = Arena::new(size, count);
            let mut taken: Vec<(ArenaBuffer, u8)> = Vec::new();
            for (number, take) in steps.into_iter().enumerate() {
                if take {
                    match arena.take() {
                        Some(mut block) => {
                            block.fill(number as u8);
                            taken.push((block, number as u8));
                        }
                        None => prop_assert_eq!(taken.len(), count),
                    }
                } else if !taken.is_empty() {
                    taken.remove(number % taken.len());
                }
                prop_assert_eq!(arena.free() + taken.len(), count);
                for (block, mark) in &taken {
                    prop_assert!(block.iter().all(|byte| byte == mark));
                }
            }
        }
    }

    #[test]
    fn a_block_keeps_the_memory_of_a_dropped_arena() {
        let block = Arena::new(64, 1).take().unwrap();
        assert_eq!(block.len(), 64);
        assert!(block.arena().take().is_none());
    }
}
