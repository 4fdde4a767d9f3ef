//! Changes of names under the locks of their directories. A lock that somebody else holds is waited
//! for by one thread only, however many changes need it, so that all others stay free.

use crate::dir_lock::DirLock;
use crate::staged_file::call;
use crate::write_error::{Action, Result, WriteError};
use ringway::Engine;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How often a lock is tried before the change queues for it, and the pause between two tries.
/// Changes of this kind hold it for less time than that.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_micros(50);

/// Runs `prepare` on a thread of the engine, and then `change`, under the locks of these
/// directories. `change` gets the error if they cannot be locked. `action` and `path` describe the
/// work if it cannot be run.
///
/// If the future is dropped before `change` has started, `change` does not run. If it is dropped
/// later, `change` runs to its end under the locks, and so before any change that starts after the
/// drop.
pub(crate) async fn call_locked<P: Send + 'static, T: Send + 'static>(
    engine: &Engine,
    action: Action,
    path: &Path,
    dirs: Vec<PathBuf>,
    prepare: impl FnOnce() -> Result<P> + Send + 'static,
    change: impl FnOnce(P, io::Result<DirLock>) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Dropped with this future.
    let caller = Arc::new(());
    let waits = Arc::downgrade(&caller);
    let tried = call(engine, action, path, move || {
        let prepared = prepare()?;
        match try_often(&dirs) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Tried::Busy(dirs, prepared, change))
            }
            lock => while_waited_for(&waits, || change(prepared, lock)).map(Tried::Done),
        }
    });
    let (dirs, prepared, change) = match tried.await? {
        Tried::Done(done) => return Ok(done),
        Tried::Busy(dirs, prepared, change) => (dirs, prepared, change),
    };
    let turns = turns(&dirs).await;
    let waits = Arc::downgrade(&caller);
    call(engine, action, path, move || {
        // Here, so that no second thread waits after the future is dropped.
        let _turns = turns;
        let lock = DirLock::take(dirs.iter().map(PathBuf::as_path));
        while_waited_for(&waits, || change(prepared, lock))
    })
    .await
}

enum Tried<P, C, T> {
    Done(T),
    /// Somebody else holds the lock.
    Busy(Vec<PathBuf>, P, C),
}

fn try_often(dirs: &[PathBuf]) -> io::Result<DirLock> {
    let take = || DirLock::try_take(dirs.iter().map(PathBuf::as_path));
    let mut lock = take();
    for _ in 1..TRIES {
        match &lock {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE),
            _ => break,
        }
        lock = take();
    }
    lock
}

/// Runs this if somebody still waits for the result.
fn while_waited_for<T>(waits: &Weak<()>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if waits.strong_count() == 0 { Err(WriteError::Aborted) } else { work() }
}

type Turn = Mutex<()>;

/// The queues for directories, while they are used.
static TURNS: StdMutex<BTreeMap<PathBuf, Weak<Turn>>> = StdMutex::new(BTreeMap::new());

/// Waits for the turn of this process's changes in each of these directories.
async fn turns(dirs: &[PathBuf]) -> Vec<OwnedMutexGuard<()>> {
    let mut queues = Vec::new();
    {
        let mut all = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, queue| queue.strong_count() > 0);
        for dir in dirs {
            let queue = all.get(dir).and_then(Weak::upgrade).unwrap_or_default();
            all.insert(dir.clone(), Arc::downgrade(&queue));
            queues.push((dir, queue));
        }
    }
    // In the same order everywhere, and each once.
    queues.sort_by_key(|(dir, _)| *dir);
    queues.dedup_by_key(|(dir, _)| *dir);
    let mut turns = Vec::new();
    for (_, queue) in queues {
        turns.push(queue.lock_owned().await);
    }
    turns
}
