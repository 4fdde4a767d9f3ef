//! `struct ringway_queue`: a queue of the core with what C callers need beside it; and making and
//! ending one.

use crate::abi::{self, Completion};
use crate::cancellation::Uncancellable;
use crate::completion;
use crate::error::{Failure, answer};
use crate::files::Files;
use crate::options;
use crate::records::{Record, Records};
use libc::c_int;
use ringway_core::{Home, Operation, Queue};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What `struct ringway_queue *` points at.
pub struct QueueHandle {
    pub queue: Queue,
    pub records: Records,
    pub files: Files,
    /// Callbacks are being called.
    pub in_callback: bool,
    /// Completions on their way to their callbacks; its room is used again.
    pub batch: Vec<Completion>,
    /// A chain on its way to the queue, and the numbers of its records; their room is used again.
    pub chain: Vec<(Record, Operation)>,
    pub numbers: Vec<u64>,
    /// The only thread that may enter the kernel for it.
    pub issuer: Option<u64>,
    pub home: Home,
    pub close_wait: Duration,
}

impl QueueHandle {
    /// Errors: ECHILD in a fork of the process that made it; EEXIST on another thread than its
    /// single issuer.
    #[inline]
    pub fn check(&self) -> Result<(), Failure> {
        if !self.home.is_here() {
            return Err(Failure::new(libc::ECHILD, ringway_core::Reason::Forked));
        }
        if self.issuer.is_some_and(|issuer| issuer != this_thread()) {
            return Err(Failure::new(
                libc::EEXIST,
                "the queue is another thread's, by RINGWAY_SINGLE_ISSUER",
            ));
        }
        Ok(())
    }

    /// That is all that speaks against pushing so many operations: there would be room if fewer
    /// were in flight.
    #[inline]
    pub fn is_full(&self, count: usize) -> bool {
        let room = self.queue.room();
        room < count
            && count <= room + self.queue.in_flight()
            && self.home.is_here()
            && !self.queue.is_closed()
    }

    /// Errors: EDEADLK in a callback.
    #[inline]
    pub fn check_not_in_callback(&self, what: &str) -> Result<(), Failure> {
        match self.in_callback {
            true => {
                Err(Failure::new(libc::EDEADLK, format_args!("a callback cannot {what} its queue")))
            }
            false => Ok(()),
        }
    }
}

/// This thread's number, which no other thread of the process ever has.
///
/// The standard library's is gone when a thread's destructors run, C++'s and those of
/// `pthread_key_create`, which may call us. Without a destructor of its own, this one stays.
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

/// The handle behind a caller's pointer, for the length of one call of ours that calls nobody back.
///
/// # Safety
///
/// `queue` comes from `ringway_create`, has not been destroyed, and no other thread uses it
/// meanwhile.
#[inline]
pub unsafe fn open<'a>(queue: *mut QueueHandle) -> &'a mut QueueHandle {
    // SAFETY: the caller's promise; functions of ours that call back hold no reference meanwhile,
    // so this is the only one.
    unsafe { &mut *queue }
}

/// As [`open`], to look only.
///
/// # Safety
///
/// As for [`open`].
pub unsafe fn look<'a>(queue: *const QueueHandle) -> &'a QueueHandle {
    // SAFETY: as in `open`.
    unsafe { &*queue }
}

/// `ringway_create`.
///
/// # Safety
///
/// As the header says: `options` is null or valid, `queue` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_create(
    options: *const abi::Options,
    queue: *mut *mut QueueHandle,
) -> c_int {
    let _guard = Uncancellable::new();
    if queue.is_null() {
        return Failure::new(libc::EINVAL, "nowhere to put the queue").report();
    }
    // SAFETY: `options` is as the header asks for it.
    let made = unsafe { options::make(options) };
    let (handle, result) = match made {
        Ok(handle) => (Box::into_raw(Box::new(handle)), 0),
        Err(failure) => (std::ptr::null_mut(), failure.report()),
    };
    // SAFETY: the caller's promise.
    unsafe { queue.write(handle) };
    result
}

/// `ringway_destroy`.
///
/// # Safety
///
/// As the header says: `queue` is null, or points at null or at a queue that is in nobody else's
/// use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_destroy(queue: *mut *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { queue.as_mut() }) else { return 0 };
    let pointer = *place;
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise; the reference ends before anybody is called back.
    let handle = unsafe { open(pointer) };
    if let Err(failure) = handle.check_not_in_callback("destroy") {
        return failure.report();
    }
    *place = std::ptr::null_mut();
    let mut left = 0;
    if handle.home.is_here() {
        // The end may come from any thread: the single issuer may be gone.
        handle.issuer = None;
        // (It fails in a forked child only.)
        let _ = handle.queue.close(handle.close_wait);
        // SAFETY: as above; callbacks may use the queue.
        while unsafe { completion::deliver(pointer, 0, 0) }.is_ok_and(|count| count > 0) {}
        // SAFETY: as above.
        left = unsafe { look(pointer) }.queue.in_flight();
    }
    // SAFETY: it was made by `Box::into_raw` in `ringway_create`, and its owner's pointer to it is
    // gone.
    drop(unsafe { Box::from_raw(pointer) });
    answer(Ok(left))
}
