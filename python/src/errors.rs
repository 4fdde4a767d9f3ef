//! Errors of the crate as Python's OSError, with errno, a text and the file's name.

use crate::system;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use ringway::BuildError;
use std::io;

/// OSError (or the subclass for its errno) for an error of an operation on `path`. MemoryError if
/// there is no memory for a result.
pub fn os_error(py: Python<'_>, error: &io::Error, path: Option<&Py<PyAny>>) -> PyErr {
    let own = error.get_ref();
    let code = match own.and_then(|own| own.downcast_ref::<BuildError>()) {
        Some(refused) => Some(refused.errno()),
        None => error.raw_os_error(),
    };
    if own.is_none() && code.is_none() && error.kind() == io::ErrorKind::OutOfMemory {
        return PyMemoryError::new_err(());
    }
    let (errno, winerror) = code.map_or((errno_of(error.kind()), None), system::error_numbers);
    let text = match (own, code) {
        // Text of ringway's own, which says what to do.
        (Some(own), _) => in_python(own.to_string()),
        (None, Some(system::ECHILD)) => {
            "The engine belongs to the parent process of this fork. Open the \
                                 file again in this process, in its own event loop"
                .to_owned()
        }
        (None, _) => match winerror {
            None => strerror(py, errno).unwrap_or_else(|_| in_words(error)),
            Some(number) => in_words(&io::Error::from_raw_os_error(number)),
        },
    };
    let Some(path) = path.map(|path| path.bind(py)) else {
        return match winerror {
            None => PyOSError::new_err((errno, text)),
            Some(_) => PyOSError::new_err((errno, text, py.None(), winerror)),
        };
    };
    // Functions on two paths, which are there on Linux only, name both.
    match (path.extract::<(Py<PyAny>, Py<PyAny>)>(), winerror) {
        (Ok((from, to)), _) => PyOSError::new_err((errno, text, from, winerror, to)),
        // Windows would show a number that is None.
        (Err(_), None) => PyOSError::new_err((errno, text, path.clone().unbind())),
        (Err(_), Some(_)) => PyOSError::new_err((errno, text, path.clone().unbind(), winerror)),
    }
}

/// Names of the crate in its texts, and what they are in Python.
const NAMES: [(&str, &str); 6] = [
    ("File::alignment", "alignment()"),
    ("allocate_written: ", "allocate(written=True): "),
    ("i64::MAX", "2**63 - 1"),
    ("LogWriter::new: ", "LogWriter: "),
    ("O_APPEND", "mode 'a' (O_APPEND)"),
    ("write_durable_at: ", "write_at(durable=True): "),
];

fn in_python(text: String) -> String {
    NAMES.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
}

/// The error of every call on a closed file, as files of the standard library have it.
pub fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

/// The system's text, without the number that the standard library appends.
fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" (os error ").map_or_else(|| text.clone(), |(text, _)| text.to_owned())
}

fn strerror(py: Python<'_>, errno: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (errno,))?.extract()
}

/// The errno of an error that the crate made itself.
fn errno_of(kind: io::ErrorKind) -> i32 {
    use io::ErrorKind as K;
    match kind {
        K::InvalidInput => libc::EINVAL,
        K::NotFound => libc::ENOENT,
        K::AlreadyExists => libc::EEXIST,
        K::PermissionDenied => libc::EACCES,
        K::IsADirectory => libc::EISDIR,
        K::NotADirectory => libc::ENOTDIR,
        K::WouldBlock => libc::EAGAIN,
        K::OutOfMemory => libc::ENOMEM,
        // On Linux the same number as EOPNOTSUPP; Python has no name for that of Windows.
        K::Unsupported => libc::ENOTSUP,
        K::WriteZero | K::StorageFull => libc::ENOSPC,
        _ => libc::EIO,
    }
}
