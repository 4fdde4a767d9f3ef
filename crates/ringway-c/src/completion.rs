//! Submitting, waiting, and handing completions out: to their callbacks, or into an array.

use crate::abi::Completion;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, answer, result};
use crate::opcode;
use crate::queue_handle::{QueueHandle, look, open};
use crate::records::Records;
use libc::{c_int, c_uint};
use ringway_core::Completions;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// `ringway_submit`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_submit(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().and_then(|()| Ok(handle.queue.submit()?)))
}

/// `ringway_reap`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap(
    queue: *mut QueueHandle,
    min: c_uint,
    timeout_ns: i64,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    answer(unsafe { look(queue) }.check_not_in_callback("reap").and_then(|()| {
        // SAFETY: likewise.
        unsafe { deliver(queue, min as usize, timeout_ns) }
    }))
}

/// `ringway_reap_into`.
///
/// # Safety
///
/// As the header says: `queue` is valid, and `done` for writes of `capacity` completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap_into(
    queue: *mut QueueHandle,
    done: *mut Completion,
    capacity: usize,
    min: c_uint,
    timeout_ns: i64,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    if let Err(failure) = handle.check_not_in_callback("reap") {
        return failure.report();
    }
    if done.is_null() || capacity == 0 {
        return Failure::new(libc::EINVAL, "reap_into: no room for completions").report();
    }
    let mut count = 0;
    let reaped = reap(handle, capacity.min(min as usize), timeout_ns, |completion| {
        // SAFETY: the caller's promise for `capacity` of them, and no more than that are taken.
        unsafe { done.add(count).write(completion) };
        count += 1;
        count < capacity
    });
    answer(reaped.map(|()| count))
}

/// Waits, and calls the callbacks of all completions that are there; how many there were.
///
/// # Safety
///
/// `queue` is valid, nobody holds a reference to it, and no callback of its is being called.
pub unsafe fn deliver(
    queue: *mut QueueHandle,
    min: usize,
    timeout_ns: i64,
) -> Result<usize, Failure> {
    // SAFETY: the caller's promise; the reference ends before anybody is called back.
    let handle = unsafe { open(queue) };
    let mut batch = std::mem::take(&mut handle.batch);
    let reaped = reap(handle, min, timeout_ns, |completion| {
        batch.push(completion);
        true
    });
    handle.in_callback = true;
    for completion in &batch {
        match completion.callback {
            // SAFETY: it is a function of the caller's, for this; no reference to the queue is
            // held, so that it may use it.
            Some(callback) => unsafe { callback(queue, completion) },
            None => close_unseen(completion),
        }
    }
    let count = batch.len();
    batch.clear();
    // SAFETY: as above; a callback cannot destroy the queue.
    let handle = unsafe { open(queue) };
    handle.in_callback = false;
    handle.batch = batch;
    reaped.map(|()| count)
}

/// A descriptor that nobody is told of would be open for ever.
fn close_unseen(completion: &Completion) {
    if completion.opcode == u32::from(opcode::OPEN)
        && let Ok(fd) = c_int::try_from(completion.result)
        && fd >= 0
    {
        // SAFETY: it has just been opened for this completion, which nobody else sees.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Waits, and gives `each` the completions that are there until it has had enough.
fn reap(
    handle: &mut QueueHandle,
    min: usize,
    timeout_ns: i64,
    each: impl FnMut(Completion) -> bool,
) -> Result<(), Failure> {
    handle.check()?;
    let records = &mut handle.records;
    let min = if timeout_ns == 0 { 0 } else { min };
    // A time that the clock cannot express does not come, nor does a negative one.
    let limit = u64::try_from(timeout_ns).ok().filter(|_| min > 0).map(Duration::from_nanos);
    let completions = match limit.and_then(|limit| Instant::now().checked_add(limit)) {
        Some(deadline) => handle.queue.reap_until(min, deadline)?,
        None => handle.queue.reap(min)?,
    };
    give(records, completions, each);
    Ok(())
}

fn give(
    records: &mut Records,
    completions: Completions<'_>,
    mut each: impl FnMut(Completion) -> bool,
) {
    for done in completions {
        let record = records.take(done.user_data);
        let (id, opcode) = (done.id.to_bits() as i64, done.opcode);
        let result = match done.result {
            // Nobody else holds a file that has just been opened.
            Ok(0) if opcode == ringway_core::op::Opcode::Open => done
                .into_file()
                .ok()
                .and_then(|file| file.into_fd().ok())
                .map_or(0, |fd| fd.into_raw_fd().into()),
            other => result(other),
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
