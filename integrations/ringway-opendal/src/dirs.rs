//! The directories of objects: creating them, and making their names durable. All functions block.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Directories below a root.
#[derive(Debug)]
pub(crate) struct Dirs {
    root: PathBuf,
    /// Directories whose names are durable, up to the root, if that is wanted.
    durable: Option<Mutex<HashSet<PathBuf>>>,
}

impl Dirs {
    pub(crate) fn new(root: &Path, durable: bool) -> Self {
        let durable = durable.then(|| Mutex::new(HashSet::new()));
        Self { root: root.to_owned(), durable }
    }

    /// Creates a directory and missing ones above it.
    pub(crate) fn create(&self, dir: &Path) -> io::Result<()> {
        if let Some(mut durable) = self.durable() {
            // One that was removed and is created again is not durable.
            for dir in dir.ancestors().take_while(|dir| !dir.exists()) {
                durable.remove(dir);
            }
        }
        std::fs::create_dir_all(dir)
    }

    /// Makes the names of a directory and of those above it durable, up to the root.
    pub(crate) fn sync_above(&self, dir: &Path) -> io::Result<()> {
        for dir in dir.ancestors().take_while(|dir| *dir != self.root) {
            let Some(durable) = self.durable() else { return Ok(()) };
            if durable.contains(dir) {
                continue;
            }
            drop(durable);
            let Some(parent) = dir.parent().filter(|_| dir.starts_with(&self.root)) else {
                return Ok(());
            };
            match File::open(parent) {
                // It was removed since, and the names in it with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => opened?.sync_all()?,
            }
            if let Some(mut durable) = self.durable() {
                durable.insert(dir.to_owned());
            }
        }
        Ok(())
    }

    /// A directory has been removed or has moved.
    pub(crate) fn forget(&self) {
        if let Some(mut durable) = self.durable() {
            durable.clear();
        }
    }

    fn durable(&self) -> Option<MutexGuard<'_, HashSet<PathBuf>>> {
        let durable = self.durable.as_ref()?;
        Some(durable.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_synced_once_and_again_after_they_were_removed() {
        let root = tempfile::tempdir().unwrap();
        let dirs = Dirs::new(root.path(), true);
        let dir = root.path().join("a/b");
        dirs.create(&dir).unwrap();
        dirs.sync_above(&dir).unwrap();
        let known = || dirs.durable().unwrap().len();
        assert_eq!(known(), 2);
        std::fs::remove_dir(&dir).unwrap();
        dirs.create(&dir).unwrap();
        assert_eq!(known(), 1);
        dirs.sync_above(&dir).unwrap();
        assert_eq!(known(), 2);
        dirs.forget();
        assert_eq!(known(), 0);
        std::fs::remove_dir_all(root.path()).unwrap();
        dirs.sync_above(&dir).unwrap();
        assert_eq!(known(), 0);
    }
}
