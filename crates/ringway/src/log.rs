//! Group commit for append-only logs: the records of many tasks, written together and synced once.
//!
//! Nothing runs in the background. Records gather in a queue while a group is being written;
//! whichever task is polled first after that moves the log on: it ends the group, and begins the
//! next.

use crate::fs::File;
use crate::fs::pooled::clone_error;
use ringway_core::{Buffer, Reason};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// Bytes of a group where nothing is said.
const GROUP: usize = 1 << 20;
/// The most records of a group: as many buffers as one system call writes (`IOV_MAX`).
const RECORDS: usize = 1024;

/// The end of an append-only log that many tasks write to, with group commit.
///
/// [`append`](Self::append) is ready when its record is on the device. While one group of records
/// is written and synced, the next one gathers: one write and one `fdatasync(2)` serve as many
/// tasks as wait. Clones append to the same log.
///
/// - **Order.** Records stand in the file without gaps, in the order in which their futures were
///   first polled, and become durable in that order: a record that is durable has all before it
///   durable too.
/// - **Errors** end the log. When a write or a sync fails, each record of its group has that error,
///   and records behind it and later ones are refused: after a failed sync nobody knows what is on
///   the device, and another one that succeeds proves nothing. Close the file, read back what it
///   has, and begin anew behind the last good record.
/// - **What a crash or an error leaves.** WriteBehind the last record that was acknowledged the file may
///   have any part of those that were not, also a whole record behind a torn one. So records need a
///   length and a checksum of their own, and whoever reads the log back stops at the first bad
///   record and cuts the file there before it appends again. Without the cut, an old record may
///   later stand right behind a new one, and be taken for one of the log's.
/// - **Memory.** The log keeps no records but those of the futures that wait. It is these futures
///   that hold a producer back.
///
/// Files opened for direct I/O are refused: a group seldom ends at the end of a block, and what
/// follows would have to write that block again. So are files opened with `O_APPEND`, whose writes
/// go elsewhere than they are told to.
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
///         tokio::spawn(async move { log.append(format!("record {number:2}\n").into_bytes()).await })
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
/// To begin anew, after a crash say, with records of 10 bytes that end with a newline:
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
/// let good = content.chunks(10).take_while(|record| record.len() == 10 && record[9] == b'\n').count() as u64;
/// file.set_len(good * 10).await?;
/// file.sync_all().await?; // the records that were read, and the cut
/// let log = LogWriter::new(file, good * 10)?;
/// assert_eq!(log.append(b"record  2\n".to_vec()).await?, 20);
/// # assert_eq!(std::fs::read(dir.join("log"))?, b"record  0\nrecord  1\nrecord  2\n");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LogWriter {
    shared: Arc<Shared>,
}

struct Shared {
    file: File,
    /// Apart from the file: the engine has the state while it wakes, and the log may be dropped
    /// meanwhile.
    state: Arc<Mutex<State>>,
    /// Wakes all that wait, when the group that is being written has to be looked at.
    waker: Waker,
}

struct State {
    /// Appends that wait, by key; the free keys.
    appends: Vec<Option<PendingAppend>>,
    free: Vec<usize>,
    /// Keys of those whose records have not begun, in order.
    queue: VecDeque<usize>,
    /// Keys of those whose records are being written.
    group: Vec<usize>,
    commit: Commit,
    /// The write has to be looked at.
    is_signalled: bool,
    /// A group has just ended, so that more records are about to come.
    is_gathering: bool,
    /// Where the next record goes.
    end: u64,
    max_group: usize,
    /// Why nothing more is written.
    failed: Option<io::Error>,
}

/// One append.
struct PendingAppend {
    stage: AppendStage,
    /// To be woken, once.
    waker: Option<Waker>,
    /// It has let others append before it begins a group.
    has_deferred: bool,
}

enum AppendStage {
    Queued(Buffer),
    /// It is being written at this offset.
    Begun(u64),
    Done(io::Result<u64>),
    /// It is being written, and its future has been dropped.
    Dropped,
}

/// The write and the sync of a group.
enum Commit {
    None,
    InFlight(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>),
    /// Somebody is polling it, who looks for what happens meanwhile.
    Polled,
}

impl LogWriter {
    /// Appends to this file from the offset `end` on: its length. What the file has behind is
    /// overwritten. The file must have no other writer, and no write on its way of a future that
    /// was dropped ([`File::into_std`] waits for those). Its name should be durable
    /// ([`sync_dir`](crate::fs::sync_dir)).
    ///
    /// Errors: InvalidInput for a file opened for direct I/O or with `O_APPEND`, for what cannot be
    /// synced (pipes, sockets), and for an offset beyond `i64::MAX`; those of `fcntl(2)`.
    pub fn new(file: File, end: u64) -> io::Result<Self> {
        let refused = match () {
            () if !file.is_storage() => Some("a log needs a file that can be synced"),
            () if file.is_direct() => Some("a log's file must not be open for direct I/O"),
            () if rustix::fs::fcntl_getfl(&file)?.contains(rustix::fs::OFlags::APPEND) => Some(
                "a log's file must not be open with O_APPEND: the log says itself where it writes",
            ),
            () if i64::try_from(end).is_err() => Some("an offset over i64::MAX"),
            () => None,
        };
        if let Some(text) = refused {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let state = Arc::new(Mutex::new(State {
            appends: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            group: Vec::new(),
            commit: Commit::None,
            is_signalled: false,
            is_gathering: false,
            end,
            max_group: GROUP,
            failed: None,
        }));
        let waker = Arc::new(CommitWaker(Arc::downgrade(&state))).into();
        Ok(Self { shared: Arc::new(Shared { file, state, waker }) })
    }

    /// The most bytes of a group, 1 MiB by default; a longer record is a group of its own. Larger
    /// groups make fewer syncs, and each takes longer.
    pub fn max_group(self, bytes: usize) -> Self {
        self.shared.lock().max_group = bytes;
        self
    }

    /// Appends a record and waits until it is durable, and so are all before it. Where it begins in
    /// the file.
    ///
    /// Any number of these may wait at once. The record is in its place when the future is first
    /// polled. It may be anything that is a buffer (see [`IoBuffer`](crate::IoBuffer)), and is not
    /// returned.
    ///
    /// Errors: those of `write(2)` and of `fdatasync(2)`, of the group that the record was in; an
    /// error of kind Other that names the first one, for a log that has failed before. Either way
    /// the log has ended, and whether the record is in the file is unknown.
    ///
    /// Dropped before its record has begun to be written, it is taken out. After that the record
    /// stays: it may be in the file, durable or not, and records behind it follow it.
    pub async fn append<B: Into<Buffer> + Send>(&self, record: B) -> io::Result<u64> {
        Append { shared: &self.shared, record: Some(record.into()), key: None }.await
    }

    /// The file. Clones of the log hold it. When the last of them is dropped, [`File::into_std`]
    /// and [`File::close`] of a clone taken before get it; a group that is being written, of
    /// futures that were dropped, is cancelled then.
    pub fn file(&self) -> &File {
        &self.shared.file
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter").field("file", &self.shared.file).finish_non_exhaustive()
    }
}

struct Append<'a> {
    shared: &'a Arc<Shared>,
    /// Until it is in the queue.
    record: Option<Buffer>,
    /// While it waits.
    key: Option<usize>,
}

impl Future for Append<'_> {
    type Output = io::Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        // In a forked child the lock may be taken for ever.
        if !self.shared.is_current() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(Reason::Forked.errno())));
        }
        let mut state = self.shared.lock();
        if let Some(record) = self.record.take() {
            if let Some(error) = state.failed.as_ref().map(refused) {
                drop(state);
                drop(record);
                return Poll::Ready(Err(error));
            }
            self.key = Some(state.insert(record, cx.waker()));
        }
        let Some(key) = self.key else { panic!("a future was polled after it was ready") };
        if !state.is_done(key) {
            let old = state.wait(key, cx.waker());
            drop(state);
            drop(old);
            self.shared.advance(key);
            state = self.shared.lock();
        }
        if !state.is_done(key) {
            return Poll::Pending;
        }
        self.key = None;
        let over = state.remove(key);
        drop(state);
        let AppendStage::Done(result) = over.stage else { unreachable!("it is over") };
        Poll::Ready(result)
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.filter(|_| self.shared.is_current()) else { return };
        let mut state = self.shared.lock();
        let waiting = state.waiting(key);
        let waker = waiting.waker.take();
        let stage = std::mem::replace(&mut waiting.stage, AppendStage::Dropped);
        if !matches!(stage, AppendStage::Begun(_)) {
            state.queue.retain(|queued| *queued != key);
            state.remove(key);
        }
        drop(state);
        drop((stage, waker));
    }
}

/// Tells those that wait that the write of their group has to be looked at.
struct CommitWaker(Weak<Mutex<State>>);

impl Wake for CommitWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(state) = self.0.upgrade() else { return };
        let mut state = lock(&state);
        state.is_signalled = true;
        if matches!(state.commit, Commit::Polled) {
            return; // Whoever polls it looks again.
        }
        let wakers = state.take_wakers();
        drop(state);
        wake(wakers);
    }
}

/// Wakes all of them; one that panics keeps no other from that.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing of the program's own runs under the lock: wakers and records are dropped behind it.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_current(&self) -> bool {
        self.file.engine().inner.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ends the group that has been written, and begins the next, as far as that can be done now.
    /// `own` is the key of the caller, who looks at its own result.
    fn advance(&self, own: usize) {
        let mut state = self.lock();
        loop {
            let mut commit = match std::mem::replace(&mut state.commit, Commit::Polled) {
                Commit::Polled => return,
                Commit::InFlight(commit) if state.is_signalled => commit,
                Commit::None if !state.queue.is_empty() && !state.defers(own) => {
                    state.begin_group(&self.file)
                }
                Commit::None => {
                    state.commit = Commit::None;
                    // The caller has just deferred, unless it has its result. The others that wait
                    // were woken when the last group ended.
                    let waiting = state.waiting(own);
                    let waker = if let AppendStage::Queued(_) = waiting.stage {
                        waiting.waker.take()
                    } else {
                        None
                    };
                    drop(state);
                    return wake(waker);
                }
                in_flight => {
                    state.commit = in_flight;
                    return;
                }
            };
            state.is_signalled = false;
            drop(state);
            // A record may panic when it is dropped. What became of the group is unknown then.
            let mut cx = Context::from_waker(&self.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| commit.as_mut().poll(&mut cx)));
            let (polled, panic) = match polled {
                Ok(polled) => (polled, None),
                Err(panic) => (
                    Poll::Ready(Err(io::Error::other("a record panicked when it was dropped"))),
                    Some(panic),
                ),
            };
            state = self.lock();
            match polled {
                Poll::Pending => {
                    state.commit = Commit::InFlight(commit);
                    if state.is_signalled {
                        // Perhaps by itself, to give way to other tasks: it is polled again when
                        // they have run.
                        let wakers = state.take_wakers();
                        drop(state);
                        return wake(wakers);
                    }
                }
                Poll::Ready(result) => {
                    state.commit = Commit::None;
                    if let AppendStage::Begun(_) = state.waiting(own).stage {
                        state.waiting(own).waker = None;
                    }
                    let (wakers, records) = state.end_group(result);
                    drop(state);
                    wake(wakers);
                    if let Some(panic) = panic {
                        resume_unwind(panic);
                    }
                    drop((commit, records));
                    state = self.lock();
                }
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A group that is being written holds the file. In a forked child the lock may be taken for
        // ever.
        if self.is_current() {
            let commit = std::mem::replace(&mut self.lock().commit, Commit::None);
            drop(commit);
        }
    }
}

impl State {
    fn insert(&mut self, record: Buffer, waker: &Waker) -> usize {
        let waiting = Some(PendingAppend {
            stage: AppendStage::Queued(record),
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
        self.queue.push_back(key);
        key
    }

    fn waiting(&mut self, key: usize) -> &mut PendingAppend {
        self.appends[key].as_mut().expect("an append has its key until it is removed")
    }

    fn is_done(&mut self, key: usize) -> bool {
        matches!(self.waiting(key).stage, AppendStage::Done(_))
    }

    /// Keeps the waker, and gives the one that it replaces.
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

    /// Those of all that wait, the group's first. Any of them moves the log on, and each may be one
    /// that is dropped, or not polled for a while: so when there is something to do, all are woken.
    fn take_wakers(&mut self) -> Vec<Waker> {
        let keys = self.group.iter().chain(&self.queue);
        keys.filter_map(|key| self.appends[*key].as_mut()?.waker.take()).collect()
    }

    /// Whether the caller leaves it to a later poll to begin the next group; it is to be woken
    /// again. Those whose records have just been written are about to append the next ones. They
    /// were woken before, so they come first.
    fn defers(&mut self, own: usize) -> bool {
        if !self.is_gathering {
            return false;
        }
        let waiting = self.waiting(own);
        !matches!(waiting.stage, AppendStage::Queued(_))
            || !std::mem::replace(&mut waiting.has_deferred, true)
    }

    /// The write of the first records of the queue; there must be one.
    fn begin_group(&mut self, file: &File) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
        let (begin, mut records) = (self.end, Vec::new());
        self.is_gathering = false;
        while let Some(key) = self.queue.front().copied()
            && records.len() < RECORDS
        {
            let offset = self.end;
            let stage = &mut self.waiting(key).stage;
            let AppendStage::Queued(record) = std::mem::replace(stage, AppendStage::Begun(offset))
            else {
                unreachable!("what is in the queue has not begun")
            };
            let end = offset + record.len() as u64;
            if !records.is_empty() && end - begin > self.max_group as u64 {
                self.waiting(key).stage = AppendStage::Queued(record);
                break;
            }
            self.end = end;
            self.queue.pop_front();
            self.group.push(key);
            records.push(record);
        }
        Box::pin(file.clone().write_records(records, begin))
    }

    /// Notes the result of each record of the group, and of those behind it if it has failed. The
    /// wakers of all that wait, and the records that will not be written.
    fn end_group(&mut self, result: io::Result<()>) -> (Vec<Waker>, Vec<AppendStage>) {
        let wakers = self.take_wakers();
        self.is_gathering = self.group.len() + self.queue.len() > 1;
        for key in std::mem::take(&mut self.group) {
            let waiting = self.waiting(key);
            match waiting.stage {
                AppendStage::Begun(offset) => {
                    waiting.stage =
                        AppendStage::Done(result.as_ref().map(|()| offset).map_err(clone_error));
                }
                _ => drop(self.remove(key)),
            }
        }
        let mut records = Vec::new();
        if let Err(error) = result {
            for key in std::mem::take(&mut self.queue) {
                let waiting = self.waiting(key);
                records.push(std::mem::replace(
                    &mut waiting.stage,
                    AppendStage::Done(Err(refused(&error))),
                ));
            }
            self.failed = Some(error);
        }
        (wakers, records)
    }
}

/// What is told of a log that has failed before.
fn refused(error: &io::Error) -> io::Error {
    io::Error::other(format!("the log has failed before, and takes no more records: {error}"))
}
