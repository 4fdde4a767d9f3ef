//! Registered buffers and files: which of them this queue's ring knows, and under which index.

use super::Queue;
use crate::buffer::{Arena, Buffer};
use crate::file::File;
use crate::op::{Held, Raw};
use crate::refusal::{Feature, Refusal};
use std::os::fd::AsRawFd;

/// The kernel registers at most 1 GiB as one buffer.
const LARGEST: usize = 1 << 30;

/// What is registered.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    arenas: Vec<Registered>,
    /// The files themselves, so that a registration never outlives one.
    files: Vec<(File, u32)>,
}

#[derive(Debug)]
struct Registered {
    arena: Arena,
    first_index: u16,
    /// Bytes under each index; a whole number of blocks.
    span: usize,
}

impl Fixed {
    /// The indices of an operation's file and of its buffer.
    #[inline]
    pub fn find(&self, file: Option<&File>, held: &Held, raw: &Raw) -> (Option<u32>, Option<u16>) {
        if self.files.is_empty() && self.arenas.is_empty() {
            return (None, None);
        }
        let buffer = match held {
            Held::Buffer(buffer) => Some(buffer),
            _ => None,
        };
        (self.file(file), self.buffer(buffer, raw))
    }

    /// A file's index, if it is registered.
    #[inline]
    fn file(&self, file: Option<&File>) -> Option<u32> {
        let identity = file?.identity();
        self.files.iter().find(|(file, _)| file.identity() == identity).map(|(_, index)| *index)
    }

    /// The index of the registered memory that a plain transfer's bytes lie in.
    #[inline]
    fn buffer(&self, buffer: Option<&Buffer>, raw: &Raw) -> Option<u16> {
        let addr = match raw {
            Raw::Read(read) => read.addr.addr(),
            Raw::Write(write) => write.addr.addr(),
            _ => return None,
        };
        let arena = buffer?.block()?.arena().identity();
        let registered = self.arenas.iter().find(|registered| registered.arena.identity() == arena)?;
        let index = (addr - arena) / registered.span;
        Some(registered.first_index + index as u16)
    }
}

impl Queue {
    /// Registers an arena's memory as fixed buffers: reads into and writes from its blocks then use `READ_FIXED` and
    /// `WRITE_FIXED` by themselves. The queue keeps the arena's memory from then on.
    ///
    /// Errors: why it was refused, which [`explain`](Queue::explain) keeps too; the blocks are buffers like any other then.
    /// EOPNOTSUPP where there is no ring; ENOMEM where it is more than `RLIMIT_MEMLOCK` allows; ENOSPC beyond 64 registrations.
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), Refusal> {
        if self.fixed.arenas.iter().any(|registered| registered.arena.identity() == arena.identity()) {
            return Ok(());
        }
        let (memory, len) = arena.memory();
        let span = (LARGEST / arena.block_size()).max(1) * arena.block_size();
        let memory: Vec<libc::iovec> = (0..len)
            .step_by(span)
            .map(|start| libc::iovec { iov_base: memory.wrapping_add(start).cast(), iov_len: span.min(len - start) })
            .collect();
        // SAFETY: `fixed` keeps the arena, and with it the memory, until after the queue's drop has dropped the backend; blocks
        // that are in flight beyond that are leaked and keep it for ever.
        let registered = unsafe { self.main.register_buffers(&memory) };
        let first_index = registered.map_err(|errno| self.refused(Feature::FixedBuffers, errno))?;
        self.fixed.arenas.push(Registered { arena: arena.clone(), first_index, span });
        self.grant(Feature::FixedBuffers);
        Ok(())
    }

    /// Registers a file: operations on it then use its index by themselves, and the kernel need not look its descriptor up.
    /// The queue holds the file until it is unregistered or the queue is dropped.
    ///
    /// Errors: as for [`register_arena`](Self::register_arena); 64 files at most.
    pub fn register_file(&mut self, file: &File) -> Result<(), Refusal> {
        if self.fixed.file(Some(file)).is_some() {
            return Ok(());
        }
        let registered = self.main.register_file(file.as_raw_fd());
        let index = registered.map_err(|errno| self.refused(Feature::FixedFiles, errno))?;
        self.fixed.files.push((file.clone(), index));
        self.grant(Feature::FixedFiles);
        Ok(())
    }

    /// Ends a file's registration. False if it was not registered, or if operations on it are in flight, which may still
    /// name its index.
    pub fn unregister_file(&mut self, file: &File) -> bool {
        let same = |one: &File| one.identity() == file.identity();
        let in_use = self
            .slots
            .keys()
            .any(|key| self.slots.get(key).and_then(|flight| flight.operation.file.as_ref()).is_some_and(same));
        let Some(at) = self.fixed.files.iter().position(|(one, _)| same(one)).filter(|_| !in_use) else {
            return false;
        };
        let (_, index) = self.fixed.files.swap_remove(at);
        self.main.unregister_file(index);
        true
    }

    fn refused(&mut self, feature: Feature, errno: i32) -> Refusal {
        let refusal = Refusal::new(feature, errno);
        self.explanation.refusals.push(refusal.clone());
        refusal
    }

    fn grant(&mut self, feature: Feature) {
        if !self.explanation.granted.contains(&feature) {
            self.explanation.granted.push(feature);
        }
    }
}
