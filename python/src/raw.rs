//! Memory of Python objects that the kernel reads and writes: `bytes` that are being filled, and
//! buffers that are pinned until an operation has ended. All `unsafe` code is here, in `call.rs`
//! and in `system/`.

use crate::call::{self, Held};
use crate::engine::{Releases, Shared};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringway::{Buffer, CustomBuffer};
use std::any::Any;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Memory of a Python object, as long as this lives. It may be dropped on any thread.
pub struct Memory {
    /// `bytes`, or a `memoryview` that pins another object's buffer. `None` once it is taken.
    owner: Option<Py<PyAny>>,
    start: *mut u8,
    len: usize,
    writable: bool,
    /// Counts what is pinned for somebody who waits until nothing is.
    _pins: Option<Arc<()>>,
    /// Tells a loop, after the drop, that there is something to release.
    _releases: Option<Releases>,
}

// SAFETY: the memory belongs to no thread, and `Py` is `Send` and `Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Objects of memory that was dropped, perhaps without the interpreter's lock: a list without a
/// lock. That of PyO3's list may stay locked for ever in a forked child, if a thread of the parent
/// had it at that moment.
static RELEASED: AtomicPtr<Released> = AtomicPtr::new(ptr::null_mut());

struct Released {
    object: Held,
    next: *mut Self,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(object) = self.owner.take() else { return };
        let mut next = RELEASED.load(Ordering::Relaxed);
        let first = Box::into_raw(Box::new(Released { object: Held::new(object), next }));
        loop {
            // SAFETY: nobody else has it before the exchange.
            unsafe { (*first).next = next };
            match RELEASED.compare_exchange_weak(next, first, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }
}

/// Whether `drop_released` has something to do.
pub fn has_released() -> bool {
    !RELEASED.load(Ordering::Relaxed).is_null()
}

/// Drops the objects of memory that was dropped. What that runs may call any function here.
pub fn drop_released(_: Python<'_>) {
    let mut next = RELEASED.swap(ptr::null_mut(), Ordering::Acquire);
    while !next.is_null() {
        // SAFETY: the whole list was taken, so that nobody else has its elements.
        let released = unsafe { Box::from_raw(next) };
        next = released.next;
        drop(released.object);
    }
}

impl Memory {
    /// A new `bytes` object, which nobody else sees before [`into_bytes`](Self::into_bytes).
    ///
    /// Errors: MemoryError.
    pub fn new_bytes(py: Python<'_>, len: usize) -> PyResult<Self> {
        let size = ffi::Py_ssize_t::try_from(len)
            .map_err(|_| PyMemoryError::new_err("a read of more than sys.maxsize bytes"))?;
        // SAFETY: the interpreter's lock is held, and a null pointer asks for uninitialised bytes.
        let object = unsafe {
            let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
            Bound::from_owned_ptr_or_err(py, object)?
        };
        // SAFETY: the object is `bytes` of this length. Nobody else has it, unless it is empty,
        // and then no byte is written.
        let start = unsafe {
            let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>();
            start.write_bytes(0, len);
            start
        };
        let owner = Some(object.unbind());
        Ok(Self { owner, start, len, writable: true, _pins: None, _releases: None })
    }

    /// The `bytes` object of [`new_bytes`](Self::new_bytes), or a copy of its first `len` bytes:
    /// the stable ABI cannot shorten `bytes`, so callers ask for what a file has.
    pub fn into_bytes(mut self, py: Python<'_>, len: usize) -> Py<PyAny> {
        if len >= self.len
            && let Some(owner) = self.owner.take()
        {
            return owner;
        }
        PyBytes::new(py, &self.as_slice()[..len]).into_any().unbind()
    }

    /// Pins the buffer of any object: a `bytearray` cannot be resized meanwhile, a `mmap` not be
    /// closed.
    ///
    /// Errors: TypeError for an object without a buffer; BufferError for one that is not
    /// contiguous, or that is read-only if it must be writable.
    pub fn pin(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        if !writable && let Ok(bytes) = object.cast_exact::<PyBytes>() {
            let content = bytes.as_bytes();
            let start = content.as_ptr().cast_mut();
            let len = content.len();
            let owner = Some(object.clone().unbind());
            return Ok(Self { owner, start, len, writable, _pins: None, _releases: None });
        }
        let (owner, start, len) = call::memory(object, writable)?;
        Ok(Self {
            owner: Some(owner.into_inner()),
            start,
            len,
            writable,
            _pins: None,
            _releases: None,
        })
    }

    /// Holds a clone of `pins` as long as the memory is pinned.
    pub fn with(mut self, pins: &Arc<()>) -> Self {
        self._pins = Some(Arc::clone(pins));
        self
    }

    /// The loop releases the memory as soon as it is dropped, also by a thread of the engine.
    pub fn released_by(mut self, shared: &Arc<Shared>) -> Self {
        self._releases = Some(Releases::new(shared));
        self
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `owner` keeps the memory, which is initialised, and no operation has it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Fills `bytes` with a copy of the same length.
    pub fn copy_from(&mut self, content: &[u8]) {
        assert!(self.writable && content.len() == self.len);
        // SAFETY: as above, and nobody else has `bytes` that are being filled.
        unsafe { self.start.copy_from_nonoverlapping(content.as_ptr(), self.len) };
    }

    /// The buffer that an operation owns.
    pub fn into_buffer(self) -> Buffer {
        Buffer::custom(Box::new(self))
    }

    /// The memory again, after the operation. `None` in a forked child, whose parent has it.
    pub fn from_buffer(buffer: Buffer) -> Option<Self> {
        let custom = Box::<dyn CustomBuffer>::try_from(buffer).ok()?;
        custom.into_any().downcast::<Self>().ok().map(|memory| *memory)
    }
}

// SAFETY: address and length never change, and the owner keeps the memory valid and in place; it is
// initialised, because `new_bytes` fills it and other objects have done so. Nobody else has the
// bytes that are being filled. A program that accesses a buffer of its own while a read into it is
// in flight sees old and new bytes; ringway forms references to it only while this thread holds the
// interpreter's lock, or before and after the operation.
unsafe impl CustomBuffer for Memory {
    fn as_ptr(&self) -> *const u8 {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }

    fn writable(&self) -> bool {
        self.writable
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send + Sync> {
        self
    }
}
