//! An operation in its slot: its state, and what a result means for it. It makes no system calls,
//! except to close a descriptor that nobody else knows.

use super::completion::Completion;
use super::id::OpId;
use super::options::BackendKind;
use crate::device::Placement;
use crate::error::{Error, ErrorDetail};
use crate::file::{File, FileKind, Traits};
use crate::op::{
    self, MIN_DEVICE_REQUEST, Opcode, Open, Operation, Raw, Resources, RwFlags, Transfer,
};
use crate::slots::Key;
use crate::split::{Attempt, Piece, SplitProgress};
use crate::sys::{self, OwnedFd, libc};
use std::mem::ManuallyDrop;
use std::time::Instant;

/// After this many retries an operation falls back to the threads, where it may block.
pub(super) const MAX_RETRIES: u8 = 8;
/// After this many, an ECANCELED that nobody has requested is the answer.
const MAX_CANCELED: u8 = 100;

/// The longest piece of any transfer; the kernel's own limit is just below 2 GiB.
const MAX_PIECE: u64 = 1 << 30;

/// The value of a slot: an operation, its progress and its result.
pub(super) struct InFlight<T = ()> {
    /// Never dropped in place, so that a new operation can be written over it. When a slot is
    /// freed, the operation's resources were moved out or are leaked on purpose.
    pub(super) operation: ManuallyDrop<Operation>,
    pub(super) progress: SplitProgress,
    /// The next operation of the chain.
    pub(super) next: Option<Key>,
    /// The operation before it in the chain, if both were submitted linked.
    pub(super) after: Option<Key>,
    /// Counted in `active`.
    pub(super) is_active: bool,
    /// Counted in `resubmittable`.
    pub(super) counted_resubmittable: bool,
    /// Takes the fast path through the queue, which does not count pieces: the operation has one
    /// piece, no chain, barrier or time limit, is no close, and needs no
    /// [resubmission](Self::may_resubmit).
    pub(super) fast_path: bool,
    pub(super) cancel_cause: CancelCause,
    /// Runs on the fallback pool, since the main backend does not support it.
    pub(super) use_fallback: bool,
    pub(super) abandoned: bool,
    /// A close that has moved the descriptor out of its file and owns it now.
    pub(super) owns_descriptor: bool,
    /// A close of a file on a file system whose closes never fail with EFAULT or ECANCELED.
    /// Elsewhere those may be a server's answer, and the descriptor is closed.
    pub(super) may_close_again: bool,
    /// It is the operation that has the list of its file's extents read.
    pub(super) reads_extents: bool,
    /// How many times it was retried; after a cancel, how many times that was repeated.
    pub(super) retries: u8,
    /// The errno with which the kernel may have refused `RWF_DONTCACHE`; 0 if it has not. The
    /// operation is made without it.
    pub(super) dont_cache_errno: i32,
    pub(super) deadline: Option<Instant>,
    pub(super) result: i64,
    /// What is known of the error besides its errno.
    pub(super) detail: Option<ErrorDetail>,
    /// What the owner attached.
    pub(super) attachment: T,
}

/// Why an operation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelCause {
    /// It was not cancelled.
    None,
    /// The owner cancelled it.
    Cancelled,
    /// Its time limit has passed.
    TimedOut,
    /// An earlier operation of its chain failed.
    ChainBroken,
}

impl<T: Default> Default for InFlight<T> {
    fn default() -> Self {
        Self {
            operation: ManuallyDrop::new(op::nop()),
            progress: SplitProgress::whole(),
            next: None,
            after: None,
            is_active: false,
            counted_resubmittable: false,
            fast_path: false,
            cancel_cause: CancelCause::None,
            use_fallback: false,
            abandoned: false,
            owns_descriptor: false,
            may_close_again: false,
            reads_extents: false,
            retries: 0,
            dont_cache_errno: 0,
            deadline: None,
            result: 0,
            detail: None,
            attachment: T::default(),
        }
    }
}

impl<T: Default> InFlight<T> {
    /// Attaches a value to an operation that has just been put here.
    #[inline]
    pub(super) fn attach(&mut self, backend: BackendKind, attachment: T) {
        self.attachment = attachment;
        #[cfg(feature = "testing")]
        if backend == BackendKind::Null
            && let Resources::Spare(spare) = &mut self.operation.resources
        {
            spare.zero(); // The null backend reads nothing into it.
        }
        #[cfg(not(feature = "testing"))]
        let _ = backend;
    }

    /// Resets the state for an operation that was just written into the slot.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.progress = split(&self.operation);
        self.fast_path = self.progress.is_single()
            && self.operation.timeout.is_none()
            && !self.operation.drain
            && !matches!(self.operation.raw, Raw::Close(_))
            && !self.may_resubmit();
        self.next = None;
        self.after = None;
        self.is_active = false;
        self.counted_resubmittable = false;
        self.cancel_cause = CancelCause::None;
        self.use_fallback = false;
        self.abandoned = false;
        self.owns_descriptor = false;
        self.may_close_again = false;
        self.reads_extents = false;
        self.retries = 0;
        self.dont_cache_errno = 0;
        self.deadline = None;
        self.detail = None;
        let Operation { raw, file, exact, .. } = &mut *self.operation;
        if let Some(flags) = raw.rw_flags_mut() {
            // The result of an untorn write is final only if it is whole.
            *exact |= flags.has(RwFlags::ATOMIC);
            if let Some(file) = file {
                file.without_refused(flags);
            }
        }
        op::set_addresses(&mut self.operation);
    }

    /// A result may be followed by another submission that somebody waits for: the rest of a
    /// transfer through a pipe (which ignores an offset), a retry of a nonblocking transfer, or an
    /// open that must wait for a reader.
    #[inline]
    pub(super) fn may_resubmit(&self) -> bool {
        match &self.operation.raw {
            Raw::Open(open) => open.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY,
            raw => match raw.offset() {
                Some(op::CURRENT_POSITION) => true,
                Some(_) => self.operation.file.as_ref().is_some_and(|file| !file.is_storage()),
                None => false,
            },
        }
    }

    /// Leaves the fast path. `submitted`: a backend has the operation.
    pub(super) fn leave_fast_path(&mut self, submitted: bool) {
        if std::mem::take(&mut self.fast_path) && submitted {
            self.progress.next_piece();
        }
    }

    /// True if this result completes an operation on the fast path. (A count of more bytes than the
    /// transfer has, of a driver or server with a fault, is not taken over.)
    #[inline]
    pub(super) fn is_final(&self, result: i64) -> bool {
        let Ok(done) = u64::try_from(result) else { return false };
        let total = self.progress.total();
        let may_be_other = || done < total || !self.operation.raw.is_transfer();
        done == total || !self.operation.exact && may_be_other()
    }

    /// The result of an untorn write for an attempt that is not retried: whole, or an error.
    pub(super) fn untorn_result(&mut self, attempt: Attempt) -> Option<i64> {
        if !is_untorn(&self.operation.raw) {
            return None;
        }
        let (errno, detail) = match attempt.errno {
            0 if attempt.done == self.progress.total() => return Some(attempt.done as i64),
            0 => (libc::EIO, Some(ErrorDetail::TORN)),
            errno @ (libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                (errno, Some(ErrorDetail::UNTORN_REFUSED))
            }
            // (With a time limit the result is ETIMEDOUT, and after a cancel ECANCELED.)
            libc::EAGAIN if self.deadline.is_none() && self.cancel_cause == CancelCause::None => {
                (libc::EAGAIN, Some(ErrorDetail::UNTORN_REFUSED))
            }
            errno => (errno, None),
        };
        self.detail = detail;
        Some(-i64::from(errno))
    }

    /// The operation, or the part of it, that one piece covers.
    #[inline]
    pub(super) fn piece(&self, piece: Piece) -> Raw {
        if self.progress.asks_ring
            && let Some(nothing) = self.on_nothing()
        {
            return nothing;
        }
        let all = piece.start == 0 && piece.len == self.progress.total();
        if all { self.operation.raw } else { self.operation.raw.piece(piece.start, piece.len) }
    }

    /// EINTR, EAGAIN, and an unrequested ECANCELED are retried, not reported; but not EAGAIN or
    /// ECANCELED that a file system answers to a blocking call, which `by_thread` says was made,
    /// nor what one that is not well known answers to a sync.
    pub(super) fn should_retry(&self, errno: i32, by_thread: bool) -> bool {
        if self.cancel_cause != CancelCause::None {
            return false;
        }
        match errno {
            // The kernel may have enforced the time limit.
            libc::EINTR | libc::ECANCELED if self.is_late() => false,
            // The descriptor is closed, whatever the file system has answered.
            libc::EINTR | libc::EAGAIN if self.is_close() => false,
            libc::EFAULT | libc::ECANCELED if self.is_close() => {
                !by_thread && self.may_close_again && self.retries <= MAX_RETRIES
            }
            // The threads return it when too many opens wait, and the system call when O_NONBLOCK
            // meets a lease.
            libc::EAGAIN if matches!(self.operation.raw, Raw::Open(_)) => {
                !self.use_fallback && self.retries <= MAX_RETRIES
            }
            // A device may have no path at the moment, and may never get one. (The kernel's queues
            // make a sync like a thread does.)
            libc::EAGAIN if by_thread || self.operation.raw.is_sync() => {
                self.is_stream() || self.is_well_known() && self.retries <= MAX_RETRIES
            }
            libc::EAGAIN => true,
            // The kernel also fails with it if the thread that submitted the operation has ended
            // before the kernel started it (a link) or continued it (a buffered read that had to
            // wait). If the address is really bad, the retry fails too.
            libc::EFAULT => !by_thread && self.retries <= MAX_RETRIES,
            // Nobody but the file system answers that to a thread, and a well-known one does not.
            // (Of a path nobody knows whose it is.)
            libc::ECANCELED if by_thread || self.operation.raw.is_sync() => {
                self.is_well_known() && self.retries <= MAX_CANCELED
            }
            // A file system may answer it to a sync. As with any other error, data may be lost, of
            // which the kernel tells once: a second sync would succeed.
            libc::EINTR if self.operation.raw.is_sync() => self.is_well_known(),
            libc::EINTR | libc::ECANCELED => true,
            _ => false,
        }
    }

    /// Whether its time limit has passed.
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn is_close(&self) -> bool {
        matches!(self.operation.raw, Raw::Close(_))
    }

    /// Whether the file is a pipe, a socket or a terminal, which the threads poll for.
    fn is_stream(&self) -> bool {
        let kind = match (&self.operation.file, self.operation.raw.fd()) {
            (Some(file), _) => file.traits().kind,
            (None, Some(fd)) => Traits::of(fd).kind,
            (None, None) => return false,
        };
        matches!(kind, FileKind::Stream | FileKind::Device)
    }

    /// Whether the file is one of which a queue of the kernel makes the transfers. Such a file
    /// answers EAGAIN only if its device is in trouble. (On systems other than Linux nothing is
    /// known of a file system; there its EAGAIN is retried as often.)
    fn is_well_known(&self) -> bool {
        if cfg!(not(ringway_linux)) {
            return true;
        }
        let file = self.operation.file.as_ref();
        file.is_none_or(|file| file.placement().has(Placement::RING))
    }

    /// True if a read has reached the end of the file: it read nothing, or it is a direct read that
    /// stopped within a block, so that its rest would not be aligned. (Where the block is not
    /// known, the rest is read: a file system may stop anywhere.)
    pub(super) fn is_end_of_file(&self, attempt: Attempt) -> bool {
        if self.operation.raw.is_write() {
            return false;
        }
        let stopped_within_a_block = |file: &File| {
            let is_known = || !file.is_align_assumed();
            file.placement().has(Placement::ALIGNED) && is_known() && is_within_block(file, attempt)
        };
        attempt.gained == 0 || self.operation.file.as_ref().is_some_and(stopped_within_a_block)
    }

    /// Whether the rest of a direct read was refused because it is not aligned, and there is none:
    /// what was read reaches the size of the file.
    pub(super) fn is_refused_beyond_end(&self, attempt: Attempt) -> bool {
        let Some(file) = self.operation.file.as_ref().filter(|_| !self.operation.raw.is_write())
        else {
            return false;
        };
        let end = self.operation.raw.offset().and_then(|at| at.checked_add(attempt.done));
        attempt.errno == libc::EINVAL
            && attempt.done > 0
            && file.is_direct()
            && is_within_block(file, attempt)
            && end.zip(file.size()).is_some_and(|(end, size)| end >= size)
    }

    /// The result that the owner gets for the kernel's result.
    pub(super) fn final_result(&self, result: i64) -> i64 {
        let errno = match result {
            0.. => return result,
            _ => i32::try_from(-result).unwrap_or(libc::EIO),
        };
        // (Whatever else a close returns, it was made.)
        let is_close = self.is_close();
        let stopped =
            errno == libc::ECANCELED || !is_close && matches!(errno, libc::EINTR | libc::EAGAIN);
        let was_stopped =
            stopped || !is_close && (errno == libc::EFAULT || self.was_not_a_socket(errno));
        match (&self.operation.raw, self.cancel_cause) {
            // A timeout that expires has succeeded.
            (Raw::Timeout(_), _) if errno == libc::ETIME => 0,
            // An interrupted close has closed the descriptor nevertheless (close(2), NOTES).
            (Raw::Close(_), _) if errno == libc::EINTR => 0,
            // A file system has answered that, perhaps for data that is lost; it tells it once,
            // also to a caller who has cancelled the sync and may make another one.
            (raw, _)
                if matches!(errno, libc::EINTR | libc::EAGAIN)
                    && raw.is_sync()
                    && !self.is_well_known() =>
            {
                result
            }
            (_, CancelCause::TimedOut) if was_stopped => -i64::from(libc::ETIMEDOUT),
            (_, CancelCause::Cancelled | CancelCause::ChainBroken) if was_stopped => {
                -i64::from(libc::ECANCELED)
            }
            // The kernel enforced the time limit itself.
            (_, CancelCause::None) if stopped && self.deadline.is_some() => {
                -i64::from(libc::ETIMEDOUT)
            }
            _ => result,
        }
    }

    /// The descriptor of a close that was stopped before it started, with the kernel's result: it
    /// is still open, and nobody else knows it.
    pub(super) fn take_unclosed_fd(&mut self, result: i64) -> Option<OwnedFd> {
        let Raw::Close(close) = self.operation.raw else { return None };
        // (Without a cancel or a time limit, a server has answered that.)
        let may_have_stopped = self.cancel_cause != CancelCause::None || self.deadline.is_some();
        let is_open = std::mem::take(&mut self.owns_descriptor)
            && may_have_stopped
            && result == -i64::from(libc::ECANCELED);
        // SAFETY: `take_descriptor` took the descriptor from its only owner, and the kernel has not
        // closed it.
        is_open.then(|| unsafe { sys::owned(close.fd) })
    }

    /// True if the next operation of the chain may start.
    pub(super) fn succeeded(&self) -> bool {
        match self.result {
            ..0 => false,
            done => !self.operation.raw.is_transfer() || done as u64 == self.progress.total(),
        }
    }

    /// io_uring first tries an open as if `O_NONBLOCK` were set. For a FIFO without a reader, an
    /// open for writing then fails with ENXIO; the threads wait for the reader instead. (An open
    /// for reading succeeds at once, and is kept: closing it to wait would break the pipe of a
    /// writer that opened it meanwhile.)
    pub(super) fn should_wait_for_reader(&self, errno: i32) -> bool {
        let Raw::Open(open) = &self.operation.raw else { return false };
        let may_wait = open.flags as i32 & libc::O_NONBLOCK == 0
            && self.next.is_none()
            && self.after.is_none();
        errno == libc::ENXIO
            && may_wait
            && !self.use_fallback
            && self.cancel_cause == CancelCause::None
    }

    /// A ring may have filters of its own, which deny operations that the system call may make.
    pub(super) fn may_be_denied_by_ring(&self, errno: i32) -> bool {
        errno == libc::EACCES && !self.use_fallback && self.cancel_cause == CancelCause::None
    }

    /// What asks the ring who has denied the operation: the same on nothing, which only the ring
    /// denies. If it was a file system, that may have made the operation nevertheless, and a thread
    /// must not make it again. `None` if no file system is asked.
    pub(super) fn on_nothing(&self) -> Option<Raw> {
        #[cfg(ringway_linux)]
        return self.operation.raw.on_nothing();
        #[cfg(not(ringway_linux))]
        None
    }

    /// A file without offsets ignores an offset that is given. io_uring does so for pipes but not
    /// for sockets; the threads do so for both.
    pub(super) fn should_drop_offset(&self, errno: i32) -> bool {
        errno == libc::ESPIPE && !self.use_fallback && self.cancel_cause == CancelCause::None
    }

    /// The kernel has refused the operation, because its file is not a socket, as was stated.
    pub(super) fn was_not_a_socket(&self, errno: i32) -> bool {
        errno == libc::ENOTSOCK && self.operation.socket
    }

    /// Whether the kernel may have refused the transfer because of `RWF_DONTCACHE`, and has done
    /// nothing. The errno may have another cause: what the transfer returns without the flag is its
    /// result.
    pub(super) fn may_lack_dont_cache(&self, attempt: Attempt) -> bool {
        let Attempt { errno, done, .. } = attempt;
        // EOPNOTSUPP: the file system, or a kernel before 6.14. EINVAL: a kernel before 4.13. The
        // others: a filter that refuses the system call with flags. A write that is synced may
        // have them from the sync.
        let is_refusal = errno == libc::EOPNOTSUPP
            || matches!(errno, libc::EINVAL | libc::ENOSYS | libc::EPERM)
                && !self.operation.raw.is_sync();
        let accepts = || self.operation.file.as_ref().is_some_and(File::accepts_dont_cache);
        let has_flag = self.operation.raw.rw_flags().has(RwFlags::DONT_CACHE);
        is_refusal && has_flag && done == 0 && !accepts()
    }

    /// From now on the transfer is made without `RWF_DONTCACHE`, for which the kernel may have
    /// returned this errno.
    pub(super) fn leave_dont_cache(&mut self, errno: i32) {
        if let Some(flags) = self.operation.raw.rw_flags_mut() {
            flags.clear(RwFlags::DONT_CACHE);
        }
        self.dont_cache_errno = errno;
    }

    /// Makes an operation that was stated to be one of a socket an operation of any file.
    pub(super) fn forget_socket(&mut self) {
        if std::mem::take(&mut self.operation.socket) && self.operation.file.is_none() {
            let fd = self.operation.raw.fd();
            // SAFETY: an operation without a file is from `from_raw`. Its maker promised that the
            // descriptor stays what it is until the completion, and `finish` drops the file.
            self.operation.file = fd.and_then(|fd| unsafe { File::borrow_raw(fd) });
        }
    }

    /// Moves out an operation that was not started.
    pub(super) fn withdraw(&mut self) -> (Operation, T) {
        let operation = std::mem::replace(&mut self.operation, ManuallyDrop::new(op::nop()));
        (ManuallyDrop::into_inner(operation), std::mem::take(&mut self.attachment))
    }

    /// Moves out an abandoned operation that has ended.
    pub(super) fn orphan(&mut self, key: Key) -> Orphan<T> {
        Orphan { completion: self.complete(key), attachment: std::mem::take(&mut self.attachment) }
    }

    /// The error with which the operation ended, if it has ended with one.
    #[inline]
    pub(super) fn error(&self) -> Option<Error> {
        if self.result >= 0 {
            return None;
        }
        let errno = i32::try_from(-self.result).unwrap_or(libc::EIO);
        Some(Error::new(errno, self.operation.opcode()).with_detail(self.detail))
    }

    #[inline]
    pub(super) fn complete(&mut self, key: Key) -> Completion {
        op::commit_spare(&mut self.operation, self.result);
        let opcode = self.operation.opcode();
        let mut opened = if opcode == Opcode::Open { Open::opened(self.result) } else { None };
        if let Resources::Open { opening_time, .. } = self.operation.resources {
            opened = opened.map(|file| file.opened_after(opening_time));
        }
        let result = match self.error() {
            Some(error) => Err(error),
            None if opcode == Opcode::Open => Ok(0),
            None => Ok(self.result.unsigned_abs()),
        };
        self.detail = None;
        Completion {
            id: OpId(key),
            user_data: self.operation.user_data,
            opcode,
            result,
            resources: std::mem::replace(&mut self.operation.resources, Resources::None),
            opened,
        }
    }
}

/// How a transfer is split: a read into pieces of the device's largest request, if that is less
/// than its length.
///
/// A write is what one `pwrite(2)` is: one append, and nothing is written after the count that it
/// returns. So it is submitted whole; if it is too long even for the kernel, one piece after the
/// other. (This costs nothing: with device requests of 64 KiB and of 1280 KiB, whole writes were
/// measured to be as fast as eight pieces at a time, or faster.)
#[inline]
fn split(operation: &Operation) -> SplitProgress {
    match operation.raw.transfer() {
        Transfer::None => SplitProgress::whole(),
        Transfer::Bytes(total) if total <= MIN_DEVICE_REQUEST => SplitProgress::new(total, 0),
        Transfer::Bytes(total) if is_untorn(&operation.raw) => SplitProgress::new(total, 0),
        Transfer::Bytes(total) if operation.raw.is_write() => {
            SplitProgress::new(total, MAX_PIECE).in_order()
        }
        Transfer::Bytes(total) => SplitProgress::new(total, piece_limit(operation.file.as_ref())),
        Transfer::Stream(total) | Transfer::Vector(total) => SplitProgress::new(total, 0),
    }
}

/// Whether a write is whole or not made at all.
#[inline]
fn is_untorn(raw: &Raw) -> bool {
    raw.rw_flags().has(RwFlags::ATOMIC)
}

/// Whether a direct transfer stopped within a block.
fn is_within_block(file: &File, attempt: Attempt) -> bool {
    !attempt.done.is_multiple_of(u64::from(file.offset_align().max(1)))
}

/// The longest piece of a read; for a direct read, the device's largest request, unless the file
/// system is not known to read the pieces as it reads the whole.
#[cold]
fn piece_limit(file: Option<&File>) -> u64 {
    let is_split = |file: &&File| file.is_direct() && file.placement().has(Placement::RING);
    let Some(file) = file.filter(is_split) else { return MAX_PIECE };
    let align = u64::from(file.offset_align().max(1));
    longest_aligned(file.largest_request().unwrap_or(0).into(), align)
}

/// The longest piece that a device takes in one request, in whole blocks. A request that is shorter
/// than a block is no limit, and neither is 0: it is unknown.
fn longest_aligned(largest_request: u64, align: u64) -> u64 {
    match largest_request - largest_request % align {
        0 => MAX_PIECE,
        limit => limit.min(MAX_PIECE),
    }
}

/// An abandoned operation that has ended, with its resources.
#[derive(Debug)]
pub struct Orphan<T> {
    /// What was attached to it.
    pub attachment: T,
    /// Its completion. Dropping it closes a file that the operation opened.
    pub completion: Completion,
}

/// Whether the operation ends without anybody else's doing: not so an open, a poll or a timeout,
/// nor a transfer on anything but storage.
pub(super) fn ends_by_itself(operation: &Operation) -> bool {
    let raw = &operation.raw;
    if matches!(raw.opcode(), Opcode::Poll | Opcode::Timeout | Opcode::Open) {
        return false;
    }
    !raw.is_transfer()
        || !operation.socket
            && match (&operation.file, raw.fd()) {
                (Some(file), _) => file.is_storage(),
                (None, Some(fd)) => Traits::of(fd).kind.is_storage(),
                (None, None) => true,
            }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;
    use crate::sys::Number;

    const DEVICE: &str = if cfg!(windows) { "NUL" } else { "/dev/zero" };

    /// Two concurrent appends must not interleave, and no bytes may follow the count of a short
    /// write.
    #[test]
    fn writes_are_submitted_whole_or_in_order() {
        let file = File::from(std::fs::File::open(DEVICE).unwrap());
        let long = MAX_PIECE as usize + 1;
        for (len, pieces) in
            [(0, 1), (2 << 20, 1), (MAX_PIECE as usize, 1), (long, 2), (2 * long, 3)]
        {
            let raw = op::Write {
                fd: file.number(),
                buf: std::ptr::null(),
                len,
                offset: 0,
                flags: op::RwFlags::NONE,
            };
            // SAFETY: the operation is not pushed, so the address is never used.
            let write = unsafe { Operation::from_raw(raw.into(), Some(file.clone()), None) };
            let mut progress = split(&write);
            for number in 0..pieces {
                let piece = progress.next_piece().unwrap();
                assert_eq!((piece.number, progress.next_piece()), (number, None));
                assert_eq!(
                    progress.complete(number, piece.len as i64).is_some(),
                    number + 1 == pieces
                );
            }
        }
    }

    /// The kernel would split a longer piece once more, and one that ends within a block would not
    /// be aligned.
    #[test]
    fn pieces_are_whole_blocks_that_the_device_takes_at_once() {
        for (largest, align, limit) in [
            (1280 << 10, 4096, 1280 << 10),
            ((128 << 10) + 512, 4096, 128 << 10),
            ((128 << 10) + 512, 512, (128 << 10) + 512),
            (1000, 1, 1000),
            (4095, 4096, MAX_PIECE),
            (0, 512, MAX_PIECE),
            (u32::MAX.into(), 512, MAX_PIECE),
        ] {
            assert_eq!(longest_aligned(largest, align), limit, "{largest} of {align}");
        }
        assert_eq!((MAX_PIECE % (1 << 20), MAX_PIECE < 0x7fff_f000), (0, true));
    }

    /// The limit that a read is split by is that of its device.
    #[cfg(ringway_linux)]
    #[test]
    fn a_direct_read_is_split_by_its_device() {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        let open =
            std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path());
        let Ok(open) = open else { return println!("skipped: no direct I/O on this file system") };
        let file = File::from(open);
        let expected = if file.placement().has(Placement::RING) {
            longest_aligned(
                file.largest_request().unwrap_or(0).into(),
                u64::from(file.offset_align().max(1)),
            )
        } else {
            MAX_PIECE
        };
        let len = MAX_PIECE as usize;
        let raw = op::Read {
            fd: file.number(),
            buf: std::ptr::null_mut(),
            len,
            offset: 0,
            flags: op::RwFlags::NONE,
        };
        // SAFETY: the operation is not pushed, so the address is never used.
        let read = unsafe { Operation::from_raw(raw.into(), Some(file), None) };
        assert_eq!(split(&read).limit(), expected);
    }

    /// An errno that may never end is the answer after as many retries as its bound allows.
    #[test]
    fn retries_are_bounded() {
        let file = File::from(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
        let options = op::OpenOptions::new();
        let open = || op::open("x", &options);
        let read = || op::read(&file, vec![0; 1], 0);
        let sync = || op::fsync(&file);
        let close = || op::close(file.clone());
        type Make<'a> = &'a dyn Fn() -> Operation;
        let cases: [(&str, Make<'_>, i32, bool, u8); 9] = [
            ("open", &open, libc::EAGAIN, false, MAX_RETRIES),
            ("sync", &sync, libc::EAGAIN, false, MAX_RETRIES),
            ("sync by a thread", &sync, libc::EAGAIN, true, MAX_RETRIES),
            ("read by a thread", &read, libc::EAGAIN, true, MAX_RETRIES),
            ("read", &read, libc::EFAULT, false, MAX_RETRIES),
            ("close", &close, libc::EFAULT, false, MAX_RETRIES),
            ("close", &close, libc::ECANCELED, false, MAX_RETRIES),
            ("sync", &sync, libc::ECANCELED, false, MAX_CANCELED),
            ("read by a thread", &read, libc::ECANCELED, true, MAX_CANCELED),
        ];
        for (what, make, errno, by_thread, most) in cases {
            let operation = ManuallyDrop::new(make());
            let mut flight =
                InFlight::<()> { operation, may_close_again: true, ..Default::default() };
            // Then its file system counts as a well-known one.
            flight.operation.file = None;
            for (retries, again) in [(0, true), (most, true), (most + 1, false)] {
                flight.retries = retries;
                let retried = flight.should_retry(errno, by_thread);
                assert_eq!(retried, again, "{what}, errno {errno}, after {retries} retries");
            }
        }
    }

    /// Of a file system that is not known, EINTR of a sync may be the error of lost data.
    #[cfg(ringway_linux)]
    #[test]
    fn an_interrupted_sync_is_retried_on_well_known_file_systems_only() {
        let file = File::from(std::fs::File::open("/proc/self/stat").unwrap());
        let sync = || op::fdatasync(&file);
        let write = || op::write_dsync(&file, vec![0; 1], 0);
        let read = || op::read(&file, vec![0; 1], 0);
        type Make<'a> = &'a dyn Fn() -> Operation;
        let cases: [(Make<'_>, bool); 3] = [(&sync, false), (&write, false), (&read, true)];
        for (make, is_retried) in cases {
            let mut flight =
                InFlight::<()> { operation: ManuallyDrop::new(make()), ..Default::default() };
            for by_thread in [false, true] {
                assert_eq!(flight.should_retry(libc::EINTR, by_thread), is_retried);
            }
            // Then its file system counts as a well-known one.
            flight.operation.file = None;
            assert!(flight.should_retry(libc::EINTR, true));
        }
    }

    /// A driver or a server that counts more bytes than were requested must not make a buffer
    /// longer than its memory.
    #[test]
    fn no_transfer_has_more_bytes_than_requested() {
        let file = File::from(std::fs::File::open(DEVICE).unwrap());
        let mut flight: InFlight = InFlight {
            operation: ManuallyDrop::new(op::read_spare(&file, Vec::with_capacity(8), 0)),
            ..Default::default()
        };
        flight.begin();
        let total = flight.progress.total() as i64;
        assert!(flight.is_final(total) && flight.is_final(total - 1));
        assert!(!flight.is_final(total + 1) && !flight.is_final(-1));
        let Resources::Spare(spare) = &mut flight.operation.resources else { panic!() };
        spare.uninit().fill(std::mem::MaybeUninit::new(7));
        op::commit_spare(&mut flight.operation, total + 1);
        let resources = std::mem::replace(&mut flight.operation.resources, Resources::None);
        let Resources::Spare(spare) = resources else { panic!() };
        assert_eq!(Vec::try_from(spare).unwrap(), vec![7; total as usize]);
        // What is no transfer returns other numbers: events, descriptors.
        flight.operation = ManuallyDrop::new(op::poll(&file, op::Readiness::READABLE));
        flight.begin();
        assert!(flight.is_final(1));
    }

    /// Made again after its time limit, an operation would take effect although it is reported as
    /// timed out.
    #[test]
    fn nothing_is_retried_after_its_time_limit() {
        let file = File::from(std::fs::File::open(DEVICE).unwrap());
        let mut flight = InFlight::<()>::default();
        for operation in [op::fsync(&file), op::close(file.clone()), op::statx("x"), op::nop()] {
            flight.operation = ManuallyDrop::new(operation);
            flight.may_close_again = true;
            for (deadline, retries) in [(None, true), (Some(Instant::now()), false)] {
                flight.deadline = deadline;
                assert_eq!(flight.should_retry(libc::ECANCELED, false), retries);
            }
        }
    }

    /// Facts about the file decide how a read ends and is submitted, so it must be known once it is
    /// not a socket.
    #[test]
    fn an_operation_that_is_not_one_of_a_socket_gets_its_file() {
        let zero = std::fs::File::open(DEVICE).unwrap();
        let (fd, buf) = (zero.number(), std::ptr::null_mut());
        let read =
            op::Read { fd, buf, len: 8, offset: op::CURRENT_POSITION, flags: op::RwFlags::NONE };
        // SAFETY: the operation is not pushed, so the address is never used, and `zero` outlives
        // the file.
        let operation = unsafe { Operation::from_raw(read.into(), None, None) }.socket();
        let mut flight: InFlight =
            InFlight { operation: ManuallyDrop::new(operation), ..Default::default() };
        flight.begin();
        assert!(!flight.was_not_a_socket(libc::EPIPE) && flight.was_not_a_socket(libc::ENOTSOCK));
        flight.forget_socket();
        assert!(!flight.was_not_a_socket(libc::ENOTSOCK));
        let file = flight.operation.file.take();
        assert_eq!(file.map(|file| file.number()), Some(fd));
    }

    /// The rest of a short transfer, and each piece of a split one.
    #[test]
    fn every_piece_of_a_transfer_has_its_flags() {
        let (flags, offset) = (RwFlags::DONT_CACHE, 0);
        use crate::op::{Read, Readv, Write, WriteDsync, Writev};
        let mut memory = [0u8; 64];
        let buf = memory.as_mut_ptr();
        let iov =
            [0, 32].map(|at| libc::iovec { iov_base: buf.wrapping_add(at).cast(), iov_len: 32 });
        let (first, count) = (iov.as_ptr(), iov.len());
        let write = Write { fd: 3, buf, len: 64, offset, flags };
        let transfers: [Raw; 5] = [
            Read { fd: 3, buf, len: 64, offset, flags }.into(),
            write.into(),
            WriteDsync(write).into(),
            Readv { fd: 3, iov: first, count, offset, flags }.into(),
            Writev { fd: 3, iov: first, count, offset, flags }.into(),
        ];
        for transfer in transfers {
            for start in [0, 1, 31, 32, 63] {
                let piece = transfer.piece(start, 1);
                assert_eq!(piece.rw_flags(), flags, "{transfer:?} from {start}");
            }
        }
    }

    /// An operation in flight costs at most this much memory in addition to its buffer.
    #[test]
    fn a_slot_is_small() {
        let size = Slots::<InFlight>::slot_size();
        assert!(size <= 256, "{size} bytes");
    }
}
