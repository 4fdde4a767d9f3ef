//! Giving way: a task whose data is all there must let others run now and then.
//!
//! Whoever copies data in a poll asks here first. A task gives way after about 256 KiB, and when
//! tokio's cooperative budget is used up. Under tokio it gives way as `yield_now` does: the runtime
//! looks at its timers and its I/O before the task runs again.

use std::cell::Cell;
use std::task::{Context, Poll};

/// The most bytes to copy between two calls of [`poll_proceed`]: some tens of microseconds' work.
pub(crate) const COPY_STEP: usize = 256 << 10;
/// A system call costs about as much as to copy this many bytes.
const CALL: usize = 2 << 10;
/// The same for a call that makes no system call.
const CHEAP: usize = 64;

#[cfg(feature = "tokio")]
type Task = Option<tokio::task::Id>;
#[cfg(not(feature = "tokio"))]
type Task = Option<()>;

/// What a thread may do before its task gives way.
struct Allowance {
    /// Bytes.
    left: Cell<usize>,
    /// Whose allowance that is. Where tasks have no names, all of a thread share one.
    task: Cell<Task>,
    /// Nobody can be told to come back: work is counted, and not stopped.
    only_counts: Cell<bool>,
}

thread_local! {
    static ALLOWANCE: Allowance =
        const { Allowance { left: Cell::new(COPY_STEP), task: Cell::new(None), only_counts: Cell::new(false) } };
}

/// Before a system call that copies `bytes`, at most [`COPY_STEP`]. Pending, and woken soon, where the
/// task has had enough.
#[inline]
pub(crate) fn poll_proceed(cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
    proceed(cx, bytes.max(CALL), true)
}

/// As [`poll_proceed`], before a copy within the program's memory. It uses nothing of tokio's budget,
/// since a caller may copy a few bytes at a time; but it gives way when there is none left.
#[inline]
pub(crate) fn poll_proceed_in_memory(cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
    proceed(cx, bytes.max(CHEAP), false)
}

/// Before something that may be over at once, and then is [counted](charge_call).
#[inline]
pub(crate) fn poll_may_proceed(cx: &mut Context<'_>) -> Poll<()> {
    proceed(cx, 0, false)
}

/// A system call was made that did not wait.
#[inline]
pub(crate) fn charge_call(cx: &mut Context<'_>) {
    ALLOWANCE.with(|allowance| allowance.left.set(allowance.left.get().saturating_sub(CALL)));
    let _ = budget(cx, true);
}

/// Polls a future whose waker wakes nobody: what it does is counted, and it does not give way.
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

fn proceed(cx: &mut Context<'_>, cost: usize, is_call: bool) -> Poll<()> {
    ALLOWANCE.with(|allowance| {
        let task = this_task();
        if allowance.task.replace(task) != task {
            allowance.left.set(COPY_STEP);
        }
        let left = allowance.left.get();
        if !allowance.only_counts.get() {
            if left == 0 {
                allowance.left.set(COPY_STEP);
                yield_task(cx);
                return Poll::Pending;
            }
            std::task::ready!(budget(cx, is_call));
        }
        allowance.left.set(left.saturating_sub(cost));
        Poll::Ready(())
    })
}

#[cfg(feature = "tokio")]
fn this_task() -> Task {
    tokio::task::try_id()
}

#[cfg(not(feature = "tokio"))]
fn this_task() -> Task {
    None
}

/// tokio wakes it when it has run the other tasks that are ready and looked at its timers and its
/// I/O; elsewhere it is woken at once.
fn yield_task(cx: &mut Context<'_>) {
    #[cfg(feature = "tokio")]
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
    #[cfg(not(feature = "tokio"))]
    cx.waker().wake_by_ref();
}

/// tokio's budget of the task. What is not a system call is not charged.
#[cfg(feature = "tokio")]
fn budget(cx: &mut Context<'_>, is_call: bool) -> Poll<()> {
    tokio::task::coop::poll_proceed(cx).map(|unit| {
        if is_call {
            unit.made_progress();
        }
    })
}

#[cfg(not(feature = "tokio"))]
fn budget(_: &mut Context<'_>, _: bool) -> Poll<()> {
    Poll::Ready(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// How many in a row before a task gives way.
    fn row(mut ask: impl FnMut(&mut Context<'_>) -> Poll<()>) -> usize {
        ALLOWANCE.with(|allowance| allowance.left.set(COPY_STEP));
        let mut cx = Context::from_waker(Waker::noop());
        (0..10_000).take_while(|_| ask(&mut cx).is_ready()).count()
    }

    #[test]
    fn large_reads_give_way_sooner() {
        assert_eq!(row(|cx| poll_proceed(cx, 0)), 128);
        assert_eq!(row(|cx| poll_proceed(cx, 4096)), 64);
        assert_eq!(row(|cx| poll_proceed(cx, 64 << 10)), 4);
        assert_eq!(row(|cx| poll_proceed(cx, COPY_STEP)), 1);
        assert_eq!(row(|cx| poll_proceed(cx, usize::MAX)), 1);
        assert_eq!(row(|cx| poll_proceed_in_memory(cx, 1)), 4096);
        assert_eq!(row(|cx| poll_proceed_in_memory(cx, COPY_STEP)), 1);
    }

    #[test]
    fn what_nobody_waits_for_is_counted_and_not_stopped() {
        assert_eq!(row(|cx| without_yielding(|| poll_proceed(cx, COPY_STEP))), 10_000);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(poll_proceed(&mut cx, 0).is_pending(), "it was counted");
        assert!(poll_proceed(&mut cx, 0).is_ready());
    }

    #[cfg(feature = "tokio")]
    #[tokio::test]
    async fn tokios_budget_counts() {
        let ready = std::future::poll_fn(|cx| {
            ALLOWANCE.with(|allowance| {
                allowance.task.set(this_task());
                allowance.left.set(usize::MAX);
            });
            while tokio::task::coop::has_budget_remaining() {
                assert!(poll_proceed_in_memory(cx, 1).is_ready());
                assert!(poll_proceed(cx, 0).is_ready(), "there was budget left");
            }
            let ready = (poll_proceed(cx, 0).is_ready(), poll_proceed_in_memory(cx, 0).is_ready());
            Poll::Ready(ready)
        });
        assert_eq!(tokio::spawn(ready).await.unwrap(), (false, false));
    }
}
