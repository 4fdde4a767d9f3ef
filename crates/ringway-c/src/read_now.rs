//! `struct ringway_file`: what is known of an open file, for reads of what is cached without a
//! queue.

use crate::cancellation::Uncancellable;
use crate::error::Failure;
use libc::{c_int, c_void};
use ringway_core::{File, op};

/// `ringway_file_create`.
///
/// # Safety
///
/// `file` is null or valid for a write. The descriptor stays open until the file is destroyed, or
/// the file is not used after it was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_file_create(fd: c_int, file: *mut *mut File) -> c_int {
    let _guard = Uncancellable::new();
    if file.is_null() {
        return Failure::new(libc::EINVAL, "file_create: the pointer to store the file in is NULL")
            .report();
    }
    // SAFETY: the caller keeps the descriptor open while the file is used.
    let made = unsafe { File::borrow_raw(fd) };
    let (made, result) = match made {
        Some(made) => (Box::into_raw(Box::new(made)), 0),
        None => {
            let failure = Failure::new(libc::EBADF, "file_create: the descriptor is negative");
            (std::ptr::null_mut(), failure.report())
        }
    };
    // SAFETY: `file` is not null, so it is valid for a write.
    unsafe { file.write(made) };
    result
}

/// `ringway_file_destroy`.
///
/// # Safety
///
/// `file` is null, or from `ringway_file_create` and used by nobody any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_file_destroy(file: *mut File) {
    let _guard = Uncancellable::new();
    if !file.is_null() {
        // SAFETY: `ringway_file_create` made the pointer with `Box::into_raw`.
        drop(unsafe { Box::from_raw(file) });
    }
}

/// `ringway_read_now`.
///
/// # Safety
///
/// `file` is valid, and its descriptor open. `buf` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_read_now(
    file: *const File,
    buf: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    let _guard = Uncancellable::new();
    let bytes = if length == 0 {
        &mut []
    } else {
        let length = length.min(isize::MAX as usize);
        // SAFETY: the caller guarantees `length` writable bytes, which nobody else uses during the
        // call.
        unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), length) }
    };
    let position = match offset {
        op::CURRENT_POSITION => op::Position::Current,
        offset => op::Position::Offset(offset),
    };
    // SAFETY: the caller guarantees that the file is valid.
    let read = unsafe { &*file }.read_some_now(bytes, position);
    read.map_or(-i64::from(libc::EAGAIN), |read| read as i64)
}

/// `ringway_note_written`.
///
/// # Safety
///
/// `file` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_note_written(file: *const File) {
    // SAFETY: the caller guarantees that the file is valid.
    unsafe { &*file }.note_written();
}
