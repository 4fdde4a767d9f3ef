//! `ringway_warm`: brings what the page cache lacks of many ranges into it and waits for that.

use crate::abi::{self, Range};
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_return_value};
use crate::queue_handle::{QueueHandle, handle_mut};
use crate::waited_reads::WaitedReads;
use libc::c_int;
use ringway_core::{File, MissingPages, PageScan, op};

/// Reads in flight at once.
const MOST_READS: usize = 64;

/// `ringway_warm`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`]. `ranges` is null or
/// valid for reads and writes of `count` elements. Their buffers are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_warm(
    queue: *mut QueueHandle,
    ranges: *mut Range,
    count: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    if count == 0 {
        return 0;
    }
    if ranges.is_null() {
        return Failure::new(libc::EINVAL, "warm: the array of ranges is NULL").report();
    }
    // SAFETY: the queue and the array are valid, and no callback runs before this returns.
    let (handle, ranges) =
        unsafe { (handle_mut(queue), std::slice::from_raw_parts_mut(ranges, count)) };
    to_return_value(warm(handle, ranges))
}

fn warm(handle: &mut QueueHandle, ranges: &mut [Range]) -> Result<usize, Failure> {
    handle.check()?;
    let known = abi::RANGE_DIRECT | abi::RANGE_BUFFERED;
    if ranges.iter().any(|range| range.flags & !known != 0) {
        return Err(Failure::new(libc::EINVAL, "warm: a range has unknown flags"));
    }
    if handle.queue.is_closed() {
        return Err(Failure::new(libc::ESHUTDOWN, ringway_core::Reason::Closed));
    }
    if handle.queue.free_slots() == 0 {
        return Err(Failure::full());
    }
    // Those that are not reached, if the backend fails.
    for range in &mut *ranges {
        range.result = -i64::from(libc::ECANCELED);
    }
    // One scan for ranges of one file that follow each other.
    for ranges in ranges.chunk_by_mut(|one, next| one.fd == next.fd) {
        warm_file(handle, ranges)?;
    }
    Ok(ranges.iter().filter(|range| range.result < 0).count())
}

/// Pages that could not be read, in order.
#[derive(Default)]
struct Unread {
    pages: Vec<std::ops::Range<u64>>,
    /// Minus the errno of each.
    errors: Vec<i64>,
}

impl Unread {
    fn push(&mut self, pages: std::ops::Range<u64>, error: i64) {
        match (self.pages.last_mut(), self.errors.last()) {
            (Some(last), Some(before)) if last.end == pages.start && *before == error => {
                last.end = pages.end;
            }
            _ => {
                self.pages.push(pages);
                self.errors.push(error);
            }
        }
    }

    /// The error of the first pages that are in a range.
    fn within(&self, start: u64, end: u64) -> Option<i64> {
        if start >= end {
            return None;
        }
        let first = self.pages.partition_point(|pages| pages.end <= start);
        self.pages.get(first).filter(|pages| pages.start < end).map(|_| self.errors[first])
    }
}

/// Warms ranges of one file, and sets their results. Errors: the backend has failed.
fn warm_file(handle: &mut QueueHandle, ranges: &mut [Range]) -> Result<(), Failure> {
    let file = handle.files.get(ranges[0].fd).ok_or(libc::EBADF);
    let (file, len) = match file.and_then(|file| length(&file).map(|len| (file, len))) {
        Ok(found) => found,
        Err(errno) => {
            for range in ranges {
                range.result = -i64::from(errno);
            }
            return Ok(());
        }
    };
    let ends = |range: &Range| range.offset.saturating_add(range.length);
    let wanted = ranges.iter().map(|range| range.offset..ends(range));
    // SAFETY: `sysconf` takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let mut scan = PageScan::new(wanted, len, page);
    let mut unread = Unread::default();
    loop {
        let missing = missing(&file, &mut scan);
        if missing.is_empty() {
            break;
        }
        let mut results = vec![-i64::from(libc::EIO); missing.len()];
        read(handle, &file, &missing, &mut results)?;
        for (pages, result) in missing.into_iter().zip(results) {
            if result < 0 {
                unread.push(pages, result);
            }
        }
    }
    for range in ranges {
        let (start, end) = (range.offset.min(len), ends(range).min(len));
        range.result = unread.within(start, end).unwrap_or((end - start) as i64);
    }
    Ok(())
}

/// The length of a file that can be warmed. Errors: the errno.
fn length(file: &File) -> Result<u64, c_int> {
    let metadata = file
        .with_std(std::fs::File::metadata)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    // Direct reads do not use the page cache.
    if metadata.is_file() && !file.is_direct() { Ok(metadata.len()) } else { Err(libc::EINVAL) }
}

/// Continues a scan until there are enough reads, or to its end. Returns the pages of each read.
fn missing(file: &File, scan: &mut PageScan) -> Vec<std::ops::Range<u64>> {
    let mut reads = Vec::new();
    // (A missing page takes up to two reads.)
    while reads.len() + 1 < MOST_READS
        && let Some(probe) = scan.probe()
    {
        let cached = file.read_now_partly(&mut [0; 2][..probe.len], probe.offset);
        let Some(MissingPages { first, rest, .. }) = scan.advance(cached) else { continue };
        // (The first page whole, since some of its blocks may be there.)
        reads.extend([first, rest].into_iter().filter(|pages| !pages.is_empty()));
    }
    reads
}

/// Makes reads, as many at a time as the queue has free slots. Errors: the backend has failed.
fn read(
    handle: &mut QueueHandle,
    file: &File,
    missing: &[std::ops::Range<u64>],
    results: &mut [i64],
) -> Result<(), Failure> {
    let mut reads = WaitedReads::default();
    let mut set = |number: usize, result| {
        if let Some(read) = results.get_mut(number) {
            *read = result;
        }
    };
    let mut done = Ok(());
    for (number, pages) in missing.iter().enumerate() {
        if handle.queue.free_slots() == 0 {
            done = reads.wait(handle, 1, &mut set);
        }
        if done.is_err() {
            break;
        }
        let operation = op::read_discard(file, pages.start, (pages.end - pages.start) as usize);
        if let Err(refused) = reads.push(handle, operation, number) {
            set(number, refused);
        }
    }
    match done.and_then(|()| reads.wait_all(handle, &mut set)) {
        Ok(()) => Ok(()),
        Err(error) => Err(reads.give_up(handle, "warm", error, &mut set)),
    }
}
