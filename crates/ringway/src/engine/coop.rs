//! Giving way: a task whose reads are all answered at once must let others run now and then.

use std::cell::Cell;
use std::task::{Context, Poll};

/// How many results in a row a thread hands out at once before a task gives way.
const ROW: u32 = 128;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(ROW) };
}

/// Ready most of the time; pending, and woken at once, where a task has had enough in a row.
#[inline]
pub(crate) fn go_on(cx: &Context<'_>) -> Poll<()> {
    LEFT.with(|left| match left.get() {
        0 => {
            left.set(ROW);
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        row => {
            left.set(row - 1);
            Poll::Ready(())
        }
    })
}
