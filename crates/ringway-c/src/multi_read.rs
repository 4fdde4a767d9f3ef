//! `ringway_multi_read`: reads many ranges concurrently and waits for all of them.

use crate::abi::{self, Range};
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_return_value};
use crate::queue_handle::{QueueHandle, handle_mut};
use crate::waited_reads::WaitedReads;
use libc::c_int;
use ringway_core::{File, Operation, op};

/// `ringway_multi_read`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`]. `ranges` is null or
/// valid for reads and writes of `count` elements, whose buffers are valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_multi_read(
    queue: *mut QueueHandle,
    ranges: *mut Range,
    count: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    if count == 0 {
        return 0;
    }
    if ranges.is_null() {
        return Failure::new(libc::EINVAL, "multi_read: the array of ranges is NULL").report();
    }
    // SAFETY: the queue and the array are valid, and no callback runs before this returns.
    let (handle, ranges) =
        unsafe { (handle_mut(queue), std::slice::from_raw_parts_mut(ranges, count)) };
    to_return_value(read(handle, ranges))
}

fn read(handle: &mut QueueHandle, ranges: &mut [Range]) -> Result<usize, Failure> {
    handle.check()?;
    for range in &*ranges {
        let problem = match range {
            Range { flags, .. } if flags & !(abi::RANGE_DIRECT | abi::RANGE_BUFFERED) != 0 => {
                "a range has unknown flags"
            }
            Range { length, .. } if *length > isize::MAX as u64 => {
                "a range is longer than SSIZE_MAX"
            }
            Range { length, buf, .. } if *length > 0 && buf.is_null() => {
                "a range has a NULL buffer"
            }
            Range { offset, .. } if *offset > i64::MAX as u64 => {
                "a range has an offset beyond INT64_MAX"
            }
            _ => continue,
        };
        return Err(Failure::new(libc::EINVAL, format_args!("multi_read: {problem}")));
    }
    if handle.queue.is_closed() {
        return Err(Failure::new(libc::ESHUTDOWN, ringway_core::Reason::Closed));
    }
    if handle.queue.free_slots() == 0 {
        return Err(Failure::full());
    }
    let mut reads = WaitedReads::default();
    // Held until the next lookup, so that consecutive ranges of one file share one lookup.
    let mut _last = None;
    for index in 0..ranges.len() {
        let range = &mut ranges[index];
        let file = handle.files.get(range.fd);
        if let Some(done) = file.as_ref().and_then(|file| cached(file, range)) {
            range.result = done;
            _last = file;
            continue;
        }
        let waited = if handle.queue.free_slots() == 0 {
            reads.wait(handle, 1, &mut set_results(ranges))
        } else {
            Ok(())
        };
        if let Err(error) = waited {
            for range in ranges[index..].iter_mut() {
                range.result = -i64::from(libc::ECANCELED);
            }
            return Err(reads.give_up(handle, "multi_read", error, &mut set_results(ranges)));
        }
        push(handle, &mut ranges[index], index, file, &mut reads);
    }
    let waited = reads.wait_all(handle, &mut set_results(ranges));
    if let Err(error) = waited {
        return Err(reads.give_up(handle, "multi_read", error, &mut set_results(ranges)));
    }
    Ok(ranges.iter().filter(|range| range.result < 0).count())
}

/// Sets the result of a range. Ranges that the kernel still uses keep EINPROGRESS.
fn set_results(ranges: &mut [Range]) -> impl FnMut(usize, i64) {
    |index, result| {
        if let Some(range) = ranges.get_mut(index) {
            range.result = result;
        }
    }
}

/// Copies a range from the page cache if the file is not open for direct I/O and all of the range
/// is cached.
fn cached(file: &File, range: &mut Range) -> Option<i64> {
    let buffered = match range.flags {
        abi::RANGE_DIRECT => false,
        abi::RANGE_BUFFERED => true,
        _ => file.is_storage() && !file.is_direct(),
    };
    if !buffered || range.length == 0 {
        return None;
    }
    // SAFETY: the caller guarantees `length` writable bytes, which nobody else uses during the
    // call.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(range.buf.cast::<u8>(), range.length as usize) };
    file.read_now(bytes, range.offset).map(|read| read as i64)
}

fn push(
    handle: &mut QueueHandle,
    range: &mut Range,
    index: usize,
    file: Option<File>,
    reads: &mut WaitedReads,
) {
    let read = op::Read {
        fd: range.fd,
        buf: range.buf.cast(),
        len: range.length as usize,
        offset: range.offset,
        flags: op::RwFlags::NONE,
    };
    // SAFETY: the caller keeps buffer and descriptor valid until `ringway_multi_read` returns,
    // which is after all completions. On an error, ranges that the kernel still uses say so.
    let operation = unsafe { Operation::from_raw(read.into(), file, None) };
    range.result = match reads.push(handle, operation, index) {
        Ok(()) => -i64::from(libc::EINPROGRESS),
        Err(refused) => refused,
    };
}
