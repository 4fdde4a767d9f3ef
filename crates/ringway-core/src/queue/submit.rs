//! Giving operations to the backends: in pieces, linked, or to the threads that stand beside a
//! backend which cannot carry them.

use super::fixed::Fixed;
use super::in_flight::{CancelCause, InFlight};
use super::{BackendKind, Backends, Explanation, Table};
use crate::backend::{Backend, BackendFull, Event, EventKind, Job};
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
pub(super) enum TraitLookup {
    /// Nothing: a ring takes everything, but direct transfers at the file's own position, and long
    /// or durable ones through the page cache in its own way.
    None,
    /// Whether it can be waited for: threads find out themselves what a bare descriptor is.
    Files,
    /// Whether it is open for direct I/O, even of a bare descriptor.
    Descriptors,
}

impl TraitLookup {
    pub(super) fn for_backend(explanation: &Explanation) -> Self {
        match explanation.backend {
            BackendKind::Uring if !explanation.available.contains(&Feature::IoPoll) => Self::None,
            #[cfg(feature = "testing")]
            BackendKind::Null => Self::None,
            BackendKind::Threads => Self::Files,
            BackendKind::Uring | BackendKind::Kaio => Self::Descriptors,
        }
    }

    #[inline]
    fn traits(self, file: Option<&File>, raw: &Raw) -> Traits {
        match (self, file) {
            (Self::None, _) if raw.offset() != Some(CURRENT_POSITION) && !is_for_worker(raw) => {
                UNKNOWN
            }
            (Self::Files, None) => UNKNOWN,
            (_, Some(file)) => file.traits(),
            (Self::None | Self::Descriptors, None) => raw.fd().map_or(UNKNOWN, Traits::of),
        }
    }
}

/// A job for a backend.
#[inline]
fn job<T>(
    trait_lookup: TraitLookup,
    fixed: &Fixed,
    key: Key,
    flight: &InFlight<T>,
    raw: Raw,
    piece: u8,
) -> Job {
    let file = flight.operation.file.as_ref();
    let traits = trait_lookup.traits(file, &raw);
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
    pub fn submit_pending(&mut self, backends: &mut Backends) {
        self.assert_paired(backends);
        while let Some(key) = self.pending.front().copied() {
            let Some((state @ State::Pending, flight)) = self.slots.entry(key) else {
                self.pending.pop_front(); // Cancelled while it waited.
                continue;
            };
            let pushed = if flight.fast_path {
                let job =
                    job(self.trait_lookup, &backends.fixed, key, flight, flight.operation.raw, 0);
                if backends.main.supports(&job) {
                    // SAFETY: the operation owns what the job points at, or its owner has promised
                    // for it, and stays in its slot until the job has been answered; slots are
                    // leaked rather than freed when the queue goes before that.
                    let pushed = unsafe { backends.main.push(&job) };
                    if pushed.is_ok() {
                        *state = State::Submitted;
                        backends.main_in_flight += 1;
                    }
                    pushed
                } else {
                    flight.leave_fast_path(false);
                    self.submit_one(key, backends)
                }
            } else {
                self.submit_one(key, backends)
            };
            if pushed.is_err() {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// The long way, for everything that is not plain.
    fn submit_one(&mut self, key: Key, backends: &mut Backends) -> Result<(), BackendFull> {
        if let Err(errno) = self.take_descriptor(key) {
            self.slots.set_state(key, State::Pending, State::Submitted);
            self.finish(key, -i64::from(errno));
            return Ok(());
        }
        if self.slots.get(key).is_some_and(|flight| flight.next.is_some())
            && self.submit_chain(key, backends)
        {
            return Ok(());
        }
        if let Some(flight) = self.slots.get_mut(key)
            && flight.may_resubmit()
            && !std::mem::replace(&mut flight.counted_resubmittable, true)
        {
            self.resubmittable += 1;
        }
        loop {
            let Some(flight) = self.slots.get_mut(key) else { return Ok(()) };
            let Some(piece) = flight.progress.next_piece() else { break };
            if flight.operation.timeout.is_some() && flight.deadline.is_none() {
                self.set_deadline(key, backends);
            }
            let Some(flight) = self.slots.get(key) else { return Ok(()) };
            let raw = flight.piece(piece);
            let mut job = job(self.trait_lookup, &backends.fixed, key, flight, raw, piece.number);
            let use_fallback = flight.use_fallback || !backends.main.supports(&job);
            let pushed = if use_fallback {
                let ring = self.backend == BackendKind::Uring;
                if let (Some(at), Some(fallback), 0) =
                    (job.deadline.filter(|_| ring), backends.fallback(), piece.number)
                {
                    fallback.set_timer(job.token, at);
                }
                submit_to_fallback(&job, backends)
            } else {
                if !backends.main.keeps_deadlines() {
                    job.deadline = None;
                }
                backends.main_in_flight += 1;
                // SAFETY: as for a plain one.
                unsafe { backends.main.push(&job) }
            };
            if pushed.is_err() {
                backends.main_in_flight -= usize::from(!use_fallback);
                if let Some(flight) = self.slots.get_mut(key) {
                    flight.progress.unissue();
                }
                return Err(BackendFull);
            }
            if use_fallback && let Some(flight) = self.slots.get_mut(key) {
                self.to_threads += u64::from(!std::mem::replace(&mut flight.use_fallback, true));
            }
        }
        self.slots.set_state(key, State::Pending, State::Submitted);
        Ok(())
    }

    /// The whole of a chain to the kernel, linked; false when it is to go one by one.
    fn submit_chain(&mut self, first: Key, backends: &mut Backends) -> bool {
        let mut count = 0;
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(flight) = self.slots.get(key) else { return false };
            let waits = matches!(self.slots.state(key), Some(State::Pending | State::Held));
            let job = job(self.trait_lookup, &backends.fixed, key, flight, flight.operation.raw, 0);
            let job = Job { link: flight.next.is_some(), ..job };
            let fits = waits
                && flight.progress.is_single()
                && flight.cancel_cause == CancelCause::None
                && flight.operation.timeout.is_none()
                && !(flight.operation.continue_on_error && flight.next.is_some())
                && !(flight.operation.raw.opcode() == Opcode::Close
                    && flight.operation.file.is_some())
                && !flight.use_fallback
                && ends_by_itself(&flight.operation)
                && backends.main.can_link(&job);
            if !fits {
                return false;
            }
            count += 1;
            at = flight.next;
        }
        if backends.main.chain_capacity() < count && backends.enter_main(0, None).is_err() {
            return false;
        }
        if backends.main.chain_capacity() < count {
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
                ..job(self.trait_lookup, &backends.fixed, key, flight, raw, piece.number)
            };
            // SAFETY: as for a single job.
            let pushed = unsafe { backends.main.push(&job) };
            debug_assert!(pushed.is_ok(), "there was room for the chain");
            backends.main_in_flight += 1;
            if key == first {
                self.slots.set_state(key, State::Pending, State::Submitted);
            } else {
                self.slots.set_state(key, State::Held, State::Submitted);
                self.held -= 1;
            }
            if let Some(flight) = self.slots.get_mut(key)
                && !std::mem::replace(&mut flight.is_active, true)
            {
                self.active += 1;
            }
            before = Some(key);
        }
        true
    }

    /// A close takes the descriptor out of the file that it holds, if nobody else holds it.
    fn take_descriptor(&mut self, key: Key) -> Result<(), i32> {
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
                if let Some(fallback) = backends.fallback() {
                    fallback.set_timer(token, at);
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

fn submit_to_fallback(job: &Job, backends: &mut Backends) -> Result<(), BackendFull> {
    match backends.fallback() {
        // SAFETY: as for the main backend.
        Some(fallback) => unsafe { fallback.push(job) },
        None => {
            // Not even a lock and a descriptor are to be had: done here and now rather than not at
            // all.
            let kind = EventKind::Result(job.raw.call());
            backends.events.push(Event { token: job.token, kind });
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
