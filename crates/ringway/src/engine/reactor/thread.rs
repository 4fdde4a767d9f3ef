//! The engine's thread: it reaps completions for executors without an I/O driver, and replaces a
//! runtime that is late.
//!
//! It sleeps in `poll(2)` on the shards' descriptors without a timeout, so an operation that waits
//! forever and a result that no task takes cause no wakeups. Futures polled outside of tokio depend
//! on it, so their completions are reaped at once. Futures polled in a runtime are left to that
//! runtime first, because its I/O driver is quicker. But the driver may not come: the worker that
//! holds it may compute, or no thread may drive the runtime. So the thread, once woken, naps
//! briefly and then reaps what is still there. While shards make progress it keeps napping; it
//! sleeps again when nothing has happened during a nap. If runtimes are late twice in a row, the
//! thread reaps everything at once for some milliseconds, or until it comes too late itself.

use crate::engine::executor::Executor;
use crate::engine::notifier::Notifier;
use crate::engine::shard::{Shard, ShardProgress, Snapshot};
use crate::engine::sync::{AtomicBool, Ordering};
use ringway_core::{BorrowedFd, OwnerProcess, start_thread, wait};
use smallvec::SmallVec;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The stack size, which has room for the program's wakers: that of the standard library's threads.
pub(crate) const STACK: usize = 2 << 20;
/// How long a runtime has to reap completions before the thread does.
const FIRST_NAP: Duration = Duration::from_micros(100);
/// While runtimes are in time, naps grow to this length: each nap costs two context switches.
const LONG_NAP: Duration = Duration::from_micros(1600);
/// The longest nap, if descriptors are readable without completions again and again.
const LONGEST_NAP: Duration = Duration::from_millis(10);
/// A runtime that is late this many times in a row counts as busy.
const LATE_LIMIT: u32 = 2;
/// How long it counts as busy.
const BUSY_TIME: Duration = Duration::from_millis(5);
/// After this many wakeups without completions, the thread sleeps for the rest of the nap: a
/// descriptor may be readable without completions.
const MAX_EMPTY_WAKEUPS: u32 = 8;

/// A handle to the thread.
pub(crate) struct EngineThread {
    notifier: Arc<Notifier>,
    closing: AtomicBool,
    /// How long closing waits for operations in flight.
    close_wait: Duration,
    owner: OwnerProcess,
}

impl EngineThread {
    /// Starts the thread. Errors: EAGAIN if no thread can be started.
    pub(crate) fn start(
        shards: Arc<[Shard]>,
        notifier: Arc<Notifier>,
        close_wait: Duration,
    ) -> io::Result<Arc<Self>> {
        let closing = AtomicBool::new(false);
        let thread =
            Arc::new(Self { notifier, closing, close_wait, owner: OwnerProcess::current() });
        let this = thread.clone();
        start_thread(c"ringway", STACK, move || this.run(&shards))?;
        Ok(thread)
    }

    /// The engine was dropped: the thread closes the shards and ends.
    pub(crate) fn close(&self) {
        if self.owner.is_current() {
            self.closing.store(true, Ordering::SeqCst);
            self.notifier.notify();
        }
    }

    fn run(&self, shards: &[Shard]) {
        let mut seen = Vec::new();
        let mut late = vec![Lateness::default(); shards.len()];
        // How long to nap before the next look; `None` while there is nothing to do.
        let mut nap = None;
        while !self.closing.load(Ordering::SeqCst) {
            match nap {
                None => {
                    self.sleep(shards);
                    seen = shards.iter().map(Shard::snapshot).collect();
                    nap = Some(FIRST_NAP);
                }
                Some(time) => {
                    self.nap(shards, &mut late, time);
                    nap = pick_up_late(shards, &mut seen, &mut late, time);
                }
            }
        }
        for shard in shards {
            shard.close(self.close_wait);
        }
    }

    /// Sleeps until a shard is readable or holds something back.
    fn sleep(&self, shards: &[Shard]) {
        self.notifier.asleep.store(true, Ordering::SeqCst);
        if !shards.iter().any(Shard::holds_back) {
            self.wait(
                shards,
                &(0..shards.len()).filter(|at| !shards[*at].has_failed()).collect::<Vec<_>>(),
                None,
            );
        }
        self.notifier.asleep.store(false, Ordering::SeqCst);
    }

    /// Naps for `time`, but reaps completions of futures that no runtime handles in time.
    fn nap(&self, shards: &[Shard], late: &mut [Lateness], time: Duration) {
        let now = Instant::now();
        let until = now + time;
        let needs_thread = |at: &usize| shards[*at].needs_thread() || late[*at].is_busy(now);
        let is_open = |at: &usize| !shards[*at].has_failed();
        let mut watched: Vec<usize> =
            (0..shards.len()).filter(is_open).filter(needs_thread).collect();
        let mut empty_wakeups = 0;
        loop {
            shards.iter().for_each(Shard::run_delegated);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.closing.load(Ordering::SeqCst) {
                return;
            }
            let mut woken = 0;
            let ready = self.wait(shards, &watched, Some(left));
            for at in &ready {
                let count = shards[*at].drive(Executor::Other);
                woken += count;
                if count == 0 {
                    // The runtime was quicker.
                    late[*at] = Lateness::default();
                }
            }
            watched.retain(|at| {
                is_open(at) && (shards[*at].needs_thread() || late[*at].busy_until.is_some())
            });
            if !ready.is_empty() && woken == 0 {
                empty_wakeups += 1;
            }
            if empty_wakeups > MAX_EMPTY_WAKEUPS {
                watched.clear();
            }
        }
    }

    /// Waits for the notifier or one of these shards. Returns the shards that are readable.
    fn wait(&self, shards: &[Shard], which: &[usize], limit: Option<Duration>) -> Vec<usize> {
        let mut fds = SmallVec::<[BorrowedFd<'_>; 8]>::new();
        fds.push(self.notifier.fd());
        fds.extend(which.iter().map(|at| shards[*at].readable()));
        // If it fails, nothing is readable.
        let ready = wait::readable(&fds, limit).unwrap_or_else(|_| vec![false; fds.len()]);
        if ready[0] {
            self.notifier.clear();
        }
        which.iter().zip(&ready[1..]).filter(|(_, ready)| **ready).map(|(at, _)| *at).collect()
    }
}

/// How punctual a shard's runtimes are.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    /// How many times in a row they were late.
    late_count: u32,
    /// They count as busy until then.
    busy_until: Option<Instant>,
}

impl Lateness {
    /// They were late once more.
    fn was_late(&mut self, now: Instant) {
        self.late_count += 1;
        if self.late_count >= LATE_LIMIT {
            self.busy_until = Some(now + BUSY_TIME);
        }
    }

    /// Whether they still count as busy.
    fn is_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }
}

/// Reaps what is late. Returns how long to nap before the next look; `None` if nothing happens.
fn pick_up_late(
    shards: &[Shard],
    seen: &mut [Snapshot],
    late: &mut [Lateness],
    nap: Duration,
) -> Option<Duration> {
    let mut next: Option<Duration> = None;
    let now = Instant::now();
    for ((shard, seen), late) in shards.iter().zip(seen).zip(late) {
        let next_nap = match shard.progress(*seen) {
            ShardProgress::Idle => {
                shard.rest_if_idle();
                None
            }
            ShardProgress::Moving | ShardProgress::Waiting => {
                if !late.is_busy(now) {
                    *late = Lateness::default();
                }
                Some((nap * 2).min(LONG_NAP))
            }
            ShardProgress::Late => {
                let woken = shard.flush();
                if woken > 0 {
                    late.was_late(now);
                }
                let moved = woken > 0 || shard.snapshot().moves != seen.moves;
                Some(if moved { FIRST_NAP } else { (nap * 2).min(LONGEST_NAP) })
            }
        };
        *seen = shard.snapshot();
        next = next.into_iter().chain(next_nap).min();
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_late_twice_counts_as_busy() {
        let (now, mut late) = (Instant::now(), Lateness::default());
        late.was_late(now);
        assert!(!late.is_busy(now), "late once is not busy");
        late.was_late(now);
        assert!(late.is_busy(now) && !late.is_busy(now + BUSY_TIME));
    }
}
