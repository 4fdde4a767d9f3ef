//! The directories of objects: creating them, and making their names durable. All functions block.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Directories that are remembered. With more, all are forgotten, and synced once more.
const MAX_KNOWN: usize = 4096;

/// A directory of another time with the same path is another one: device, inode, and time of birth.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(dir: &Path) -> io::Result<Identity> {
    let found = std::fs::metadata(dir)?;
    Ok((found.dev(), found.ino(), found.created().ok()))
}

/// Directories below a root.
#[derive(Debug)]
pub(crate) struct Dirs {
    root: PathBuf,
    /// Directories whose names are durable, up to the root, if that is wanted.
    durable: Option<Mutex<HashMap<PathBuf, Identity>>>,
}

impl Dirs {
    pub(crate) fn new(root: &Path, durable: bool) -> Self {
        let durable = durable.then(|| Mutex::new(HashMap::new()));
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
        if self.durable.is_none() {
            return Ok(());
        }
        for dir in dir.ancestors().take_while(|dir| *dir != self.root) {
            let Some(parent) = dir.parent().filter(|_| dir.starts_with(&self.root)) else {
                return Ok(());
            };
            // Before the sync, which covers this directory and no later one.
            let found = match identity(dir) {
                // It was removed since, and the names in it with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                found => found?,
            };
            if self.is_known(dir, found) {
                continue;
            }
            match File::open(parent) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => opened?.sync_all()?,
            }
            if let Some(mut durable) = self.durable() {
                if durable.len() >= MAX_KNOWN {
                    durable.clear();
                }
                durable.insert(dir.to_owned(), found);
            }
        }
        Ok(())
    }

    fn is_known(&self, dir: &Path, identity: Identity) -> bool {
        self.durable().is_some_and(|durable| durable.get(dir) == Some(&identity))
    }

    /// A directory has been removed or has moved.
    pub(crate) fn forget(&self) {
        if let Some(mut durable) = self.durable() {
            durable.clear();
        }
    }

    fn durable(&self) -> Option<MutexGuard<'_, HashMap<PathBuf, Identity>>> {
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

    /// Another program has removed it and made another one of its name.
    #[test]
    fn another_directory_of_the_name_is_not_known() {
        let root = tempfile::tempdir().unwrap();
        let dirs = Dirs::new(root.path(), true);
        let dir = root.path().join("a");
        dirs.create(&dir).unwrap();
        dirs.sync_above(&dir).unwrap();
        let is_known = || dirs.is_known(&dir, identity(&dir).unwrap());
        assert!(is_known());
        // The first one keeps its inode.
        std::fs::rename(&dir, root.path().join("moved")).unwrap();
        std::fs::create_dir(&dir).unwrap();
        assert!(!is_known());
        dirs.sync_above(&dir).unwrap();
        assert!(is_known());
    }

    #[test]
    fn a_bounded_number_is_known() {
        let root = tempfile::tempdir().unwrap();
        let dirs = Dirs::new(root.path(), true);
        let dir = root.path().join("dir");
        dirs.create(&dir).unwrap();
        let known = identity(&dir).unwrap();
        let others = (0..MAX_KNOWN).map(|number| (root.path().join(number.to_string()), known));
        dirs.durable().unwrap().extend(others);
        dirs.sync_above(&dir).unwrap();
        assert!(dirs.is_known(&dir, known));
        assert!(dirs.durable().unwrap().len() <= MAX_KNOWN);
    }
}
