//! The error numbers that an engine over this crate tells apart: those of `errno(3)`; on Windows,
//! the system's error codes with the same meaning.

use crate::sys::libc;

macro_rules! numbers {
    ($($name:ident $text:literal,)*) => {
        $(#[doc = $text] pub const $name: i32 = libc::$name;)*
    };
}

numbers! {
    EAGAIN "The operation would have to wait, or a resource is exhausted for the moment.",
    EBUSY "The file is in use.",
    EEXIST "There is a file of this name.",
    EINVAL "An argument is invalid.",
    EINTR "A signal interrupted the call.",
    EMFILE "The process is out of descriptors.",
    ENFILE "The machine is out of descriptors.",
    ENOMEM "No memory.",
    ENOSYS "The system does not have the call.",
    EOPNOTSUPP "The file system or the kernel does not support it.",
    EPERM "Not permitted.",
    ESPIPE "The file has no offsets.",
}
