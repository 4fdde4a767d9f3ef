//! Ranges of a file as a stream: a bounded number of reads in flight, and each range yielded when
//! its read has completed.
//!
//! Ranges are taken from the iterator and planned one window at a time. The reads of a window
//! follow those of the previous one without a pause. Each read in flight has its own waker, which
//! records the read's number, so a poll looks only at completed reads.

use super::eager::Eager;
use crate::Block;
use crate::align::enclose;
use crate::engine::{COPY_STEP, poll_proceed, poll_proceed_in_memory, without_yielding};
use crate::fs::File;
use crate::fs::pooled::{PlannedStart, clone_error};
use crate::ranges::{Coalesce, IndexedRange, PlanWindow, SharedRead};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

/// The default number of reads in flight.
const DEFAULT_READS: usize = 32;
/// The most reads in flight.
const MAX_READS: usize = 1024;
/// The default limit of memory, in bytes.
const DEFAULT_BYTES: usize = 64 << 20;
/// The least number of ranges that are planned together: as many as one poll may sort without
/// delaying other tasks.
const MIN_WINDOW: usize = 256;

/// Reads ranges of a file with many reads in flight, and yields each range when it has been read.
/// From [`File::read_ranges_stream`].
///
/// With the feature `futures` it is a `futures_core::Stream`; [`next`](Self::next) works without
/// it.
///
/// - **Depth.** Up to [`depth`](Self::depth) reads are in flight. When one completes the next one
///   starts, so the device never idles between batches. Reads start when the stream is polled.
/// - **Order.** Ranges are yielded as their reads complete. [`RangeRead::index`] identifies the
///   range.
/// - **Memory.** Reads in flight and ranges not yet yielded take at most
///   [`max_bytes`](Self::max_bytes), or a single read if that is larger. A slow consumer delays
///   reads; it does not increase memory use.
/// - **Coalescing.** Nearby ranges are coalesced as in [`File::read_ranges`], among those that are
///   planned together: 256 ranges, or four times the depth if that is more. Sorted ranges coalesce
///   best.
/// - **Errors.** Each range has its own result, and the stream continues after an error. Ranges
///   that share a read share its error.
/// - **Cached ranges** are copied when the stream reaches them, without a request to the kernel's
///   ring.
///
/// Dropping the stream cancels its reads. Their buffers are freed once the kernel no longer uses
/// them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let file = ringway::fs::File::open("/etc/passwd").await?;
/// let ranges = (0..8).map(|part| part * 100..(part + 1) * 100);
/// let mut ranges = file.read_ranges_stream(ranges).depth(4);
/// let mut bytes = 0;
/// while let Some(read) = ranges.next().await {
///     let block = read.result?;
///     println!("range {} at {}: {} bytes", read.index, read.range.start, block.len());
///     bytes += block.len();
/// }
/// assert_eq!(bytes as u64, file.metadata().await?.len().min(800));
/// # Ok(()) }
/// ```
#[must_use = "nothing is read before the stream is polled"]
pub struct RangeStream<I> {
    file: File,
    ranges: I,
    has_ended: bool,
    /// The index of the next range.
    index: usize,
    coalesce: Coalesce,
    depth: usize,
    max_bytes: usize,
    window: Option<PlanWindow>,
    /// The next read, if there was no memory for it.
    next: Option<SharedRead>,
    /// Reads in flight, by number.
    slots: Vec<ReadSlot>,
    /// Unused numbers.
    free: Vec<usize>,
    /// Bytes of the reads in flight and of `ready_items`.
    bytes: usize,
    /// Ranges to be yielded.
    ready_items: VecDeque<RangeRead>,
    /// Bytes of the reads that `ready_items` belong to.
    ready_bytes: usize,
    /// Numbers of reads that have completed, or may have.
    completed: VecDeque<usize>,
    completions: Arc<CompletionSet>,
}

/// The result of one range of a [`RangeStream`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RangeRead {
    /// The index of the range: how many came before it from the iterator.
    pub index: usize,
    /// The range, as it came from the iterator.
    pub range: Range<u64>,
    /// The bytes: fewer if the file ends within the range, none if it ends before. Errors: those of
    /// [`File::read`].
    pub result: io::Result<Block>,
}

struct ReadSlot {
    waker: Waker,
    read: Option<ReadInFlight>,
}

struct ReadInFlight {
    block: Eager<io::Result<Block>>,
    shared: SharedRead,
}

/// Nothing in it is pinned: reads in flight are boxed, and the iterator is used through `&mut`.
impl<I> Unpin for RangeStream<I> {}

impl<I> RangeStream<I> {
    pub(crate) fn new(file: File, ranges: I) -> Self {
        Self {
            file,
            ranges,
            has_ended: false,
            index: 0,
            coalesce: Coalesce::default(),
            depth: DEFAULT_READS,
            max_bytes: DEFAULT_BYTES,
            window: None,
            next: None,
            slots: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            ready_items: VecDeque::new(),
            ready_bytes: 0,
            completed: VecDeque::new(),
            completions: Arc::default(),
        }
    }

    /// Sets the number of reads in flight: 1 to 1024, 32 by default.
    pub fn depth(mut self, reads: usize) -> Self {
        self.depth = reads.clamp(1, MAX_READS);
        self
    }

    /// Sets which ranges are coalesced. Default: [`Coalesce::default`].
    pub fn coalesce(mut self, coalesce: Coalesce) -> Self {
        self.coalesce = coalesce;
        self
    }

    /// Sets the most bytes in flight, or read and not yet yielded. Default 64 MiB. A larger read is
    /// made alone. Yielded blocks do not count.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }
}

impl<I: Iterator<Item = Range<u64>>> RangeStream<I> {
    /// Returns the next range that has been read; `None` if there are no more.
    ///
    /// If the future is dropped, no range is lost: the reads stay in flight, and the next call
    /// continues.
    pub async fn next(&mut self) -> Option<RangeRead> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<RangeRead>> {
        self.completions.stop_waiting();
        loop {
            ready!(self.begin_reads(cx));
            if !self.ready_items.is_empty() {
                // Ranges that need no read may be endless.
                ready!(poll_proceed_in_memory(cx, 0));
            }
            if let Some(item) = self.ready_items.pop_front() {
                return Poll::Ready(Some(item));
            }
            if let Some(number) = self.next_completed() {
                self.end_read(number);
                if self.slots[number].read.is_some() && self.completions.has(number) {
                    // The read may have signalled itself in order to yield; poll it again after
                    // other tasks.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.free.len() == self.slots.len() {
                return Poll::Ready(None);
            }
            self.completions.wait(cx.waker());
            if !self.completions.is_any() {
                return Poll::Pending;
            }
        }
    }

    /// Starts reads while there is capacity and nothing to yield. Pending if the task must yield
    /// first; it is then woken.
    fn begin_reads(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.ready_items.is_empty() {
            self.bytes -= std::mem::take(&mut self.ready_bytes);
            if self.slots.len() - self.free.len() == self.depth {
                break;
            }
            let Some(shared) = self.next.take().or_else(|| self.plan_read()) else { break };
            let len = shared.read.len();
            let is_idle = self.free.len() == self.slots.len();
            if !is_idle && self.bytes.saturating_add(len) > self.max_bytes {
                self.next = Some(shared);
                break;
            }
            let copied = if self.file.is_direct() { 0 } else { len.min(COPY_STEP) };
            if poll_proceed(cx, copied).is_pending() {
                self.next = Some(shared);
                return Poll::Pending;
            }
            self.bytes += len;
            self.begin_read(shared);
        }
        Poll::Ready(())
    }

    fn begin_read(&mut self, shared: SharedRead) {
        let offset = shared.read.start;
        let buffer = match self.file.begin_planned(&shared.read) {
            Ok(PlannedStart::Missed(buffer)) => buffer,
            Ok(PlannedStart::Cached(block)) => return self.push_ready(shared, Ok(block)),
            Err(error) => return self.push_ready(shared, Err(error)),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            let waker = CompletionSet::waker(&self.completions, self.slots.len());
            self.slots.push(ReadSlot { waker, read: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[number];
        let future = self.file.clone().end_planned(buffer, offset);
        let mut cx = Context::from_waker(&slot.waker);
        // The task has just yielded if it had to; only a long read copies more than was charged.
        let block = if shared.read.len() <= COPY_STEP {
            without_yielding(|| Eager::new(future, &mut cx))
        } else {
            Eager::new(future, &mut cx)
        };
        if block.is_over() {
            self.completed.push_back(number);
        }
        slot.read = Some(ReadInFlight { block, shared });
    }

    /// Polls a read, and makes its ranges ready if it has completed.
    fn end_read(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        let Some(read) = &mut slot.read else { return };
        if let Poll::Ready(result) = read.block.poll(&mut Context::from_waker(&slot.waker))
            && let Some(ReadInFlight { shared, .. }) = slot.read.take()
        {
            self.free.push(number);
            self.push_ready(shared, result);
        }
    }

    fn push_ready(&mut self, shared: SharedRead, result: io::Result<Block>) {
        self.ready_bytes += shared.read.len();
        let items = shared.parts.into_iter().map(|(IndexedRange { index, range }, part)| {
            let result = result
                .as_ref()
                .map(|block| block.slice(part.within(block.len())))
                .map_err(clone_error);
            RangeRead { index, range, result }
        });
        self.ready_items.extend(items);
    }

    /// Plans the next read. Ranges that need none become ready on the way.
    fn plan_read(&mut self) -> Option<SharedRead> {
        loop {
            if let Some(shared) = self.window.as_mut().and_then(PlanWindow::next_read) {
                return Some(shared);
            }
            self.window = None;
            if self.has_ended || !self.ready_items.is_empty() {
                return None;
            }
            self.plan_window();
        }
    }

    fn plan_window(&mut self) {
        let align = self.file.granularity();
        let mut ranges = Vec::new();
        for _ in 0..MIN_WINDOW.max(4 * self.depth) {
            let Some(range) = self.ranges.next() else {
                self.has_ended = true;
                break;
            };
            let index = self.index;
            self.index += 1;
            let result = match enclose(&range, align) {
                Ok(_) if !range.is_empty() => {
                    ranges.push(IndexedRange { index, range });
                    continue;
                }
                Ok(_) => Ok(Block::default()),
                Err(why) => Err(why.into()),
            };
            self.ready_items.push_back(RangeRead { index, range, result });
        }
        match PlanWindow::new(ranges, &self.coalesce, align) {
            Ok(window) => self.window = Some(window),
            Err(why) => unreachable!("each range was checked: {why}"),
        }
    }

    /// Returns a read that has completed, or may have.
    fn next_completed(&mut self) -> Option<usize> {
        if self.completed.is_empty() {
            // In a forked child nothing completes; reads of the parent return an error when they
            // are polled.
            if self.file.engine().inner.is_current() {
                self.completions.take(&mut self.completed);
            } else {
                self.completed.extend(
                    (0..self.slots.len()).filter(|number| self.slots[*number].read.is_some()),
                );
            }
        }
        self.completed.pop_front()
    }
}

/// Which reads have completed, and the task that waits for one.
#[derive(Default)]
struct CompletionSet {
    /// A bit for each read.
    completed: [AtomicU64; MAX_READS / 64],
    /// Set after a waker is stored. Whoever clears it takes the waker.
    is_waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// The waker of one read.
struct ReadWaker {
    number: usize,
    completions: Arc<CompletionSet>,
}

impl Wake for ReadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.completions.completed[self.number / 64]
            .fetch_or(1 << (self.number % 64), Ordering::SeqCst);
        if self.completions.is_waiting.swap(false, Ordering::SeqCst) {
            let waker = self.completions.waker_of_task().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl CompletionSet {
    fn waker(this: &Arc<Self>, number: usize) -> Waker {
        Arc::new(ReadWaker { number, completions: Arc::clone(this) }).into()
    }

    /// Lets the next completion wake this waker. Check for earlier completions after calling this.
    fn wait(&self, waker: &Waker) {
        let mut kept = self.waker_of_task();
        let old = match &*kept {
            Some(kept) if kept.will_wake(waker) => None,
            _ => kept.replace(waker.clone()),
        };
        drop(kept);
        drop(old);
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    /// Completions wake no task while the stream looks at its reads.
    fn stop_waiting(&self) {
        self.is_waiting.store(false, Ordering::SeqCst);
    }

    fn has(&self, number: usize) -> bool {
        self.completed[number / 64].load(Ordering::SeqCst) & (1 << (number % 64)) != 0
    }

    fn is_any(&self) -> bool {
        self.completed.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Moves the numbers of completed reads to `numbers`.
    fn take(&self, numbers: &mut VecDeque<usize>) {
        for (index, word) in self.completed.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                numbers.push_back(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    fn waker_of_task(&self) -> MutexGuard<'_, Option<Waker>> {
        // Either there is a waker or not: a panic elsewhere did no damage.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
