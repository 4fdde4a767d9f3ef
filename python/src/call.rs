//! Calls of Python's functions, and releases of its objects, which may run Python's code.
//!
//! That code may let other threads run, and so may never return: before CPython 3.14, a thread that
//! wants the interpreter's lock while the interpreter ends gets `pthread_exit`, which unwinds its
//! stack. To unwind frames of Rust so aborts the process. The thread parks instead, as it does
//! since 3.14 (<https://github.com/python/cpython/issues/87135>) and in PyO3's own functions that
//! take the lock. It does not hold the lock then.

use pyo3::BoundObject;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::thread;

/// `Py_buffer`, which is in the stable ABI since 3.11; 3.10 has the same fields.
#[repr(C)]
struct PyBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

const SIMPLE: c_int = 0;
const WRITABLE: c_int = 1;

// PyO3 links with the same library.
#[cfg_attr(all(windows, not(target_arch = "x86")), link(name = "python3", kind = "raw-dylib"))]
// There functions of C have an underscore before their names, but not in a DLL's table.
#[cfg_attr(
    all(windows, target_arch = "x86"),
    link(name = "python3", kind = "raw-dylib", import_name_type = "undecorated")
)]
unsafe extern "C-unwind" {
    fn PyObject_CallObject(
        callable: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn Py_DecRef(object: *mut ffi::PyObject);
    fn PyErr_CheckSignals() -> c_int;
    fn PyMemoryView_FromObject(object: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut PyBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut PyBuffer);
}

/// Parks the thread for ever when its stack is unwound.
struct Park;

impl Drop for Park {
    fn drop(&mut self) {
        loop {
            thread::park();
        }
    }
}

/// Calls a method. Errors: those of the method; AttributeError.
pub fn method<'py, A>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple>,
{
    let py = object.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?.into_bound();
    let callable = object.getattr(name)?;
    let park = Park;
    // SAFETY: the interpreter's lock is held, and the second object is a tuple. The result is a new
    // reference, or null and an exception.
    unsafe {
        let result = PyObject_CallObject(callable.as_ptr(), arguments.as_ptr());
        mem::forget(park);
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// Runs the handlers of signals that have come, and since CPython 3.12 the garbage collector.
/// Errors: those of a handler, such as KeyboardInterrupt.
pub fn check_signals(py: Python<'_>) -> PyResult<()> {
    let park = Park;
    // SAFETY: the interpreter's lock is held.
    let result = unsafe { PyErr_CheckSignals() };
    mem::forget(park);
    if result == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

/// A `memoryview` of an object, and the address and the length of its memory, which it keeps where
/// it is. Since CPython 3.12 an object may have a buffer by a method.
///
/// Errors: TypeError for an object without a buffer; BufferError for one that is not contiguous, or
/// that is read-only if it must be writable.
pub fn memory(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<(Held, *mut u8, usize)> {
    let py = object.py();
    let park = Park;
    // SAFETY: the interpreter's lock is held. The result is a new reference, or null and an
    // exception.
    let owner = unsafe {
        let owner = PyMemoryView_FromObject(object.as_ptr());
        mem::forget(park);
        Held::new(Bound::from_owned_ptr_or_err(py, owner)?.unbind())
    };
    let flags = if writable { SIMPLE | WRITABLE } else { SIMPLE };
    let park = Park;
    // SAFETY: the interpreter's lock is held; the view is filled by the first call, if that
    // succeeds, and released then.
    let memory = unsafe {
        let mut view = mem::zeroed::<PyBuffer>();
        let is_filled = PyObject_GetBuffer(owner.as_ptr(), &raw mut view, flags) == 0;
        let memory = (view.buf.cast::<u8>(), view.len as usize);
        if is_filled {
            PyBuffer_Release(&raw mut view);
        }
        is_filled.then_some(memory)
    };
    mem::forget(park);
    let Some((start, len)) = memory else { return Err(PyErr::fetch(py)) };
    // An empty buffer may have no address.
    let start = if start.is_null() { NonNull::dangling().as_ptr() } else { start };
    Ok((owner, start, len))
}

/// An object whose end may run code of the program: a buffer, or a future with an exception that
/// nobody has retrieved.
pub struct Held(ManuallyDrop<Py<PyAny>>);

impl Held {
    pub fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// The object, whose end is the caller's then.
    pub fn into_inner(self) -> Py<PyAny> {
        let mut held = ManuallyDrop::new(self);
        // SAFETY: nobody uses the field after this, as `held` is not dropped.
        unsafe { ManuallyDrop::take(&mut held.0) }
    }
}

impl std::ops::Deref for Held {
    type Target = Py<PyAny>;

    fn deref(&self) -> &Py<PyAny> {
        &self.0
    }
}

impl Drop for Held {
    /// Leaks the object if the interpreter has ended.
    fn drop(&mut self) {
        // SAFETY: nobody uses the field after this.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        let _ = Python::try_attach(|_| {
            let park = Park;
            // SAFETY: the interpreter's lock is held, and the reference is ours.
            unsafe { Py_DecRef(object.into_ptr()) };
            mem::forget(park);
        });
    }
}
