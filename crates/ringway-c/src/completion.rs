//! Submits, waits, and delivers completions: to callbacks or into an array.

use crate::abi::Completion;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_result, to_return_value};
use crate::opcode;
use crate::queue_handle::{QueueHandle, handle_mut, handle_ref};
use crate::records::Records;
use crate::waited_reads::is_waited;
use libc::{c_int, c_uint};
use ringway_core::Completions;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// `ringway_submit`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_submit(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().and_then(|()| Ok(handle.queue.submit()?)))
}

/// `ringway_reap`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap(
    queue: *mut QueueHandle,
    min: c_uint,
    timeout_ns: i64,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    to_return_value(unsafe { handle_ref(queue) }.check_not_in_callback("reap").and_then(|()| {
        // SAFETY: the queue is valid, and none of its callbacks is running.
        unsafe { deliver(queue, min as usize, timeout_ns) }
    }))
}

/// `ringway_reap_into`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`], and `completions` is null or valid
/// for writes of `capacity` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap_into(
    queue: *mut QueueHandle,
    completions: *mut Completion,
    capacity: usize,
    min: c_uint,
    timeout_ns: i64,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    if let Err(failure) = handle.check_not_in_callback("reap") {
        return failure.report();
    }
    if completions.is_null() || capacity == 0 {
        return Failure::new(libc::EINVAL, "reap_into: capacity is 0 or the array is NULL")
            .report();
    }
    let mut count = 0;
    let reaped = reap(handle, capacity.min(min as usize), timeout_ns, |completion| {
        // SAFETY: `count` is less than `capacity`, for which the caller guarantees the array.
        unsafe { completions.add(count).write(completion) };
        count += 1;
        count < capacity
    });
    to_return_value(reaped.map(|()| count))
}

/// Waits and calls the callbacks of all completions that are ready. Returns their number.
///
/// # Safety
///
/// `queue` is valid, no reference to it exists, and none of its callbacks is running.
pub unsafe fn deliver(
    queue: *mut QueueHandle,
    min: usize,
    timeout_ns: i64,
) -> Result<usize, Failure> {
    // SAFETY: the queue is valid; `handle` is not used after the first callback.
    let handle = unsafe { handle_mut(queue) };
    let mut batch = std::mem::take(&mut handle.batch);
    let reaped = reap(handle, min, timeout_ns, |completion| {
        batch.push(completion);
        true
    });
    handle.in_callback = true;
    for (index, completion) in batch.iter().enumerate() {
        // SAFETY: the queue is valid, and no callback runs.
        unsafe { handle_mut(queue) }.undelivered = batch.len() - index - 1;
        match completion.callback {
            // SAFETY: the caller supplied the function for this purpose. No reference to the queue
            // exists, so the callback may use it.
            Some(callback) => unsafe { callback(queue, completion) },
            None => close_opened_file(completion),
        }
    }
    let count = batch.len();
    batch.clear();
    // SAFETY: no callback runs, and callbacks cannot destroy the queue, so it is still valid.
    let handle = unsafe { handle_mut(queue) };
    handle.in_callback = false;
    handle.batch = batch;
    reaped.map(|()| count)
}

/// Closes the descriptor of an open that has no callback. Otherwise nobody could close it.
fn close_opened_file(completion: &Completion) {
    if completion.opcode == u32::from(opcode::OPEN)
        && let Ok(fd) = c_int::try_from(completion.result)
        && fd >= 0
    {
        // SAFETY: the operation opened the descriptor, and nobody else has seen its number.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Waits and passes the completions that are ready to `each`, until it returns false.
fn reap(
    handle: &mut QueueHandle,
    min: usize,
    timeout_ns: i64,
    each: impl FnMut(Completion) -> bool,
) -> Result<(), Failure> {
    handle.check()?;
    let records = &mut handle.records;
    let min = if timeout_ns == 0 { 0 } else { min };
    // A negative timeout, or one beyond the range of the clock, never expires.
    let limit = u64::try_from(timeout_ns).ok().filter(|_| min > 0).map(Duration::from_nanos);
    let completions = match limit.and_then(|limit| Instant::now().checked_add(limit)) {
        Some(deadline) => handle.queue.reap_until(min, deadline)?,
        None => handle.queue.reap(min)?,
    };
    pass_on(records, completions, each);
    Ok(())
}

fn pass_on(
    records: &mut Records,
    completions: Completions<'_>,
    mut each: impl FnMut(Completion) -> bool,
) {
    // Reads of ringway_multi_read() are no operations of the caller.
    for done in completions.filter(|done| !is_waited(done.user_data)) {
        let record = records.take(done.user_data);
        let (id, opcode) = (done.id.to_bits() as i64, done.opcode);
        let result = match done.result {
            // `into_fd` succeeds because this is the only reference to the file just opened.
            Ok(0) if opcode == ringway_core::op::Opcode::Open => done
                .into_file()
                .ok()
                .and_then(|file| file.into_fd().ok())
                .map_or(0, |fd| fd.into_raw_fd().into()),
            other => to_result(other),
        };
        let completion = Completion {
            id,
            result,
            user_data: record.user_data,
            callback: record.callback,
            opcode: opcode::number(opcode),
            reserved: 0,
        };
        if !each(completion) {
            return;
        }
    }
}
