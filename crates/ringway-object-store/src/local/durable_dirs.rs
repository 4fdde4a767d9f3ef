//! Which directories of a store are durable: their names, and those of all directories above them,
//! are on the disk. A directory that is there need not be: whoever made it may not have synced it.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Directories that are remembered. With more, all are forgotten, and synced once more.
const MAX_KNOWN: usize = 4096;

/// A directory of another time with the same path is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: (u64, u64),
    created: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let inode = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(not(unix))]
        let inode = (0, 0);
        Self { inode, created: metadata.created().ok() }
    }
}

#[derive(Debug)]
pub(crate) struct DurableDirs {
    /// The directory of the store, which is taken to be durable.
    root: PathBuf,
    known: Mutex<HashMap<PathBuf, Identity>>,
}

impl DurableDirs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, known: Mutex::default() }
    }

    /// The directories above a path that are not known to be durable, the innermost one first.
    /// Blocks.
    pub(crate) fn unknown_above(&self, path: &Path) -> Vec<(PathBuf, Identity)> {
        let above = path.ancestors().skip(1).take_while(|dir| *dir != self.root);
        let mut unknown = Vec::new();
        for dir in above.filter(|dir| dir.parent().is_some()) {
            // (One that was removed meanwhile has no name that could be lost.)
            let Ok(metadata) = std::fs::metadata(dir) else { continue };
            let found = Identity::of(&metadata);
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.get(dir) == Some(&found) {
                break;
            }
            unknown.push((dir.to_owned(), found));
        }
        unknown
    }

    /// These directories, which `unknown_above` returned, are durable now: all directories that
    /// they are in have been synced since.
    pub(crate) fn note(&self, durable: Vec<(PathBuf, Identity)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + durable.len() > MAX_KNOWN {
            known.clear();
        }
        known.extend(durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_unknown_until_it_is_noted_and_after_it_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        let dirs = DurableDirs::new(root.path().to_owned());
        let unknown = |path: &Path| -> Vec<PathBuf> {
            dirs.unknown_above(path).into_iter().map(|(dir, _)| dir).collect()
        };
        let object = inner.join("object");
        assert_eq!(unknown(&object), [inner.clone(), outer.clone()]);
        dirs.note(dirs.unknown_above(&object));
        assert!(unknown(&object).is_empty());
        assert!(unknown(&root.path().join("object")).is_empty());
        // Another directory of the same name: the first one still has its inode.
        fs::rename(&inner, root.path().join("moved")).unwrap();
        fs::create_dir(&inner).unwrap();
        assert_eq!(unknown(&object), [inner]);
    }
}
