//! Passing pending operations to the backends: in pieces, as linked chains, or to the fallback
//! pool.

use super::backends::Backends;
use super::fixed::Fixed;
use super::in_flight::{CancelCause, InFlight, ends_by_itself};
use super::options::{BackendKind, Options};
use super::table::Table;
use super::trait_lookup::TraitLookup;
use crate::backend::{Backend, BackendFull, EventKind, Job, JobEvent, LimitKeeper};
use crate::device::Placement;
use crate::file::{File, FileKind, Traits, placement_of};
use crate::op::{Opcode, Operation, Raw};
use crate::refusal::limits::Limit;
use crate::rw_flags::RwFlags;
use crate::slots::{Key, SlotState, Token};
use crate::split::{Piece, WINDOW};
use crate::submit_waits::Access;
use crate::sys::{self, libc};
use std::cell::LazyCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Whether the threads make a transfer, since the backend is not known to make it as the system
/// call would; or a sync that may wait for a server, since those of Linux AIO are done by the
/// kernel's general workqueue, where a thousand that hung held up a sync on another file system,
/// too.
#[inline]
fn is_for_threads(backend: BackendKind, file: Option<&File>, raw: &Raw, socket: bool) -> bool {
    let needed = match backend {
        BackendKind::Uring if raw.is_transfer() => Placement::RING,
        BackendKind::Kaio if raw.is_transfer() => Placement::LINUX_AIO,
        BackendKind::Kaio if raw.is_sync() => Placement::LOCAL,
        _ => return false,
    };
    let placement = match (file, raw.fd()) {
        _ if socket => return false,
        (Some(file), _) => file.placement(),
        (None, Some(fd)) => placement_of(fd, Traits::of(fd)),
        (None, None) => return false,
    };
    !placement.has(needed)
}

/// Makes the job for one piece.
#[inline]
fn job<T>(
    (trait_lookup, backend): (TraitLookup, BackendKind),
    fixed: &Fixed,
    key: Key,
    flight: &InFlight<T>,
    raw: Raw,
    piece: u8,
) -> Job {
    let file = flight.operation.file.as_ref();
    let socket = flight.operation.socket;
    let traits = trait_lookup.traits(file, &raw, socket);
    if is_for_threads(backend, file, &raw, socket) {
        let direct = file.map_or(traits.direct, File::is_direct);
        let job = Job::new(Token::new(key, piece), raw, FileKind::Storage, direct);
        return Job { for_threads: true, deadline: flight.deadline, ..job };
    }
    let (fixed_file, fixed_buffer) = fixed.find(file, &raw);
    Job {
        fixed_file,
        fixed_buffer,
        socket,
        deadline: flight.deadline,
        ..Job::new(Token::new(key, piece), raw, traits.kind, traits.direct)
    }
}

/// Whether the kernel may keep the thread that submits an operation waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubmissionWaits {
    No,
    Perhaps,
    /// Perhaps, and so may later ones, unless a thread has the list of the file's extents read.
    ForExtents,
}

impl SubmissionWaits {
    /// As `look`. One operation of a file has the list of its extents read, and remembers that.
    #[inline]
    fn of<T: Default>(backend: BackendKind, options: &Options, flight: &mut InFlight<T>) -> Self {
        match Self::look(backend, options, &flight.operation) {
            Self::ForExtents if !flight.reads_extents => {
                let file = flight.operation.file.as_ref();
                flight.reads_extents = file.is_some_and(File::begin_reading_extents);
                if flight.reads_extents { Self::ForExtents } else { Self::Perhaps }
            }
            // It was not taken before, or is retried.
            Self::Perhaps if flight.reads_extents => Self::ForExtents,
            waits => waits,
        }
    }

    /// Not where faults are injected: they would not reach what other threads submit. Nor on the
    /// null backend, which does nothing to the file.
    #[inline]
    fn look(backend: BackendKind, options: &Options, operation: &Operation) -> Self {
        #[cfg(feature = "testing")]
        if backend == BackendKind::Null {
            return Self::No;
        }
        if options.injects_faults() {
            return Self::No;
        }
        let Some(file) = operation.file.as_ref().filter(|_| operation.raw.is_transfer()) else {
            return Self::No;
        };
        if operation.by_worker {
            return Self::Perhaps;
        }
        let access = match (operation.raw.is_write(), file.is_direct()) {
            (false, _) => Access::Read,
            (true, true) => Access::DirectWrite,
            (true, false) => Access::BufferedWrite,
        };
        if !file.submission_may_wait(access) {
            Self::No
        } else if file.has_extents_to_read() && backend != BackendKind::Threads {
            Self::ForExtents
        } else {
            Self::Perhaps
        }
    }

    /// The job, for the thread that may wait. The first of several reads the extents.
    #[inline]
    fn place(self, job: Job) -> Job {
        match self {
            Self::No => job,
            Self::ForExtents if job.token.piece() == 0 => Job {
                file: FileKind::Storage,
                for_threads: true,
                reads_extents: true,
                may_wait: true,
                fixed_file: None,
                fixed_buffer: None,
                ..job
            },
            Self::Perhaps | Self::ForExtents => Job { may_wait: true, ..job },
        }
    }
}

/// The most entries of a ring that an operation needs now.
fn most_entries<T>(flight: &InFlight<T>) -> usize {
    if flight.next.is_some() {
        return usize::MAX; // A chain, of any length.
    }
    let pieces = if flight.progress.is_single() { 1 } else { WINDOW.into() };
    pieces * (1 + usize::from(flight.operation.timeout.is_some()))
}

impl<T: Default> Table<T> {
    /// Passes the started operations to the backends, as many as they take. [`Backends::submit`]
    /// then submits them. If the submission queue of a ring is full, this enters the kernel to
    /// empty it.
    pub fn submit_pending(&mut self, backends: &mut Backends) {
        self.pass_pending(backends, true);
    }

    /// As [`submit_pending`](Self::submit_pending), for a table under a lock: if the submission
    /// queue of a ring is full, the rest stays pending until [`Backends::submit`] has emptied it.
    /// Returns true if it has passed any.
    pub fn submit_without_entering(&mut self, backends: &mut Backends) -> bool {
        self.pass_pending(backends, false)
    }

    fn pass_pending(&mut self, backends: &mut Backends, may_enter: bool) -> bool {
        self.assert_paired(backends);
        let mut has_passed = false;
        while let Some(key) = self.pending.front().copied() {
            let Some((state @ SlotState::Pending, flight)) = self.slots.entry(key) else {
                self.pending.pop_front(); // Cancelled while it was pending.
                continue;
            };
            if !may_enter && backends.main.push_would_enter(most_entries(flight)) {
                return has_passed;
            }
            let pushed = if flight.fast_path {
                let job = job(
                    (self.trait_lookup, self.backend),
                    &backends.fixed,
                    key,
                    flight,
                    flight.operation.raw,
                    0,
                );
                let waits = SubmissionWaits::of(self.backend, &backends.options, flight);
                let job = waits.place(job);
                if backends.main.supports(&job) && self.passthrough.takes(&flight.operation, &job) {
                    // SAFETY: the operation owns what the job points at, or its maker promised to
                    // keep it valid. It stays in its slot until the job has completed; if the queue
                    // goes first, slots are leaked, not freed.
                    let pushed = unsafe { backends.main.push(&job) };
                    if pushed.is_ok() {
                        *state = SlotState::Submitted;
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
                return has_passed;
            }
            self.pending.pop_front();
            has_passed = true;
        }
        has_passed
    }

    /// Submits an operation that is not on the fast path.
    fn submit_one(&mut self, key: Key, backends: &mut Backends) -> Result<(), BackendFull> {
        if let Err(errno) = self.take_descriptor(key) {
            self.slots.set_state(key, SlotState::Pending, SlotState::Submitted);
            self.finish(key, -i64::from(errno));
            return Ok(());
        }
        if self.trait_lookup != TraitLookup::None
            && let Some(flight) = self.slots.get_mut(key)
        {
            flight.forget_socket();
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
        let waits = self.slots.get_mut(key).map_or(SubmissionWaits::No, |flight| {
            SubmissionWaits::of(self.backend, &backends.options, flight)
        });
        while let Some(piece) =
            self.slots.get_mut(key).and_then(|flight| flight.progress.next_piece())
        {
            if self.submit_piece(key, piece, waits, backends)?.is_break() {
                return Ok(());
            }
        }
        self.slots.set_state(key, SlotState::Pending, SlotState::Submitted);
        Ok(())
    }

    /// Passes one piece to a backend. Breaks if that has decided the result of the operation.
    fn submit_piece(
        &mut self,
        key: Key,
        piece: Piece,
        waits: SubmissionWaits,
        backends: &mut Backends,
    ) -> Result<ControlFlow<()>, BackendFull> {
        let Some(flight) = self.slots.get(key) else { return Ok(ControlFlow::Break(())) };
        if flight.operation.timeout.is_some() && flight.deadline.is_none() {
            self.set_deadline(key, backends);
        }
        let Some(flight) = self.slots.get(key) else { return Ok(ControlFlow::Break(())) };
        let lookup = (self.trait_lookup, self.backend);
        let raw = flight.piece(piece);
        let mut job = job(lookup, &backends.fixed, key, flight, raw, piece.number);
        if flight.progress.asks_ring {
            job.fixed_file = None; // The file would be asked.
        }
        let mut job = waits.place(job);
        let use_fallback = flight.use_fallback || !backends.main.supports(&job);
        if let Some(result) = self.passthrough.cut(&flight.operation, &mut job, use_fallback) {
            self.end_piece(key, piece, result);
            return Ok(ControlFlow::Break(()));
        }
        let Some(flight) = self.slots.get_mut(key) else { return Ok(ControlFlow::Break(())) };
        // (The rest of a buffer is submitted without the buffers after it.)
        flight.progress.was_cut_short |= job.raw.bytes() < piece.len;
        let pushed = if use_fallback {
            // (Another keeper has the limit already.)
            let is_kept =
                matches!(backends.limit_keeper, LimitKeeper::Timer | LimitKeeper::Fallback);
            if let (Some(at), Some(fallback), 0) =
                (job.deadline.filter(|_| !is_kept), backends.fallback(), piece.number)
            {
                fallback.set_timer(job.token, at);
            }
            submit_to_fallback(&job, backends)
        } else {
            if backends.limit_keeper != LimitKeeper::Backend {
                job.deadline = None;
            }
            backends.main_in_flight += 1;
            // SAFETY: as on the fast path.
            unsafe { backends.main.push(&job) }
        };
        if pushed.is_err() {
            backends.main_in_flight -= usize::from(!use_fallback);
            flight.progress.unissue();
            return Err(BackendFull);
        }
        if use_fallback {
            self.to_threads += u64::from(!std::mem::replace(&mut flight.use_fallback, true));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A piece has this result, and was not submitted.
    fn end_piece(&mut self, key: Key, piece: Piece, result: i64) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        let attempt = flight.progress.complete(piece.number, result);
        self.slots.set_state(key, SlotState::Pending, SlotState::Submitted);
        if let Some(attempt) = attempt {
            self.finish_attempt(key, attempt);
        }
    }

    /// Submits a whole chain, linked. Returns false if its operations must be submitted one by one.
    fn submit_chain(&mut self, first: Key, backends: &mut Backends) -> bool {
        let Some(count) = self.linkable(first, backends) else { return false };
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
            let waits = SubmissionWaits::look(self.backend, &backends.options, &flight.operation);
            let job = Job {
                link: at.is_some(),
                may_wait: waits != SubmissionWaits::No,
                ..job(
                    (self.trait_lookup, self.backend),
                    &backends.fixed,
                    key,
                    flight,
                    raw,
                    piece.number,
                )
            };
            // SAFETY: as for a single job.
            let pushed = unsafe { backends.main.push(&job) };
            debug_assert!(pushed.is_ok(), "there was room for the chain");
            backends.main_in_flight += 1;
            if key == first {
                self.slots.set_state(key, SlotState::Pending, SlotState::Submitted);
            } else {
                self.slots.set_state(key, SlotState::Held, SlotState::Submitted);
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

    /// The length of a chain, if all its operations can be linked.
    fn linkable(&self, first: Key, backends: &Backends) -> Option<usize> {
        // A write that the limit cuts ends a chain, but not the kernel's links, where it begins in
        // the submitter (XFS, 6.18).
        let may_be_cut = LazyCell::new(|| Limit::of_file_size().soft.is_some());
        let mut count = 0;
        let mut at = Some(first);
        while let Some(key) = at {
            let flight = self.slots.get(key)?;
            let waits = matches!(self.slots.state(key), Some(SlotState::Pending | SlotState::Held));
            let lookup = (self.trait_lookup, self.backend);
            let job = job(lookup, &backends.fixed, key, flight, flight.operation.raw, 0);
            let job = Job { link: flight.next.is_some(), ..job };
            let fits = waits
                && flight.progress.is_single()
                && flight.cancel_cause == CancelCause::None
                && flight.operation.timeout.is_none()
                && !(flight.operation.continue_on_error && flight.next.is_some())
                && !(flight.operation.raw.opcode() == Opcode::Close
                    && flight.operation.file.is_some())
                && !flight.use_fallback
                && !flight.progress.asks_ring
                && !(flight.next.is_some() && flight.operation.raw.is_write() && *may_be_cut)
                && may_be_linked(&flight.operation)
                && has_certain_flags(&flight.operation)
                && SubmissionWaits::look(self.backend, &backends.options, &flight.operation)
                    != SubmissionWaits::ForExtents
                && backends.main.can_link(&job);
            if !fits {
                return None;
            }
            count += 1;
            at = flight.next;
        }
        Some(count)
    }

    /// Moves the descriptor of a close out of its file, if the operation is the only holder.
    pub(super) fn take_descriptor(&mut self, key: Key) -> Result<(), i32> {
        let Some(flight) = self.slots.get_mut(key) else { return Ok(()) };
        if !matches!(flight.operation.raw, Raw::Close(_)) || flight.owns_descriptor {
            return Ok(());
        }
        let file = flight.operation.file.take();
        flight.may_close_again =
            file.as_ref().is_some_and(|file| file.placement().has(Placement::RING));
        match file.map(File::into_fd) {
            Some(Ok(fd)) => {
                let _ = sys::into_number(fd);
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
        // A limit beyond the range of the clock is no limit.
        let Some(at) = Instant::now().checked_add(limit) else { return };
        flight.deadline = Some(at);
        let token = Token::new(key, 0);
        match backends.limit_keeper {
            LimitKeeper::Timer => backends.main.set_timer(token, at),
            LimitKeeper::Fallback => backends.set_fallback_timer(token, at),
            LimitKeeper::Backend | LimitKeeper::Nothing => {}
        }
    }
}

pub(super) fn submit_to_fallback(job: &Job, backends: &mut Backends) -> Result<(), BackendFull> {
    match backends.fallback() {
        // SAFETY: as for the main backend.
        Some(fallback) => unsafe { fallback.push(job) },
        None => {
            // Not even a lock and an eventfd can be made: run the blocking call here rather than
            // fail.
            let kind = EventKind::Result(job.raw.call());
            backends.events.push(JobEvent { token: job.token, kind });
            Ok(())
        }
    }
}

/// Whether the kernel is known to take the flags of a transfer of this file. Before 5.18 it refuses
/// them when a chain is submitted, before the operations in front have run.
fn has_certain_flags(operation: &Operation) -> bool {
    let accepts = || operation.file.as_ref().is_some_and(File::accepts_dont_cache);
    !operation.raw.rw_flags().has(RwFlags::DONT_CACHE) || accepts()
}

/// Whether the operation may be in a linked chain: if it ends by itself. The kernel cannot cancel
/// an operation that is linked behind another, and would start it long after its owner cancelled
/// it. A bare descriptor is not looked up for this.
fn may_be_linked(operation: &Operation) -> bool {
    let file = operation.file.as_ref();
    let is_plain = file.is_some_and(|file| file.traits().kind == FileKind::Storage);
    (is_plain || !operation.raw.is_transfer()) && ends_by_itself(operation)
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;
    use crate::op;
    use crate::queue::options::Options;

    /// Who waits for the lock of the table would wait for the kernel, too.
    #[test]
    fn a_full_queue_is_not_emptied_under_a_lock() {
        for limit in [None, Some(Duration::from_secs(60))] {
            let options = Options::new().backend(BackendKind::Uring).entries(8).in_flight(64);
            let Ok((mut table, mut backends)) = options.build_parts::<()>() else {
                return println!("skipped: no io_uring");
            };
            for _ in 0..40 {
                let nop = limit.map_or_else(op::nop, |limit| op::nop().timeout(limit));
                let id = table.insert(nop, ()).map_err(|(reason, _)| reason).unwrap();
                table.start(id);
            }
            let mut rounds = 0;
            while table.has_pending() {
                let before = backends.main.system_calls();
                assert!(table.submit_without_entering(&mut backends));
                assert_eq!(backends.main.system_calls(), before);
                backends.submit().unwrap();
                table.process_events(&mut backends);
                rounds += 1;
            }
            assert!((2..=40).contains(&rounds), "{rounds} rounds");
            while table.ready < 40 {
                backends.wait(Instant::now() + Duration::from_secs(20)).unwrap();
                assert!(table.process_events(&mut backends), "it hangs");
            }
            table.shut_down(&mut backends, Duration::from_secs(20));
        }
    }
}
