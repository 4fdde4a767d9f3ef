//! Giving way: a task whose reads are all answered at once must let others run now and then.

use std::cell::Cell;
use std::task::{Context, Poll};

/// What a thread hands out at once, in a row, before a task gives way: one or two tenths of a millisecond's work.
const ALLOWANCE: u32 = 128;
/// Bytes that cost as much time to copy as a call costs beside them.
const BYTES_A_UNIT: usize = 16 << 10;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(ALLOWANCE) };
}

/// Ready most of the time; pending, and woken at once, where a task has had enough in a row. `bytes`: what will be copied now.
#[inline]
pub(crate) fn go_on(cx: &Context<'_>, bytes: usize) -> Poll<()> {
    let cost = u32::try_from(1 + bytes / BYTES_A_UNIT).unwrap_or(u32::MAX);
    LEFT.with(|left| match left.get() {
        0 => {
            left.set(ALLOWANCE);
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        units => {
            left.set(units.saturating_sub(cost));
            Poll::Ready(())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// How many in a row before a task gives way.
    fn row(bytes: usize) -> usize {
        LEFT.with(|left| left.set(ALLOWANCE));
        let cx = Context::from_waker(Waker::noop());
        (0..).take_while(|_| go_on(&cx, bytes).is_ready()).count()
    }

    #[test]
    fn large_reads_give_way_sooner() {
        assert_eq!(row(0), 128);
        assert_eq!(row(4096), 128);
        assert!((20..30).contains(&row(64 << 10)));
        assert_eq!(row(1 << 20), 2);
        assert_eq!(row(usize::MAX), 1);
    }
}
