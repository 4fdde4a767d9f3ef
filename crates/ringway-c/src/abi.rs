//! The structures and constants of `include/ringway.h`, field by field, and reading and writing
//! structures that are larger or smaller in another version of the header.

use crate::queue_handle::QueueHandle;
use libc::{c_char, c_int, c_void, iovec};
use std::mem::MaybeUninit;

/// `ringway_callback`. If it is C++ code that throws, the exception aborts the program when it
/// reaches this library.
pub type Callback =
    Option<unsafe extern "C-unwind" fn(queue: *mut QueueHandle, done: *const Completion)>;

/// `struct ringway_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    pub size: u32,
    pub flags: u32,
    pub backend: u32,
    pub entries: u32,
    pub completion_entries: u32,
    pub in_flight: u32,
    pub threads: u32,
    pub sync_threads: u32,
    pub sqpoll_idle_ms: u32,
    pub sqpoll_cpu: u32,
    pub io_wq_bounded: u32,
    pub io_wq_unbounded: u32,
    pub close_wait_ms: u32,
    pub iopoll_fd: i32,
    pub attach: *const QueueHandle,
    pub faults: *const c_char,
}

pub const SINGLE_ISSUER: u32 = 1 << 0;
pub const EVENTFD: u32 = 1 << 1;
pub const STRICT: u32 = 1 << 2;
pub const SQPOLL: u32 = 1 << 3;
pub const IOPOLL: u32 = 1 << 4;
pub const SQPOLL_CPU: u32 = 1 << 5;
pub const NO_CLOSE_WAIT: u32 = 1 << 6;
pub const INTERRUPTIBLE: u32 = 1 << 7;

/// `struct ringway_operation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub size: u32,
    pub opcode: u16,
    pub flags: u16,
    pub fd: c_int,
    pub fd2: c_int,
    pub offset: u64,
    pub length: u64,
    pub buf: *const c_void,
    pub path: *const c_char,
    pub path2: *const c_char,
    pub op_flags: u32,
    pub mode: u32,
    pub resolve: u64,
    pub timeout_ns: u64,
    pub callback: Callback,
    pub user_data: *mut c_void,
}

pub const EXACT: u16 = 1 << 0;
pub const DRAIN: u16 = 1 << 1;
pub const CONTINUE_ON_ERROR: u16 = 1 << 2;
pub const SOCKET: u16 = 1 << 3;
pub const DONT_CACHE: u16 = 1 << 4;
pub const UNTORN: u16 = 1 << 5;

/// `struct ringway_completion`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    pub id: i64,
    pub result: i64,
    pub user_data: *mut c_void,
    pub callback: Callback,
    pub opcode: u32,
    pub reserved: u32,
}

/// `struct ringway_range`.
#[repr(C)]
pub struct Range {
    pub fd: c_int,
    pub flags: u32,
    pub offset: u64,
    pub length: u64,
    pub buf: *mut c_void,
    pub result: i64,
}

pub const RANGE_DIRECT: u32 = 1 << 0;
pub const RANGE_BUFFERED: u32 = 1 << 1;

/// `struct ringway_stats`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Stats {
    pub pushed: u64,
    pub delivered: u64,
    pub orphaned: u64,
    pub in_flight: u64,
    pub system_calls: u64,
    pub retries: u64,
    pub continued: u64,
    pub to_threads: u64,
    pub late: u64,
}

/// `struct ringway_direct_io`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DirectIo {
    pub mem_align: u32,
    pub offset_align: u32,
    pub max_request: u32,
    pub untorn_min: u32,
    pub untorn_max: u32,
    pub untorn_max_opt: u32,
    pub untorn_max_segments: u32,
}

/// A structure that callers fill in, that begins with its size, and that may grow in a later
/// version.
///
/// # Safety
///
/// The type is `repr(C)`, begins with a `u32`, and every bit pattern is a valid value.
pub unsafe trait Extensible: Copy {
    /// The size of the first version. A smaller size is an error.
    const FIRST: usize;
}

// SAFETY: `repr(C)`; its fields are integers, raw pointers and an `Option` of a function pointer,
// for which null is `None`. They are dereferenced only under the promises of the header.
unsafe impl Extensible for Options {
    const FIRST: usize = 72;
}

// SAFETY: as for `Options`.
unsafe impl Extensible for Operation {
    const FIRST: usize = 96;
}

const _: () = assert!(size_of::<Options>() == 72 && size_of::<Operation>() == 96);
const _: () = assert!(size_of::<Completion>() == 40 && size_of::<Range>() == 40);

/// The caller's structure if it has this version's size, otherwise a copy with this size.
pub enum Version<'a, T> {
    This(&'a T),
    Other(T),
}

impl<T> Version<'_, T> {
    #[inline(always)]
    pub fn as_ref(&self) -> &T {
        match self {
            Self::This(this) => this,
            Self::Other(other) => other,
        }
    }
}

/// Reads a structure of this or another version. Fields that the caller's version lacks are 0.
///
/// Errors: EINVAL if it is smaller than the first version; E2BIG if bytes beyond this version are
/// not 0.
///
/// # Safety
///
/// `from` is valid for reads of 4 bytes, and of as many as its first field says, for the lifetime
/// of the result.
#[inline(always)]
pub unsafe fn read<'a, T: Extensible>(from: *const T) -> Result<Version<'a, T>, i32> {
    // SAFETY: the caller guarantees 4 readable bytes.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    if size == size_of::<T>() {
        // SAFETY: the caller guarantees `size` readable bytes; any bytes are a valid `T`.
        return Ok(Version::This(unsafe { &*from }));
    }
    // SAFETY: the caller guarantees `size` readable bytes.
    unsafe { read_other(from, size) }.map(Version::Other)
}

/// Copies a structure whose size is not that of `T`.
///
/// # Safety
///
/// `from` is valid for reads of `size` bytes.
#[cold]
unsafe fn read_other<T: Extensible>(from: *const T, size: usize) -> Result<T, i32> {
    if size < T::FIRST {
        return Err(libc::EINVAL);
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller guarantees `size` readable bytes, of which these are the last.
    let rest = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(libc::E2BIG);
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` is at most `size`, which the caller guarantees, and at most the size of
    // `value`.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known)
    };
    // SAFETY: any bytes are a valid `T` (`Extensible`).
    Ok(unsafe { value.assume_init() })
}

/// Writes the first `size` bytes of a structure to the caller; bytes beyond it are set to 0.
///
/// # Safety
///
/// `to` is valid for writes of `size` bytes.
pub unsafe fn write<T: Copy>(value: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller guarantees `size` writable bytes; `value` is ours, so they do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping((value as *const T).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

/// An array of the caller; empty for a null pointer.
///
/// # Safety
///
/// `first` is null, or valid for reads of `count` values for the lifetime of the slice.
pub unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: `first` is not null, and the caller guarantees `count` values.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// The kernel's limit on the buffers of one vectored operation.
pub const IOV_MAX: u64 = 1024;

/// A copy of the iovec array of a vectored operation, so that the caller can reuse the array.
pub struct Buffers {
    _array: Box<[iovec]>,
}

impl From<Box<[iovec]>> for Buffers {
    fn from(array: Box<[iovec]>) -> Self {
        Self { _array: array }
    }
}

// SAFETY: an iovec is an address and a length. The caller of `ringway_push` keeps the memory valid
// until the completion, for any thread.
unsafe impl Send for Buffers {}
// SAFETY: as for `Send`; there is no interior mutability.
unsafe impl Sync for Buffers {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = size_of::<Operation>();

    /// `size` bytes that begin with their size, aligned as an `Operation`.
    fn bytes(size: u32, fill: impl Fn(usize) -> u8) -> Vec<u64> {
        let mut words = vec![0u64; 40];
        // SAFETY: `words` has 320 bytes and is not used otherwise while `bytes` exists.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 320) };
        for (at, byte) in bytes[..size as usize].iter_mut().enumerate().skip(4) {
            *byte = fill(at);
        }
        bytes[..4].copy_from_slice(&size.to_ne_bytes());
        words
    }

    fn read_back(words: &[u64]) -> Result<Operation, i32> {
        // SAFETY: all sizes in these tests are at most 320, the bytes of `words`; any bytes are a
        // valid operation.
        unsafe { read(words.as_ptr().cast::<Operation>()) }.map(|version| *version.as_ref())
    }

    #[test]
    fn reads_this_version_and_larger_ones_and_refuses_smaller_ones() {
        assert_eq!(read_back(&bytes(SIZE as u32, |_| 0)).unwrap().opcode, 0);
        for small in [0, 4, SIZE as u32 - 1] {
            assert_eq!(read_back(&bytes(small, |_| 0)).unwrap_err(), libc::EINVAL);
        }
        let later = bytes(SIZE as u32 + 8, |at| u8::from(at == 4));
        assert_eq!(read_back(&later).unwrap().opcode, 1);
    }

    proptest! {
        /// A byte that is not 0 beyond this version is refused, wherever it is.
        #[test]
        fn unknown_bytes_must_be_zero(more in 1usize..200, at in any::<prop::sample::Index>()) {
            let unknown = SIZE + at.index(more);
            let result = read_back(&bytes((SIZE + more) as u32, |at| u8::from(at == unknown)));
            prop_assert_eq!(result.map(|read| read.opcode).unwrap_err(), libc::E2BIG);
        }

        /// Exactly `size` bytes are written.
        #[test]
        fn write_fills_exactly_the_given_size(size in 0usize..200) {
            let value = DirectIo {
                mem_align: 0x0101_0101,
                offset_align: 0x0202_0202,
                max_request: 0x0303_0303,
                untorn_min: 0x0404_0404,
                untorn_max: 0x0505_0505,
                untorn_max_opt: 0x0606_0606,
                untorn_max_segments: 0x0707_0707,
            };
            let mut target = [0xeeu8; 256];
            // SAFETY: `target` has 256 bytes, more than `size`.
            unsafe { write(&value, target.as_mut_ptr().cast(), size) };
            let expected_bytes: Vec<u8> = (1..=7).flat_map(|field| [field; 4]).collect();
            for (at, byte) in target.into_iter().enumerate() {
                let in_value = expected_bytes.get(at).copied().unwrap_or(0);
                let expected = if at >= size { 0xee } else { in_value };
                prop_assert_eq!(byte, expected, "at {}", at);
            }
        }
    }
}
