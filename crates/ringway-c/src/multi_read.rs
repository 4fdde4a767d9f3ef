//! `ringway_multi_read`: reads many ranges concurrently and waits for all of them.

use crate::abi::{self, Range};
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_result, to_return_value};
use crate::queue_handle::{QueueHandle, handle_mut};
use libc::c_int;
use ringway_core::{File, Operation, op};
use std::io;
use std::thread;
use std::time::Duration;

/// Marks the user data of these reads, which otherwise is the index of the range. Numbers of
/// records never have this bit.
const MULTI_READ: u64 = 1 << 63;

/// How often a wait that fails with ENOMEM is retried, a millisecond apart.
const ENOMEM_RETRIES: u32 = 100;

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
    let mut in_flight = 0;
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
        if handle.queue.free_slots() == 0
            && let Err(error) = wait(handle, ranges, 1, &mut in_flight)
        {
            for range in ranges[index..].iter_mut() {
                range.result = -i64::from(libc::ECANCELED);
            }
            return Err(give_up(handle, ranges, error));
        }
        push(handle, &mut ranges[index], index, file, &mut in_flight);
    }
    wait(handle, ranges, in_flight, &mut in_flight)
        .map_err(|error| give_up(handle, ranges, error))?;
    Ok(ranges.iter().filter(|range| range.result < 0).count())
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
    in_flight: &mut usize,
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
    match handle.queue.push(operation.exact().user_data(MULTI_READ | index as u64)) {
        Ok(_) => {
            range.result = -i64::from(libc::EINPROGRESS);
            *in_flight += 1;
        }
        Err(error) => range.result = -i64::from(error.reason().errno()),
    }
}

/// Waits for `some` of the reads in flight. Errors: the backend has failed.
fn wait(
    handle: &mut QueueHandle,
    ranges: &mut [Range],
    some: usize,
    in_flight: &mut usize,
) -> io::Result<()> {
    let before = *in_flight;
    let mut retries = ENOMEM_RETRIES;
    while before - *in_flight < some {
        let missing = some - (before - *in_flight);
        match take(handle, ranges, missing, in_flight) {
            // The kernel is out of memory at the moment.
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && retries > 0 => {
                retries -= 1;
                thread::sleep(Duration::from_millis(1));
            }
            reaped => reaped?,
        }
    }
    Ok(())
}

fn take(
    handle: &mut QueueHandle,
    ranges: &mut [Range],
    missing: usize,
    in_flight: &mut usize,
) -> io::Result<()> {
    handle.queue.reap_matching(
        missing,
        |number| number & MULTI_READ != 0,
        |done| {
            *in_flight -= 1;
            if let Some(range) = ranges.get_mut((done.user_data & !MULTI_READ) as usize) {
                range.result = to_result(done.result);
            }
        },
    )
}

/// Closes the queue after the backend has failed, so that the kernel releases the buffers. Ranges
/// that it still uses keep EINPROGRESS.
fn give_up(handle: &mut QueueHandle, ranges: &mut [Range], error: io::Error) -> Failure {
    // If this fails, so does the reap below.
    let _ = handle.queue.close(handle.close_wait);
    let mut in_flight = ranges.len();
    let _ = take(handle, ranges, 0, &mut in_flight);
    Failure::new(
        libc::EIO,
        format_args!("multi_read: the backend has failed and the queue is closed: {error}"),
    )
}
