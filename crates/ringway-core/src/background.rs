//! Calls that nobody waits for and that may take long, such as the close of a file on a network
//! file system: threads of their own make them.
//!
//! The threads belong to the process and end when there is nothing to do, so no call is lost when a
//! queue or an engine ends. A process that exits leaves its descriptors to the kernel, which closes
//! them in the same way. A forked child has none of the threads: what its parent had not begun, its
//! own threads do, so that it keeps no descriptor open that the parent meant to close.
//!
//! A call that hangs must not delay others, so one thread without a call watches over those that
//! have one. While calls end it lets a few run at a time, or a share of those that wait: what waits
//! to be closed keeps its descriptor. When none ends for some milliseconds, it doubles their
//! number.

use crate::fork::OwnerProcess;
use crate::thread::{SYSTEM_CALL_STACK, start_thread};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How many calls run at a time while they end.
const BASE_CALLS: usize = 4;
/// One more runs at a time for so many that wait.
const WAITING_FOR_EACH: usize = 4;
/// The most calls at a time. Beyond that, calls wait until one ends.
const MOST: usize = 1024;
/// If no call ends for this long, more run.
const RAISE_AFTER: Duration = Duration::from_millis(10);
/// A thread without a call ends after this time.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

type Call = Box<dyn FnOnce() + Send>;

/// Makes a call on another thread, soon and not necessarily in order. If no thread can be started,
/// the caller makes it. A panic of the call is printed and ignored.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// ringway_core::run_in_background(move || sender.send(1).unwrap());
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
pub fn run_in_background(call: impl FnOnce() + Send + 'static) {
    let pool = BackgroundPool::of_this_process();
    let mut state = pool.lock();
    state.queue.push_back(Box::new(call));
    let start = state.needs_thread();
    state.threads += usize::from(start);
    drop(state);
    if start { pool.start() } else { pool.work.notify_one() }
}

struct BackgroundPool {
    owner: OwnerProcess,
    state: Mutex<BackgroundState>,
    /// There is work, or a call has ended.
    work: Condvar,
}

struct BackgroundState {
    queue: VecDeque<Call>,
    /// Threads, including those being started.
    threads: usize,
    /// Those that are making a call.
    calling: usize,
    /// The most that may make one.
    limit: usize,
    /// When a call last ended, or the limit was raised.
    moved: Instant,
}

impl BackgroundState {
    /// Whether calls wait and every thread is making one.
    fn needs_thread(&self) -> bool {
        !self.queue.is_empty() && self.threads == self.calling && self.threads <= MOST
    }

    /// The next call, if one more may run now.
    fn take(&mut self) -> Option<Call> {
        if self.queue.is_empty() {
            self.limit = BASE_CALLS;
            return None;
        }
        let share = (self.queue.len() / WAITING_FOR_EACH).min(MOST);
        if self.calling >= self.limit.max(share) {
            let now = Instant::now();
            if self.calling >= MOST || now < self.moved + RAISE_AFTER {
                return None;
            }
            (self.limit, self.moved) = (self.limit * 2, now);
        }
        self.calling += 1;
        self.queue.pop_front()
    }
}

/// The pool of this process, or the one that it inherited; null before the first use. Pools are
/// never freed.
static CURRENT: AtomicPtr<BackgroundPool> = AtomicPtr::new(ptr::null_mut());

impl BackgroundPool {
    fn new(queue: VecDeque<Call>) -> Self {
        let (owner, work) = (OwnerProcess::current(), Condvar::new());
        let state = BackgroundState {
            queue,
            threads: 0,
            calling: 0,
            limit: BASE_CALLS,
            moved: Instant::now(),
        };
        Self { owner, state: Mutex::new(state), work }
    }

    /// The pool of this process. Takes no lock that a thread of the parent may have held during a
    /// fork.
    fn of_this_process() -> &'static Self {
        let known = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or a pool that was leaked below.
        let inherited = match unsafe { known.as_ref() } {
            Some(pool) if pool.owner.is_current() => return pool,
            inherited => inherited,
        };
        let new = Box::leak(Box::new(Self::new(VecDeque::new())));
        let stored = CURRENT.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire);
        match stored {
            Ok(_) => {
                // (Unless a thread held the lock during the fork; then the calls are lost here.)
                if let Some(inherited) = inherited.and_then(Self::try_lock).as_deref_mut() {
                    new.lock().queue.append(&mut inherited.queue);
                }
                new
            }
            // SAFETY: another thread of this process stored the pool that it had leaked.
            Err(other) => unsafe { &*other },
        }
    }

    fn lock(&self) -> MutexGuard<'_, BackgroundState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, BackgroundState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Starts a thread that is counted already. If that fails and there is no other, the caller
    /// makes the calls.
    fn start(&'static self) {
        if start_thread(c"ringway-close", SYSTEM_CALL_STACK, || self.run()).is_ok() {
            return;
        }
        let mut state = self.lock();
        state.threads -= 1;
        let calls =
            if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        calls.into_iter().for_each(make);
    }

    /// Runs a thread.
    fn run(&'static self) {
        let mut state = self.lock();
        loop {
            if let Some(call) = state.take() {
                let start = state.needs_thread();
                state.threads += usize::from(start);
                drop(state);
                if start {
                    self.start();
                }
                make(call);
                state = self.lock();
                state.calling -= 1;
                state.moved = Instant::now();
                continue;
            }
            let is_idle = state.queue.is_empty();
            let time = if is_idle { KEEP_ALIVE } else { RAISE_AFTER };
            let (awake, waited) =
                self.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
            state = awake;
            if is_idle && waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

fn make(call: Call) {
    // The panic hook has already reported a panic.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Hundreds of calls that hang delay another one by some milliseconds for each doubling.
    #[test]
    fn calls_that_hang_delay_no_other() {
        let (release, released) = channel::<()>();
        let released = std::sync::Arc::new(Mutex::new(released));
        for _ in 0..300 {
            let released = released.clone();
            run_in_background(move || {
                drop(released.lock().map(|released| released.recv()));
            });
        }
        let (done, is_done) = channel();
        run_in_background(move || done.send(()).unwrap());
        is_done.recv_timeout(Duration::from_secs(20)).expect("it waits for those that hang");
        drop(release);
    }

    /// The more calls wait, the more are made at a time, though all of them end: what waits keeps
    /// its descriptor.
    #[test]
    fn a_backlog_is_worked_off_by_more_threads() {
        let call = || Box::new(|| ()) as Call;
        let queue = (0..400).map(|_| call()).collect();
        let moved = Instant::now() + Duration::from_secs(60);
        let mut state = BackgroundState { queue, threads: 0, calling: 0, limit: BASE_CALLS, moved };
        let taken = std::iter::from_fn(|| state.take()).count();
        assert!((60..=100).contains(&taken), "{taken} at a time of 400");
        state.queue.truncate(3);
        assert!(state.take().is_none());
        state.calling = BASE_CALLS - 1;
        assert!(state.take().is_some());
    }

    #[test]
    fn every_call_is_made() {
        run_in_background(|| panic!("a test of a panic"));
        let (done, is_done) = channel();
        for number in 0..1000 {
            let done = done.clone();
            run_in_background(move || done.send(number).unwrap());
        }
        drop(done);
        let mut numbers: Vec<_> = is_done.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }
}
