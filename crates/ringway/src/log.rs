//! Group commit for append-only logs: the records of many tasks are written together and synced
//! once.
//!
//! There is no background task. Records collect in a queue while a group is written. The runtime's
//! I/O driver that reaps its completion, or the program, ends the group and begins the next one; no
//! task is polled for that. After the engine's thread has reaped it, the task polled first does it.

use crate::buffer::Content;
use crate::engine::{poll_may_proceed, without_yielding};
use crate::fs::File;
use crate::fs::pooled::clone_error;
use ringway_core::{Buffer, Reason};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The default limit of bytes in a group.
const DEFAULT_GROUP: usize = 1 << 20;
/// The most records in a group: as many buffers as one system call writes (`IOV_MAX`).
const MAX_RECORDS: usize = 1024;
/// After a group that took at least this long, the next one gathers the records of the tasks that
/// it wakes, and half as many syncs serve them. That takes one pass of the runtime: some tens of
/// microseconds in which the disk has nothing to do.
const SLOW_GROUP: Duration = Duration::from_micros(500);
/// The most groups that a thread begins in a row.
const MAX_GROUPS: usize = 2;
/// A dropped log that waits for a poll of its commit gives up when it would pause this long.
const GIVE_UP_AT: Duration = Duration::from_millis(20);

/// An append-only log with group commit, for any number of tasks.
///
/// [`append`](Self::append) completes when its record is on the device. While one group of records
/// is written and synced, the next group collects: one write and one `fdatasync(2)` serve all tasks
/// that wait. Clones append to the same log.
///
/// - **Order.** Records are stored without gaps, in the order in which their futures were first
///   polled, and become durable in that order: if a record is durable, so are all records before
///   it.
/// - **Errors** end the log. If a write or a sync fails, each record of its group fails with that
///   error, and all later records are refused. After a failed sync the state of the device is
///   unknown, and another sync that succeeds proves nothing. Buffered reads may return records that
///   the device does not have. Open the file for [direct](crate::fs::OpenOptions::direct) reads,
///   and copy the records up to the last good one to a new log.
/// - **After a crash or an error**, the file may have any part of the unacknowledged records after
///   the last acknowledged one, even an intact record after a torn one. So each record needs a
///   length and a checksum. When reading the log back, stop at the first bad record, and truncate
///   the file there before appending. Without the truncation, an old record may later follow a new
///   one directly and pass for part of the log.
/// - **Memory.** The log holds only the records of futures that wait. Those futures provide the
///   backpressure.
///
/// Files opened for direct I/O are refused: a group rarely ends at the end of a block, so the next
/// group would have to rewrite that block. Files opened with `O_APPEND` are refused because their
/// writes ignore offsets.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// use ringway::{LogWriter, fs::File};
/// let log = LogWriter::new(File::create_new(&path).await?, 0)?;
/// let tasks: Vec<_> = (0..100)
///     .map(|number| {
///         let log = log.clone();
///         let record = format!("record {number:2}\n").into_bytes();
///         tokio::spawn(async move { log.append(record).await })
///     })
///     .collect();
/// for task in tasks {
///     let offset = task.await.unwrap()?;
///     assert_eq!(offset % 10, 0);
/// }
/// assert_eq!(std::fs::metadata(&path)?.len(), 1000);
/// # Ok(()) }
/// ```
///
/// To continue a log, for example after a crash, with records of 10 bytes that end with a newline:
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # std::fs::write(dir.join("log"), "record  0\nrecord  1\nreco\0\0\0\0\0\0record  3\n")?;
/// use ringway::{LogWriter, fs};
/// let file = fs::File::options().read(true).write(true).create(true).open(dir.join("log")).await?;
/// fs::sync_dir(dir).await?; // the name, if it is new
/// let len = file.metadata().await?.len() as usize;
/// let (read, content) = file.read_buf_at(Vec::with_capacity(len), 0).await;
/// read?;
/// let is_good = |record: &&[u8]| record.len() == 10 && record[9] == b'\n';
/// let good = content.chunks(10).take_while(is_good).count() as u64;
/// file.set_len(good * 10).await?;
/// file.sync_all().await?; // the records that were read, and the truncation
/// let log = LogWriter::new(file, good * 10)?;
/// assert_eq!(log.append(b"record  2\n".to_vec()).await?, 20);
/// # assert_eq!(std::fs::read(dir.join("log"))?, b"record  0\nrecord  1\nrecord  2\n");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LogWriter {
    log: Arc<Log>,
}

/// The log that all clones of a writer share.
struct Log {
    file: File,
    /// Separate from the log: the engine refers to the state while it wakes tasks, and the log may
    /// be dropped meanwhile.
    state: Arc<Mutex<LogState>>,
    /// Advances the log when the group's write must be polled.
    waker: Waker,
}

struct LogState {
    /// `None` once the log was dropped.
    file: Option<File>,
    /// Waiting appends, by key.
    appends: Vec<Option<PendingAppend>>,
    /// Unused keys.
    free: Vec<usize>,
    /// Keys of the appends whose records are not being written yet, by their places.
    queue: BTreeMap<u64, usize>,
    /// The place of the next append in the queue.
    next_place: u64,
    /// Keys of the appends whose records are being written.
    group: Vec<usize>,
    commit: Commit,
    /// The write must be polled.
    is_signalled: bool,
    /// When the last group began, and how long it takes to be worth [gathering](SLOW_GROUP) after.
    begun: Instant,
    slow_group: Duration,
    /// A group has just ended that took long, so the next one gathers more records.
    is_gathering: bool,
    /// The offset of the next record.
    end: u64,
    max_group: usize,
    /// The error that ended the log.
    failed: Option<io::Error>,
}

/// One append.
struct PendingAppend {
    stage: AppendStage,
    /// Its place in the queue.
    place: u64,
    /// Called once.
    waker: Option<Waker>,
    /// It has let others append before it starts a group.
    has_deferred: bool,
}

enum AppendStage {
    Queued(Buffer),
    /// Being written at this offset.
    Begun(u64),
    Done(io::Result<u64>),
    /// Being written, and its future was dropped.
    Dropped,
}

/// The write and the sync of a group.
enum Commit {
    None,
    InFlight(CommitFuture),
    /// This thread is polling it and will look for new signals.
    Polled(ThreadId),
}

type CommitFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl LogWriter {
    /// Appends to this file from the offset `end` on, which is its length. Data after `end` is
    /// overwritten. The file must be open for writing, which the first append finds out (EBADF); it
    /// must have no other writer, and no write in flight whose future was dropped
    /// ([`File::into_std`] waits for those). Make its name durable first
    /// ([`sync_dir`](crate::fs::sync_dir)).
    ///
    /// Errors: InvalidInput for a file opened for direct I/O or with `O_APPEND`, for a file that
    /// cannot be synced (pipes, sockets), and for an offset above `i64::MAX`; those of `fcntl(2)`.
    pub fn new(file: File, end: u64) -> io::Result<Self> {
        let refused = match () {
            () if !file.is_storage() => Some("LogWriter::new: the file cannot be synced"),
            () if file.is_direct() => Some("LogWriter::new: open the file without direct I/O"),
            () if file.appends()? => Some(
                "LogWriter::new: open the file without O_APPEND, which ignores the log's offsets",
            ),
            () if i64::try_from(end).is_err() => Some("LogWriter::new: offset above i64::MAX"),
            () => None,
        };
        if let Some(text) = refused {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let state = Arc::new(Mutex::new(LogState {
            file: Some(file.clone()),
            appends: Vec::new(),
            free: Vec::new(),
            queue: BTreeMap::new(),
            next_place: 0,
            group: Vec::new(),
            commit: Commit::None,
            is_signalled: false,
            begun: Instant::now(),
            slow_group: SLOW_GROUP,
            is_gathering: false,
            end,
            max_group: DEFAULT_GROUP,
            failed: None,
        }));
        let waker = Arc::new(CommitWaker(Arc::downgrade(&state))).into();
        Ok(Self { log: Arc::new(Log { file, state, waker }) })
    }

    /// Sets the most bytes in a group, 1 MiB by default. A longer record is a group of its own.
    /// Larger groups need fewer syncs, and each takes longer.
    pub fn max_group(self, bytes: usize) -> Self {
        self.log.lock().max_group = bytes;
        self
    }

    /// Appends a record and waits until it and all records before it are durable. Returns the
    /// offset of the record in the file.
    ///
    /// Any number of appends may wait at once. The record gets its place when the future is first
    /// polled. A buffer that an operation can own is not copied; a borrowed record, such as `&[u8]`
    /// or `&str`, is ([`Content`]). It is not returned.
    ///
    /// Errors: those of `write(2)` and `fdatasync(2)` for the group of the record; if the log has
    /// failed before, an error of kind Other that contains the first error. In both cases the log
    /// has ended, and it is unknown whether the record is in the file.
    ///
    /// If the future is dropped before its record is being written, the record is removed from the
    /// queue. After that the record keeps its place: it may be in the file, durable or not, and
    /// later records follow it.
    pub async fn append(&self, record: impl Content) -> io::Result<u64> {
        Append { log: &self.log, record: Some(record.into_content()), key: None }.await
    }

    /// Returns the file, which all clones of the log hold. After the last clone of the log is
    /// dropped, [`File::into_std`] and [`File::close`] work on a clone of the file taken before. A
    /// group in flight, whose futures were dropped, is cancelled then.
    pub fn file(&self) -> &File {
        &self.log.file
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter").field("file", &self.log.file).finish_non_exhaustive()
    }
}

struct Append<'a> {
    log: &'a Arc<Log>,
    /// `None` once it is in the queue.
    record: Option<Buffer>,
    /// Set while it waits.
    key: Option<usize>,
}

impl Future for Append<'_> {
    type Output = io::Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        // In a forked child, the lock may be held forever.
        if !self.log.is_current() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(Reason::Forked.errno())));
        }
        let mut state = self.log.lock();
        let mut old = None;
        match (self.record.take(), self.key) {
            (Some(record), _) => {
                if let Some(error) = state.failed.as_ref().map(refused) {
                    drop(state);
                    drop(record);
                    return Poll::Ready(Err(error));
                }
                self.key = Some(state.insert(record, cx.waker()));
            }
            (None, Some(key)) if !state.is_done(key) => old = state.wait(key, cx.waker()),
            (None, _) => {}
        }
        let Some(key) = self.key else { panic!("a future was polled after it completed") };
        if !state.is_done(key) && state.may_advance() {
            // Groups may end at once, on a file system in memory, so the task must yield sometimes.
            // (Outside of tokio that wakes it at once.)
            drop(state);
            if poll_may_proceed(cx).is_pending() {
                return Poll::Pending;
            }
            state = self.log.lock();
            if !state.is_done(key) && state.may_advance() {
                advance(&self.log.state, state, &self.log.waker, Some(key));
                state = self.log.lock();
            }
        }
        if !state.is_done(key) {
            // Without the lock, because a waker may own anything.
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        self.key = None;
        let over = state.remove(key);
        drop(state);
        let AppendStage::Done(result) = over.stage else { unreachable!("the append is done") };
        Poll::Ready(result)
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.filter(|_| self.log.is_current()) else { return };
        let mut state = self.log.lock();
        let waiting = state.waiting(key);
        let waker = waiting.waker.take();
        let stage = std::mem::replace(&mut waiting.stage, AppendStage::Dropped);
        if !matches!(stage, AppendStage::Begun(_)) {
            let place = state.remove(key).place;
            state.queue.remove(&place);
        }
        drop(state);
        drop((stage, waker));
    }
}

/// Advances the log when the write of its group must be polled.
struct CommitWaker(Weak<Mutex<LogState>>);

thread_local! {
    /// This thread is polling the write of a group, which may wake other logs.
    static POLLS_COMMIT: Cell<bool> = const { Cell::new(false) };
}

impl Wake for CommitWaker {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut state = lock(&shared);
        state.is_signalled = true;
        match (&state.commit, &state.file) {
            // The thread that polls it looks again.
            (Commit::Polled(_), _) => {}
            // Many logs must not begin groups within each other.
            (Commit::InFlight(_), Some(file))
                if file.engine().inner.has_reactor_here() && !POLLS_COMMIT.get() =>
            {
                advance(&shared, state, &Waker::from(Arc::clone(&self)), None);
            }
            // Any of the tasks can do it, but each may be dropped or not polled for a while.
            _ => {
                let wakers = state.take_wakers();
                drop(state);
                wake(wakers);
            }
        }
    }
}

/// Wakes all of them, even if one panics.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

fn lock(state: &Mutex<LogState>) -> MutexGuard<'_, LogState> {
    // No code of the program runs under the lock: wakers and records are dropped after it.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn is_current(&self) -> bool {
        self.file.engine().inner.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        lock(&self.state)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // In a forked child, the lock may be held forever.
        if !self.is_current() {
            return;
        }
        let this = thread::current().id();
        let mut state = self.lock();
        let file = state.file.take();
        // Another thread that polls the commit drops it then, and with it the file, after
        // microseconds: so that the file can be taken back, this waits for it, though not for long,
        // since wakers that it calls may wait for this thread. If this thread polls it, dropping a
        // record has dropped the log.
        let mut pause = Duration::from_micros(1);
        while matches!(state.commit, Commit::Polled(by) if by != this) && pause < GIVE_UP_AT {
            drop(state);
            thread::sleep(pause);
            pause *= 2;
            state = self.lock();
        }
        let commit = state.take_in_flight();
        drop(state);
        // A group in flight holds the file.
        drop((commit, file));
    }
}

/// Ends the group that has been written and begins the next, as far as possible now. A poll passes
/// the key of its append as `own`, and looks at its own result afterwards.
fn advance<'a>(
    shared: &'a Mutex<LogState>,
    mut state: MutexGuard<'a, LogState>,
    waker: &Waker,
    own: Option<usize>,
) {
    let (mut wakers, mut ended, mut panicked) = (Vec::new(), Vec::new(), None);
    let mut begun = 0;
    loop {
        let in_flight = if state.is_signalled { state.take_in_flight() } else { None };
        let mut commit = match in_flight {
            Some(commit) => commit,
            None if !state.may_begin() => break,
            None if begun == MAX_GROUPS => {
                wakers.append(&mut state.take_wakers());
                break;
            }
            None if state.is_gathering && !own.is_some_and(|own| state.has_deferred(own)) => {
                wakers.extend(own.and_then(|own| state.defer(own)));
                break;
            }
            None => {
                begun += 1;
                state.begin_group()
            }
        };
        state.commit = Commit::Polled(thread::current().id());
        state.is_signalled = false;
        drop(state);
        let polled = poll(&mut commit, waker);
        state = lock(shared);
        state.commit = Commit::None;
        match polled {
            Ok(Poll::Pending) if state.file.is_some() => {
                state.commit = Commit::InFlight(commit);
                if state.is_signalled {
                    // It has completed meanwhile.
                    wakers.append(&mut state.take_wakers());
                }
                break;
            }
            Ok(Poll::Pending) => {
                // The log was dropped meanwhile, and waits until the commit has released the file.
                state.commit = Commit::Polled(thread::current().id());
                drop(state);
                drop(commit);
                state = lock(shared);
                state.commit = Commit::None;
                break;
            }
            Ok(Poll::Ready(result)) => {
                ended.push(state.end_group(result, own, &mut wakers));
            }
            Err(panic) => {
                panicked = Some(panic);
                let error = io::Error::other("a record panicked when it was dropped");
                ended.push(state.end_group(Err(error), own, &mut wakers));
            }
        }
    }
    drop(state);
    wake(wakers);
    // (In a wakeup nobody expects it.)
    if let (Some(panic), Some(_)) = (panicked, own) {
        resume_unwind(panic);
    }
}

/// Polls the write of a group. It does not yield: tokio's list of those that have yielded takes
/// none while it is called, and may be dropped without being called. The error is what a record has
/// panicked with when it was dropped; it leaves the result of the group unknown.
fn poll(commit: &mut CommitFuture, waker: &Waker) -> thread::Result<Poll<io::Result<()>>> {
    let before = POLLS_COMMIT.replace(true);
    let mut cx = Context::from_waker(waker);
    let polled =
        catch_unwind(AssertUnwindSafe(|| without_yielding(|| commit.as_mut().poll(&mut cx))));
    POLLS_COMMIT.set(before);
    polled
}

impl LogState {
    fn insert(&mut self, record: Buffer, waker: &Waker) -> usize {
        let place = self.next_place;
        self.next_place += 1;
        let waiting = Some(PendingAppend {
            stage: AppendStage::Queued(record),
            place,
            waker: Some(waker.clone()),
            has_deferred: false,
        });
        let key = match self.free.pop() {
            Some(key) => {
                self.appends[key] = waiting;
                key
            }
            None => {
                self.appends.push(waiting);
                self.appends.len() - 1
            }
        };
        self.queue.insert(place, key);
        key
    }

    fn waiting(&mut self, key: usize) -> &mut PendingAppend {
        self.appends[key].as_mut().expect("an append keeps its key until it is removed")
    }

    fn is_done(&mut self, key: usize) -> bool {
        matches!(self.waiting(key).stage, AppendStage::Done(_))
    }

    /// Keeps the waker and returns the one that it replaces.
    fn wait(&mut self, key: usize, waker: &Waker) -> Option<Waker> {
        let kept = &mut self.waiting(key).waker;
        match kept {
            Some(kept) if kept.will_wake(waker) => None,
            _ => kept.replace(waker.clone()),
        }
    }

    fn remove(&mut self, key: usize) -> PendingAppend {
        self.free.push(key);
        self.appends[key].take().expect("an append is removed once")
    }

    /// Takes the wakers of all waiting appends, the group's first. Any of them can advance the log,
    /// but each may be dropped or not polled for a while. So all are woken when there is something
    /// to do.
    fn take_wakers(&mut self) -> Vec<Waker> {
        let keys = self.group.iter().chain(self.queue.values());
        keys.filter_map(|key| self.appends[*key].as_mut()?.waker.take()).collect()
    }

    /// Whether a poll of an append has something to do.
    fn may_advance(&self) -> bool {
        match self.commit {
            Commit::None => self.may_begin(),
            Commit::InFlight(_) => self.is_signalled,
            Commit::Polled(_) => false,
        }
    }

    fn may_begin(&self) -> bool {
        matches!(self.commit, Commit::None) && !self.queue.is_empty() && self.file.is_some()
    }

    fn take_in_flight(&mut self) -> Option<CommitFuture> {
        match std::mem::replace(&mut self.commit, Commit::None) {
            Commit::InFlight(commit) => Some(commit),
            other => {
                self.commit = other;
                None
            }
        }
    }

    /// Whether this append has let others go first. The tasks whose records were just written were
    /// woken earlier and are about to append.
    fn has_deferred(&mut self, own: usize) -> bool {
        let waiting = self.waiting(own);
        waiting.has_deferred && matches!(waiting.stage, AppendStage::Queued(_))
    }

    /// Leaves beginning the next group to a later poll of this append, or to others if it has its
    /// result. Returns the waker to call.
    fn defer(&mut self, own: usize) -> Option<Waker> {
        let waiting = self.waiting(own);
        waiting.has_deferred = true;
        let is_queued = matches!(waiting.stage, AppendStage::Queued(_));
        if is_queued { waiting.waker.take() } else { None }
    }

    /// Starts writing the first records of the queue, which must not be empty.
    fn begin_group(&mut self) -> CommitFuture {
        let most = self.queue.len().min(MAX_RECORDS);
        let (begin, mut records) = (self.end, Vec::with_capacity(most));
        self.group.reserve(most);
        self.is_gathering = false;
        self.begun = Instant::now();
        while let Some((place, key)) = self.queue.first_key_value().map(|(at, key)| (*at, *key))
            && records.len() < MAX_RECORDS
        {
            let offset = self.end;
            let stage = &mut self.waiting(key).stage;
            let AppendStage::Queued(record) = std::mem::replace(stage, AppendStage::Begun(offset))
            else {
                unreachable!("a queued record is not being written")
            };
            let end = offset + record.len() as u64;
            if !records.is_empty() && end - begin > self.max_group as u64 {
                self.waiting(key).stage = AppendStage::Queued(record);
                break;
            }
            self.end = end;
            self.queue.remove(&place);
            self.group.push(key);
            records.push(record);
        }
        let file = self.file.clone().expect("an append keeps the log");
        Box::pin(file.write_records(records, begin))
    }

    /// Stores the result of each record of the group, and fails the queued records if it has
    /// failed. Adds the wakers of those that are to be polled, without the caller's. Returns the
    /// records that will not be written.
    fn end_group(
        &mut self,
        result: io::Result<()>,
        own: Option<usize>,
        wakers: &mut Vec<Waker>,
    ) -> Vec<AppendStage> {
        let appends = self.group.len() + self.queue.len();
        self.is_gathering = appends > 1 && self.begun.elapsed() >= self.slow_group;
        wakers.reserve(appends);
        let mut group = std::mem::take(&mut self.group);
        for key in group.drain(..) {
            let waiting = self.waiting(key);
            let waker = waiting.waker.take();
            match waiting.stage {
                AppendStage::Begun(offset) => {
                    waiting.stage =
                        AppendStage::Done(result.as_ref().map(|()| offset).map_err(clone_error));
                    wakers.extend(waker.filter(|_| own != Some(key)));
                }
                _ => drop(self.remove(key)),
            }
        }
        self.group = group;
        // Otherwise the caller begins the next group.
        if self.is_gathering || result.is_err() {
            wakers.append(&mut self.take_wakers());
        }
        let mut records = Vec::new();
        if let Err(error) = result {
            for key in std::mem::take(&mut self.queue).into_values() {
                let waiting = self.waiting(key);
                records.push(std::mem::replace(
                    &mut waiting.stage,
                    AppendStage::Done(Err(refused(&error))),
                ));
            }
            self.failed = Some(error);
        }
        records
    }
}

/// The error for appends to a log that has failed before.
fn refused(error: &io::Error) -> io::Error {
    io::Error::other(format!("the log failed before and accepts no more records: {error}"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::{Engine, FaultPlan, Reaping};
    use std::sync::atomic::{AtomicUsize, Ordering};

    type Waiting<'a> = Pin<Box<dyn Future<Output = io::Result<u64>> + 'a>>;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counter {
        fn wakeups(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A log whose next group gathers if the last one took `slow_group`.
    fn log(slow_group: Duration) -> (Engine, LogWriter) {
        // Delayed, so that no group ends in the poll that begins it.
        let delay = FaultPlan::new(0).delay(1000, 1);
        let builder = Engine::builder().shards(1).reaping(Reaping::Manual).faults(delay);
        let engine = builder.build().unwrap();
        let file = File::from_fd(tempfile::tempfile().unwrap().into(), &engine);
        let log = LogWriter::new(file, 0).unwrap();
        log.log.lock().slow_group = slow_group;
        (engine, log)
    }

    /// An append of 10 bytes.
    fn append(log: &LogWriter) -> Waiting<'_> {
        Box::pin(log.append(vec![1; 10]))
    }

    fn poll_once(append: &mut Waiting, waker: &Waker) -> Poll<io::Result<u64>> {
        append.as_mut().poll(&mut Context::from_waker(waker))
    }

    /// Reaps until no append waits, except those that are to be polled.
    fn reap_all(engine: &Engine, log: &LogWriter) {
        let end = Instant::now() + Duration::from_secs(20);
        let is_done = |append: &PendingAppend| matches!(append.stage, AppendStage::Done(_));
        while !log.log.lock().appends.iter().flatten().all(is_done) {
            assert!(Instant::now() < end, "the appends are not over within 20 s");
            engine.reap();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whoever reaps a group ends it and begins the next one, although no append is polled.
    #[test]
    fn groups_need_no_poll() {
        let (engine, log) = log(Duration::MAX);
        let counters = [0, 1, 2].map(|_| Arc::new(Counter::default()));
        let mut appends = [0, 1, 2].map(|_| append(&log));
        for (append, counter) in appends.iter_mut().zip(&counters) {
            assert!(poll_once(append, &counter.clone().into()).is_pending());
        }
        reap_all(&engine, &log);
        for (at, append) in appends.iter_mut().enumerate() {
            let Poll::Ready(offset) = poll_once(append, Waker::noop()) else {
                panic!("the append is done")
            };
            assert_eq!(offset.unwrap(), at as u64 * 10);
        }
        assert!(counters.iter().all(|counter| counter.wakeups() == 1), "woken for nothing");
    }

    /// Many appends wait for their turn, as when a disk hangs, and are dropped, as by a runtime
    /// that ends. The others keep their order.
    #[test]
    fn many_queued_appends_are_dropped() {
        const MANY: usize = 100_000;
        let (engine, log) = log(Duration::MAX);
        let mut appends: Vec<_> = (0..MANY).map(|_| Some(append(&log))).collect();
        for append in appends.iter_mut().flatten() {
            assert!(poll_once(append, Waker::noop()).is_pending());
        }
        let end = Instant::now() + Duration::from_secs(60);
        // From the front, from the back, and every second one of the rest.
        let middle = (MANY / 4..MANY / 2).step_by(2);
        for dropped in (1..MANY / 4).chain((MANY / 2..MANY).rev()).chain(middle) {
            appends[dropped] = None;
            assert!(Instant::now() < end, "they are not dropped within 60 s");
        }
        reap_all(&engine, &log);
        for (at, append) in appends.iter_mut().flatten().enumerate() {
            let Poll::Ready(offset) = poll_once(append, Waker::noop()) else {
                panic!("the append is done")
            };
            assert_eq!(offset.unwrap(), at as u64 * 10);
        }
    }

    /// After a slow group, the appends that were woken go first, and the next group has them all.
    #[test]
    fn a_group_gathers_after_a_slow_one() {
        let (engine, log) = log(Duration::ZERO);
        let counter = Arc::new(Counter::default());
        let waker = counter.clone().into();
        let (mut first, mut queued, mut late) = (append(&log), append(&log), append(&log));
        assert!(poll_once(&mut first, Waker::noop()).is_pending());
        assert!(poll_once(&mut queued, &waker).is_pending());
        let before = engine.stats().counts.pushed;
        let end = Instant::now() + Duration::from_secs(20);
        while counter.wakeups() == 0 {
            assert!(Instant::now() < end, "the first group is not over within 20 s");
            engine.reap();
        }
        assert!(poll_once(&mut first, Waker::noop()).is_ready());
        for append in [&mut late, &mut queued] {
            let woken = counter.wakeups();
            assert!(poll_once(append, &waker).is_pending());
            assert_eq!(counter.wakeups(), woken + 1, "an append that defers is polled again");
            assert_eq!(engine.stats().counts.pushed, before, "the group has begun");
        }
        assert!(poll_once(&mut queued, &waker).is_pending());
        reap_all(&engine, &log);
        assert_eq!(engine.stats().counts.pushed, before + 2, "a write and a sync");
    }
}
