//! The engine's own thread: it picks up completions where no runtime does, and in place of a
//! runtime that is late.
//!
//! It sleeps in `poll(2)` on the shards' descriptors, with no limit: an operation that waits for
//! ever and a result that nobody has looked at wake nobody. Futures polled outside of tokio have
//! nobody else, and for those it picks up what completes at once. What is polled in a runtime is
//! that runtime's first: its I/O driver is quicker. But the driver may not come, when the worker
//! that holds it computes, or when nobody drives the runtime. So the thread, once woken, naps for a
//! moment, and then picks up whatever is there still. While shards move it goes on napping, and
//! sleeps again when nothing has happened during a nap. Where runtimes are late twice in a row, it
//! picks up everything at once for some milliseconds, or until it comes too late itself.

use super::Executor;
use super::manual::Notifier;
use crate::engine::shard::{Progress, Shard, Snapshot};
use crate::engine::sync::{AtomicBool, Ordering};
use ringway_core::{Home, with_signals_blocked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a runtime has to pick up what has completed, before the thread does.
const FIRST_NAP: Duration = Duration::from_micros(100);
/// As long as runtimes are in time the naps grow up to this: each costs two context switches.
const LONG_NAP: Duration = Duration::from_micros(1600);
/// The longest nap, when the thread finds descriptors readable for nothing again and again.
const LONGEST_NAP: Duration = Duration::from_millis(10);
/// Late so often in a row, a runtime is taken to be busy.
const LATE_LIMIT: u32 = 2;
/// For so long: then it has another chance.
const BUSY_TIME: Duration = Duration::from_millis(5);
/// How often the thread picks up nothing during a nap before it sleeps the rest of it: a descriptor
/// may be readable for nothing.
const MAX_EMPTY_WAKEUPS: u32 = 8;

/// The thread, from outside.
pub(crate) struct Reaper {
    notifier: Arc<Notifier>,
    closing: AtomicBool,
    /// How long closing waits for what is in flight.
    close_wait: Duration,
    home: Home,
}

impl Reaper {
    /// Starts the thread. Errors: no thread is to be had.
    pub(crate) fn start(
        shards: Arc<[Shard]>,
        notifier: Arc<Notifier>,
        close_wait: Duration,
    ) -> io::Result<Arc<Self>> {
        let closing = AtomicBool::new(false);
        let reaper = Arc::new(Self { notifier, closing, close_wait, home: Home::here() });
        let this = reaper.clone();
        let thread = std::thread::Builder::new().name("ringway".into());
        with_signals_blocked(|| thread.spawn(move || this.run(&shards)))?;
        Ok(reaper)
    }

    /// The engine has gone: shards are closed, and the thread ends.
    pub(crate) fn close(&self) {
        if self.home.is_here() {
            self.closing.store(true, Ordering::SeqCst);
            self.notifier.notify();
        }
    }

    fn run(&self, shards: &[Shard]) {
        let mut seen = Vec::new();
        let mut late = vec![Lateness::default(); shards.len()];
        // Whether something may have happened since it looked last, and for how long it naps before
        // it looks.
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
        shards.iter().for_each(|shard| shard.close(self.close_wait));
    }

    /// Until there is something on any shard, or one of them holds something back.
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

    /// For so long, but for futures that nobody else serves, or nobody in time.
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

    /// Waits for the notifier or for one of these; those that are readable.
    fn wait(&self, shards: &[Shard], which: &[usize], limit: Option<Duration>) -> Vec<usize> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.notifier.fd(), PollFlags::IN)];
        fds.extend(
            which.iter().map(|at| PollFd::from_borrowed_fd(shards[*at].readable(), PollFlags::IN)),
        );
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // Interrupted or not: it is looked at what there is.
        let _ = poll(&mut fds, limit.as_ref());
        let is_ready = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        if is_ready(&fds[0]) {
            self.notifier.clear();
        }
        let ready = which.iter().zip(&fds[1..]).filter(|(_, fd)| is_ready(fd));
        ready.map(|(at, _)| *at).collect()
    }
}

/// How a shard's runtimes do.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    /// They were late so often in a row.
    late_count: u32,
    /// They are taken to be busy until then.
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

    /// Whether they are taken to be busy still.
    fn is_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }
}

/// Picks up what is late. How long to nap before the next look; `None` when nothing happens.
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
            Progress::Idle => {
                shard.rest_if_idle();
                None
            }
            Progress::Moving | Progress::Waiting => {
                if !late.is_busy(now) {
                    *late = Lateness::default();
                }
                Some((nap * 2).min(LONG_NAP))
            }
            Progress::Late => {
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
    fn a_runtime_that_is_late_again_is_busy_for_a_while() {
        let (now, mut late) = (Instant::now(), Lateness::default());
        late.was_late(now);
        assert!(!late.is_busy(now), "once is chance");
        late.was_late(now);
        assert!(late.is_busy(now) && !late.is_busy(now + BUSY_TIME));
    }
}
