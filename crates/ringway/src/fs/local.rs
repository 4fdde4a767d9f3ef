//! Which paths are on local file systems: there a file may be opened in place.

use crate::Engine;
use ringway_core::device::LocalMounts;
use std::path::Path;
use std::sync::{RwLock, TryLockError};
use std::time::{Duration, Instant};

/// The mounts of this process, as last read.
static MOUNTS: RwLock<Option<Known>> = RwLock::new(None);
/// Mounts are not read more often than this.
const MIN_AGE: Duration = Duration::from_secs(1);

struct Known {
    mounts: LocalMounts,
    read_at: Instant,
    /// A file was on another mount than these mounts say.
    is_stale: bool,
}

/// The id of the local mount that the path leads to. The first call reads the mounts, on a thread.
pub(super) async fn mount_of(engine: &Engine, path: &Path) -> Option<u64> {
    match known_mount_of(path) {
        Lookup::Known(mount) => mount,
        Lookup::Unknown => {
            let mounts = engine.call(|| Ok(LocalMounts::read())).await.ok()?;
            let mount = mounts.of_path(path);
            if let Ok(mut known) = MOUNTS.try_write() {
                *known = Some(Known { mounts, read_at: Instant::now(), is_stale: false });
            }
            mount
        }
    }
}

enum Lookup {
    /// The local mount, if the path leads to one and this is certain.
    Known(Option<u64>),
    /// The mounts must be read.
    Unknown,
}

fn known_mount_of(path: &Path) -> Lookup {
    // A forked child must not wait for a thread that it does not have.
    let known = match MOUNTS.try_read() {
        Ok(known) => known,
        Err(TryLockError::Poisoned(known)) => known.into_inner(),
        Err(TryLockError::WouldBlock) => return Lookup::Known(None),
    };
    match &*known {
        _ if !path.is_absolute() => Lookup::Known(None),
        Some(known) if !known.is_stale => Lookup::Known(known.mounts.of_path(path)),
        Some(known) if known.read_at.elapsed() < MIN_AGE => Lookup::Known(None),
        _ => Lookup::Unknown,
    }
}

/// Reads the mounts again before the next file is opened in place.
#[cold]
pub(super) fn forget() {
    if let Ok(mut known) = MOUNTS.try_write()
        && let Some(known) = &mut *known
    {
        known.is_stale = true;
    }
}

#[cfg(test)]
mod tests {
    use crate::Engine;
    use crate::fs::OpenOptions;
    use futures::executor::block_on;

    #[test]
    fn a_cached_file_is_opened_without_an_operation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, b"content").unwrap();
        let pushed = |try_cached| {
            let engine = Engine::builder().try_cached(try_cached).build().unwrap();
            let open = || {
                let mut options = OpenOptions::new();
                options.read(true).engine(&engine);
                block_on(options.open_with_metadata(&path)).unwrap()
            };
            // The first open may read the mounts.
            drop(open());
            let before = engine.stats().counts.pushed;
            let (file, found) = open();
            let pushed = engine.stats().counts.pushed - before;
            assert_eq!(found.len(), 7);
            assert_eq!(block_on(file.read(0..9)).unwrap(), b"content");
            pushed
        };
        assert_eq!(pushed(false), 2, "an open and a statx");
        let is_local = ringway_core::device::LocalMounts::read().of_path(&path).is_some();
        let supported = ringway_core::OpenOptions::new().read(true).open_now(&path).is_some();
        if !is_local || !supported {
            println!("skipped: this file cannot be opened in place");
            return;
        }
        assert_eq!(pushed(true), 0);
    }
}
