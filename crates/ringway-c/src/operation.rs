//! `struct ringway_operation`: translates operations for the core, pushes them singly and in
//! chains, and cancels them.

use crate::abi::{self, Buffers, IOV_MAX, Version};
use crate::cancellation::Uncancellable;
use crate::error::{Failure, to_return_value};
use crate::files::Files;
use crate::opcode;
use crate::queue_handle::{QueueHandle, handle_mut};
use crate::records::Record;
use libc::{c_char, c_int, iovec};
use ringway_core::op::{self, Raw};
use ringway_core::{OpId, Operation, PushError};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// Up to this length, every device takes a transfer as one request, and the core looks nothing up
/// for a buffer that begins at a [`PAGE`].
const ALWAYS_ONE_REQUEST: u64 = 64 << 10;

/// For a direct transfer that does not begin at a multiple of this, the core looks up whether the
/// device's driver takes it.
const PAGE: usize = 4096;

/// `ringway_push`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`]. `operation` is null or valid; what it points at stays
/// valid as long as the header requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push(
    queue: *mut QueueHandle,
    operation: *const abi::Operation,
) -> i64 {
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    // (The core finds out whether this is another process.)
    if handle.issuer.is_some()
        && let Err(failure) = handle.check()
    {
        return failure.report().into();
    }
    if handle.is_full(1) {
        return Failure::full().report().into();
    }
    // SAFETY: `operation` is null or valid.
    let request = match unsafe { read(operation) } {
        Ok(request) => request,
        Err(failure) => return failure.report().into(),
    };
    let request = request.as_ref();
    // The common case, which needs no lookup once the file is known: the operation is constructed
    // in its slot, without a copy.
    if request.timeout_ns == 0 && request.flags == 0 && request.length <= ALWAYS_ONE_REQUEST {
        let &abi::Operation { fd, offset, .. } = request;
        if let (opcode::POLL, Ok(events)) = (request.opcode, u16::try_from(request.op_flags)) {
            let file = handle.files.registered(fd).cloned();
            return push(handle, request, |record| {
                // SAFETY: the caller keeps the descriptor until the completion.
                unsafe { Operation::from_raw(op::Poll { fd, events }.into(), file, None) }
                    .user_data(record)
            });
        }
        let buf = request.buf.cast_mut().cast::<u8>();
        if let (opcode::READ | opcode::WRITE, Ok(len)) = (request.opcode, transfer_len(request)) {
            // SAFETY: the caller keeps the buffer and the descriptor until the completion.
            return unsafe {
                match request.opcode {
                    opcode::READ => push_transfer(
                        handle,
                        request,
                        op::Read { fd, buf, len, offset, flags: op::RwFlags::NONE },
                    ),
                    _ => push_transfer(
                        handle,
                        request,
                        op::Write { fd, buf, len, offset, flags: op::RwFlags::NONE },
                    ),
                }
            };
        }
    }
    let _guard = Uncancellable::new();
    // SAFETY: what the operation points at is valid.
    match unsafe { translate(request, &mut handle.files) } {
        Ok(operation) => push(handle, request, |record| operation.user_data(record)),
        Err(failure) => failure.report().into(),
    }
}

/// Pushes a read or a write without flags or timeout.
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
    let looks_up = !request.buf.addr().is_multiple_of(PAGE)
        && file.as_ref().is_some_and(|file| file.is_direct());
    let _guard = looks_up.then(Uncancellable::new);
    push(handle, request, |record| {
        // SAFETY: the caller keeps the buffer and the descriptor until the completion.
        unsafe { Operation::from_raw(transfer.into(), file, None) }.user_data(record)
    })
}

/// Pushes the operation that `make` returns. `make` runs last, so that the operation is not moved.
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
/// As for `ringway_push`, with `count` operations. `ids` is null or valid for writes of `count`
/// numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push_chain(
    queue: *mut QueueHandle,
    operations: *const abi::Operation,
    count: usize,
    ids: *mut i64,
) -> i64 {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    if let Err(failure) = handle.check() {
        return failure.report().into();
    }
    if handle.is_full(count) {
        return Failure::full().report().into();
    }
    let mut chain = std::mem::take(&mut handle.chain);
    // SAFETY: the caller passes `count` valid operations.
    let translated = unsafe { translate_all(operations, count, &mut handle.files, &mut chain) };
    let pushed = translated.and_then(|()| push_all(handle, &mut chain));
    chain.clear();
    handle.chain = chain;
    match pushed {
        Ok(first) => {
            if !ids.is_null() {
                let members =
                    std::iter::successors(Some(first), |id| handle.queue.next_in_chain(*id));
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

/// Translates `count` operations into `chain`, with their records.
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
        // SAFETY: the caller guarantees `count` operations. Each is as large as it says, which is
        // the distance to the next.
        unsafe {
            let request = read(at.cast())?;
            let request = request.as_ref();
            at = at.add(request.size as usize);
            chain.push((Record::of(request), translate(request, files)?));
        }
    }
    Ok(())
}

/// Pushes a chain. On an error none of it has been pushed.
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
        for number in numbers.iter() {
            _ = records.take(*number)
        }
    }
    numbers.clear();
    pushed.map_err(|error| refused(&error))
}

/// `ringway_cancel`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_cancel(queue: *mut QueueHandle, id: i64) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().and_then(|()| {
        let id = u64::try_from(id).ok().and_then(OpId::from_bits);
        if id.is_some_and(|id| handle.queue.cancel(id)) {
            Ok(0)
        } else {
            Err(Failure::ordinary(
                libc::ENOENT,
                c"cancel: no such operation in flight, or its result is already known",
            ))
        }
    }))
}

/// `ringway_cancel_all`.
///
/// # Safety
///
/// `queue` is valid, as for [`handle_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_cancel_all(queue: *mut QueueHandle) -> c_int {
    let _guard = Uncancellable::new();
    // SAFETY: the caller passes a valid queue.
    let handle = unsafe { handle_mut(queue) };
    to_return_value(handle.check().map(|()| handle.queue.cancel_all()))
}

#[cold]
fn refused(error: &PushError) -> Failure {
    Failure::new(error.reason().errno(), error)
}

fn invalid(text: &str) -> Failure {
    Failure::new(libc::EINVAL, text)
}

/// Reads an operation of any version.
///
/// # Safety
///
/// `operation` is null, or valid for as many bytes as its `size` says.
#[inline(always)]
unsafe fn read<'a>(
    operation: *const abi::Operation,
) -> Result<Version<'a, abi::Operation>, Failure> {
    if operation.is_null() {
        return Err(invalid("push: the operation is NULL"));
    }
    // SAFETY: `operation` is not null, and valid for as many bytes as it says.
    unsafe { abi::read(operation) }.map_err(|errno| {
        Failure::new(
            errno,
            "push: bad size of struct ringway_operation: prepare it with ringway_prep_...()",
        )
    })
}

/// Translates an operation for the core.
///
/// # Safety
///
/// What it points at stays valid as long as the header requires.
#[inline]
unsafe fn translate(request: &abi::Operation, files: &mut Files) -> Result<Operation, Failure> {
    const KNOWN: u16 = abi::EXACT
        | abi::DRAIN
        | abi::CONTINUE_ON_ERROR
        | abi::SOCKET
        | abi::DONT_CACHE
        | abi::UNTORN;
    let unknown = request.flags & !KNOWN;
    let socket = request.flags & abi::SOCKET != 0;
    if unknown != 0 {
        return Err(invalid(&format!("push: unknown flags: {unknown:#x}")));
    }
    let mut memory = None;
    // SAFETY: paths and arrays of buffers are valid during this call.
    let raw = unsafe { raw(request, &mut memory) }?;
    let file = match raw {
        Raw::Close(_) => {
            if files.registered(request.fd).is_some() {
                return Err(Failure::new(
                    libc::EBUSY,
                    "close: the descriptor is registered: call ringway_unregister_file() first",
                ));
            }
            files.forget(request.fd);
            None
        }
        // Properties of the file do not matter, and looking them up would allocate.
        Raw::Poll(_) => files.registered(request.fd).cloned(),
        Raw::Read(_) | Raw::Write(_) if socket => files.registered(request.fd).cloned(),
        _ if acts_on_a_file(request.opcode) => files.get(request.fd),
        _ => None,
    };
    // SAFETY: `memory` keeps paths and arrays of buffers until the completion; the caller keeps the
    // rest.
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
    if socket {
        operation = operation.socket();
    }
    if request.flags & abi::DONT_CACHE != 0 {
        operation = operation.dont_cache();
    }
    if request.flags & abi::UNTORN != 0 {
        operation = operation.untorn();
    }
    if request.timeout_ns > 0 {
        operation = operation.timeout(Duration::from_nanos(request.timeout_ns));
    }
    Ok(operation)
}

/// True for operations on an open file whose properties matter.
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
    )
}

/// The length of a read or a write.
#[inline]
fn transfer_len(request: &abi::Operation) -> Result<usize, &'static str> {
    match usize::try_from(request.length).ok().filter(|length| *length <= isize::MAX as usize) {
        Some(0) => Ok(0),
        Some(_) if request.buf.is_null() => Err("push: the buffer of a read or write is NULL"),
        Some(length) => Ok(length),
        None => Err("push: a length beyond SSIZE_MAX"),
    }
}

/// Translates the parameters of an operation. Copies of paths and arrays of buffers go to `memory`.
///
/// # Safety
///
/// During this call, paths are null or C strings, and arrays of buffers null or `length` long.
#[inline]
unsafe fn raw(
    request: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    let &abi::Operation { fd, offset, length, op_flags, .. } = request;
    let buf = request.buf.cast_mut().cast::<u8>();
    let len = || transfer_len(request).map_err(invalid);
    Ok(match request.opcode {
        opcode::READ => op::Read { fd, buf, len: len()?, offset, flags: op::RwFlags::NONE }.into(),
        opcode::WRITE => {
            op::Write { fd, buf, len: len()?, offset, flags: op::RwFlags::NONE }.into()
        }
        opcode::READV | opcode::WRITEV => {
            if length > IOV_MAX {
                return Err(invalid("push: more than 1024 buffers (IOV_MAX): split the operation"));
            }
            if buf.is_null() && length > 0 {
                return Err(invalid("push: the array of buffers is NULL"));
            }
            // SAFETY: the array is not null and has `length` elements.
            let buffers: Box<[iovec]> =
                unsafe { abi::slice(request.buf.cast(), length as usize) }.into();
            let (iov, count) = (buffers.as_ptr(), buffers.len());
            // `iov` stays valid: moving a box does not move its contents.
            *memory = Some(Box::new(Buffers::from(buffers)));
            match request.opcode {
                opcode::READV => {
                    op::Readv { fd, iov, count, offset, flags: op::RwFlags::NONE }.into()
                }
                _ => op::Writev { fd, iov, count, offset, flags: op::RwFlags::NONE }.into(),
            }
        }
        opcode::NOP => op::Nop.into(),
        opcode::FSYNC if op_flags <= 1 => op::Fsync { fd, data_only: op_flags == 1 }.into(),
        opcode::FSYNC => {
            return Err(invalid("fsync: op_flags is neither 0 nor RINGWAY_FSYNC_DATASYNC"));
        }
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
        // SAFETY: paths are null or C strings.
        _ => return unsafe { with_paths(request, memory) },
    })
}

/// [`raw`] for the operations that have paths.
///
/// # Safety
///
/// As for [`raw`].
unsafe fn with_paths(
    request: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    if opcode::name(request.opcode.into()).is_none() {
        return Err(invalid(&format!("push: unknown opcode: {}", request.opcode)));
    }
    let two = matches!(request.opcode, opcode::RENAME | opcode::LINK | opcode::SYMLINK);
    // SAFETY: `path` is null or a C string.
    let first = unsafe { copy(request.path) }?;
    // SAFETY: `path2` is null or a C string.
    let second = if two { unsafe { copy(request.path2) }? } else { CString::default() };
    // The pointers stay valid: moving a CString does not move its bytes.
    let (path, path2) = (first.as_ptr(), second.as_ptr());
    *memory = Some(Box::new([first, second]));
    let &abi::Operation { fd: dir, fd2: dir2, op_flags, mode, resolve, .. } = request;
    Ok(match request.opcode {
        opcode::OPEN => {
            let flags = op_flags | libc::O_CLOEXEC as u32;
            // openat2 refuses a mode if no file can be created. open(2) ignores it, and so does
            // this function.
            let creates = flags & libc::O_CREAT as u32 != 0
                || flags & libc::O_TMPFILE as u32 == libc::O_TMPFILE as u32;
            let mode = if creates { u64::from(mode & 0o7777) } else { 0 };
            op::Open { dir, path, flags: flags.into(), mode, resolve }.into()
        }
        opcode::STATX => {
            if request.buf.is_null() {
                return Err(invalid("statx: the buffer is NULL"));
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

/// Copies a path.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn copy(path: *const c_char) -> Result<CString, Failure> {
    if path.is_null() {
        return Err(invalid("push: a path is NULL"));
    }
    // SAFETY: `path` is not null, so it is a C string.
    Ok(unsafe { CStr::from_ptr(path) }.to_owned())
}
