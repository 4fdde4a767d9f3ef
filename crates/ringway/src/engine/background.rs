//! Futures that no task polls: their own wakers do, on the threads that reap completions.

use super::coop::without_yielding;
use super::sync::{AtomicU8, Mutex, Ordering, lock};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Runs a future to its end, whoever is dropped meanwhile. It must not block: the first poll is on
/// this thread, and the others are on the threads that reap its operations.
///
/// In a child that was forked meanwhile, the future is never polled again.
pub(crate) fn run_in_background(future: impl Future<Output = ()> + Send + 'static) {
    let future: BoxedFuture = Box::pin(future);
    Arc::new(Background { future: Mutex::new(Some(future)), state: AtomicU8::new(QUEUED) }).run();
}

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Background {
    /// `None` once it has ended.
    future: Mutex<Option<BoxedFuture>>,
    state: AtomicU8,
}

/// It waits for its waker.
const WAITING: u8 = 0;
/// It is to be polled.
const QUEUED: u8 = 1;
/// It is being polled.
const POLLED: u8 = 2;
/// It is being polled, and its waker was called since the poll began.
const WOKEN: u8 = 3;

thread_local! {
    /// The futures to poll once the current poll has ended; `None` while none is polled. A poll may
    /// reap the completions of others: without this, their polls would nest without a bound.
    static NEXT: RefCell<Option<VecDeque<Arc<Background>>>> = const { RefCell::new(None) };
}

impl Background {
    /// Polls the future now, or after the one that this thread polls.
    fn run(self: Arc<Self>) {
        let mut own = Some(self);
        let nested = NEXT.try_with(|next| match &mut *next.borrow_mut() {
            Some(queue) => {
                queue.extend(own.take());
                true
            }
            none => {
                *none = Some(VecDeque::new());
                false
            }
        });
        while let Some(task) = own {
            task.poll();
            own = NEXT.try_with(|next| next.borrow_mut().as_mut()?.pop_front()).ok().flatten();
        }
        if nested == Ok(false) {
            let _ = NEXT.try_with(|next| next.replace(None));
        }
    }

    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            self.state.store(POLLED, Ordering::SeqCst);
            let mut future = lock(&self.future);
            let Some(running) = &mut *future else { return };
            let poll = || running.as_mut().poll(&mut Context::from_waker(&waker));
            // The panic hook has already reported a panic.
            match catch_unwind(AssertUnwindSafe(|| without_yielding(poll))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) | Err(_) => {
                    let ended = future.take();
                    drop(future);
                    // It may panic, too: this thread would then poll no future any more.
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
                    return;
                }
            }
            drop(future);
            let exchanged =
                self.state.compare_exchange(POLLED, WAITING, Ordering::SeqCst, Ordering::SeqCst);
            if exchanged.is_ok() {
                return;
            }
        }
    }
}

impl Wake for Background {
    fn wake(self: Arc<Self>) {
        let wake = |state| match state {
            WAITING => Some(QUEUED),
            POLLED => Some(WOKEN),
            _ => None,
        };
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, wake) == Ok(WAITING) {
            self.run();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    /// A future that counts its polls, wakes itself a number of times, and then ends.
    fn counted(polls: &Arc<AtomicUsize>, wakes: usize) -> impl Future<Output = ()> + use<> {
        let (polls, mut left) = (Arc::clone(polls), wakes);
        poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn a_future_is_polled_as_often_as_it_is_woken() {
        let polls = Arc::default();
        run_in_background(counted(&polls, 3));
        assert_eq!(polls.load(Ordering::SeqCst), 4);
    }

    /// However many wake each other: this would overflow the stack.
    #[test]
    fn polls_do_not_nest() {
        fn start(left: usize, ended: Arc<AtomicUsize>) -> BoxedFuture {
            Box::pin(async move {
                if left > 0 {
                    run_in_background(start(left - 1, Arc::clone(&ended)));
                }
                ended.fetch_add(1, Ordering::SeqCst);
            })
        }
        let ended = Arc::default();
        run_in_background(start(100_000, Arc::clone(&ended)));
        assert_eq!(ended.load(Ordering::SeqCst), 100_001);
    }

    #[test]
    fn a_panic_harms_no_other() {
        let polls: Arc<AtomicUsize> = Arc::default();
        let other = counted(&polls, 1);
        run_in_background(async move {
            run_in_background(other);
            panic!("a panic in the background");
        });
        assert_eq!(polls.load(Ordering::SeqCst), 2);
        run_in_background(counted(&polls, 0));
        assert_eq!(polls.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_panic_of_a_drop_harms_no_other() {
        struct PanicsOnDrop;
        impl Drop for PanicsOnDrop {
            fn drop(&mut self) {
                panic!("a panic of a drop in the background");
            }
        }
        let held = PanicsOnDrop;
        run_in_background(poll_fn(move |_| {
            let _held = &held;
            Poll::Ready(())
        }));
        let polls = Arc::default();
        run_in_background(counted(&polls, 0));
        assert_eq!(polls.load(Ordering::SeqCst), 1);
    }
}
