//! Registers buffers and files with the main backend, and ends registrations.

use super::Queue;
use super::backends::Backends;
use super::fixed::Registered;
use crate::buffer::Arena;
use crate::file::File;
use crate::refusal::{Feature, Refusal};
use crate::sys::libc;

/// The kernel registers at most 1 GiB as one buffer.
const MAX_BUFFER: usize = 1 << 30;

impl Backends {
    /// See [`Queue::register_arena`].
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), Refusal> {
        self.check_process(Feature::FixedBuffers)?;
        let (start, len) = arena.memory();
        if self.fixed.memory.iter().any(|registered| registered.start == start.addr()) {
            return Ok(());
        }
        let span = (MAX_BUFFER / arena.block_size()).max(1) * arena.block_size();
        let memory: Vec<libc::iovec> = (0..len)
            .step_by(span)
            .map(|from| libc::iovec {
                iov_base: start.wrapping_add(from).cast(),
                iov_len: span.min(len - from),
            })
            .collect();
        // SAFETY: `fixed` keeps the arena, and so its memory, until the queue has dropped the
        // backend; blocks that are still in flight then are leaked and keep it forever.
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

    /// See [`Queue::register_memory`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::register_memory`].
    unsafe fn register_memory(&mut self, memory: &[libc::iovec]) -> Result<(), Refusal> {
        self.check_process(Feature::FixedBuffers)?;
        if memory
            .iter()
            .any(|one| one.iov_base.is_null() || one.iov_len == 0 || one.iov_len > MAX_BUFFER)
        {
            return Err(self.record_refusal(Feature::FixedBuffers, libc::EINVAL));
        }
        // SAFETY: the caller keeps the memory mapped.
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

    /// Registers memory under consecutive indices; returns the first.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped while the backend lives.
    unsafe fn register(&mut self, memory: &[libc::iovec]) -> Result<u16, Refusal> {
        // SAFETY: the caller keeps the memory mapped while the backend lives.
        let registered = unsafe { self.main.register_buffers(memory) };
        let first_index =
            registered.map_err(|errno| self.record_refusal(Feature::FixedBuffers, errno))?;
        self.mark_available(Feature::FixedBuffers);
        Ok(first_index)
    }

    /// See [`Queue::register_file`].
    fn register_file(&mut self, file: &File) -> Result<(), Refusal> {
        self.check_process(Feature::FixedFiles)?;
        if self.fixed.file(Some(file)).is_some() {
            return Ok(());
        }
        let registered = self.main.register_file(file.fd());
        let index = registered.map_err(|errno| self.record_refusal(Feature::FixedFiles, errno))?;
        self.fixed.files.push((file.clone(), index));
        self.mark_available(Feature::FixedFiles);
        Ok(())
    }

    /// Ends the registration of a file that no operation in flight uses. Returns false if it was
    /// not registered.
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

    /// A forked child shares the ring's descriptor, and would change the registrations of its
    /// parent.
    fn check_process(&self, feature: Feature) -> Result<(), Refusal> {
        if self.owner.is_current() { Ok(()) } else { Err(Refusal::new(feature, libc::ECHILD)) }
    }

    /// Records a refusal, once for each feature and errno: a program may try with each of its
    /// files.
    fn record_refusal(&mut self, feature: Feature, errno: i32) -> Refusal {
        let is_same = |one: &&Refusal| one.feature == feature && one.errno == errno;
        if let Some(known) = self.explanation.refusals.iter().find(is_same) {
            return known.clone();
        }
        let refusal = Refusal::new(feature, errno);
        self.explanation.refusals.push(refusal.clone());
        refusal
    }

    fn mark_available(&mut self, feature: Feature) {
        if !self.explanation.available.contains(&feature) {
            self.explanation.available.push(feature);
        }
    }
}

impl Queue {
    /// Registers the memory of an arena as fixed buffers. Reads into its blocks and writes from
    /// them then use `READ_FIXED` and `WRITE_FIXED` automatically. The queue keeps the arena's
    /// memory from then on.
    ///
    /// Errors: why it was refused, which [`explain`](Queue::explain) also includes; the blocks then
    /// work as ordinary buffers. EOPNOTSUPP on backends other than uring; ECHILD in a forked child;
    /// ENOMEM if `RLIMIT_MEMLOCK` is too low; ENOSPC after 64 registrations; before kernel 5.19,
    /// EBUSY while operations are in flight.
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), Refusal> {
        self.backends.register_arena(arena)
    }

    /// Registers memory of the caller as fixed buffers, for bindings to other languages. Reads and
    /// writes whose bytes are within one element of `memory` then use it automatically. Direct ones
    /// that begin within a block do not, since some kernels refuse them; nor does an operation
    /// without a [`File`] whose bytes do not begin at a multiple of 4096.
    ///
    /// Errors: as for [`register_arena`](Self::register_arena), and EINVAL for an element that is
    /// empty or longer than 1 GiB. On an error nothing is registered.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until the queue has been dropped, or forever if operations that
    /// did not end were in flight then.
    pub unsafe fn register_memory(&mut self, memory: &[libc::iovec]) -> Result<(), Refusal> {
        // SAFETY: the caller keeps the memory mapped.
        unsafe { self.backends.register_memory(memory) }
    }

    /// Registers a file. Operations on it then use its index automatically, and the kernel need not
    /// look up its descriptor. The queue holds the file until it is unregistered or the queue is
    /// dropped.
    ///
    /// Errors: as for [`register_arena`](Self::register_arena); at most 64 files.
    pub fn register_file(&mut self, file: &File) -> Result<(), Refusal> {
        self.backends.register_file(file)
    }

    /// Ends the registration of a file. Returns false if it was not registered, if operations on it
    /// are in flight (they may use its index), and in a forked child.
    pub fn unregister_file(&mut self, file: &File) -> bool {
        if !self.table.owner.is_current() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{BackendKind, Options};

    #[test]
    fn a_refusal_is_recorded_once() {
        let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
        let file = File::open("/dev/null").unwrap();
        let arena = Arena::new(4096, 1);
        let empty = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
        let mut all = Vec::new();
        for _ in 0..1000 {
            // SAFETY: it has no memory.
            let of_memory = unsafe { queue.register_memory(&empty) };
            let found = [queue.register_file(&file), queue.register_arena(&arena), of_memory];
            all.push(found.map(|refused| refused.unwrap_err()));
        }
        assert!(all.iter().all(|found| *found == all[0]));
        let refusals = queue.explain().refusals;
        for refusal in &all[0] {
            assert_eq!(refusals.iter().filter(|one| *one == refusal).count(), 1, "{refusals:?}");
        }
        assert_eq!(
            all[0].each_ref().map(|one| one.errno),
            [libc::EOPNOTSUPP, libc::EOPNOTSUPP, libc::EINVAL]
        );
    }
}
