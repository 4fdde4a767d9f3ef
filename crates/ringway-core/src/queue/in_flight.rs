//! An operation in its slot: what is known of it, and what its answers mean. No system call but the
//! close of a descriptor that nobody else knows of.

use super::answer::PATIENCE;
use super::{Completion, OpId, Orphan};
use crate::error::Error;
use crate::file::File;
use crate::op::{self, Held, Opcode, Open, Operation, Raw, SURELY_ONE_REQUEST, Shape};
use crate::slots::Key;
use crate::split::{Piece, Progress, Round};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;

/// The longest piece of any transfer; the kernel itself stops just short of 2 GiB.
const LONGEST_PIECE: u64 = 1 << 30;

/// An operation in its slot.
pub(super) struct InFlight<T = ()> {
    /// Not dropped by itself, so that it can be written in place: when a life ends, what the
    /// operation owned has been taken out of it, or is leaked on purpose.
    pub(super) operation: ManuallyDrop<Operation>,
    pub(super) progress: Progress,
    /// What follows in its chain.
    pub(super) next: Option<Key>,
    /// What comes before it in its chain, if the kernel was given both.
    pub(super) after: Option<Key>,
    /// It was counted into `active`.
    pub(super) counted: bool,
    /// It was counted into `going_on`.
    pub(super) goes_on: bool,
    /// Nothing but its one answer decides about it: it has one piece, and no chain, barrier, time
    /// limit or descriptor to take over, and does not [go on](Self::may_go_on). Such a one takes
    /// the short way through the queue, which keeps no account of pieces.
    pub(super) plain: bool,
    pub(super) ending: Ending,
    /// The threads carry it, since the main backend cannot.
    pub(super) to_side: bool,
    pub(super) abandoned: bool,
    /// A close that has taken the descriptor out of its file, and now is its owner.
    pub(super) owns_descriptor: bool,
    pub(super) retries: u8,
    pub(super) deadline: Option<Instant>,
    pub(super) result: i64,
    /// Its owner's.
    pub(super) attachment: T,
}

/// Why an operation that fails with ECANCELED was meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was not.
    Natural,
    /// Its owner asked for it.
    Cancelled,
    /// Its time was up.
    TimedOut,
    /// What it was linked behind failed.
    Broken,
}

impl<T: Default> Default for InFlight<T> {
    fn default() -> Self {
        Self {
            operation: ManuallyDrop::new(op::nop()),
            progress: Progress::whole(),
            next: None,
            after: None,
            counted: false,
            goes_on: false,
            plain: false,
            ending: Ending::Natural,
            to_side: false,
            abandoned: false,
            owns_descriptor: false,
            retries: 0,
            deadline: None,
            result: 0,
            attachment: T::default(),
        }
    }
}

impl<T: Default> InFlight<T> {
    /// A new life, with an operation that has just been put in its place.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.progress = cut(&self.operation);
        self.plain = self.progress.is_single()
            && self.operation.timeout.is_none()
            && !self.operation.drain
            && !matches!(self.operation.raw, Raw::Close(_))
            && !self.may_go_on();
        self.next = None;
        self.after = None;
        self.counted = false;
        self.goes_on = false;
        self.ending = Ending::Natural;
        self.to_side = false;
        self.abandoned = false;
        self.owns_descriptor = false;
        self.retries = 0;
        self.deadline = None;
        op::bind(&mut self.operation);
    }

    /// Somebody may wait for what follows an answer: the rest of a transfer through a pipe, another
    /// try of one that was not to wait, an open that has to wait for a reader.
    #[inline]
    pub(super) fn may_go_on(&self) -> bool {
        match &self.operation.raw {
            Raw::Open(open) => open.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY,
            raw => raw.offset() == Some(op::CURRENT_POSITION),
        }
    }

    /// Leaves the short way; `carried`: a backend has it.
    pub(super) fn make_intricate(&mut self, carried: bool) {
        if std::mem::take(&mut self.plain) && carried {
            self.progress.next_piece();
        }
    }

    /// This answer to a plain one is the outcome.
    #[inline]
    pub(super) fn is_outcome(&self, result: i64) -> bool {
        result >= 0 && (!self.operation.exact || result as u64 == self.progress.total())
    }

    /// What a backend is given of it.
    #[inline]
    pub(super) fn piece(&self, piece: Piece) -> Raw {
        let all = piece.start == 0 && piece.len == self.progress.total();
        if all { self.operation.raw } else { self.operation.raw.piece(piece.start, piece.len) }
    }

    /// EINTR, EAGAIN, and an ECANCELED that nobody asked for are not shown.
    pub(super) fn is_to_be_tried_again(&self, errno: i32) -> bool {
        if self.ending != Ending::Natural {
            return false;
        }
        match errno {
            libc::EINTR if matches!(self.operation.raw, Raw::Close(_)) => false,
            // The threads say it where no more opens may wait, and the system call where O_NONBLOCK
            // meets a lease.
            libc::EAGAIN if matches!(self.operation.raw, Raw::Open(_)) => {
                !self.to_side && self.retries <= PATIENCE
            }
            libc::EAGAIN => true,
            // What the kernel was to begin or to go on with (a link, a buffered read that had to
            // wait) when the thread that submitted it had ended. If it is the address after all, it
            // is so again.
            libc::EFAULT => !self.to_side && self.retries <= PATIENCE,
            // The kernel may have enforced the time limit.
            libc::EINTR | libc::ECANCELED => {
                self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            }
            _ => false,
        }
    }

    /// A read has met the end of the file: it came to nothing, or it is a direct one that stopped
    /// between two blocks, and to go on from there would be refused for its alignment.
    pub(super) fn is_end_of_file(&self, round: Round) -> bool {
        if self.operation.raw.is_write() {
            return false;
        }
        let stopped_between_blocks = |file: &File| {
            file.is_direct()
                && !round.done.is_multiple_of(u64::from(file.direct_io().offset_align.max(1)))
        };
        round.gained == 0 || self.operation.file.as_ref().is_some_and(stopped_between_blocks)
    }

    /// What the owner is shown for what the kernel said.
    pub(super) fn final_result(&self, result: i64) -> i64 {
        let errno = match result {
            0.. => return result,
            _ => i32::try_from(-result).unwrap_or(libc::EIO),
        };
        let stopped = matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN);
        let called_off = stopped || errno == libc::EFAULT;
        match (&self.operation.raw, self.ending) {
            // Its time having come is what was asked of it.
            (Raw::Timeout(_), _) if errno == libc::ETIME => 0,
            // An interrupted close has closed the descriptor all the same (close(2), NOTES).
            (Raw::Close(_), _) if errno == libc::EINTR => 0,
            (_, Ending::TimedOut) if called_off => -i64::from(libc::ETIMEDOUT),
            (_, Ending::Cancelled | Ending::Broken) if called_off => -i64::from(libc::ECANCELED),
            // The kernel kept the time limit itself.
            (_, Ending::Natural) if stopped && self.deadline.is_some() => {
                -i64::from(libc::ETIMEDOUT)
            }
            _ => result,
        }
    }

    /// A close that was cancelled before it began, or whose time was up, has left its descriptor
    /// open, and nobody else knows of it.
    pub(super) fn still_open(&mut self) -> Option<OwnedFd> {
        let Raw::Close(close) = self.operation.raw else { return None };
        let is_open = std::mem::take(&mut self.owns_descriptor)
            && [libc::ECANCELED, libc::ETIMEDOUT]
                .map(|errno| -i64::from(errno))
                .contains(&self.result);
        // SAFETY: the operation took the descriptor out of its only owner, and the kernel has not
        // closed it.
        is_open.then(|| unsafe { OwnedFd::from_raw_fd(close.fd) })
    }

    /// What follows in a chain may begin.
    pub(super) fn succeeded(&self) -> bool {
        match self.result {
            ..0 => false,
            done => !self.operation.raw.is_transfer() || done as u64 == self.progress.total(),
        }
    }

    /// io_uring tries an open as if it had been told not to wait (`O_NONBLOCK`), and a FIFO that
    /// nobody reads then answers ENXIO to who would write. The threads wait for its reader. (For
    /// reading it is opened at once, and that is left as it is: to close it again and wait would
    /// break the pipe of a writer that has come meanwhile.)
    pub(super) fn is_to_wait_for_a_reader(&self, errno: i32) -> bool {
        let Raw::Open(open) = &self.operation.raw else { return false };
        let may_wait = open.flags as i32 & libc::O_NONBLOCK == 0
            && self.next.is_none()
            && self.after.is_none();
        errno == libc::ENXIO && may_wait && !self.to_side && self.ending == Ending::Natural
    }

    /// What has no offsets ignores one that is named. io_uring sees to that for a pipe and not for
    /// a socket; the threads do for both.
    pub(super) fn is_to_go_without_an_offset(&self, errno: i32) -> bool {
        errno == libc::ESPIPE && !self.to_side && self.ending == Ending::Natural
    }

    /// Takes out an operation that has not been started.
    pub(super) fn withdraw(&mut self) -> (Operation, T) {
        let operation = std::mem::replace(&mut self.operation, ManuallyDrop::new(op::nop()));
        (ManuallyDrop::into_inner(operation), std::mem::take(&mut self.attachment))
    }

    /// The end of an operation that nobody waits for.
    pub(super) fn orphan(&mut self, key: Key) -> Orphan<T> {
        Orphan { completion: self.complete(key), attachment: std::mem::take(&mut self.attachment) }
    }

    #[inline]
    pub(super) fn complete(&mut self, key: Key) -> Completion {
        op::fill(&mut self.operation, self.result);
        let opcode = self.operation.opcode();
        let opened = if opcode == Opcode::Open { Open::opened(self.result) } else { None };
        let result = match u64::try_from(self.result) {
            Ok(_) if opcode == Opcode::Open => Ok(0),
            Ok(done) => Ok(done),
            Err(_) => Err(Error::new(i32::try_from(-self.result).unwrap_or(libc::EIO), opcode)),
        };
        Completion {
            id: OpId(key),
            user_data: self.operation.user_data,
            opcode,
            result,
            held: std::mem::replace(&mut self.operation.held, Held::Nothing),
            opened,
        }
    }
}

/// How a transfer is cut: a read in pieces of what the device takes in one request, where that is
/// less.
///
/// A write is what one `pwrite(2)` does: one append, nothing behind the count that it answers. So
/// it goes whole, and where it is too long even for the kernel, one piece after the other. (That
/// costs nothing: measured with requests of 64 KiB and of 1280 KiB, whole writes are as fast as
/// eight pieces at a time, or faster.)
#[inline]
fn cut(operation: &Operation) -> Progress {
    match operation.raw.shape() {
        Shape::Whole => Progress::whole(),
        Shape::Bytes(total) if total <= SURELY_ONE_REQUEST => Progress::new(total, 0),
        Shape::Bytes(total) if operation.raw.is_write() => {
            Progress::new(total, LONGEST_PIECE).in_order()
        }
        Shape::Bytes(total) => Progress::new(total, piece_limit(operation.file.as_ref())),
        Shape::Stream(total) | Shape::Vector(total) => Progress::new(total, 0),
    }
}

/// The longest piece of a read: of a direct one, what the device takes in one request.
#[cold]
fn piece_limit(file: Option<&File>) -> u64 {
    let Some(file) = file.filter(|file| file.is_direct()) else { return LONGEST_PIECE };
    let align = u64::from(file.direct_io().offset_align.max(1));
    let largest = u64::from(file.largest_request().unwrap_or(0));
    match largest - largest % align {
        0 => LONGEST_PIECE,
        limit => limit.min(LONGEST_PIECE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;
    use std::os::fd::AsRawFd;

    /// Two appends in flight together must not be mixed, and nothing may land behind the count of a
    /// short write.
    #[test]
    fn writes_go_whole_or_in_order() {
        let file = File::from(std::fs::File::open("/dev/zero").unwrap());
        let long = LONGEST_PIECE as usize + 1;
        for (len, pieces) in
            [(0, 1), (2 << 20, 1), (LONGEST_PIECE as usize, 1), (long, 2), (2 * long, 3)]
        {
            let form = op::Write { fd: file.as_raw_fd(), addr: std::ptr::null(), len, offset: 0 };
            // SAFETY: it is not pushed, so that nobody looks at the address.
            let write = unsafe { Operation::from_raw(form.into(), Some(file.clone()), None) };
            let mut progress = cut(&write);
            for number in 0..pieces {
                let piece = progress.next_piece().unwrap();
                assert_eq!((piece.number, progress.next_piece()), (number, None));
                assert_eq!(
                    progress.answered(number, piece.len as i64).is_some(),
                    number + 1 == pieces
                );
            }
        }
    }

    /// An operation in flight costs at most this beside its buffer.
    #[test]
    fn a_slot_is_small() {
        let size = Slots::<InFlight>::slot_size();
        assert!(size <= 256, "{size} bytes");
    }
}
