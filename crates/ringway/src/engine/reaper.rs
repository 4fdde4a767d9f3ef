//! The engine's own thread: it picks up completions where no runtime does, and watches where one does.
//!
//! Futures polled outside of tokio have nobody else; for those it waits on the shards' descriptors. A task of a runtime is quicker
//! for what is polled in that runtime, but may not come: its runtime may be busy with something that blocks, or not be driven
//! at all. So while anything is in flight the thread looks, now and then, whether the shards move, and moves them if not.
//! With nothing in flight it sleeps.

use super::shard::{Place, Shard};
use ringway_core::{Home, with_signals_blocked};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it looks whether the shards move.
const WATCH: Duration = Duration::from_millis(10);
/// How many looks find nothing in flight before it sleeps.
const PATIENCE: u32 = 20;

/// The thread, from outside.
pub(crate) struct Reaper {
    bell: OwnedFd,
    asleep: AtomicBool,
    closing: AtomicBool,
    /// How long closing waits for what is in flight.
    close_wait: Duration,
    home: Home,
}

impl Reaper {
    /// Starts the thread. Errors: no descriptor, or no thread, is to be had.
    pub(crate) fn start(shards: Arc<[Shard]>, close_wait: Duration) -> io::Result<Arc<Self>> {
        let reaper = Arc::new(Self {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            close_wait,
            home: Home::here(),
        });
        let this = reaper.clone();
        let thread = std::thread::Builder::new().name("ringway".into());
        with_signals_blocked(|| thread.spawn(move || this.run(&shards)))?;
        Ok(reaper)
    }

    /// Something was pushed.
    #[inline]
    pub(crate) fn watch(&self) {
        // The push was made under a lock that the thread takes after it has said that it sleeps: one of the two sees the other.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// It is to wait on a shard's descriptor from now on.
    pub(crate) fn ring(&self) {
        // A bell that cannot be rung any more, because it was rung so often, rings.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The engine has gone: shards are closed, and the thread ends.
    pub(crate) fn close(&self) {
        if self.home.is_here() {
            self.closing.store(true, Ordering::SeqCst);
            self.ring();
        }
    }

    fn run(&self, shards: &[Shard]) {
        let mut seen: Vec<u64> = shards.iter().map(Shard::turns).collect();
        let mut looked = Instant::now();
        let mut idle = 0;
        while !self.closing.load(Ordering::SeqCst) {
            let sleeps = idle >= PATIENCE && self.falls_asleep(shards);
            let served: Vec<&Shard> = shards.iter().filter(|shard| shard.reapers(|reapers| reapers.thread)).collect();
            self.wait(&served, if sleeps { None } else { Some(WATCH) });
            self.asleep.store(false, Ordering::SeqCst);
            for shard in served {
                shard.turn(Place::Elsewhere, None);
            }
            if !sleeps && looked.elapsed() < WATCH {
                continue;
            }
            looked = Instant::now();
            let mut works = false;
            for (shard, seen) in shards.iter().zip(&mut seen) {
                if shard.has_work() {
                    works = true;
                    if shard.turns() == *seen {
                        shard.flush();
                    }
                } else {
                    shard.rest();
                }
                works |= std::mem::replace(seen, shard.turns()) != shard.turns();
            }
            idle = if works { 0 } else { idle + 1 };
        }
        shards.iter().for_each(|shard| shard.close(self.close_wait));
    }

    /// Says that it sleeps, unless there is something to do after all.
    fn falls_asleep(&self, shards: &[Shard]) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !shards.iter().any(Shard::has_work)
    }

    /// Waits for the bell or for a completion on one of these.
    fn wait(&self, served: &[&Shard], limit: Option<Duration>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        fds.extend(served.iter().map(|shard| PollFd::from_borrowed_fd(shard.readable(), PollFlags::IN)));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // Interrupted or not: it is looked at what there is.
        let _ = poll(&mut fds, limit.as_ref());
        if fds[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
    }
}
