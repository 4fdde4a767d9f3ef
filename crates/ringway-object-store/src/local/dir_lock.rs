//! The lock that makes conditional updates atomic: `flock(2)` of the object's directory. All
//! functions block, but never for the lock.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The lock of a directory, held until this is dropped.
#[derive(Debug)]
pub(crate) struct DirLock(OwnedFd);

impl DirLock {
    /// Locks a directory exclusively.
    ///
    /// Errors: WouldBlock if somebody else has it locked; those of `open(2)` (it must be readable)
    /// and of `flock(2)`.
    pub(crate) fn try_take(dir: &Path) -> io::Result<Self> {
        // What is no directory must not be opened: a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = retry_on_intr(|| open(dir, flags, Mode::empty()))?;
        retry_on_intr(|| flock(&dir, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Self(dir))
    }
}

impl Drop for DirLock {
    /// Closing alone would not unlock a directory whose descriptor a forked child has inherited.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirLock::try_take(dir.path()).unwrap();
        let error = DirLock::try_take(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        DirLock::try_take(dir.path()).unwrap();
    }

    /// A child that was forked while the lock was held does not keep it: its descriptor is a
    /// duplicate of this one.
    #[test]
    fn a_duplicate_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::try_take(dir.path()).unwrap();
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        DirLock::try_take(dir.path()).unwrap();
        drop(inherited);
    }

    #[test]
    fn what_is_no_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = DirLock::try_take(&fifo).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        let error = DirLock::try_take(&dir.path().join("missing")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
