//! Caches properties of the caller's descriptors while operations on them are in flight.
//!
//! A caller keeps a descriptor open while an operation on it is in flight. Its properties (is it
//! open for direct I/O, what is its device's largest request) cannot change during that time. They
//! are looked up again after the last operation has ended, because the number may then belong to
//! another file.

use crate::cancellation::Uncancellable;
use ringway_core::{File, WeakFile};
use std::os::fd::RawFd;

/// Descriptors from this number on are not cached, unless they are registered.
const MAX_CACHED: usize = 1 << 16;

/// Files by descriptor.
#[derive(Debug, Default)]
pub struct Files {
    /// Upgradable while an operation in flight or a registration holds the file.
    known: Vec<Option<WeakFile>>,
    registered: Vec<(RawFd, File)>,
}

impl Files {
    /// The file of a descriptor that an operation is about to use; `None` if it is negative.
    #[inline]
    pub fn get(&mut self, fd: RawFd) -> Option<File> {
        let index = usize::try_from(fd).ok()?;
        match self.known.get(index) {
            Some(Some(known)) => known.upgrade().or_else(|| self.make(fd, index)),
            _ => self.make(fd, index),
        }
    }

    /// The file of a descriptor, if an operation in flight or a registration holds it.
    pub fn held(&self, fd: RawFd) -> Option<File> {
        let known = self.known.get(usize::try_from(fd).ok()?);
        known.and_then(|known| known.as_ref()?.upgrade()).or_else(|| self.registered(fd).cloned())
    }

    /// The file of a descriptor that is about to be registered.
    pub fn get_to_hold(&mut self, fd: RawFd) -> Option<File> {
        if let Some(registered) = self.registered(fd) {
            return Some(registered.clone());
        }
        self.forget(fd);
        self.look_up(fd, usize::try_from(fd).ok()?)
    }

    /// The file for one operation, and others that overlap with it.
    #[cold]
    fn make(&mut self, fd: RawFd, index: usize) -> Option<File> {
        if index >= MAX_CACHED
            && let Some(registered) = self.registered(fd)
        {
            return Some(registered.clone());
        }
        // It is made again for the next one.
        self.look_up(fd, index).inspect(File::leave_extents)
    }

    fn look_up(&mut self, fd: RawFd, index: usize) -> Option<File> {
        let _guard = Uncancellable::new();
        // SAFETY: the caller of `ringway_push` keeps the descriptor open until the operation's
        // completion, and nothing holds the `File` longer, except a registration, which the caller
        // ends before closing the descriptor.
        let file = unsafe { File::borrow_raw(fd) }?;
        // Looked up here, with cancellation deferred: each push of a transfer asks for it.
        file.is_direct();
        if index < MAX_CACHED {
            if self.known.len() <= index {
                self.known.resize(index + 1, None);
            }
            self.known[index] = Some(file.downgrade());
        }
        Some(file)
    }

    /// Removes a descriptor that is about to be closed from the cache.
    pub fn forget(&mut self, fd: RawFd) {
        if let Some(known) = usize::try_from(fd).ok().and_then(|index| self.known.get_mut(index)) {
            *known = None;
        }
    }

    /// Keeps a registered file until [`release`](Self::release).
    pub fn hold(&mut self, fd: RawFd, file: File) {
        if self.registered(fd).is_none() {
            self.registered.push((fd, file));
        }
    }

    /// The file registered under this descriptor.
    pub fn registered(&self, fd: RawFd) -> Option<&File> {
        self.registered.iter().find(|(number, _)| *number == fd).map(|(_, file)| file)
    }

    /// Drops a registered file.
    pub fn release(&mut self, fd: RawFd) {
        self.registered.retain(|(number, _)| *number != fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_is_cached_while_an_operation_holds_it() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        let mut files = Files::default();
        let first = files.get(fd).unwrap();
        let weak = first.downgrade();
        drop(files.get(fd));
        assert!(weak.upgrade().is_some());
        drop(first);
        assert!(weak.upgrade().is_none(), "the cache entry must not outlive the last operation");
        assert!(files.get(fd).is_some());
        assert!(files.get(-1).is_none());
        assert!(
            files.get(i32::MAX).is_some(),
            "only the kernel decides that a descriptor is not open"
        );
        assert!(files.known.len() <= MAX_CACHED);
    }

    #[test]
    fn a_registered_file_is_found_whatever_its_number() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut files = Files::default();
        for fd in [file.as_raw_fd(), MAX_CACHED as RawFd, RawFd::MAX] {
            let registered = files.get_to_hold(fd).unwrap();
            let weak = registered.downgrade();
            files.hold(fd, registered);
            let found = files.get(fd).unwrap();
            assert!(files.held(fd).is_some(), "{fd}");
            // Nothing else holds it after these two.
            files.release(fd);
            assert!(weak.upgrade().is_some(), "{fd}");
            drop(found);
            assert!(weak.upgrade().is_none() && files.held(fd).is_none(), "{fd}");
        }
    }

    #[test]
    fn a_registered_file_is_kept_until_it_is_released() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        let mut files = Files::default();
        let registered = files.get(fd).unwrap();
        let weak = registered.downgrade();
        files.hold(fd, registered);
        files.forget(fd);
        assert!(weak.upgrade().is_some() && files.registered(fd).is_some());
        files.release(fd);
        assert!(weak.upgrade().is_none() && files.registered(fd).is_none());
    }
}
