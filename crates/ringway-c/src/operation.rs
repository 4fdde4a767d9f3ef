//! `struct ringway_operation`: pushing one, or a chain of them, and cancelling.

use crate::abi::{self, Buffers, IOV_MAX, Version};
use crate::cancellation::Uncancellable;
use crate::door::{Door, open};
use crate::error::{Failure, answer};
use crate::files::Files;
use crate::kind;
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
pub unsafe extern "C" fn ringway_push(queue: *mut Door, operation: *const abi::Operation) -> i64 {
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    if door.is_full(1) {
        return Failure::full().tell().into();
    }
    // SAFETY: likewise.
    let asked = match unsafe { read(operation) } {
        Ok(asked) => asked,
        Err(failure) => return failure.tell().into(),
    };
    let asked = asked.as_ref();
    // Most are these, of which nothing need be looked up: made in their slot, rather than copied to
    // it.
    if asked.limit_ns == 0 && asked.flags == 0 && asked.length <= SURELY_ONE_REQUEST {
        let &abi::Operation { fd, offset, .. } = asked;
        let addr = asked.address.cast_mut().cast::<u8>();
        if let (kind::READ | kind::WRITE, Ok(len)) = (asked.kind, transfer_len(asked)) {
            // SAFETY: the caller's promise.
            return unsafe {
                match asked.kind {
                    kind::READ => push_transfer(door, asked, op::Read { fd, addr, len, offset }),
                    _ => push_transfer(door, asked, op::Write { fd, addr, len, offset }),
                }
            };
        }
    }
    let _whole = Uncancellable::new();
    // SAFETY: likewise.
    match unsafe { translate(asked, &mut door.files) } {
        Ok(operation) => push(door, asked, |record| operation.user_data(record)),
        Err(failure) => failure.tell().into(),
    }
}

/// A read or a write with nothing special about it.
///
/// # Safety
///
/// As for `ringway_push`.
#[inline(always)]
unsafe fn push_transfer(door: &mut Door, asked: &abi::Operation, transfer: impl Into<Raw>) -> i64 {
    let file = door.files.get(asked.fd);
    // SAFETY: the caller's promise.
    push(door, asked, |record| {
        unsafe { Operation::from_raw(transfer.into(), file, None) }.user_data(record)
    })
}

/// The operation is made when all else is there, so that it need not be moved.
#[inline(always)]
fn push(door: &mut Door, asked: &abi::Operation, make: impl FnOnce(u64) -> Operation) -> i64 {
    let record = door.records.keep(Record::of(asked));
    match door.queue.push(make(record)) {
        Ok(id) => id.to_bits() as i64,
        Err(error) => {
            door.records.take(record);
            refused(&error).tell().into()
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
    queue: *mut Door,
    operations: *const abi::Operation,
    count: usize,
) -> i64 {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    if door.is_full(count) {
        return Failure::full().tell().into();
    }
    let mut chain = std::mem::take(&mut door.chain);
    // SAFETY: the caller's promise.
    let translated = unsafe { translate_all(operations, count, &mut door.files, &mut chain) };
    let pushed = translated.and_then(|()| push_all(door, &mut chain));
    chain.clear();
    door.chain = chain;
    match pushed {
        Ok(id) => id.to_bits() as i64,
        Err(failure) => failure.tell().into(),
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
            let asked = read(at.cast())?;
            let asked = asked.as_ref();
            at = at.add(asked.size as usize);
            chain.push((Record::of(asked), translate(asked, files)?));
        }
    }
    Ok(())
}

/// Pushes all of a chain. Errors: none of it was pushed.
fn push_all(door: &mut Door, chain: &mut Vec<(Record, Operation)>) -> Result<OpId, Failure> {
    let Door { queue, records, numbers, .. } = door;
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
pub unsafe extern "C" fn ringway_cancel(queue: *mut Door, id: i64) -> c_int {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    answer(door.check().and_then(|()| {
        let id = u64::try_from(id).ok().and_then(OpId::from_bits);
        match id.is_some_and(|id| door.queue.cancel(id)) {
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
pub unsafe extern "C" fn ringway_cancel_all(queue: *mut Door) -> c_int {
    let _whole = Uncancellable::new();
    // SAFETY: the caller's promise.
    let door = unsafe { open(queue) };
    answer(door.check().map(|()| door.queue.cancel_all()))
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
unsafe fn translate(asked: &abi::Operation, files: &mut Files) -> Result<Operation, Failure> {
    let unknown = asked.flags & !(abi::EXACT | abi::DRAIN | abi::ALWAYS);
    if unknown != 0 {
        return Err(invalid(&format!("unknown flags of an operation: {unknown:#x}")));
    }
    let mut memory = None;
    // SAFETY: the caller's promise.
    let raw = unsafe { raw(asked, &mut memory) }?;
    let fd = match raw {
        Raw::Close(_) => {
            if files.registered(asked.fd).is_some() {
                return Err(Failure::new(
                    libc::EBUSY,
                    "close: the descriptor is registered: unregister it first",
                ));
            }
            files.forget(asked.fd);
            None
        }
        _ if acts_on_a_file(asked.kind) => Some(asked.fd),
        _ => None,
    };
    let file = fd.and_then(|fd| files.get(fd));
    // SAFETY: the caller keeps what it points at, but paths and arrays of buffers, which `memory`
    // keeps.
    let mut operation = unsafe { Operation::from_raw(raw, file, memory) };
    if asked.flags & abi::EXACT != 0 {
        operation = operation.exact();
    }
    if asked.flags & abi::DRAIN != 0 {
        operation = operation.drain();
    }
    if asked.flags & abi::ALWAYS != 0 {
        operation = operation.continue_on_error();
    }
    if asked.limit_ns > 0 {
        operation = operation.timeout(Duration::from_nanos(asked.limit_ns));
    }
    Ok(operation)
}

/// True for what is asked of an open file, rather than of a path or of nobody.
#[inline]
fn acts_on_a_file(kind: u16) -> bool {
    matches!(
        kind,
        kind::READ
            | kind::WRITE
            | kind::READV
            | kind::WRITEV
            | kind::FSYNC
            | kind::SYNC_RANGE
            | kind::FALLOCATE
            | kind::FTRUNCATE
            | kind::FADVISE
            | kind::POLL
    )
}

/// Bytes of a read or a write.
#[inline]
fn transfer_len(asked: &abi::Operation) -> Result<usize, &'static str> {
    match usize::try_from(asked.length).ok().filter(|length| *length <= isize::MAX as usize) {
        Some(0) => Ok(0),
        Some(_) if asked.address.is_null() => Err("a read or write without a buffer"),
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
    asked: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    let &abi::Operation { fd, offset, length, argument, .. } = asked;
    let addr = asked.address.cast_mut().cast::<u8>();
    let len = || transfer_len(asked).map_err(invalid);
    Ok(match asked.kind {
        kind::READ => op::Read { fd, addr, len: len()?, offset }.into(),
        kind::WRITE => op::Write { fd, addr, len: len()?, offset }.into(),
        kind::READV | kind::WRITEV => {
            if length > IOV_MAX {
                return Err(invalid("more than 1024 buffers (IOV_MAX)"));
            }
            if addr.is_null() && length > 0 {
                return Err(invalid("a vectored read or write without buffers"));
            }
            // SAFETY: the caller's promise.
            let buffers: Box<[iovec]> =
                unsafe { abi::slice(asked.address.cast(), length as usize) }.into();
            let (iov, count) = (buffers.as_ptr(), buffers.len());
            // The array stays where it is when its box moves.
            *memory = Some(Box::new(Buffers::from(buffers)));
            match asked.kind {
                kind::READV => op::Readv { fd, iov, count, offset }.into(),
                _ => op::Writev { fd, iov, count, offset }.into(),
            }
        }
        kind::NOP => op::Nop.into(),
        kind::FSYNC if argument <= 1 => op::Fsync { fd, data_only: argument == 1 }.into(),
        kind::FSYNC => return Err(invalid("fsync: an argument but 0 and 1")),
        kind::SYNC_RANGE => op::SyncRange { fd, offset, len: length, flags: argument }.into(),
        kind::CLOSE => op::Close { fd }.into(),
        kind::FALLOCATE => op::Fallocate { fd, mode: argument as i32, offset, len: length }.into(),
        kind::FTRUNCATE => op::Ftruncate { fd, len: length }.into(),
        kind::FADVISE => op::Fadvise { fd, offset, len: length, advice: argument as i32 }.into(),
        kind::POLL => {
            let events =
                u16::try_from(argument).map_err(|_| invalid("poll: events beyond 16 bits"))?;
            op::Poll { fd, events }.into()
        }
        kind::TIMEOUT => op::Timeout { duration: Duration::from_nanos(length) }.into(),
        // SAFETY: the caller's promise.
        _ => return unsafe { with_paths(asked, memory) },
    })
}

/// Those of the operations that have paths.
///
/// # Safety
///
/// As for [`raw`].
unsafe fn with_paths(
    asked: &abi::Operation,
    memory: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Result<Raw, Failure> {
    if kind::name(asked.kind.into()).is_none() {
        return Err(invalid(&format!("operation {} is none", asked.kind)));
    }
    let two = matches!(asked.kind, kind::RENAME | kind::LINK | kind::SYMLINK);
    // SAFETY: the caller's promise.
    let first = unsafe { copy(asked.path) }?;
    // SAFETY: the caller's promise.
    let second = if two { unsafe { copy(asked.path2) }? } else { CString::default() };
    // Their bytes stay where they are when they move into the box.
    let (path, path2) = (first.as_ptr(), second.as_ptr());
    *memory = Some(Box::new([first, second]));
    let &abi::Operation { fd: dir, fd2: dir2, argument, mode, resolve, .. } = asked;
    Ok(match asked.kind {
        kind::OPEN => {
            let flags = argument | libc::O_CLOEXEC as u32;
            // openat2 refuses permissions where nothing can be made; open(2) ignores them, and so
            // do we.
            let makes = flags & libc::O_CREAT as u32 != 0
                || flags & libc::O_TMPFILE as u32 == libc::O_TMPFILE as u32;
            let mode = if makes { mode.into() } else { 0 };
            op::Open { dir, path, flags: flags.into(), mode, resolve }.into()
        }
        kind::STATX => {
            if asked.address.is_null() {
                return Err(invalid("statx without a buffer"));
            }
            op::Statx {
                dir,
                path,
                flags: argument as i32,
                mask: mode,
                buffer: asked.address.cast_mut().cast(),
            }
            .into()
        }
        kind::RENAME => {
            op::Rename { from_dir: dir, from: path, to_dir: dir2, to: path2, flags: argument }
                .into()
        }
        kind::UNLINK => op::Unlink { dir, path, flags: argument as i32 }.into(),
        kind::MKDIR => op::Mkdir { dir, path, mode }.into(),
        kind::LINK => {
            op::Link { old_dir: dir, old: path, new_dir: dir2, new: path2, flags: argument as i32 }
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
