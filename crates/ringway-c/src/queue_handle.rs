//! `struct ringway_queue`: a queue of the core and the state that C callers need in addition. Also
//! creating and destroying one; `options.rs` has the options.

use crate::abi::{self, Completion};
use crate::cancellation::Uncancellable;
use crate::completion;
use crate::error::{Failure, to_return_value};
use crate::files::Files;
use crate::options;
use crate::records::{Record, Records};
use libc::c_int;
use ringway_core::{Operation, OwnerProcess, Queue};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `struct ringway_queue`.
pub struct QueueHandle {
    pub queue: Queue,
    pub records: Records,
    pub files: Files,
    /// True while callbacks run.
    pub in_callback: bool,
    /// Completions that are being delivered to callbacks; empty otherwise, kept for its capacity.
    pub batch: Vec<Completion>,
    /// Those after the one whose callback runs.
    pub undelivered: usize,
    /// A chain that is being pushed, and the numbers of its records; empty otherwise, kept for
    /// their capacity.
    pub chain: Vec<(Record, Operation)>,
    pub numbers: Vec<u64>,
    /// The only thread that may use the queue, with RINGWAY_SINGLE_ISSUER.
    pub issuer: Option<u64>,
    pub owner: OwnerProcess,
    pub close_wait: Duration,
}

impl QueueHandle {
    /// Checks that this process and this thread may use the queue.
    ///
    /// Errors: ECHILD in a fork of the process that created it; EEXIST on another thread than its
    /// single issuer.
    #[inline]
    pub fn check(&self) -> Result<(), Failure> {
        if !self.owner.is_current() {
            return Err(Failure::new(libc::ECHILD, ringway_core::Reason::Forked));
        }
        if self.issuer.is_some_and(|issuer| issuer != this_thread()) {
            return Err(Failure::new(
                libc::EEXIST,
                "another thread created this queue with RINGWAY_SINGLE_ISSUER: use it there",
            ));
        }
        Ok(())
    }

    /// How many operations can be pushed. In a callback, one slot is left for each callback that
    /// follows, so that a push succeeds in each.
    #[inline]
    pub fn free_slots(&self) -> usize {
        self.queue.free_slots().saturating_sub(self.undelivered)
    }

    /// True if the only reason not to push `count` operations is that too many are in flight.
    #[inline]
    pub fn is_full(&self, count: usize) -> bool {
        self.free_slots() < count
            && count <= self.queue.free_slots() + self.queue.in_flight()
            && self.owner.is_current()
            && !self.queue.is_closed()
    }

    /// Errors: EDEADLK in a callback of this queue.
    #[inline]
    pub fn check_not_in_callback(&self, operation: &str) -> Result<(), Failure> {
        if self.in_callback {
            Err(Failure::new(
                libc::EDEADLK,
                format_args!(
                    "{operation}: a callback cannot do this to its own queue: return from it first"
                ),
            ))
        } else {
            Ok(())
        }
    }
}

/// The number of this thread, which no other thread of the process ever has.
///
/// `std::thread::current()` is no longer available when destructors of thread-local C++ objects and
/// of `pthread_key_create` run, and those may call this library. This number has no destructor, so
/// it stays available.
#[inline]
pub fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// The handle behind a caller's pointer, for code that runs no callback.
///
/// # Safety
///
/// `queue` came from `ringway_create` and has not been destroyed. Until the reference is last used,
/// no other thread uses the queue and no callback runs.
#[inline]
pub unsafe fn handle_mut<'a>(queue: *mut QueueHandle) -> &'a mut QueueHandle {
    // SAFETY: the pointer is valid, and this is the only reference, both by the caller's guarantee.
    unsafe { &mut *queue }
}

/// Like [`handle_mut`], for reading.
///
/// # Safety
///
/// As for [`handle_mut`].
pub unsafe fn handle_ref<'a>(queue: *const QueueHandle) -> &'a QueueHandle {
    // SAFETY: the pointer is valid and nobody changes the queue, both by the caller's guarantee.
    unsafe { &*queue }
}

/// `ringway_create`.
///
/// # Safety
///
/// `options` is null or valid, and so are its pointers; `queue` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_create(
    options: *const abi::Options,
    queue: *mut *mut QueueHandle,
) -> c_int {
    let _guard = Uncancellable::new();
    if queue.is_null() {
        return Failure::new(libc::EINVAL, "create: the pointer to store the queue in is NULL")
            .report();
    }
    // SAFETY: `options` is null or valid.
    let created = unsafe { options::make(options) };
    let (handle, result) = match created {
        Ok(handle) => (Box::into_raw(Box::new(handle)), 0),
        Err(failure) => (std::ptr::null_mut(), failure.report()),
    };
    // SAFETY: `queue` is not null, so it is valid for a write.
    unsafe { queue.write(handle) };
    result
}

/// `ringway_destroy`.
///
/// # Safety
///
/// `queue` is null, or points at null or at a queue that no other thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_destroy(queue: *mut *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: `queue` is null or valid.
    let Some(slot) = (unsafe { queue.as_mut() }) else { return 0 };
    let pointer = *slot;
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: the queue is valid and not in use; `handle` is not used after callbacks have run.
    let handle = unsafe { handle_mut(pointer) };
    if let Err(failure) = handle.check_not_in_callback("destroy") {
        return failure.report();
    }
    *slot = std::ptr::null_mut();
    let mut left = 0;
    if handle.owner.is_current() {
        // Any thread may destroy the queue: the thread of RINGWAY_SINGLE_ISSUER may have ended.
        handle.issuer = None;
        // It fails only in a forked child, which this is not.
        let _ = handle.queue.close(handle.close_wait);
        // SAFETY: the queue is valid, and no reference to it exists while callbacks run.
        while unsafe { completion::deliver(pointer, 0, 0) }.is_ok_and(|count| count > 0) {}
        // SAFETY: the queue is valid, and no callback runs.
        left = unsafe { handle_ref(pointer) }.queue.in_flight();
    }
    // SAFETY: `ringway_create` made the pointer with `Box::into_raw`. The caller's copy is null
    // now.
    drop(unsafe { Box::from_raw(pointer) });
    to_return_value(Ok(left))
}
