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
    /// A file was on another mount than these mounts say, or they have not been read yet.
    is_stale: bool,
}

/// The id of the local mount that the path leads to, if this is certain. The first call reads the
/// mounts, on a thread; for other calls meanwhile nothing is certain.
pub(super) async fn mount_of(engine: &Engine, path: &Path) -> Option<u64> {
    if !path.is_absolute() {
        return None;
    }
    match known_mount_of(path) {
        Lookup::Known(mount) => mount,
        Lookup::Stale if begin_reading() => {
            let mounts = engine.call(|| Ok(LocalMounts::read())).await.ok()?;
            let mount = mounts.of_path(path);
            if let Ok(mut known) = MOUNTS.try_write() {
                *known = Some(Known { mounts, read_at: Instant::now(), is_stale: false });
            }
            mount
        }
        Lookup::Stale => None,
    }
}

enum Lookup {
    Known(Option<u64>),
    /// The mounts must be read first.
    Stale,
}

fn known_mount_of(path: &Path) -> Lookup {
    // A forked child must not wait for a thread that it does not have.
    let known = match MOUNTS.try_read() {
        Ok(known) => known,
        Err(TryLockError::Poisoned(known)) => known.into_inner(),
        Err(TryLockError::WouldBlock) => return Lookup::Known(None),
    };
    match &*known {
        Some(known) if !known.is_stale => Lookup::Known(known.mounts.of_path(path)),
        _ => Lookup::Stale,
    }
}

/// Whether the caller is to read the mounts: nobody else began to in the last second.
fn begin_reading() -> bool {
    let Ok(mut known) = MOUNTS.try_write() else { return false };
    if known.as_ref().is_some_and(|known| !known.is_stale || known.read_at.elapsed() < MIN_AGE) {
        return false;
    }
    *known =
        Some(Known { mounts: LocalMounts::default(), read_at: Instant::now(), is_stale: true });
    true
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
    use super::*;
    use crate::fs::OpenOptions;
    use futures::executor::block_on;
    use futures::future::join_all;

    /// The mounts may have to be read first, by this test or by another one. Of many callers at a
    /// time one reads them.
    fn wait_for_mounts(engine: &Engine, path: &Path) {
        let started = Instant::now();
        loop {
            let before = engine.stats().counts.pushed;
            let found = block_on(join_all((0..100).map(|_| mount_of(engine, path))));
            assert!(engine.stats().counts.pushed - before <= 1);
            if found.iter().all(Option::is_some) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "the mounts are never read");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_cached_file_is_opened_without_an_operation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, b"content").unwrap();
        let pushed = |engine: &Engine| {
            let mut options = OpenOptions::new();
            options.read(true).engine(engine);
            let before = engine.stats().counts.pushed;
            let (file, found) = block_on(options.open_with_metadata(&path)).unwrap();
            let pushed = engine.stats().counts.pushed - before;
            assert_eq!(found.len(), 7);
            assert_eq!(block_on(file.read(0..9)).unwrap(), b"content");
            pushed
        };
        let engine = |try_cached| Engine::builder().try_cached(try_cached).build().unwrap();
        assert_eq!(pushed(&engine(false)), 2, "an open and a statx");
        let mut read = ringway_core::OpenOptions::new();
        read.read(true);
        let mount = LocalMounts::read().of_path(&path);
        if mount.is_none_or(|mount| read.open_now(&path, mount).is_err()) {
            println!("skipped: this file cannot be opened in place");
            return;
        }
        let engine = engine(true);
        for _ in 0..2 {
            wait_for_mounts(&engine, &path);
            assert_eq!(pushed(&engine), 0);
            forget();
        }
        assert_eq!(block_on(mount_of(&engine, Path::new("file"))), None);
    }
}
