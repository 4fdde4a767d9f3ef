//! Which directories of a store are durable: their names, and those of all directories above them,
//! are on the disk. A directory that is there need not be: whoever made it may not have synced it.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

    /// Whether the directory with this identity and path is on another device than the one that it
    /// is in. Blocks.
    fn is_mount_point(&self, dir: &Path) -> bool {
        let outer = dir.parent().and_then(|outer| std::fs::metadata(outer).ok());
        outer.is_some_and(|outer| Self::of(&outer).inode.0 != self.inode.0)
    }
}

/// A directory that is not known to be durable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownDir {
    pub(crate) path: PathBuf,
    pub(crate) origin: Origin,
    identity: Identity,
}

/// Whose a directory's name is, in the directory that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A write of this store may have made it.
    Store,
    /// Somebody else made it.
    Others,
    /// It is a mount point, or above one: no name in its own file system leads to the object.
    Mount,
}

#[derive(Debug)]
pub(crate) struct DurableDirs {
    /// The directory of the store, which is taken to be durable.
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<PathBuf, Identity>,
    /// Directories that were missing when a write began, until they are durable.
    made: HashSet<PathBuf>,
}

impl DurableDirs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directories above a path and below the root, the innermost one first.
    fn above<'a>(&self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        path.ancestors()
            .skip(1)
            .take_while(|dir| *dir != self.root)
            .filter(|dir| dir.parent().is_some())
    }

    /// A write to this path begins, which makes the directories above it that are missing. Blocks.
    pub(crate) fn note_missing(&self, path: &Path) {
        let missing = self.above(path).take_while(|dir| is_missing(dir));
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        if missing.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.made.len() > MAX_KNOWN {
            // Those that no write has made after all.
            state.made.retain(|dir| !is_missing(dir));
        }
        state.made.extend(missing);
    }

    /// The directories above a path that are not known to be durable, the innermost one first.
    /// Blocks.
    pub(crate) fn unknown_above(&self, path: &Path) -> Vec<UnknownDir> {
        let mut unknown = Vec::new();
        let mut is_above_mount = false;
        for dir in self.above(path) {
            // (One that was removed meanwhile has no name that could be lost.)
            let Ok(metadata) = std::fs::metadata(dir) else { continue };
            let identity = Identity::of(&metadata);
            let state = self.state();
            if state.known.get(dir) == Some(&identity) {
                break;
            }
            let is_made = state.made.contains(dir);
            drop(state);
            is_above_mount |= identity.is_mount_point(dir);
            let origin = match (is_made, is_above_mount) {
                (true, _) => Origin::Store,
                (false, true) => Origin::Mount,
                (false, false) => Origin::Others,
            };
            unknown.push(UnknownDir { path: dir.to_owned(), origin, identity });
        }
        unknown
    }

    /// These directories, which `unknown_above` returned, are durable now: all directories that
    /// they are in have been synced since, as far as their origins require.
    pub(crate) fn note(&self, durable: Vec<UnknownDir>) {
        let mut state = self.state();
        if state.known.len() + durable.len() > MAX_KNOWN {
            state.known.clear();
        }
        for dir in durable {
            state.made.remove(&dir.path);
            state.known.insert(dir.path, dir.identity);
        }
    }
}

fn is_missing(dir: &Path) -> bool {
    std::fs::metadata(dir).is_err_and(|error| error.kind() == ErrorKind::NotFound)
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
            dirs.unknown_above(path).into_iter().map(|dir| dir.path).collect()
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

    #[test]
    fn a_directory_that_was_missing_is_the_stores_until_it_is_noted() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b/c"));
        let dirs = DurableDirs::new(root.path().to_owned());
        let origins = |path: &Path| -> Vec<Origin> {
            dirs.unknown_above(path).into_iter().map(|dir| dir.origin).collect()
        };
        let object = inner.join("object");
        dirs.note_missing(&object);
        assert_eq!(origins(&object), [Origin::Others]);
        fs::create_dir_all(&inner).unwrap();
        // A later write finds them.
        dirs.note_missing(&object);
        assert_eq!(origins(&object), [Origin::Store, Origin::Store, Origin::Others]);
        dirs.note(dirs.unknown_above(&object));
        assert!(origins(&object).is_empty());
        fs::remove_dir_all(&outer).unwrap();
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(origins(&object), [Origin::Others; 3]);
    }
}
