//! Giving operations to the backends: in pieces, linked, or to the threads that stand beside a
//! backend which cannot carry them.

use super::fixed::Fixed;
use super::in_flight::{Ending, InFlight};
use super::{BackendKind, Backends, Explanation, Table};
use crate::backend::{Answer, Backend, Event, Job, NoRoom};
use crate::file::{File, FileKind, Traits};
use crate::op::{CURRENT_POSITION, Opcode, Operation, Raw, is_for_worker};
use crate::refusal::Feature;
use crate::slots::{Key, State, Token};
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};

/// What is known of a file that nobody has looked at.
const UNKNOWN: Traits = Traits { kind: FileKind::Unknown, direct: false };
/// What has to be known of a file before a job on it is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Nothing: a ring takes everything, but direct transfers at the file's own position, and long
    /// or durable ones through the page cache in its own way.
    Nothing,
    /// Whether it can be waited for: threads find out themselves what a bare descriptor is.
    OfFiles,
    /// Whether it is open for direct I/O, even of a bare descriptor.
    OfDescriptors,
}

impl Asks {
    pub(super) fn for_backend(explanation: &Explanation) -> Self {
        match explanation.backend {
            BackendKind::Uring if !explanation.available.contains(&Feature::IoPoll) => {
                Self::Nothing
            }
            #[cfg(feature = "testing")]
            BackendKind::Null => Self::Nothing,
            BackendKind::Threads => Self::OfFiles,
            BackendKind::Uring | BackendKind::Kaio => Self::OfDescriptors,
        }
    }

    #[inline]
    fn traits(self, file: Option<&File>, raw: &Raw) -> Traits {
        match (self, file) {
            (Self::Nothing, _) if raw.offset() != Some(CURRENT_POSITION) && !is_for_worker(raw) => {
                UNKNOWN
            }
            (Self::OfFiles, None) => UNKNOWN,
            (_, Some(file)) => file.traits(),
            (Self::Nothing | Self::OfDescriptors, None) => raw.fd().map_or(UNKNOWN, Traits::of),
        }
    }
}

/// A job for a backend.
#[inline]
fn job<T>(asks: Asks, fixed: &Fixed, key: Key, flight: &InFlight<T>, raw: Raw, piece: u8) -> Job {
    let file = flight.operation.file.as_ref();
    let traits = asks.traits(file, &raw);
    let (fixed_file, fixed_buffer) = fixed.find(file, &raw);
    Job {
        fixed_file,
        fixed_buffer,
        deadline: flight.deadline,
        ..Job::new(Token::new(key, piece), raw, traits.kind, traits.direct)
    }
}

impl<T: Default> Table<T> {
    /// Gives the backends what has been started, as much as they take. Nothing is submitted before
    /// [`Backends::submit`].
    pub fn carry(&mut self, backends: &mut Backends) {
        self.assert_pair(backends);
        while let Some(key) = self.pending.front().copied() {
            let Some((state @ State::Queued, flight)) = self.slots.entry(key) else {
                self.pending.pop_front(); // Cancelled while it waited.
                continue;
            };
            let carried = if flight.plain {
                let job = job(self.asks, &backends.fixed, key, flight, flight.operation.raw, 0);
                if backends.main.can_carry(&job) {
                    // SAFETY: the operation owns what the job points at, or its owner has promised
                    // for it, and stays in its slot until the job has been answered; slots are
                    // leaked rather than freed when the queue goes before that.
                    let carried = unsafe { backends.main.carry(&job) };
                    if carried.is_ok() {
                        *state = State::Carried;
                        backends.carried += 1;
                    }
                    carried
                } else {
                    flight.make_intricate(false);
                    self.carry_one(key, backends)
                }
            } else {
                self.carry_one(key, backends)
            };
            if carried.is_err() {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// The long way, for everything that is not plain.
    fn carry_one(&mut self, key: Key, backends: &mut Backends) -> Result<(), NoRoom> {
        if let Err(errno) = self.take_over(key) {
            self.slots.set_state(key, State::Queued, State::Carried);
            self.finish(key, -i64::from(errno));
            return Ok(());
        }
        if self.slots.get(key).is_some_and(|flight| flight.next.is_some())
            && self.carry_chain(key, backends)
        {
            return Ok(());
        }
        if let Some(flight) = self.slots.get_mut(key)
            && flight.may_go_on()
            && !std::mem::replace(&mut flight.goes_on, true)
        {
            self.going_on += 1;
        }
        loop {
            let Some(flight) = self.slots.get_mut(key) else { return Ok(()) };
            let Some(piece) = flight.progress.next_piece() else { break };
            if flight.operation.timeout.is_some() && flight.deadline.is_none() {
                self.set_deadline(key, backends);
            }
            let Some(flight) = self.slots.get(key) else { return Ok(()) };
            let raw = flight.piece(piece);
            let mut job = job(self.asks, &backends.fixed, key, flight, raw, piece.number);
            let to_side = flight.to_side || !backends.main.can_carry(&job);
            let carried = if to_side {
                let ring = self.backend == BackendKind::Uring;
                if let (Some(at), Some(side), 0) =
                    (job.deadline.filter(|_| ring), backends.side(), piece.number)
                {
                    side.set_timer(job.token, at);
                }
                carry_beside(&job, backends)
            } else {
                if !backends.main.keeps_deadlines() {
                    job.deadline = None;
                }
                backends.carried += 1;
                // SAFETY: as for a plain one.
                unsafe { backends.main.carry(&job) }
            };
            if carried.is_err() {
                backends.carried -= usize::from(!to_side);
                if let Some(flight) = self.slots.get_mut(key) {
                    flight.progress.put_back();
                }
                return Err(NoRoom);
            }
            if to_side && let Some(flight) = self.slots.get_mut(key) {
                self.to_threads += u64::from(!std::mem::replace(&mut flight.to_side, true));
            }
        }
        self.slots.set_state(key, State::Queued, State::Carried);
        Ok(())
    }

    /// The whole of a chain to the kernel, linked; false when it is to go one by one.
    fn carry_chain(&mut self, first: Key, backends: &mut Backends) -> bool {
        let mut count = 0;
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(flight) = self.slots.get(key) else { return false };
            let waits = matches!(self.slots.state(key), Some(State::Queued | State::Held));
            let job = job(self.asks, &backends.fixed, key, flight, flight.operation.raw, 0);
            let job = Job { link: flight.next.is_some(), ..job };
            let fits = waits
                && flight.progress.is_single()
                && flight.ending == Ending::Natural
                && flight.operation.timeout.is_none()
                && !(flight.operation.always && flight.next.is_some())
                && !(flight.operation.raw.opcode() == Opcode::Close
                    && flight.operation.file.is_some())
                && !flight.to_side
                && ends_by_itself(&flight.operation)
                && backends.main.can_link(&job);
            if !fits {
                return false;
            }
            count += 1;
            at = flight.next;
        }
        if backends.main.chain_room() < count && backends.enter_main(0, None).is_err() {
            return false;
        }
        if backends.main.chain_room() < count {
            return false;
        }
        let mut before = None;
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(flight) = self.slots.get_mut(key) else { return true };
            let Some(piece) = flight.progress.next_piece() else { return true };
            flight.after = before;
            at = flight.next;
            let Some(flight) = self.slots.get(key) else { return true };
            let raw = flight.piece(piece);
            let job = Job {
                link: at.is_some(),
                ..job(self.asks, &backends.fixed, key, flight, raw, piece.number)
            };
            // SAFETY: as for a single job.
            let carried = unsafe { backends.main.carry(&job) };
            debug_assert!(carried.is_ok(), "there was room for the chain");
            backends.carried += 1;
            if key == first {
                self.slots.set_state(key, State::Queued, State::Carried);
            } else {
                self.slots.set_state(key, State::Held, State::Carried);
                self.held -= 1;
            }
            if let Some(flight) = self.slots.get_mut(key)
                && !std::mem::replace(&mut flight.counted, true)
            {
                self.active += 1;
            }
            before = Some(key);
        }
        true
    }

    /// A close takes the descriptor out of the file that it holds, if nobody else holds it.
    fn take_over(&mut self, key: Key) -> Result<(), i32> {
        let Some(flight) = self.slots.get_mut(key) else { return Ok(()) };
        if !matches!(flight.operation.raw, Raw::Close(_)) || flight.owns_descriptor {
            return Ok(());
        }
        match flight.operation.file.take().map(File::into_fd) {
            Some(Ok(fd)) => {
                let _ = fd.into_raw_fd();
                flight.owns_descriptor = true;
                Ok(())
            }
            Some(Err(_still_held)) => Err(libc::EBUSY),
            None => Ok(()),
        }
    }

    fn set_deadline(&mut self, key: Key, backends: &mut Backends) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        let limit = flight
            .operation
            .timeout
            .map_or(Duration::ZERO, |limit| Duration::from_nanos(limit.get()));
        // A limit that the clock cannot express is none.
        let Some(at) = Instant::now().checked_add(limit) else { return };
        flight.deadline = Some(at);
        let token = Token::new(key, 0);
        match self.backend {
            BackendKind::Threads => backends.main.set_timer(token, at),
            BackendKind::Kaio => {
                if let Some(side) = backends.side() {
                    side.set_timer(token, at);
                }
            }
            // The one keeps it itself (or the threads do, when it has to go there), the other needs
            // no time.
            BackendKind::Uring => {}
            #[cfg(feature = "testing")]
            BackendKind::Null => {}
        }
    }
}

fn carry_beside(job: &Job, backends: &mut Backends) -> Result<(), NoRoom> {
    match backends.side() {
        // SAFETY: as for the main backend.
        Some(side) => unsafe { side.carry(job) },
        None => {
            // Not even a lock and a descriptor are to be had: done here and now rather than not at
            // all.
            let answer = Answer::Result(job.raw.call());
            backends.events.push(Event { token: job.token, answer });
            Ok(())
        }
    }
}

/// True for what does not wait for somebody else. Nothing else is linked: the kernel cannot cancel
/// what stands behind another operation, and would begin it long after its owner has called it off.
fn ends_by_itself(operation: &Operation) -> bool {
    match operation.raw.opcode() {
        Opcode::Poll | Opcode::Timeout | Opcode::Open => false,
        _ if operation.raw.is_transfer() => {
            operation.file.as_ref().is_some_and(|file| file.traits().kind == FileKind::Storage)
        }
        _ => true,
    }
}
