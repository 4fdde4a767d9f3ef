//! Which paths are on local file systems: there a file may be opened in place.
//!
//! A thread of its own reads the mounts, which may wait for a mount in progress. No open waits for
//! it, and it waits for nothing that the program has the engine's threads do. It starts after an
//! open, not before: it takes a descriptor for a moment, which may be the last one.

use ringway_core::device::LocalMounts;
use ringway_core::{OwnerProcess, start_thread};
use std::path::Path;
use std::sync::{PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

/// The mounts of this process, as last read.
static KNOWN_MOUNTS: RwLock<Option<Known>> = RwLock::new(None);
/// Mounts are not read more often than this.
const MIN_AGE: Duration = Duration::from_secs(1);
/// The stack size of the thread that reads them.
const MOUNTS_STACK: usize = 256 << 10;

struct Known {
    mounts: LocalMounts,
    read_at: Instant,
    /// A file was on another mount than these mounts say, or they have not been read yet.
    is_stale: bool,
    /// The process in which a thread is reading them. A forked child does not have that thread.
    reader: Option<OwnerProcess>,
}

/// The id of the local mount that the path leads to, if this is certain. It is not before the
/// mounts have been read.
pub(super) fn mount_of(path: &Path) -> Option<u64> {
    if !path.is_absolute() {
        return None;
    }
    look(|known| known.mounts.of_path(path)).flatten()
}

/// Has a thread read the mounts, unless they are known.
pub(super) fn learn() {
    if look(|_| ()).is_none()
        && begin_reading()
        && start_thread(c"ringway-mounts", MOUNTS_STACK, read).is_err()
    {
        end_reading(None);
    }
}

fn read() {
    end_reading(LocalMounts::read().ok());
}

/// Sets the mounts that were read.
fn end_reading(mounts: Option<LocalMounts>) {
    let mut known = KNOWN_MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
    let is_stale = mounts.is_none();
    let (mounts, read_at) = (mounts.unwrap_or_default(), Instant::now());
    *known = Some(Known { mounts, read_at, is_stale, reader: None });
}

/// Looks at the mounts; `None` if they must be read first.
fn look<R>(look: impl FnOnce(&Known) -> R) -> Option<R> {
    // A forked child must not wait for a thread that it does not have.
    let known = match KNOWN_MOUNTS.try_read() {
        Ok(known) => known,
        Err(TryLockError::Poisoned(known)) => known.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    known.as_ref().filter(|known| !known.is_stale).map(look)
}

/// Whether the caller is to start the thread that reads the mounts: none is running, and they were
/// not read in the last second.
fn begin_reading() -> bool {
    let Ok(mut known) = KNOWN_MOUNTS.try_write() else { return false };
    let is_too_soon = |known: &Known| {
        !known.is_stale
            || known.reader.as_ref().is_some_and(OwnerProcess::is_current)
            || known.reader.is_none() && known.read_at.elapsed() < MIN_AGE
    };
    if known.as_ref().is_some_and(is_too_soon) {
        return false;
    }
    *known = Some(Known {
        mounts: LocalMounts::default(),
        read_at: Instant::now(),
        is_stale: true,
        reader: Some(OwnerProcess::current()),
    });
    true
}

/// Reads the mounts again before the next file is opened in place.
#[cold]
pub(super) fn forget() {
    if let Ok(mut known) = KNOWN_MOUNTS.try_write()
        && let Some(known) = &mut *known
    {
        known.is_stale = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::fs::OpenOptions;
    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::join_all;
    use std::sync::Arc;

    /// The mounts may have to be read first, for this test or for another one.
    fn wait_for_mounts(path: &Path) {
        let started = Instant::now();
        while mount_of(path).is_none() {
            learn();
            assert!(started.elapsed() < Duration::from_secs(60), "the mounts are never read");
            std::thread::yield_now();
        }
    }

    /// The mounts are read while the engine's threads are busy with calls of the program, and no
    /// open waits for that.
    #[test]
    fn calls_do_not_delay_opens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, b"content").unwrap();
        let is_local = LocalMounts::read().unwrap().of_path(&path).is_some();
        let engine = Engine::builder().shards(1).build().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        let mut calls: Vec<_> = (0..200)
            .map(|_| {
                let released = released.clone();
                Box::pin(engine.call(move || Ok(released.lock().unwrap().recv().is_err())))
            })
            .collect();
        assert!(calls.iter_mut().all(|call| call.as_mut().now_or_never().is_none()));
        for _ in 0..2 {
            // As before the first open, and after a mount.
            *KNOWN_MOUNTS.write().unwrap() = None;
            let (opened, open) = std::sync::mpsc::channel();
            let (engine, path) = (engine.clone(), path.clone());
            std::thread::spawn(move || {
                opened.send(block_on(engine.open(&path)).map(drop)).unwrap();
                if is_local {
                    wait_for_mounts(&path);
                }
                opened.send(Ok(())).unwrap();
            });
            for _ in 0..2 {
                open.recv_timeout(Duration::from_secs(20)).expect("it waits for calls").unwrap();
            }
        }
        drop(release);
        assert!(block_on(join_all(calls)).into_iter().all(|called| called.is_ok()));
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
        let mount = LocalMounts::read().unwrap().of_path(&path);
        if mount.is_none_or(|mount| read.open_now(&path, mount).is_err()) {
            println!("skipped: this file cannot be opened in place");
            return;
        }
        let engine = engine(true);
        for _ in 0..2 {
            wait_for_mounts(&path);
            assert_eq!(pushed(&engine), 0);
            forget();
        }
        assert_eq!(mount_of(Path::new("file")), None);
    }
}
