//! Cooperative yielding: a task that always finds its data ready must let other tasks run.
//!
//! Code that copies data in a poll calls this module first. A task yields after about 256 KiB, or
//! when tokio's cooperative budget is used up. Under tokio it yields as `yield_now` does: the
//! runtime handles its timers and I/O before it runs the task again.
//!
//! None of this uses up tokio's budget. A biased `select!` polls its later branches only when the
//! read yields, and tokio's timers and channels are never ready once the budget is used up: had the
//! reads used it up, a timer in the same task would never fire.

use std::cell::Cell;
use std::task::{Context, Poll};

/// The most bytes to copy between two calls of [`poll_proceed`]: some tens of microseconds of work.
pub(crate) const COPY_STEP: usize = 256 << 10;
/// A system call costs about as much as copying this many bytes.
const CALL: usize = 2 << 10;
/// A call that makes no system call costs about as much as copying this many bytes.
const CHEAP: usize = 64;

#[cfg(feature = "tokio")]
type TaskId = Option<tokio::task::Id>;
#[cfg(not(feature = "tokio"))]
type TaskId = Option<()>;

/// How much work a thread may do before its task yields.
struct Allowance {
    /// Remaining bytes.
    left: Cell<usize>,
    /// The task that this allowance belongs to. Without task IDs, all tasks of a thread share it.
    task: Cell<TaskId>,
    /// Set while the waker wakes no task: work is counted, but nothing yields.
    only_counts: Cell<bool>,
}

thread_local! {
    static ALLOWANCE: Allowance = const {
        Allowance {
            left: Cell::new(COPY_STEP),
            task: Cell::new(None),
            only_counts: Cell::new(false),
        }
    };
}

/// Call this before a system call that copies `bytes`, at most [`COPY_STEP`]. Returns pending, and
/// wakes the task soon, if the task must yield first.
#[inline]
pub(crate) fn poll_proceed(cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
    proceed(cx, bytes.max(CALL))
}

/// As [`poll_proceed`], before a copy within the program's memory, which callers may do a few bytes
/// at a time.
#[inline]
pub(crate) fn poll_proceed_in_memory(cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
    proceed(cx, bytes.max(CHEAP))
}

/// Call this before an operation that may complete at once; then call [`charge_call`].
#[inline]
pub(crate) fn poll_may_proceed(cx: &mut Context<'_>) -> Poll<()> {
    proceed(cx, 0)
}

/// Charges a system call that did not wait.
#[inline]
pub(crate) fn charge_call() {
    ALLOWANCE.with(|allowance| allowance.left.set(allowance.left.get().saturating_sub(CALL)));
}

/// Polls a future whose waker wakes no task: its work is counted, but it does not yield.
pub(crate) fn without_yielding<R>(poll: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALLOWANCE.with(|allowance| allowance.only_counts.set(self.0));
        }
    }
    let _restore = Restore(ALLOWANCE.with(|allowance| allowance.only_counts.replace(true)));
    poll()
}

fn proceed(cx: &mut Context<'_>, cost: usize) -> Poll<()> {
    ALLOWANCE.with(|allowance| {
        let task = this_task();
        if allowance.task.replace(task) != task {
            allowance.left.set(COPY_STEP);
        }
        let left = allowance.left.get();
        if !allowance.only_counts.get() {
            let has_budget = has_budget();
            if left == 0 || !has_budget {
                // Others have used up tokio's budget. The task yields again soon, while there is
                // some left, so that the other branches of its `select!` can be ready.
                allowance.left.set(if has_budget { COPY_STEP } else { CHEAP });
                yield_task(cx);
                return Poll::Pending;
            }
        }
        allowance.left.set(left.saturating_sub(cost));
        Poll::Ready(())
    })
}

#[cfg(feature = "tokio")]
fn this_task() -> TaskId {
    tokio::task::try_id()
}

#[cfg(not(feature = "tokio"))]
fn this_task() -> TaskId {
    None
}

/// Yields. tokio wakes the task after it has run the other ready tasks and handled timers and I/O;
/// without tokio the task is woken at once. So it is in a forked child, which may block on futures
/// within a task of its parent's runtime: that runtime would never wake them.
fn yield_task(cx: &mut Context<'_>) {
    #[cfg(feature = "tokio")]
    if !ringway_core::is_fork() {
        let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
        return;
    }
    cx.waker().wake_by_ref();
}

/// Whether tokio's budget of the task allows more work. In a forked child it may be that of a task
/// of the parent, which nobody restores.
#[cfg(feature = "tokio")]
fn has_budget() -> bool {
    tokio::task::coop::has_budget_remaining() || ringway_core::is_fork()
}

#[cfg(not(feature = "tokio"))]
fn has_budget() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// The number of calls in a row before a task yields.
    fn calls_before_yield(mut call: impl FnMut(&mut Context<'_>) -> Poll<()>) -> usize {
        ALLOWANCE.with(|allowance| allowance.left.set(COPY_STEP));
        let mut cx = Context::from_waker(Waker::noop());
        (0..10_000).take_while(|_| call(&mut cx).is_ready()).count()
    }

    #[test]
    fn large_reads_yield_sooner() {
        assert_eq!(calls_before_yield(|cx| poll_proceed(cx, 0)), 128);
        assert_eq!(calls_before_yield(|cx| poll_proceed(cx, 4096)), 64);
        assert_eq!(calls_before_yield(|cx| poll_proceed(cx, 64 << 10)), 4);
        assert_eq!(calls_before_yield(|cx| poll_proceed(cx, COPY_STEP)), 1);
        assert_eq!(calls_before_yield(|cx| poll_proceed(cx, usize::MAX)), 1);
        assert_eq!(calls_before_yield(|cx| poll_proceed_in_memory(cx, 1)), 4096);
        assert_eq!(calls_before_yield(|cx| poll_proceed_in_memory(cx, COPY_STEP)), 1);
    }

    #[test]
    fn without_yielding_counts_but_does_not_stop() {
        assert_eq!(
            calls_before_yield(|cx| without_yielding(|| poll_proceed(cx, COPY_STEP))),
            10_000
        );
        let mut cx = Context::from_waker(Waker::noop());
        assert!(poll_proceed(&mut cx, 0).is_pending(), "the work was charged");
        assert!(poll_proceed(&mut cx, 0).is_ready());
    }

    /// The reads of a task leave tokio's budget to its timers and channels. When these have used it
    /// up, the reads yield, and once more soon after, while there is some left.
    #[cfg(feature = "tokio")]
    #[tokio::test]
    async fn tokios_budget_is_left_alone() {
        use tokio::task::coop::{has_budget_remaining, poll_proceed as spend};
        let mut polls = 0;
        let yields = std::future::poll_fn(move |cx| {
            polls += 1;
            if polls == 1 {
                assert_eq!(calls_before_yield(|_| poll_proceed(cx, 0)), 128);
                assert!(has_budget_remaining());
                while let Poll::Ready(unit) = spend(cx) {
                    unit.made_progress();
                }
                assert!(
                    poll_proceed(cx, 0).is_pending() && poll_proceed_in_memory(cx, 0).is_pending()
                );
                return Poll::Pending;
            }
            assert!(has_budget_remaining() && poll_proceed(cx, 0).is_ready());
            Poll::Ready(poll_proceed(cx, 0).is_pending() && has_budget_remaining())
        });
        assert!(tokio::spawn(yields).await.unwrap());
    }
}
