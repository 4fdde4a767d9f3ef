//! Submitting, waiting, and handing completions out: to their callbacks, or into an array.

use crate::abi::Completion;
use crate::cancellation::Uncancellable;
use crate::door::{Door, look, open};
use crate::error::{Failure, answer, result};
use crate::kind;
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
pub unsafe extern "C" fn ringway_submit(queue: *mut Door) -> c_int {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    answer(door.check().and_then(|()| Ok(door.queue.submit()?)))
}

/// `ringway_reap`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap(queue: *mut Door, min: c_uint, timeout_ns: i64) -> c_int {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    answer(unsafe { look(queue) }.check_not_handing_out("reap").and_then(|()| {
        // SAFETY: likewise.
        unsafe { hand_out(queue, min as usize, timeout_ns) }
    }))
}

/// `ringway_reap_into`.
///
/// # Safety
///
/// As the header says: `queue` is valid, and `done` for writes of `capacity` completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reap_into(
    queue: *mut Door,
    done: *mut Completion,
    capacity: usize,
    min: c_uint,
    timeout_ns: i64,
) -> c_int {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    if let Err(failure) = door.check_not_handing_out("reap") {
        return failure.tell();
    }
    if done.is_null() || capacity == 0 {
        return Failure::new(libc::EINVAL, "reap_into: no room for completions").tell();
    }
    let mut count = 0;
    let reaped = reap(door, capacity.min(min as usize), timeout_ns, |completion| {
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
pub unsafe fn hand_out(queue: *mut Door, min: usize, timeout_ns: i64) -> Result<usize, Failure> {
    // SAFETY: the caller's promise; the reference ends before anybody is called back.
    let door = unsafe { open(queue) };
    let mut batch = std::mem::take(&mut door.batch);
    let reaped = reap(door, min, timeout_ns, |completion| {
        batch.push(completion);
        true
    });
    door.handing_out = true;
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
    let door = unsafe { open(queue) };
    door.handing_out = false;
    door.batch = batch;
    reaped.map(|()| count)
}

/// A descriptor that nobody is told of would be open for ever.
fn close_unseen(completion: &Completion) {
    if completion.kind == u32::from(kind::OPEN)
        && let Ok(fd) = c_int::try_from(completion.result)
        && fd >= 0
    {
        // SAFETY: it has just been opened for this completion, which nobody else sees.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Waits, and gives `each` the completions that are there until it has had enough.
fn reap(
    door: &mut Door,
    min: usize,
    timeout_ns: i64,
    each: impl FnMut(Completion) -> bool,
) -> Result<(), Failure> {
    door.check()?;
    let records = &mut door.records;
    let min = if timeout_ns == 0 { 0 } else { min };
    // A time that the clock cannot express does not come, nor does a negative one.
    let limit = u64::try_from(timeout_ns).ok().filter(|_| min > 0).map(Duration::from_nanos);
    let completions = match limit.and_then(|limit| Instant::now().checked_add(limit)) {
        Some(deadline) => door.queue.reap_until(min, deadline)?,
        None => door.queue.reap(min)?,
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
        let (id, kind) = (done.id.to_bits() as i64, done.opcode);
        let result = match done.result {
            // Nobody else holds a file that has just been opened.
            Ok(0) if kind == ringway_core::op::Opcode::Open => done
                .into_file()
                .ok()
                .and_then(|file| file.into_fd().ok())
                .map_or(0, |fd| fd.into_raw_fd().into()),
            other => result(other),
        };
        let completion = Completion {
            id,
            result,
            arg: record.arg,
            callback: record.callback,
            kind: kind::number(kind),
            reserved: 0,
        };
        if !each(completion) {
            return;
        }
    }
}
