//! What a caller may ask: statistics, explanations, the descriptor to poll, a file's alignment.

use crate::abi;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, answer};
use crate::queue_handle::{QueueHandle, look, open};
use libc::{c_char, c_int, c_uint};
use ringway_core::{BackendKind, File};
use std::os::fd::{AsFd, AsRawFd};

/// `ringway_version`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `ringway_fd`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_fd(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().and_then(|()| Ok(handle.queue.poll_fd()?.as_raw_fd() as usize)))
}

/// `ringway_get_stats`.
///
/// # Safety
///
/// As the header says: `queue` is valid, and `stats` for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_stats(
    queue: *const QueueHandle,
    stats: *mut abi::Stats,
    size: usize,
) {
    // SAFETY: the caller's promise.
    let known = unsafe { look(queue) }.queue.stats();
    let told = abi::Stats {
        pushed: known.counts.pushed,
        delivered: known.counts.delivered,
        orphaned: known.counts.orphaned,
        in_flight: known.counts.in_flight,
        system_calls: known.system_calls,
        retries: known.retries,
        continued: known.continued,
        to_threads: known.to_threads,
        late: known.late,
    };
    // SAFETY: the caller's promise.
    unsafe { abi::write(&told, stats, size) }
}

/// `ringway_explain`.
///
/// # Safety
///
/// As the header says: `queue` is valid, and `text` for writes of `size` bytes, or `size` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_explain(
    queue: *const QueueHandle,
    text: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let all = unsafe { look(queue) }.queue.explain().to_string();
    if size > 0 && !text.is_null() {
        let fits = all.len().min(size - 1);
        // SAFETY: the caller's promise for `size` bytes, of which the NUL is the last.
        unsafe {
            std::ptr::copy_nonoverlapping(all.as_ptr().cast(), text, fits);
            text.add(fits).write(0);
        }
    }
    all.len()
}

/// `ringway_get_backend`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_backend(queue: *const QueueHandle) -> c_uint {
    // SAFETY: the caller's promise.
    match unsafe { look(queue) }.queue.backend() {
        BackendKind::Uring => 1,
        BackendKind::Kaio => 2,
        BackendKind::Threads => 3,
        // (The one that a library for tests has beside.)
        _ => 4,
    }
}

/// `ringway_backend_name`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_backend_name(backend: c_uint) -> *const c_char {
    let name = match backend {
        1 => c"uring",
        2 => c"kaio",
        3 => c"threads",
        4 => c"null",
        _ => c"?",
    };
    name.as_ptr()
}

/// `ringway_in_flight`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_in_flight(queue: *const QueueHandle) -> usize {
    // SAFETY: the caller's promise.
    unsafe { look(queue) }.queue.in_flight()
}

/// `ringway_free_slots`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_free_slots(queue: *const QueueHandle) -> usize {
    // SAFETY: the caller's promise.
    unsafe { look(queue) }.queue.room()
}

/// `ringway_get_direct_io`.
///
/// # Safety
///
/// As the header says: `direct` is valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_direct_io(
    fd: c_int,
    direct: *mut abi::DirectIo,
    size: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: a number that fcntl(2) only looks at.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Failure::new(libc::EBADF, "direct_io: no open file").report();
    }
    // SAFETY: the file is used for the length of this call, during which the caller keeps it open.
    let Some(file) = (unsafe { File::borrow_raw(fd) }) else { return -libc::EBADF };
    let facts = ringway_core::device::direct_alignment(file.as_fd());
    let told = abi::DirectIo {
        mem_align: facts.memory_align,
        offset_align: facts.offset_align,
        max_request: file.largest_request().unwrap_or(0),
    };
    // SAFETY: the caller's promise.
    unsafe { abi::write(&told, direct, size) };
    0
}
