//! What is known of the caller's descriptors, for as long as it must be true.
//!
//! A caller keeps a descriptor open while an operation on it is in flight. So whatever is learnt of
//! one (is it open for direct I/O, what does its device take) holds as long as that, and is asked
//! for again when the last operation on it is over: by then the number may be another file's.

use crate::cancellation::Uncancellable;
use ringway_core::{File, WeakFile};
use std::os::fd::RawFd;

/// Descriptors beyond this are asked about anew for each operation.
const MOST: usize = 1 << 16;

/// Files by their descriptors.
#[derive(Debug, Default)]
pub struct Files {
    /// Alive while an operation in flight, or a registration, holds it.
    known: Vec<Option<WeakFile>>,
    registered: Vec<(RawFd, File)>,
}

impl Files {
    /// The file behind a descriptor that an operation is about to use; `None` for a negative one.
    #[inline]
    pub fn get(&mut self, fd: RawFd) -> Option<File> {
        let index = usize::try_from(fd).ok()?;
        match self.known.get(index) {
            Some(Some(known)) => known.upgrade().or_else(|| self.learn(fd, index)),
            _ => self.learn(fd, index),
        }
    }

    #[cold]
    fn learn(&mut self, fd: RawFd, index: usize) -> Option<File> {
        let _guard = Uncancellable::new();
        // SAFETY: whoever calls `ringway_push` keeps the descriptor as it is until the operation's
        // completion; nothing holds the file for longer than that, but a registration, which the
        // caller ends before closing it.
        let file = unsafe { File::borrow_raw(fd) }?;
        if index < MOST {
            if self.known.len() <= index {
                self.known.resize(index + 1, None);
            }
            self.known[index] = Some(file.downgrade());
        }
        Some(file)
    }

    /// The number is about to be somebody else's.
    pub fn forget(&mut self, fd: RawFd) {
        if let Some(known) = usize::try_from(fd).ok().and_then(|index| self.known.get_mut(index)) {
            *known = None;
        }
    }

    /// Holds a file until its registration ends.
    pub fn hold(&mut self, fd: RawFd, file: File) {
        if self.registered(fd).is_none() {
            self.registered.push((fd, file));
        }
    }

    /// The file that is registered under this descriptor.
    pub fn registered(&self, fd: RawFd) -> Option<&File> {
        self.registered.iter().find(|(number, _)| *number == fd).map(|(_, file)| file)
    }

    /// Ends that.
    pub fn release(&mut self, fd: RawFd) {
        self.registered.retain(|(number, _)| *number != fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_is_known_while_it_is_held() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        let mut files = Files::default();
        let first = files.get(fd).unwrap();
        let weak = first.downgrade();
        drop(files.get(fd));
        assert!(weak.upgrade().is_some());
        drop(first);
        assert!(weak.upgrade().is_none(), "what was learnt goes with the last operation");
        assert!(files.get(fd).is_some());
        assert!(files.get(-1).is_none());
        assert!(
            files.get(i32::MAX).is_some(),
            "a number that no descriptor has is the kernel's to refuse"
        );
        assert!(files.known.len() <= MOST);
    }

    #[test]
    fn a_registered_file_is_held() {
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
