//! `struct ringway_operation`: pushing one, or a chain of them, and cancelling.

use crate::abi::{self, Buffers, IOV_MAX, Version};
use crate::cancellation::Uncancellable;
use crate::error::{Failure, answer};
use crate::files::Files;
use crate::opcode;
use crate::queue_handle::{QueueHandle, open};
use crate::records::Record;
use libc::{c_char, c_int, iovec};
use ringway_core::op::{self, Raw};
use ringway_core::{OpId, Operation, PushError};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// How long a transfer may be for the core not to look up what the device takes in one request.
const SURELY_ONE_REQUEST: u64 = 64 << 10;

/// `ringway_push`.
///
/// # Safety
///
/// As the header says: both are valid, and what the operation points at stays so until its
/// completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push(
    queue: *mut QueueHandle,
    operation: *const abi::Operation,
) -> i64 {
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    if handle.is_full(1) {
        return Failure::full().report().into();
    }
    // SAFETY: likewise.
    let request = match unsafe { read(operation) } {
        Ok(request) => request,
        Err(failure) => return failure.report().into(),
    };
    let request = request.as_ref();
    // Most are these, of which nothing need be looked up: made in their slot, rather than copied to
    // it.
    if request.timeout_ns == 0 && request.flags == 0 && request.length <= SURELY_ONE_REQUEST {
        let &abi::Operation { fd, offset, .. } = request;
        let addr = request.buf.cast_mut().cast::<u8>();
        if let (opcode::READ | opcode::WRITE, Ok(len)) = (request.opcode, transfer_len(request)) {
            // SAFETY: the caller's promise.
            return unsafe {
                match request.opcode {
                    opcode::READ => {
                        push_transfer(handle, request, op::Read { fd, addr, len, offset })
                    }
                    _ => push_transfer(handle, request, op::Write { fd, addr, len, offset }),
                }
            };
        }
    }
    let _guard = Uncancellable::new();
    // SAFETY: likewise.
    match unsafe { translate(request, &mut handle.files) } {
        Ok(operation) => push(handle, request, |record| operation.user_data(record)),
        Err(failure) => failure.report().into(),
    }
}

/// A read or a write with nothing special about it.
///
/// # Safety
///
/// As for `ringway_push`.
#[inline(always)]
unsafe fn push_transfer(
    handle: &mut QueueHandle,
    request: &abi::Operation,
    transfer: impl Into<Raw>,
) -> i64 {
    let file = handle.files.get(request.fd);
    // SAFETY: the caller's promise.
    push(handle, request, |record| {
        unsafe { Operation::from_raw(transfer.into(), file, None) }.user_data(record)
    })
}

/// The operation is made when all else is there, so that it need not be moved.
#[inline(always)]
fn push(
    handle: &mut QueueHandle,
    request: &abi::Operation,
    make: impl FnOnce(u64) -> Operation,
) -> i64 {
    let record = handle.records.keep(Record::of(request));
    match handle.queue.push(make(record)) {
        Ok(id) => id.to_bits() as i64,
        Err(error) => {
            handle.records.take(record);
            refused(&error).report().into()
        }
    }
}

/// `ringway_push_chain`.
///
/// # Safety
///
/// As for `ringway_push`, of `count` operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push_chain(
    queue: *mut QueueHandle,
    operations: *const abi::Operation,
    count: usize,
    ids: *mut i64,
) -> i64 {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    if handle.is_full(count) {
        return Failure::full().report().into();
    }
    let mut chain = std::mem::take(&mut handle.chain);
    // SAFETY: the caller's promise.
    let translated = unsafe { translate_all(operations, count, &mut handle.files, &mut chain) };
    let pushed = translated.and_then(|()| push_all(handle, &mut chain));
    chain.clear();
    handle.chain = chain;
    match pushed {
        Ok(first) => {
            if !ids.is_null() {
                let members = std::iter::successors(Some(first), |id| handle.queue.behind(*id));
                for (index, id) in members.take(count).enumerate() {
                    // SAFETY: the caller guarantees room for `count` ids.
                    unsafe { ids.add(index).write(id.to_bits() as i64) };
                }
            }
            first.to_bits() as i64
        }
        Err(failure) => failure.report().into(),
    }
}

/// The core's operations for `count` of a caller's, with their records.
///
/// # Safety
///
/// As for `ringway_push_chain`.
unsafe fn translate_all(
    operations: *const abi::Operation,
    count: usize,
    files: &mut Files,
    chain: &mut Vec<(Record, Operation)>,
) -> Result<(), Failure> {
    let mut at = operations.cast::<u8>();
    for _ in 0..count {
        // SAFETY: the caller's promise; an array's elements have the size that its first one says.
        unsafe {
            let request = read(at.cast())?;
            let request = request.as_ref();
            at = at.add(request.size as usize);
            chain.push((Record::of(request), translate(request, files)?));
        }
    }
    Ok(())
}

/// Pushes all of a chain. Errors: none of it was pushed.
fn push_all(
    handle: &mut QueueHandle,
    chain: &mut Vec<(Record, Operation)>,
) -> Result<OpId, Failure> {
    let QueueHandle { queue, records, numbers, .. } = handle;
    let pushed = queue.push_chain(chain.drain(..).map(|(record, operation)| {
        let number = records.keep(record);
        numbers.push(number);
        operation.user_data(number)
    }));
    if pushed.is_err() {
        numbers.iter().for_each(|number| _ = records.take(*number));
    }
    numbers.clear();
    pushed.map_err(|error| refused(&error))
}

/// `ringway_cancel`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_cancel(queue: *mut QueueHandle, id: i64) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().and_then(|()| {
        let id = u64::try_from(id).ok().and_then(OpId::from_bits);
        match id.is_some_and(|id| handle.queue.cancel(id)) {
            true => Ok(0),
            false => {
                Err(Failure::ordinary(libc::ENOENT, c"cancel: no such operation, or it is over"))
            }
        }
    }))
}

/// `ringway_cancel_all`.
///
/// # Safety
///
/// As the header says: `queue` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_cancel_all(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller's promise.
    let handle = unsafe { open(queue) };
    answer(handle.check().map(|()| handle.queue.cancel_all()))
}

#[cold]
fn refused(error: &PushError) -> Failure {
    Failure::new(error.reason().errno(), error)
}

fn invalid(text: &str) -> Failure {
    Failure::new(libc::EINVAL, text)
}

/// What the caller gave, whatever its version.
///
/// # Safety
///
/// `operation` is null, or valid for as many bytes as it says.
#[inline(always)]
unsafe fn read<'a>(
    operation: *const abi::Operation,
) -> Result<Version<'a, abi::Operation>, Failure> {
    if operation.is_null() {
        return Err(invalid("no operation"));
    }
    // SAFETY: the caller's promise.
    unsafe { abi::read(operation) }.map_err(|errno| {
        Failure::new(
            errno,
            "ringway_operation of another version, or not made by one of the header's functions",
        )
    })
}

/// The core's operation for a caller's.
///
/// # Safety
///
/// What it points at is valid until its completion.
#[inline]
unsafe fn translate(request: &abi::Operation, files: &mut Files) -> Result<Operation, Failure> {
    let unknown = request.flags & !(abi::EXACT | abi::DRAIN | abi::CONTINUE_ON_ERROR);
    if unknown != 0 {
        return Err(invalid(&format!("unknown flags of an operation: {unknown:#x}")));
    }
    let mut memory = None;
    // SAFETY: the caller's promise.
    let raw = unsafe { raw(request, &mut memory) }?;
    let fd = match raw {
        Raw::Close(_) => {
            if files.registered(request.fd).is_some() {
                return Err(Failure::new(
                    libc::EBUSY,
                    "close: the descriptor is registered: unregister it first",
                ));
            }
            files.forget(request.fd);
            None
        }
        _ if acts_on_a_file(request.opcode) => Some(request.fd),
        _ => None,
    };
    let file = fd.and_then(|fd| files.get(fd));
    // SAFETY: the caller keeps what it points at, but paths and arrays of buffers, which `memory`
    // keeps.
    let mut operation = unsafe { Operation::from_raw(raw, file, memory) };
    if request.flags & abi::EXACT != 0 {
        operation = operation.exact();
    }
    if request.flags & abi::DRAIN != 0 {
        operation = operation.drain();
    }
    if request.flags & abi::CONTINUE_ON_ERROR != 0 {
        operation = operation.continue_on_error();
    }
    if request.timeout_ns > 0 {
        operation = operation.timeout(Duration::from_nanos(request.timeout_ns));
    }
    Ok(operation)
}

/// True for what is request of an open file, rather than of a path or of nobody.
#[inline]
fn acts_on_a_file(opcode: u16) -> bool {
    matches!(
        opcode,
        opcode::READ
            | opcode::WRITE
            | opcode::READV
            | opcode::WRITEV
            | opcode::FSYNC
            | opcode::SYNC_RANGE
            | opcode::FALLOCATE
            | opcode::FTRUNCATE
            | opcode::FADVISE
            | opcode::POLL
    )
}

/// Bytes of a read or a write.
#[inline]
fn transfer_len(request: &abi::Operation) -> Result<usize, &'static str> {
    match usize::try_from(request.length).ok().filter(|length| *length <= isize::MAX as usize) {
        Some(0) => Ok(0),
        Some(_) if request.buf.is_null() => Err("a read or write without a buffer"),
        Some(length) => Ok(length),
        None => Err("a length beyond SSIZE_MAX"),
    }
}

/// The core's numbers and addresses for a caller's, with copies of paths and arrays of buffers in
/// `memory`.
///
/// # Safety
///
/// Paths are null or C strings, and arrays of buffers null or as long as they say, during this
/// call.
#[inline]
unsafe fn raw(
    request: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    let &abi::Operation { fd, offset, length, op_flags, .. } = request;
    let addr = request.buf.cast_mut().cast::<u8>();
    let len = || transfer_len(request).map_err(invalid);
    Ok(match request.opcode {
        opcode::READ => op::Read { fd, addr, len: len()?, offset }.into(),
        opcode::WRITE => op::Write { fd, addr, len: len()?, offset }.into(),
        opcode::READV | opcode::WRITEV => {
            if length > IOV_MAX {
                return Err(invalid("more than 1024 buffers (IOV_MAX)"));
            }
            if addr.is_null() && length > 0 {
                return Err(invalid("a vectored read or write without buffers"));
            }
            // SAFETY: the caller's promise.
            let buffers: Box<[iovec]> =
                unsafe { abi::slice(request.buf.cast(), length as usize) }.into();
            let (iov, count) = (buffers.as_ptr(), buffers.len());
            // The array stays where it is when its box moves.
            *memory = Some(Box::new(Buffers::from(buffers)));
            match request.opcode {
                opcode::READV => op::Readv { fd, iov, count, offset }.into(),
                _ => op::Writev { fd, iov, count, offset }.into(),
            }
        }
        opcode::NOP => op::Nop.into(),
        opcode::FSYNC if op_flags <= 1 => op::Fsync { fd, data_only: op_flags == 1 }.into(),
        opcode::FSYNC => return Err(invalid("fsync: an op_flags but 0 and 1")),
        opcode::SYNC_RANGE => op::SyncRange { fd, offset, len: length, flags: op_flags }.into(),
        opcode::CLOSE => op::Close { fd }.into(),
        opcode::FALLOCATE => {
            op::Fallocate { fd, mode: op_flags as i32, offset, len: length }.into()
        }
        opcode::FTRUNCATE => op::Ftruncate { fd, len: length }.into(),
        opcode::FADVISE => op::Fadvise { fd, offset, len: length, advice: op_flags as i32 }.into(),
        opcode::POLL => {
            let events =
                u16::try_from(op_flags).map_err(|_| invalid("poll: events beyond 16 bits"))?;
            op::Poll { fd, events }.into()
        }
        opcode::TIMEOUT => op::Timeout { duration: Duration::from_nanos(length) }.into(),
        // SAFETY: the caller's promise.
        _ => return unsafe { with_paths(request, memory) },
    })
}

/// Those of the operations that have paths.
///
/// # Safety
///
/// As for [`raw`].
unsafe fn with_paths(
    request: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    if opcode::name(request.opcode.into()).is_none() {
        return Err(invalid(&format!("operation {} is none", request.opcode)));
    }
    let two = matches!(request.opcode, opcode::RENAME | opcode::LINK | opcode::SYMLINK);
    // SAFETY: the caller's promise.
    let first = unsafe { copy(request.path) }?;
    // SAFETY: the caller's promise.
    let second = if two { unsafe { copy(request.path2) }? } else { CString::default() };
    // Their bytes stay where they are when they move into the box.
    let (path, path2) = (first.as_ptr(), second.as_ptr());
    *memory = Some(Box::new([first, second]));
    let &abi::Operation { fd: dir, fd2: dir2, op_flags, mode, resolve, .. } = request;
    Ok(match request.opcode {
        opcode::OPEN => {
            let flags = op_flags | libc::O_CLOEXEC as u32;
            // openat2 refuses permissions where nothing can be made; open(2) ignores them, and so
            // do we.
            let makes = flags & libc::O_CREAT as u32 != 0
                || flags & libc::O_TMPFILE as u32 == libc::O_TMPFILE as u32;
            let mode = if makes { mode.into() } else { 0 };
            op::Open { dir, path, flags: flags.into(), mode, resolve }.into()
        }
        opcode::STATX => {
            if request.buf.is_null() {
                return Err(invalid("statx without a buffer"));
            }
            op::Statx {
                dir,
                path,
                flags: op_flags as i32,
                mask: mode,
                buffer: request.buf.cast_mut().cast(),
            }
            .into()
        }
        opcode::RENAME => {
            op::Rename { from_dir: dir, from: path, to_dir: dir2, to: path2, flags: op_flags }
                .into()
        }
        opcode::UNLINK => op::Unlink { dir, path, flags: op_flags as i32 }.into(),
        opcode::MKDIR => op::Mkdir { dir, path, mode }.into(),
        opcode::LINK => {
            op::Link { old_dir: dir, old: path, new_dir: dir2, new: path2, flags: op_flags as i32 }
                .into()
        }
        _ => op::Symlink { target: path2, dir, path }.into(),
    })
}

/// A copy of a path.
///
/// # Safety
///
/// It is null, or a C string.
unsafe fn copy(path: *const c_char) -> Result<CString, Failure> {
    if path.is_null() {
        return Err(invalid("no path"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(path) }.to_owned())
}
