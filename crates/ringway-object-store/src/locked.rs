//! Changes of names under the locks of their directories. A lock that somebody else holds is waited
//! for by a thread of its own, however many changes need it, so that all others stay free.

use crate::dir_lock::{DirLock, LockKind};
use crate::staged_file::call;
use crate::write_error::{Action, Result, WriteError};
use ringway::Engine;
use ringway_core::with_signals_blocked;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::oneshot;

/// Runs `prepare` on a thread of the engine, and then `change`, under the locks of these
/// directories. `change` gets the error if they cannot be locked. `action` and `path` describe the
/// work if it cannot be run.
///
/// If the future is dropped before `change` has started, `change` does not run. If it is dropped
/// later, `change` runs to its end. A future that is not polled keeps no lock.
pub(crate) async fn call_locked<P: Send + 'static, T: Send + 'static>(
    engine: &Engine,
    action: Action,
    path: &Path,
    (kind, dirs): (LockKind, Vec<PathBuf>),
    prepare: impl FnOnce() -> Result<P> + Send + 'static,
    change: impl FnOnce(P, io::Result<()>) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Dropped with this future.
    let caller = Arc::new(());
    let waits = Arc::downgrade(&caller);
    let tried = call(engine, action, path, move || {
        let prepared = prepare()?;
        match try_lock(kind, &dirs) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Tried::Busy(dirs, prepared, change))
            }
            _ if waits.strong_count() == 0 => Err(WriteError::Aborted),
            lock => change(prepared, state(&lock)).map(Tried::Done),
        }
    });
    let (dirs, prepared, change) = match tried.await? {
        Tried::Done(done) => return Ok(done),
        Tried::Busy(dirs, prepared, change) => (dirs, prepared, change),
    };
    let (sender, receiver) = oneshot::channel();
    let job = move |locked| {
        if !sender.is_closed() {
            let _ = sender.send(change(prepared, locked));
        }
    };
    enqueue(dirs, Box::new(job)).map_err(action.failed(path))?;
    // The sender is dropped if the change panics.
    let panicked = |_| action.failed(path)(io::Error::other("the change panicked"));
    receiver.await.map_err(panicked)?
}

enum Tried<P, C, T> {
    Done(T),
    /// Somebody else holds the lock.
    Busy(Vec<PathBuf>, P, C),
}

/// Errors: WouldBlock if somebody else holds a lock, or waits for these: then it is their turn.
fn try_lock(kind: LockKind, dirs: &Vec<PathBuf>) -> io::Result<DirLock> {
    if waiting().contains_key(dirs) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    DirLock::try_take(kind, dirs.iter().map(PathBuf::as_path))
}

/// Whether the directories are locked. Each change gets an error of its own.
fn state(lock: &io::Result<DirLock>) -> io::Result<()> {
    let copy_of = |error: &io::Error| {
        error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
    };
    lock.as_ref().map(|_| ()).map_err(copy_of)
}

type Job = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The changes that wait for locks, by directories. Each entry has a thread.
static WAITING: Mutex<BTreeMap<Vec<PathBuf>, Vec<Job>>> = Mutex::new(BTreeMap::new());

fn waiting() -> MutexGuard<'static, BTreeMap<Vec<PathBuf>, Vec<Job>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the job when these directories are locked. Not a future does this but a thread: a program
/// may keep a future without polling it, and others would wait for it.
fn enqueue(dirs: Vec<PathBuf>, job: Job) -> io::Result<()> {
    let mut all = waiting();
    if let Some(jobs) = all.get_mut(&dirs) {
        jobs.push(job);
        return Ok(());
    }
    let served = dirs.clone();
    let name = "ringway-lock".to_owned();
    let thread = thread::Builder::new().name(name);
    // It begins when the entry is there.
    with_signals_blocked(|| thread.spawn(move || serve(&served)))?;
    all.insert(dirs, vec![job]);
    Ok(())
}

/// Runs the jobs for these directories until there are none.
fn serve(dirs: &Vec<PathBuf>) {
    loop {
        {
            let mut all = waiting();
            if all.get(dirs).is_none_or(Vec::is_empty) {
                all.remove(dirs);
                return;
            }
        }
        let lock = DirLock::take(dirs.iter().map(PathBuf::as_path));
        let jobs = waiting().get_mut(dirs).map(std::mem::take).unwrap_or_default();
        for job in jobs {
            // The panic hook has reported it; the other jobs are to run.
            let _ = catch_unwind(AssertUnwindSafe(|| job(state(&lock))));
        }
    }
}
