//! `enum ringway_opcode`: the numbers of operations, which do not change, and their names.

use libc::{c_char, c_uint};
use ringway_core::op::Opcode;
use std::ffi::CStr;

macro_rules! opcodes {
    ($($constant:ident $opcode:ident $number:literal $name:literal,)*) => {
        $(pub const $constant: u16 = $number;)*

        /// The number of an opcode; `u32::MAX` for one that the header does not have.
        #[inline]
        pub fn number(opcode: Opcode) -> u32 {
            match opcode {
                $(Opcode::$opcode => $number,)*
                _ => u32::MAX,
            }
        }

        /// The name of the opcode with this number.
        pub fn name(number: c_uint) -> Option<&'static CStr> {
            match number {
                $($number => Some($name),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    NOP Nop 0 c"nop",
    READ Read 1 c"read",
    WRITE Write 2 c"write",
    READV Readv 3 c"readv",
    WRITEV Writev 4 c"writev",
    FSYNC Fsync 5 c"fsync",
    SYNC_RANGE SyncRange 6 c"sync_range",
    OPEN Open 7 c"open",
    CLOSE Close 8 c"close",
    STATX Statx 9 c"statx",
    FALLOCATE Fallocate 10 c"fallocate",
    FTRUNCATE Ftruncate 11 c"ftruncate",
    FADVISE Fadvise 12 c"fadvise",
    RENAME Rename 13 c"rename",
    UNLINK Unlink 14 c"unlink",
    MKDIR Mkdir 15 c"mkdir",
    LINK Link 16 c"link",
    SYMLINK Symlink 17 c"symlink",
    POLL Poll 18 c"poll",
    TIMEOUT Timeout 19 c"timeout",
}

/// `ringway_opcode_name`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_opcode_name(opcode: c_uint) -> *const c_char {
    name(opcode).unwrap_or(c"?").as_ptr()
}
