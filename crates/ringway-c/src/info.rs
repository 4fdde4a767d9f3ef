//! Queries: version, statistics, explanation, backend, descriptor to poll, alignment of a file.

use crate::abi;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_return_value};
use crate::queue_handle::{QueueHandle, handle_mut, handle_ref};
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
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_fd(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().and_then(|()| Ok(handle.queue.poll_fd()?.as_raw_fd() as usize)))
}

/// `ringway_get_stats`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`], and `stats` for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_stats(
    queue: *const QueueHandle,
    stats: *mut abi::Stats,
    size: usize,
) {
    // SAFETY: the caller passes a valid queue.
    let counters = unsafe { handle_ref(queue) }.queue.stats();
    let copy = abi::Stats {
        pushed: counters.counts.pushed,
        delivered: counters.counts.delivered,
        orphaned: counters.counts.orphaned,
        in_flight: counters.counts.in_flight,
        system_calls: counters.system_calls,
        retries: counters.retries,
        continued: counters.continued,
        to_threads: counters.to_threads,
        late: counters.late,
    };
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { abi::write(&copy, stats, size) }
}

/// `ringway_explain`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`], and `text` for writes of `size` bytes, or `size` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_explain(
    queue: *const QueueHandle,
    text: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller passes a valid queue.
    let all = unsafe { handle_ref(queue) }.queue.explain().to_string();
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { write_text(&all, text, size) }
}

/// `ringway_explain_dont_cache`.
///
/// # Safety
///
/// As for [`ringway_explain`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_explain_dont_cache(
    queue: *const QueueHandle,
    fd: c_int,
    text: *mut c_char,
    size: usize,
) -> usize {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let file = unsafe { handle_ref(queue) }.files.held(fd);
    let refusal = file.and_then(|file| file.dont_cache_refusal());
    let why = refusal.map_or(String::new(), |refusal| refusal.to_string());
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { write_text(&why, text, size) }
}

/// Writes as much of a text as fits, with a NUL, and returns the length of the whole text.
///
/// # Safety
///
/// `text` is valid for writes of `size` bytes, or null, or `size` is 0.
unsafe fn write_text(all: &str, text: *mut c_char, size: usize) -> usize {
    if size > 0 && !text.is_null() {
        let fits = all.len().min(size - 1);
        // SAFETY: the caller guarantees `size` writable bytes; `fits` bytes and a NUL fit in.
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
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_backend(queue: *const QueueHandle) -> c_uint {
    // SAFETY: the caller passes a valid queue.
    match unsafe { handle_ref(queue) }.queue.backend() {
        BackendKind::Uring => 1,
        BackendKind::Kaio => 2,
        BackendKind::Threads => 3,
        // The null backend of a library built for tests.
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
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_in_flight(queue: *const QueueHandle) -> usize {
    // SAFETY: the caller passes a valid queue.
    unsafe { handle_ref(queue) }.queue.in_flight()
}

/// `ringway_free_slots`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_free_slots(queue: *const QueueHandle) -> usize {
    // SAFETY: the caller passes a valid queue.
    unsafe { handle_ref(queue) }.free_slots()
}

/// `ringway_get_direct_io`.
///
/// # Safety
///
/// `direct` is valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_get_direct_io(
    fd: c_int,
    direct: *mut abi::DirectIo,
    size: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: F_GETFD only reads the flags of a descriptor, whether or not it is open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Failure::new(libc::EBADF, "get_direct_io: not an open file descriptor").report();
    }
    // SAFETY: the `File` does not outlive this call, during which the caller keeps it open.
    let Some(file) = (unsafe { File::borrow_raw(fd) }) else { return -libc::EBADF };
    let alignment = ringway_core::device::direct_alignment(file.as_fd());
    let unit = file.atomic_write_unit();
    let found = abi::DirectIo {
        mem_align: alignment.memory_align,
        offset_align: alignment.offset_align,
        max_request: file.largest_request().unwrap_or(0),
        untorn_min: unit.map_or(0, |unit| unit.min),
        untorn_max: unit.map_or(0, |unit| unit.max),
        untorn_max_opt: unit.and_then(|unit| unit.max_opt).unwrap_or(0),
        untorn_max_segments: unit.map_or(0, |unit| unit.max_segments),
    };
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { abi::write(&found, direct, size) };
    0
}
