//! The lock that makes conditional updates atomic: `flock(2)` of the directories of the objects
//! that change. All functions block.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What a change needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// No update meanwhile. Other changes of names are atomic by themselves.
    Shared,
    /// No change of names meanwhile.
    Exclusive,
}

/// Locks of some directories, held until this is dropped.
#[derive(Debug)]
pub(crate) struct DirLock {
    dirs: Vec<OwnedFd>,
}

impl DirLock {
    /// Locks these directories exclusively. Waits until nobody else has any of them locked.
    ///
    /// Errors: those of `open(2)` (a directory must be readable) and of `flock(2)`.
    pub(crate) fn take<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        Self::lock(dirs, FlockOperation::LockExclusive)
    }

    /// Locks these directories, but does not wait.
    ///
    /// Errors: those of `take`; WouldBlock if somebody else has one of them locked.
    pub(crate) fn try_take<'a>(
        kind: LockKind,
        dirs: impl IntoIterator<Item = &'a Path>,
    ) -> io::Result<Self> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        Self::lock(dirs, operation)
    }

    fn lock<'a>(
        dirs: impl IntoIterator<Item = &'a Path>,
        operation: FlockOperation,
    ) -> io::Result<Self> {
        // What is no directory must not be opened: a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| retry_on_intr(|| open(path, flags, Mode::empty()));
        let mut dirs = dirs.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        if dirs.len() > 1 {
            dirs = in_order(dirs)?;
        }
        let locked = Self { dirs };
        for dir in &locked.dirs {
            retry_on_intr(|| flock(dir, operation))?;
        }
        Ok(locked)
    }
}

impl Drop for DirLock {
    /// Closing alone would not unlock a directory whose descriptor a forked child has inherited.
    fn drop(&mut self) {
        for dir in &self.dirs {
            let _ = flock(dir, FlockOperation::Unlock);
        }
    }
}

/// In the same order everywhere, so that two locks do not wait for each other, and each directory
/// once: a second lock of it would wait for the first.
fn in_order(dirs: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    let inode = |dir: OwnedFd| fstat(&dir).map(|found| ((found.st_dev, found.st_ino), dir));
    let mut dirs = dirs.into_iter().map(inode).collect::<Result<Vec<_>, _>>()?;
    dirs.sort_by_key(|(inode, _)| *inode);
    dirs.dedup_by_key(|(inode, _)| *inode);
    Ok(dirs.into_iter().map(|(_, dir)| dir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, TryLockError};

    fn is_locked(dir: &Path) -> bool {
        matches!(File::open(dir).unwrap().try_lock(), Err(TryLockError::WouldBlock))
    }

    #[test]
    fn two_names_of_a_directory_are_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| dir.path().join(name));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let lock = DirLock::take([&*real, &*link, dir.path()]).unwrap();
        assert!(is_locked(&real) && is_locked(dir.path()));
        drop(lock);
        assert!(!is_locked(&real) && !is_locked(dir.path()));
    }

    #[test]
    fn a_missing_directory_is_an_error_and_locks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let error = DirLock::take([dir.path(), &dir.path().join("missing")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!is_locked(dir.path()));
    }

    #[test]
    fn a_lock_that_is_not_free_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let free = dir.path().join("free");
        std::fs::create_dir(&free).unwrap();
        let held = DirLock::take([dir.path()]).unwrap();
        for kind in [LockKind::Shared, LockKind::Exclusive] {
            let error = DirLock::try_take(kind, [dir.path(), &free]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(!is_locked(&free));
        }
        drop(held);
        let shared = [(); 2].map(|()| DirLock::try_take(LockKind::Shared, [dir.path()]).unwrap());
        DirLock::try_take(LockKind::Exclusive, [dir.path()]).unwrap_err();
        drop(shared);
        DirLock::try_take(LockKind::Exclusive, [dir.path(), &free]).unwrap();
    }

    /// A child that was forked while the lock was held does not keep it: its descriptors are
    /// duplicates of these.
    #[test]
    fn a_duplicate_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::take([dir.path()]).unwrap();
        let inherited = lock.dirs[0].try_clone().unwrap();
        drop(lock);
        assert!(!is_locked(dir.path()));
        drop(inherited);
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = DirLock::take([&*fifo]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
