//! An arena: one piece of memory cut into equal blocks, which a queue can register as fixed
//! buffers.

use super::AlignedBuffer;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Equal, aligned blocks that are taken and, when dropped, come back; the memory is given back with
/// the last block.
///
/// Registered with a queue ([`Queue::register_arena`](crate::Queue::register_arena)), its blocks
/// are read into and written from as fixed buffers without being asked for; where the memory limit
/// refuses that, or the backend has no such thing, they are buffers like any other.
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
    inner: Arc<Inner>,
}

struct Inner {
    memory: NonNull<u8>,
    block_size: usize,
    count: usize,
    free: Mutex<Free>,
    /// What `memory` points into; nobody touches it but through blocks.
    owner: AlignedBuffer,
}

/// Blocks that nobody has.
struct Free {
    /// Those that came back.
    returned: Vec<u32>,
    /// The first of those that were never taken; all behind it were not, either.
    next: u32,
}

// SAFETY: `memory` is used only through blocks, each of which has its part for itself.
unsafe impl Send for Inner {}
// SAFETY: as above; the list of free blocks is behind a lock.
unsafe impl Sync for Inner {}

/// A multiple of every device's block size.
const ALIGN: usize = 4096;

impl Arena {
    /// `count` zeroed blocks of `block_size` bytes, at page-aligned addresses when `block_size` is
    /// a multiple of a page.
    ///
    /// # Panics
    ///
    /// When a block has no bytes, there are none or more than `u32::MAX`, or all of it is more than
    /// an address space holds.
    pub fn new(block_size: usize, count: usize) -> Self {
        let blocks = u32::try_from(count).expect("1 to u32::MAX blocks");
        let bytes = block_size.checked_mul(count).expect("an arena fits into the address space");
        assert!(
            block_size > 0 && blocks > 0,
            "an arena has at least one block of at least one byte"
        );
        Self::over(AlignedBuffer::new(bytes, ALIGN), block_size, blocks)
    }

    /// As [`new`](Self::new), where the numbers may be any.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where `new` panics; `OutOfMemory` where there is not so much memory.
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
        Self { inner: Arc::new(Inner { memory, block_size, count: blocks as usize, free, owner }) }
    }

    /// A block, with whatever was in it before; `None` when all are taken.
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

    /// Blocks that can be taken now.
    pub fn free(&self) -> usize {
        let free = self.free_list();
        free.returned.len() + self.inner.count - free.next as usize
    }

    /// Blocks in all.
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.inner.block_size
    }

    /// First byte and length of the whole, to be registered.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.inner.memory.as_ptr(), self.inner.owner.len())
    }

    fn free_list(&self) -> std::sync::MutexGuard<'_, Free> {
        // The list is right at every moment: a panic elsewhere cannot have left it half changed.
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

/// One block of an [`Arena`]: a slice of bytes that goes back to its arena when dropped.
pub struct ArenaBuffer {
    arena: Arena,
    index: u32,
}

impl ArenaBuffer {
    /// The arena that it belongs to.
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
        // SAFETY: the block's part of the arena's memory is initialised, lives as long as the arena
        // that this block holds, and is this block's alone: an index is in the free list or in one
        // block.
        unsafe { std::slice::from_raw_parts(self.first(), self.arena.block_size()) }
    }
}

impl DerefMut for ArenaBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow the only one.
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
        /// Blocks never overlap, all come back, and there are never more than there are.
        #[test]
        fn blocks_are_apart(size in 1usize..300, count in 1usize..20, steps in proptest::collection::vec(any::<bool>(), 0..100)) {
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
    fn a_block_keeps_its_memory_when_the_arena_is_gone() {
        let block = Arena::new(64, 1).take().unwrap();
        assert_eq!(block.len(), 64);
        assert!(block.arena().take().is_none());
    }
}
