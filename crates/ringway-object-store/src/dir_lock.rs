//! The lock that makes conditional updates atomic: `flock(2)` of the directories of the objects
//! that change. All functions block.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Exclusive locks of some directories, held until this is dropped.
#[derive(Debug)]
pub(crate) struct DirLock {
    _dirs: Vec<File>,
}

impl DirLock {
    /// Locks these directories. Waits until nobody else has any of them locked.
    ///
    /// Errors: those of `open(2)` (a directory must be readable) and of `flock(2)`.
    pub(crate) fn take<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let open = |path: &Path| {
            let dir = File::open(path)?;
            let metadata = dir.metadata()?;
            Ok(((metadata.dev(), metadata.ino()), dir))
        };
        let mut dirs = dirs.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        // In the same order everywhere, so that two of these do not wait for each other, and each
        // once: a second lock of the same directory would wait for the first.
        dirs.sort_by_key(|(inode, _)| *inode);
        dirs.dedup_by_key(|(inode, _)| *inode);
        for (_, dir) in &dirs {
            while let Err(error) = dir.lock() {
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
        Ok(Self { _dirs: dirs.into_iter().map(|(_, dir)| dir).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::TryLockError;

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
}
