//! Registering memory and descriptors with the queue's ring.

use crate::abi;
use crate::cancellation::Uncancellable;
use crate::error::{Failure, answer};
use crate::queue_handle::{QueueHandle, open};
use libc::{c_int, iovec};
use ringway_core::Refusal;

fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.errno, refusal)
}

/// `ringway_register_buffers`.
///
/// # Safety
///
/// As the header says: the memory stays mapped until the queue has been destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_register_buffers(
    queue: *mut QueueHandle,
    memory: *const iovec,
    count: usize,
) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let (handle, memory) = unsafe { (open(queue), abi::slice(memory, count)) };
    answer(handle.check().and_then(|()| {
        if memory.is_empty() {
            return Err(Failure::new(libc::EINVAL, "no memory to register"));
        }
        // SAFETY: the caller's promise.
        unsafe { handle.queue.register_memory(memory) }.map(|()| 0).map_err(refused)
    }))
}

/// `ringway_register_file`.
///
/// # Safety
///
/// As the header says: the descriptor stays open until it has been unregistered or the queue
/// destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_register_file(queue: *mut QueueHandle, fd: c_int) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().and_then(|()| {
        let file = handle
            .files
            .get(fd)
            .ok_or_else(|| Failure::new(libc::EBADF, "register_file: no descriptor"))?;
        handle.queue.register_file(&file).map_err(refused)?;
        handle.files.hold(fd, file);
        Ok(0)
    }))
}

/// `ringway_unregister_file`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_unregister_file(queue: *mut QueueHandle, fd: c_int) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().and_then(|()| {
        let none =
            || Failure::new(libc::ENOENT, "unregister_file: the descriptor is not registered");
        let file = handle.files.registered(fd).ok_or_else(none)?;
        if !handle.queue.unregister_file(file) {
            return Err(Failure::new(
                libc::EBUSY,
                "unregister_file: operations on it are in flight",
            ));
        }
        handle.files.release(fd);
        Ok(0)
    }))
}
