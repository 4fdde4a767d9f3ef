//! Registered buffers and files: which of them this queue's ring knows, and under which index.

use super::{Backends, Queue};
use crate::buffer::Arena;
use crate::file::File;
use crate::op::Raw;
use crate::refusal::{Feature, Refusal};
use std::os::fd::AsRawFd;

/// The kernel registers at most 1 GiB as one buffer.
const LARGEST: usize = 1 << 30;

/// What is registered.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    memory: Vec<Registered>,
    /// The files themselves, so that a registration never outlives one.
    files: Vec<(File, u32)>,
}

/// Memory under consecutive indices.
#[derive(Debug)]
struct Registered {
    start: usize,
    len: usize,
    first_index: u16,
    /// Bytes under each index; of an arena, a whole number of blocks.
    span: usize,
    /// Whose memory it is, unless somebody else keeps it.
    _arena: Option<Arena>,
}

impl Registered {
    /// The index of these bytes, if they lie under one.
    #[inline]
    fn index(&self, addr: usize, len: usize) -> Option<u16> {
        let from = addr
            .checked_sub(self.start)
            .filter(|from| *from < self.len && len <= self.len - from)?;
        let number = from / self.span;
        (len > 0 && (from + len - 1) / self.span == number)
            .then_some(self.first_index + number as u16)
    }
}

impl Fixed {
    /// The indices of an operation's file and of its buffer.
    #[inline]
    pub fn find(&self, file: Option<&File>, raw: &Raw) -> (Option<u32>, Option<u16>) {
        if self.files.is_empty() && self.memory.is_empty() {
            return (None, None);
        }
        (self.file(file), self.buffer(raw))
    }

    /// A file's index, if it is registered.
    #[inline]
    fn file(&self, file: Option<&File>) -> Option<u32> {
        let identity = file?.identity();
        self.files.iter().find(|(file, _)| file.identity() == identity).map(|(_, index)| *index)
    }

    /// The index of the registered memory that a plain transfer's bytes lie in.
    #[inline]
    fn buffer(&self, raw: &Raw) -> Option<u16> {
        let (addr, len) = match raw {
            Raw::Read(read) => (read.addr.addr(), read.len),
            Raw::Write(write) => (write.addr.addr(), write.len),
            _ => return None,
        };
        self.memory.iter().find_map(|registered| registered.index(addr, len))
    }
}

impl Backends {
    /// As [`Queue::register_arena`].
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), Refusal> {
        self.here(Feature::FixedBuffers)?;
        let (start, len) = arena.memory();
        if self.fixed.memory.iter().any(|registered| registered.start == start.addr()) {
            return Ok(());
        }
        let span = (LARGEST / arena.block_size()).max(1) * arena.block_size();
        let memory: Vec<libc::iovec> = (0..len)
            .step_by(span)
            .map(|from| libc::iovec {
                iov_base: start.wrapping_add(from).cast(),
                iov_len: span.min(len - from),
            })
            .collect();
        // SAFETY: `fixed` keeps the arena, and with it the memory, until after the queue's drop has
        // dropped the backend; blocks that are in flight beyond that are leaked and keep it for
        // ever.
        let first_index = unsafe { self.register(&memory) }?;
        self.fixed.memory.push(Registered {
            start: start.addr(),
            len,
            first_index,
            span,
            _arena: Some(arena.clone()),
        });
        Ok(())
    }

    /// As [`Queue::register_memory`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn register_memory(&mut self, memory: &[libc::iovec]) -> Result<(), Refusal> {
        self.here(Feature::FixedBuffers)?;
        if memory
            .iter()
            .any(|one| one.iov_base.is_null() || one.iov_len == 0 || one.iov_len > LARGEST)
        {
            return Err(self.refused(Feature::FixedBuffers, libc::EINVAL));
        }
        // SAFETY: the caller keeps the memory.
        let first_index = unsafe { self.register(memory) }?;
        self.fixed.memory.extend(memory.iter().zip(first_index..).map(|(one, index)| Registered {
            start: one.iov_base.addr(),
            len: one.iov_len,
            first_index: index,
            span: one.iov_len,
            _arena: None,
        }));
        Ok(())
    }

    /// The first of consecutive indices.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped for as long as the backend lives.
    unsafe fn register(&mut self, memory: &[libc::iovec]) -> Result<u16, Refusal> {
        // SAFETY: the caller sees to it.
        let registered = unsafe { self.main.register_buffers(memory) };
        let first_index = registered.map_err(|errno| self.refused(Feature::FixedBuffers, errno))?;
        self.grant(Feature::FixedBuffers);
        Ok(first_index)
    }

    /// As [`Queue::register_file`].
    fn register_file(&mut self, file: &File) -> Result<(), Refusal> {
        self.here(Feature::FixedFiles)?;
        if self.fixed.file(Some(file)).is_some() {
            return Ok(());
        }
        let registered = self.main.register_file(file.as_raw_fd());
        let index = registered.map_err(|errno| self.refused(Feature::FixedFiles, errno))?;
        self.fixed.files.push((file.clone(), index));
        self.grant(Feature::FixedFiles);
        Ok(())
    }

    /// Ends a file's registration, of which no operation is in flight; false if it was not
    /// registered.
    fn unregister(&mut self, file: &File) -> bool {
        let Some(at) =
            self.fixed.files.iter().position(|(one, _)| one.identity() == file.identity())
        else {
            return false;
        };
        let (_, index) = self.fixed.files.swap_remove(at);
        self.main.unregister_file(index);
        true
    }

    /// A forked child has the ring's descriptor, and would change what is registered for its
    /// parent.
    fn here(&self, feature: Feature) -> Result<(), Refusal> {
        if self.home.is_here() { Ok(()) } else { Err(Refusal::new(feature, libc::ECHILD)) }
    }

    fn refused(&mut self, feature: Feature, errno: i32) -> Refusal {
        let refusal = Refusal::new(feature, errno);
        self.explanation.refusals.push(refusal.clone());
        refusal
    }

    fn grant(&mut self, feature: Feature) {
        if !self.explanation.available.contains(&feature) {
            self.explanation.available.push(feature);
        }
    }
}

impl Queue {
    /// Registers an arena's memory as fixed buffers: reads into and writes from its blocks then use
    /// `READ_FIXED` and `WRITE_FIXED` by themselves. The queue keeps the arena's memory from then
    /// on.
    ///
    /// Errors: why it was refused, which [`explain`](Queue::explain) keeps too; the blocks are
    /// buffers like any other then. EOPNOTSUPP where there is no ring; ECHILD in a forked child;
    /// ENOMEM where it is more than `RLIMIT_MEMLOCK` allows; ENOSPC beyond 64 registrations.
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), Refusal> {
        self.backends.register_arena(arena)
    }

    /// Registers memory of the caller's as fixed buffers, for interfaces to other languages: reads
    /// and writes whose bytes lie in one element of `memory` then use it by themselves.
    ///
    /// Errors: as for [`register_arena`](Self::register_arena), nothing being registered then;
    /// EINVAL for an element that is empty or longer than 1 GiB.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until the queue has been dropped, and for ever if operations
    /// were in flight then that would not end.
    pub unsafe fn register_memory(&mut self, memory: &[libc::iovec]) -> Result<(), Refusal> {
        // SAFETY: the caller keeps the memory.
        unsafe { self.backends.register_memory(memory) }
    }

    /// Registers a file: operations on it then use its index by themselves, and the kernel need not
    /// look its descriptor up. The queue holds the file until it is unregistered or the queue is
    /// dropped.
    ///
    /// Errors: as for [`register_arena`](Self::register_arena); 64 files at most.
    pub fn register_file(&mut self, file: &File) -> Result<(), Refusal> {
        self.backends.register_file(file)
    }

    /// Ends a file's registration. False if it was not registered, if operations on it are in
    /// flight, which may still name its index, and in a forked child.
    pub fn unregister_file(&mut self, file: &File) -> bool {
        if !self.table.home.is_here() {
            return false;
        }
        let same = |one: &File| one.identity() == file.identity();
        let slots = &self.table.slots;
        let in_use = slots.keys().any(|key| {
            slots.get(key).and_then(|flight| flight.operation.file.as_ref()).is_some_and(same)
        });
        !in_use && self.backends.unregister(file)
    }
}
