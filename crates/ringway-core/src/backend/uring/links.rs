//! Links that the kernel has cut: of linked entries it takes only the first ones, for example when
//! it has no memory for more requests. At the end of a submission it starts those, whatever becomes
//! of them, and takes the others later as links of their own. So the others are replaced where they
//! still wait, in the submission queue.
//!
//! A kernel thread that polls the submission queue cuts links too, but takes the others at any
//! time: such a ring has no links.

use crate::slots::Token;
use io_uring::squeue::{EntryMarker, Flags};
use io_uring::{IoUring, cqueue};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// `IORING_OFF_SQES`: the offset of the submission queue entries in the file of a ring.
const ENTRIES_OFFSET: libc::off_t = 0x1000_0000;

/// The offset of the flags in `struct io_uring_sqe`.
const FLAGS_OFFSET: usize = 1;

/// The entries of a ring's submission queue, mapped a second time: the `io-uring` crate has no
/// access to those that were pushed.
pub(super) struct PushedEntries<S> {
    entries: NonNull<S>,
    count: u32,
}

// SAFETY: the mapping belongs to the process, and this value is its only user.
unsafe impl<S> Send for PushedEntries<S> {}

impl<S: EntryMarker> PushedEntries<S> {
    /// Maps the entries of a ring.
    ///
    /// Errors: those of `mmap(2)` and `madvise(2)`; EOPNOTSUPP if the ring polls the queue.
    pub fn map<C: cqueue::EntryMarker>(ring: &IoUring<S, C>) -> io::Result<Self> {
        if ring.params().is_setup_sqpoll() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let count = ring.params().sq_entries();
        // SAFETY: the mapping is new: it replaces no other one.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count as usize * size_of::<S>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                ring.as_raw_fd(),
                ENTRIES_OFFSET,
            )
        };
        let entries = match NonNull::new(memory) {
            Some(memory) if memory.as_ptr() != libc::MAP_FAILED => memory.cast(),
            _ => return Err(io::Error::last_os_error()),
        };
        let mapped = Self { entries, count };
        // SAFETY: the range is that of the mapping.
        match unsafe { libc::madvise(memory, mapped.bytes(), libc::MADV_DONTFORK) } {
            0 => Ok(mapped),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The entry at a position of the queue, which counts from its beginning on and wraps around.
    fn at(&self, position: u32) -> *mut S {
        // (The number of entries is a power of two, and there is one.)
        let index = position & (self.count - 1);
        self.entries.as_ptr().wrapping_add(index as usize)
    }

    /// Whether an entry is linked to the next one.
    pub fn is_linked(&self, position: u32) -> bool {
        // SAFETY: the address is within the mapping. The kernel writes to no entry, and reads them
        // only during a system call of the ring's owner, who makes none now.
        let flags = unsafe { self.at(position).cast::<u8>().add(FLAGS_OFFSET).read() };
        Flags::from_bits_retain(flags).contains(Flags::IO_LINK)
    }

    /// The token of an entry.
    pub fn token(&self, position: u32) -> Token {
        // SAFETY: as above; an entry is plain data.
        Token(unsafe { self.at(position).read() }.get_user_data())
    }

    /// Replaces an entry that the kernel has not taken.
    pub fn replace(&mut self, position: u32, entry: S) {
        // SAFETY: as above.
        unsafe { self.at(position).write(entry) }
    }
}

impl<S> PushedEntries<S> {
    fn bytes(&self) -> usize {
        self.count as usize * size_of::<S>()
    }
}

impl<S> Drop for PushedEntries<S> {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), self.bytes()) };
    }
}
