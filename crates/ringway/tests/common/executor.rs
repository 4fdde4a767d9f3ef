//! The executors that a case can run on: running its future and spawning further tasks.

use super::{current_thread, multi_thread};
use futures::channel::oneshot;
use futures::stream::{FuturesUnordered, StreamExt};
use ringway::{Engine, Reaping};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Builder, LocalOptions};

/// The executor that polls the futures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// tokio with worker threads.
    TokioThreads,
    /// tokio on one thread.
    TokioCurrent,
    /// tokio's `LocalRuntime`, whose tasks need not be `Send`.
    TokioLocal,
    /// smol's global executor, and `smol::block_on`.
    Smol,
    /// `futures::executor::block_on`, with one thread per task.
    BlockOn,
    /// A program with its own loop, which polls the engine's descriptor and reaps manually.
    OwnLoop,
}

pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks for [`Executor::OwnLoop`] that its loop has not taken yet.
#[derive(Clone, Default)]
pub struct Spawned(Arc<Mutex<Vec<Work>>>);

impl Executor {
    /// How an engine for this executor reaps completions.
    pub fn reaping(self) -> Reaping {
        match self {
            Self::OwnLoop => Reaping::Manual,
            _ => Reaping::Automatic,
        }
    }

    /// Runs `work` to its end. Only a loop of the program's own uses `engine`.
    pub fn run(
        self,
        engine: &Engine,
        spawned: &Spawned,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        match self {
            Self::TokioThreads => {
                let runtime = multi_thread(2);
                // As a task, so that it runs on a worker and moves between workers.
                if let Err(error) = runtime.block_on(runtime.spawn(work)) {
                    resume_unwind(error.into_panic());
                }
            }
            Self::TokioCurrent => current_thread().block_on(work),
            Self::TokioLocal => {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default())
                    .unwrap();
                runtime.block_on(work);
            }
            Self::Smol => smol::block_on(smol::spawn(work)),
            Self::BlockOn => futures::executor::block_on(work),
            Self::OwnLoop => own_loop(engine, spawned, Box::pin(work)),
        }
    }

    /// Spawns a task and returns a future of its result.
    pub fn spawn<T: Send + 'static>(
        self,
        spawned: &Spawned,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        let work = async move { _ = sender.send(work.await) };
        match self {
            Self::TokioThreads | Self::TokioCurrent | Self::TokioLocal => _ = tokio::spawn(work),
            Self::Smol => smol::spawn(work).detach(),
            Self::BlockOn => _ = std::thread::spawn(|| futures::executor::block_on(work)),
            Self::OwnLoop => spawned.0.lock().unwrap().push(Box::pin(work)),
        }
        async { receiver.await.expect("the task panicked") }
    }
}

/// Wakes a loop that waits in `poll(2)`.
pub struct WakePipe(std::io::PipeReader, Mutex<std::io::PipeWriter>);

impl WakePipe {
    pub fn new() -> Arc<Self> {
        let (reader, writer) = std::io::pipe().unwrap();
        let nonblocking = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&reader, nonblocking).unwrap();
        rustix::fs::fcntl_setfl(&writer, nonblocking).unwrap();
        Arc::new(Self(reader, Mutex::new(writer)))
    }

    /// Waits for a wakeup or for a completion. Returns true after a wakeup.
    pub fn wait(&self, engine: BorrowedFd<'_>) -> bool {
        let mut fds = [self.0.as_raw_fd(), engine.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: `fds` has two entries and lives through the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        assert!(ready > 0, "{}", std::io::Error::last_os_error());
        if fds[0].revents != 0 {
            let mut bytes = [0; 64];
            while std::io::Read::read(&mut &self.0, &mut bytes)
                .is_ok_and(|read| read == bytes.len())
            {}
        }
        fds[0].revents != 0
    }
}

impl Wake for WakePipe {
    fn wake(self: Arc<Self>) {
        // A full pipe is readable already.
        let _ = std::io::Write::write(&mut *self.1.lock().unwrap(), &[1]);
    }
}

/// Polls woken tasks, waits in `poll(2)` for a wakeup or a completion, reaps, and repeats. No other
/// thread helps.
fn own_loop(engine: &Engine, spawned: &Spawned, work: Work) {
    let wakeups = WakePipe::new();
    let waker = Waker::from(wakeups.clone());
    let mut cx = Context::from_waker(&waker);
    let (done, mut is_done) = oneshot::channel();
    let mut tasks = FuturesUnordered::new();
    let work = async move {
        work.await;
        _ = done.send(());
    };
    tasks.push(Box::pin(work) as Work);
    loop {
        // A task that panics must not end the others.
        while let Poll::Ready(Some(())) =
            catch_unwind(AssertUnwindSafe(|| tasks.poll_next_unpin(&mut cx)))
                .unwrap_or(Poll::Ready(Some(())))
        {}
        match is_done.try_recv() {
            Ok(Some(())) => return,
            Ok(None) => {}
            Err(_) => panic!("the case panicked"),
        }
        let new = std::mem::take(&mut *spawned.0.lock().unwrap());
        let is_idle = new.is_empty();
        tasks.extend(new);
        if is_idle {
            wakeups.wait(engine.readable().unwrap());
        }
        engine.reap();
    }
}
