//! Registers memory and descriptors with the queue's ring.

use crate::abi;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_return_value};
use crate::queue_handle::{QueueHandle, handle_mut};
use libc::{c_int, iovec};
use ringway_core::Refusal;

fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.errno, refusal)
}

/// `ringway_register_buffers`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`]. `iov` is valid for
/// reads of `count` elements, and their memory stays mapped until the queue has been destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_register_buffers(
    queue: *mut QueueHandle,
    iov: *const iovec,
    count: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue and an array of `count` elements.
    let (handle, memory) = unsafe { (handle_mut(queue), abi::slice(iov, count)) };
    to_return_value(handle.check().and_then(|()| {
        if memory.is_empty() {
            return Err(Failure::new(libc::EINVAL, "register_buffers: no elements"));
        }
        // SAFETY: the caller keeps the memory mapped until the queue has been destroyed.
        unsafe { handle.queue.register_memory(memory) }.map(|()| 0).map_err(refused)
    }))
}

/// `ringway_register_file`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`]. The descriptor stays
/// open until it has been unregistered or the queue destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_register_file(queue: *mut QueueHandle, fd: c_int) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().and_then(|()| {
        let file = handle
            .files
            .get_to_hold(fd)
            .ok_or_else(|| Failure::new(libc::EBADF, "register_file: not a file descriptor"))?;
        handle.queue.register_file(&file).map_err(refused)?;
        handle.files.hold(fd, file);
        Ok(0)
    }))
}

/// `ringway_unregister_file`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_unregister_file(queue: *mut QueueHandle, fd: c_int) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().and_then(|()| {
        let not_registered =
            || Failure::new(libc::ENOENT, "unregister_file: the descriptor is not registered");
        let file = handle.files.registered(fd).ok_or_else(not_registered)?;
        if !handle.queue.unregister_file(file) {
            return Err(Failure::new(
                libc::EBUSY,
                "unregister_file: operations on the descriptor are in flight: reap them first",
            ));
        }
        handle.files.release(fd);
        Ok(0)
    }))
}
