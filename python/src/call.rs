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
use std::mem::{self, ManuallyDrop};
use std::thread;

unsafe extern "C-unwind" {
    fn PyObject_CallObject(
        callable: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn Py_DecRef(object: *mut ffi::PyObject);
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

/// An object whose end may run code of the program: a buffer, or a future with an exception that
/// nobody has retrieved.
pub struct Held(ManuallyDrop<Py<PyAny>>);

impl Held {
    pub fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
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
