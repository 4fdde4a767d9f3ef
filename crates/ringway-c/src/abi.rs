//! The header's structures and numbers, field by field; and reading those that may be of another
//! version's size.

use crate::queue_handle::QueueHandle;
use libc::{c_char, c_int, c_void, iovec};
use std::mem::MaybeUninit;

/// `ringway_callback`. It may be C++, and throw: that ends the program at our own border.
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
}

/// A structure that the caller fills in, with its size in its first field, and of which a later
/// library may know more.
///
/// # Safety
///
/// Plain data that any bytes are a value of, beginning with a `u32`.
pub unsafe trait Extensible: Copy {
    /// The size of its first version: anything smaller is a mistake.
    const FIRST: usize;
}

// SAFETY: numbers, addresses, and an optional function, which is an address or null.
unsafe impl Extensible for Options {
    const FIRST: usize = 72;
}

// SAFETY: likewise.
unsafe impl Extensible for Operation {
    const FIRST: usize = 96;
}

const _: () = assert!(size_of::<Options>() == 72 && size_of::<Operation>() == 96);
const _: () = assert!(size_of::<Completion>() == 40 && size_of::<Range>() == 40);

/// A structure as the caller has it, or a copy of one of another version.
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

/// Reads a structure of this or another version: what the caller does not have is 0.
///
/// Errors: EINVAL, smaller than it ever was; E2BIG, with something set that is not known here.
///
/// # Safety
///
/// `from` must be valid for reads of as many bytes as its first field says, and of at least 4, for
/// as long as the answer is used.
#[inline(always)]
pub unsafe fn read<'a, T: Extensible>(from: *const T) -> Result<Version<'a, T>, i32> {
    // SAFETY: the caller's promise: the first field is there.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    if size == size_of::<T>() {
        // SAFETY: the caller's promise for `size` bytes; any bytes are a value of it.
        return Ok(Version::This(unsafe { &*from }));
    }
    // SAFETY: the caller's promise.
    unsafe { read_other(from, size) }.map(Version::Other)
}

/// One of another size.
///
/// # Safety
///
/// `from` must be valid for reads of `size` bytes.
#[cold]
unsafe fn read_other<T: Extensible>(from: *const T, size: usize) -> Result<T, i32> {
    if size < T::FIRST {
        return Err(libc::EINVAL);
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise for `size` bytes, of which these are the last.
    let rest = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(libc::E2BIG);
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes can be read by the caller's promise, and are at most those of `value`.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known)
    };
    // SAFETY: any bytes are a value of it.
    Ok(unsafe { value.assume_init() })
}

/// Writes as much of a structure as the caller has room for; the rest of that room is zeroed.
///
/// # Safety
///
/// `to` must be valid for writes of `size` bytes.
pub unsafe fn write<T: Copy>(value: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise; the two do not overlap, since `value` is ours.
    unsafe {
        std::ptr::copy_nonoverlapping((value as *const T).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

/// An array of the caller's; none for a null pointer.
///
/// # Safety
///
/// Unless null, `first` must be valid for reads of `count` values for as long as the slice is used.
pub unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// The kernel's own limit on the buffers of one vectored operation.
pub const IOV_MAX: u64 = 1024;

/// Buffers of a vectored operation, copied so that the caller may have the array back.
pub struct Buffers {
    _array: Box<[iovec]>,
}

impl From<Box<[iovec]>> for Buffers {
    fn from(array: Box<[iovec]>) -> Self {
        Self { _array: array }
    }
}

// SAFETY: addresses and lengths; the caller of `ringway_push` keeps the memory valid from any
// thread.
unsafe impl Send for Buffers {}
// SAFETY: likewise.
unsafe impl Sync for Buffers {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = size_of::<Operation>();

    /// An operation's bytes with so many behind it, at the alignment that a caller's has.
    fn bytes(size: u32, fill: impl Fn(usize) -> u8) -> Vec<u64> {
        let mut words = vec![0u64; 40];
        // SAFETY: the words' own bytes, for the length of this function.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 320) };
        (4..size as usize).for_each(|at| bytes[at] = fill(at));
        bytes[..4].copy_from_slice(&size.to_ne_bytes());
        words
    }

    fn read_back(words: &[u64]) -> Result<Operation, i32> {
        // SAFETY: the sizes below are at most the words' 320 bytes; any bytes are an operation.
        unsafe { read(words.as_ptr().cast::<Operation>()) }.map(|version| *version.as_ref())
    }

    #[test]
    fn this_version_and_others() {
        assert_eq!(read_back(&bytes(SIZE as u32, |_| 0)).unwrap().opcode, 0);
        for small in [0, 4, SIZE as u32 - 1] {
            assert_eq!(read_back(&bytes(small, |_| 0)).unwrap_err(), libc::EINVAL);
        }
        let later = bytes(SIZE as u32 + 8, |at| u8::from(at == 4));
        assert_eq!(read_back(&later).unwrap().opcode, 1);
    }

    proptest! {
        /// Of a later version, what is not known here must be zero, wherever it is.
        #[test]
        fn nothing_is_overlooked(more in 1usize..200, at in any::<prop::sample::Index>()) {
            let unknown = SIZE + at.index(more);
            let answer = read_back(&bytes((SIZE + more) as u32, |at| u8::from(at == unknown)));
            prop_assert_eq!(answer.map(|read| read.opcode).unwrap_err(), libc::E2BIG);
        }

        /// Never more is written than there is room for, and all of that.
        #[test]
        fn room_is_filled_and_no_more(size in 0usize..200) {
            let stats = DirectIo {
                mem_align: 0x0101_0101,
                offset_align: 0x0202_0202,
                max_request: 0x0303_0303,
            };
            let mut room = [0xeeu8; 256];
            // SAFETY: `size` bytes and more are there.
            unsafe { write(&stats, room.as_mut_ptr().cast(), size) };
            let known = [[1u8; 4], [2; 4], [3; 4]].concat();
            for (at, byte) in room.into_iter().enumerate() {
                let expected = if at >= size { 0xee } else { known.get(at).copied().unwrap_or(0) };
                prop_assert_eq!(byte, expected, "at {}", at);
            }
        }
    }
}
