//! The reaper on tokio: a task in the runtime, on the descriptor of a shard, through `AsyncFd`.
//!
//! One for each runtime and shard that a future was polled with; whichever is there first picks up all completions.
//! It goes with its runtime, and the engine's thread takes over then.

use super::reaper::Reaper;
use super::shard::{Place, Shard};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};

/// The runtime that the caller runs in.
pub(crate) fn runtime() -> Option<Handle> {
    Handle::try_current().ok()
}

/// Starts the task in the current runtime. Without success (the runtime has no I/O, no descriptor is to be had) the thread
/// does its work.
pub(crate) fn start(shards: &Arc<[Shard]>, shard: usize, id: Id, reaper: &Arc<Reaper>) {
    let post = Post { shards: shards.clone(), shard, id, reaper: reaper.clone() };
    // It panics in a runtime without I/O, and there is no way to ask. The newer function is unsafe, for types whose descriptor
    // may change; that of an `OwnedFd` does not.
    #[allow(deprecated)]
    let watched = catch_unwind(AssertUnwindSafe(|| {
        let fd = post.shard().readable().try_clone_to_owned()?;
        AsyncFd::with_interest(fd, Interest::READABLE)
    }));
    match watched {
        Ok(Ok(fd)) => _ = tokio::spawn(drive(fd, post)),
        Ok(Err(_)) | Err(_) => {
            drop(post);
            shards[shard].reapers(|reapers| {
                reapers.runtimes.truncate(MOST_RUNTIMES);
                reapers.runtimes.insert(0, (id, false));
            });
        }
    }
}

/// Runtimes that are remembered.
const MOST_RUNTIMES: usize = 256;

/// The task's place in its shard; given up when it is dropped, which may be at any time.
struct Post {
    shards: Arc<[Shard]>,
    shard: usize,
    id: Id,
    reaper: Arc<Reaper>,
}

impl Post {
    fn shard(&self) -> &Shard {
        &self.shards[self.shard]
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.shard().reapers(|reapers| {
            if let Some(at) = reapers.runtimes.iter().position(|(id, _)| *id == self.id) {
                reapers.runtimes.swap_remove(at);
            }
            reapers.thread = true;
        });
        self.shard().flush();
        self.reaper.ring();
    }
}

async fn drive(fd: AsyncFd<OwnedFd>, post: Post) {
    poll_fn(|cx| {
        post.shard().reapers(|reapers| reapers.drivers.push(cx.waker().clone()));
        Poll::Ready(())
    })
    .await;
    let shard = post.shard();
    loop {
        let ready = poll_fn(|cx| match shard.reapers(|reapers| reapers.closed) {
            true => Poll::Ready(None),
            false => fd.poll_read_ready(cx).map(Result::ok),
        })
        .await;
        // Closed, or the runtime is shutting down.
        let Some(mut ready) = ready else { return };
        // First: what completes from here on makes it ready again.
        ready.clear_ready();
        // The tasks that it wakes run first; what they ask for is entered together, and what has completed meanwhile is told together.
        while shard.reap(Place::Runtime(post.id)) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
