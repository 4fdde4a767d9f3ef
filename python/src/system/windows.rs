//! What the extension module needs of the system, on Windows. The program knows files by numbers of
//! the C runtime that the interpreter uses, and the engine by handles: the interpreter's own module
//! `msvcrt` has one for the other.

use crate::call;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use ringway::Engine;
use ringway::fs::{File, Metadata};
use std::ffi::c_int;
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

// The numbers that ringway-core has for them.
pub const ECHILD: i32 = 128; // ERROR_WAIT_NO_CHILDREN
pub const ELOOP: i32 = 1921; // ERROR_CANT_RESOLVE_FILENAME

const ERROR_INVALID_HANDLE: i32 = 6;
const ERROR_TOO_MANY_OPEN_FILES: i32 = 4;

/// The errno of an error of the system, and its number, for which OSError has an errno of its own.
/// That is EINVAL for some numbers of ringway-core, which have an errno here or another number.
pub fn error_numbers(code: i32) -> (i32, Option<i32>) {
    match code {
        120 => (libc::ENOSYS, None), // ERROR_CALL_NOT_IMPLEMENTED
        132 => (libc::ESPIPE, None), // ERROR_SEEK_ON_DEVICE
        336 => (libc::EISDIR, None), // ERROR_DIRECTORY_NOT_SUPPORTED
        1117 => (libc::EIO, None),   // ERROR_IO_DEVICE
        1314 => (libc::EPERM, None), // ERROR_PRIVILEGE_NOT_HELD
        170 => (0, Some(32)),        // ERROR_BUSY, which also stands for a SHARING_VIOLATION
        1460 => (0, Some(10060)),    // ERROR_TIMEOUT: WSAETIMEDOUT, of TimeoutError
        code => (0, Some(code)),
    }
}

/// The number by which the program knows an open file: one of the C runtime, for a duplicate of the
/// handle. It is made when the program asks for it, unless the program has given it.
pub struct Number(AtomicI32);

const NONE: c_int = -1;

impl Number {
    /// That of a file which the engine has opened.
    pub fn new() -> Self {
        Self(AtomicI32::new(NONE))
    }

    /// The number of an open file. Errors: EMFILE.
    pub fn of(&self, py: Python<'_>, file: &File) -> io::Result<c_int> {
        match self.0.load(Ordering::Acquire) {
            NONE => self.set(py, new_number(py, file)?),
            number => Ok(number),
        }
    }

    /// Keeps a new number, or closes it if another thread was quicker.
    fn set(&self, py: Python<'_>, new: c_int) -> io::Result<c_int> {
        match self.0.compare_exchange(NONE, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(new),
            Err(other) => {
                close(py, new);
                Ok(other)
            }
        }
    }

    /// Closes the number, as the file is about to be closed.
    pub fn close(&self) {
        let number = self.0.swap(NONE, Ordering::AcqRel);
        if number != NONE {
            let _ = Python::try_attach(|py| close(py, number));
        }
    }
}

impl Drop for Number {
    /// An exception may be on its way, which Python's code must not see.
    fn drop(&mut self) {
        if *self.0.get_mut() == NONE {
            return;
        }
        let _ = Python::try_attach(|py| {
            let pending = PyErr::take(py);
            self.close();
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

fn close(py: Python<'_>, number: c_int) {
    // Its handle is a duplicate, whose end reports nothing.
    let _ = function(py, "os", intern!(py, "close"), (number,));
}

fn function<'py, A>(
    py: Python<'py>,
    module: &str,
    name: &Bound<'py, PyString>,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple>,
{
    call::method(py.import(module)?.as_any(), name, arguments)
}

/// A file for a number of the program: the number is closed with the file if it is `own`. Errors:
/// EBADF, EMFILE.
pub fn adopt(fd: c_int, own: bool, engine: &Engine) -> io::Result<(File, Number)> {
    let file = File::from_fd(duplicate(fd)?, engine);
    Ok((file, if own { Number(AtomicI32::new(fd)) } else { Number::new() }))
}

/// A duplicate of the handle of a number that the program keeps. Errors: EBADF, EMFILE.
pub fn duplicate(fd: c_int) -> io::Result<OwnedHandle> {
    let handle = Python::try_attach(|py| {
        function(py, "msvcrt", intern!(py, "get_osfhandle"), (fd,))?.extract::<isize>()
    });
    let Some(Ok(handle)) = handle else {
        return Err(io::Error::from_raw_os_error(ERROR_INVALID_HANDLE));
    };
    // SAFETY: it is only duplicated, which fails if it is no handle.
    unsafe { BorrowedHandle::borrow_raw(handle as _) }.try_clone_to_owned()
}

/// As [`duplicate`].
pub use duplicate as reference;

/// A number of an open file for the program, which closes it. Errors: EMFILE.
pub fn new_number(py: Python<'_>, file: &File) -> io::Result<c_int> {
    let handle = file.as_handle().try_clone_to_owned()?;
    let number = handle.as_raw_handle() as isize;
    // Without flags the runtime leaves the bytes as they are.
    let made = function(py, "msvcrt", intern!(py, "open_osfhandle"), (number, 0))
        .and_then(|made| made.extract::<c_int>())
        .map_err(|_| io::Error::from_raw_os_error(ERROR_TOO_MANY_OPEN_FILES))?;
    // The C runtime closes it now.
    std::mem::forget(handle);
    Ok(made)
}

/// Errors: Unsupported, always: no loop watches an engine here.
pub fn readable(_: &Engine) -> io::Result<c_int> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Waits for the engine's thread, which reaps. Returns after `limit` in any case.
pub fn reap(_: &Engine, limit: Duration) {
    thread::park_timeout(limit);
}

/// There are no signals that a thread could block.
pub fn block_signals() {}

/// The numbers of an `os.stat_result` that `open` looks at: mode and size. (`ringway.os` has those
/// of `os`.)
pub fn stat(metadata: &Metadata) -> [i128; 13] {
    let mut numbers = [0; 13];
    numbers[0] = metadata.mode().into();
    numbers[6] = metadata.len().into();
    numbers
}
