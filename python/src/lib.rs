//! The extension module `ringway._ringway`: ringway's engine for event loops of Python. The public
//! functions are in Python, in the package's directory `ringway`.

mod answer;
mod call;
mod engine;
mod errors;
mod file;
mod finish;
mod log;
mod many;
#[cfg(target_os = "linux")]
mod os;
mod paths;
mod raw;
#[cfg(unix)]
#[path = "system/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "system/windows.rs"]
mod system;
mod tensors;

use pyo3::prelude::*;

/// The extension module. Without the interpreter's lock, programs could change the memory that a
/// call looks at, and nobody has tested that: a free-threaded interpreter turns its lock on.
#[pymodule(gil_used = true)]
mod _ringway {
    #[pymodule_export]
    use crate::engine::{Engine, Operation};
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::finish::{finish_writes, forget_writes};
    #[pymodule_export]
    use crate::log::Log;
    #[pymodule_export]
    use crate::many::Reader;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::os::{
        access, entries, link, mkdir, readlink, remove, rename, sendfile, stat, statvfs, symlink,
    };
    #[pymodule_export]
    use crate::paths::{open, open_fd, read_file, resolve, stat_fd, sync_dir, write_atomic};
    #[pymodule_export]
    use crate::tensors::tensor_header;
}
