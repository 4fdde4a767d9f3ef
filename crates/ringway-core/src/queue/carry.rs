//! Giving operations to the backends: in pieces, linked, or to the threads that stand beside a backend which cannot
//! carry them.

use super::fixed::Fixed;
use super::flight::{Ending, Flight};
use super::{BackendKind, Explanation, Queue};
use crate::backend::threads::Threads;
use crate::backend::{Answer, Backend, Event, Job, NoRoom};
use crate::file::{File, FileKind, Traits};
use crate::op::{CURSOR, Kind, Operation, Raw, is_for_worker};
use crate::refusal::Feature;
use crate::slots::{Key, State, Token};
use std::io;
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};

/// What is known of a file that nobody has looked at.
const UNKNOWN: Traits = Traits { kind: FileKind::Unknown, direct: false };
/// What has to be known of a file before a job on it is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Nothing: a ring takes everything, but direct transfers at the file's own position, and long or durable ones through the
    /// page cache in its own way.
    Nothing,
    /// Whether it can be waited for: threads find out themselves what a bare descriptor is.
    OfFiles,
    /// Whether it is open for direct I/O, even of a bare descriptor.
    OfDescriptors,
}

impl Asks {
    pub(super) fn for_backend(explanation: &Explanation) -> Self {
        match explanation.backend {
            BackendKind::Uring if !explanation.granted.contains(&Feature::IoPoll) => Self::Nothing,
            #[cfg(feature = "testing")]
            BackendKind::Null => Self::Nothing,
            BackendKind::Threads => Self::OfFiles,
            BackendKind::Uring | BackendKind::Kaio => Self::OfDescriptors,
        }
    }

    #[inline]
    fn traits(self, file: Option<&File>, raw: &Raw) -> Traits {
        match (self, file) {
            (Self::Nothing, _) if raw.offset() != Some(CURSOR) && !is_for_worker(raw) => UNKNOWN,
            (Self::OfFiles, None) => UNKNOWN,
            (_, Some(file)) => file.traits(),
            (Self::Nothing | Self::OfDescriptors, None) => raw.fd().map_or(UNKNOWN, Traits::of),
        }
    }
}

/// A job for a backend.
#[inline]
fn job(asks: Asks, fixed: &Fixed, key: Key, flight: &Flight, raw: Raw, piece: u8) -> Job {
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

impl Queue {
    /// Gives the backends as much as they take.
    pub(super) fn carry(&mut self) {
        while let Some(key) = self.pending.front().copied() {
            let Some((state @ State::Queued, flight)) = self.slots.entry(key) else {
                self.pending.pop_front(); // Cancelled while it waited.
                continue;
            };
            let carried = if flight.plain {
                let job = job(self.asks, &self.fixed, key, flight, flight.operation.raw, 0);
                if self.main.can_carry(&job) {
                    // SAFETY: the operation owns what the job points at, or its owner has promised for it, and stays in its
                    // slot until the job has been answered; slots are leaked rather than freed when the queue goes before that.
                    let carried = unsafe { self.main.carry(&job) };
                    if carried.is_ok() {
                        *state = State::Carried;
                        self.carried += 1;
                    }
                    carried
                } else {
                    flight.make_intricate(false);
                    self.carry_one(key)
                }
            } else {
                self.carry_one(key)
            };
            if carried.is_err() {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// The long way, for everything that is not plain.
    fn carry_one(&mut self, key: Key) -> Result<(), NoRoom> {
        if let Err(errno) = self.take_over(key) {
            self.slots.set_state(key, State::Queued, State::Carried);
            self.finish(key, -i64::from(errno));
            return Ok(());
        }
        if self.slots.get(key).is_some_and(|flight| flight.next.is_some()) && self.carry_chain(key) {
            return Ok(());
        }
        loop {
            let Some(flight) = self.slots.get_mut(key) else { return Ok(()) };
            let Some(piece) = flight.progress.next_piece() else { break };
            if flight.operation.timeout.is_some() && flight.deadline.is_none() {
                self.set_deadline(key);
            }
            let Some(flight) = self.slots.get(key) else { return Ok(()) };
            let raw = flight.piece(piece);
            let mut job = job(self.asks, &self.fixed, key, flight, raw, piece.number);
            let to_side = flight.to_side || !self.main.can_carry(&job);
            let carried = if to_side {
                let ring = self.explanation.backend == BackendKind::Uring;
                if let (Some(at), Some(side), 0) = (job.deadline.filter(|_| ring), self.side(), piece.number) {
                    side.set_timer(job.token, at);
                }
                self.carry_beside(&job)
            } else {
                if !self.main.keeps_deadlines() {
                    job.deadline = None;
                }
                self.carried += 1;
                // SAFETY: as for a plain one.
                unsafe { self.main.carry(&job) }
            };
            if carried.is_err() {
                self.carried -= usize::from(!to_side);
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
    fn carry_chain(&mut self, first: Key) -> bool {
        let mut count = 0;
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(flight) = self.slots.get(key) else { return false };
            let waits = matches!(self.slots.state(key), Some(State::Queued | State::Held));
            let job = job(self.asks, &self.fixed, key, flight, flight.operation.raw, 0);
            let job = Job { link: flight.next.is_some(), ..job };
            let fits = waits
                && flight.progress.is_single()
                && flight.ending == Ending::Natural
                && flight.operation.timeout.is_none()
                && !(flight.operation.always && flight.next.is_some())
                && !(flight.operation.raw.kind() == Kind::Close && flight.operation.file.is_some())
                && !flight.to_side
                && ends_by_itself(&flight.operation)
                && self.main.can_link(&job);
            if !fits {
                return false;
            }
            count += 1;
            at = flight.next;
        }
        if self.main.chain_room() < count && self.enter_main(0, None).is_err() {
            return false;
        }
        if self.main.chain_room() < count {
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
            let job = Job { link: at.is_some(), ..job(self.asks, &self.fixed, key, flight, raw, piece.number) };
            // SAFETY: as for a single job.
            let carried = unsafe { self.main.carry(&job) };
            debug_assert!(carried.is_ok(), "there was room for the chain");
            self.carried += 1;
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

    fn set_deadline(&mut self, key: Key) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        let limit = flight.operation.timeout.map_or(Duration::ZERO, |limit| Duration::from_nanos(limit.get()));
        // A limit that the clock cannot express is none.
        let Some(at) = Instant::now().checked_add(limit) else { return };
        flight.deadline = Some(at);
        let token = Token::new(key, 0);
        match self.explanation.backend {
            BackendKind::Threads => self.main.set_timer(token, at),
            BackendKind::Kaio => {
                if let Some(side) = self.side() {
                    side.set_timer(token, at);
                }
            }
            // The one keeps it itself (or the threads do, when it has to go there), the other needs no time.
            BackendKind::Uring => {}
            #[cfg(feature = "testing")]
            BackendKind::Null => {}
        }
    }

    pub(super) fn side(&mut self) -> Option<&mut Threads> {
        if self.side.is_none() {
            *self.side = Threads::new(self.options.thread_options()).ok();
            self.echo();
        }
        self.side.as_mut()
    }

    /// Where a program polls the main backend's eventfd, the threads signal it too.
    pub(super) fn echo(&mut self) {
        if self.polled
            && let (Some(side), Some(eventfd)) = (self.side.as_mut(), self.main.echo())
        {
            side.echo(eventfd);
        }
    }

    fn carry_beside(&mut self, job: &Job) -> Result<(), NoRoom> {
        match self.side() {
            // SAFETY: as for the main backend.
            Some(side) => unsafe { side.carry(job) },
            None => {
                // Not even a lock and a descriptor are to be had: done here and now rather than not at all.
                let answer = Answer::Result(job.raw.call());
                self.events.push(Event { token: job.token, answer });
                Ok(())
            }
        }
    }

    /// What the threads have not answered.
    pub(super) fn beside(&self) -> usize {
        self.side.as_ref().map_or(0, Threads::pending)
    }

    /// Enters the backends; events go to `self.events`.
    pub(super) fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let beside = self.beside();
        if beside == 0 && !self.side_has_timers() {
            if std::mem::take(&mut self.watching) {
                self.main.watch(-1, false);
            }
            return self.enter_main(want.min(self.carried), until);
        }
        let eventfd = self.side.as_mut().and_then(|side| side.poll_fd().ok());
        if let Some(eventfd) = eventfd {
            self.main.watch(eventfd, true);
            self.watching = true;
        }
        if self.carried == 0 && !self.polled {
            self.enter_main(0, None)?;
            return self.enter_side(want, until);
        }
        self.enter_side(0, None)?;
        let want = if self.events.is_empty() { want.min(1) } else { 0 };
        // Without a descriptor to wait for both, they are looked at in turn.
        let until = match (eventfd, want) {
            (None, 1) => Some(Instant::now() + Duration::from_millis(1)),
            _ => until,
        };
        // The threads are looked at last, and in any case: the main backend may have made the descriptor unreadable that told of them.
        let entered = self.enter_main(want, until);
        self.enter_side(0, None)?;
        entered
    }

    fn enter_main(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let before = self.events.len();
        let entered = self.main.enter(want, until, &mut self.events);
        let answered = self.events[before..].iter().filter(|event| event.answer != Answer::Expired).count();
        self.carried = self.carried.saturating_sub(answered);
        entered
    }

    pub(super) fn enter_side(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        match self.side.as_mut() {
            Some(side) => side.enter(want, until, &mut self.events),
            None => Ok(()),
        }
    }

    /// Timers of operations that the main backend carries are with the threads where it has none of its own.
    fn side_has_timers(&self) -> bool {
        self.side.is_some() && self.explanation.backend == BackendKind::Kaio
    }
}

/// True for what does not wait for somebody else. Nothing else is linked: the kernel cannot cancel what stands behind another
/// operation, and would begin it long after its owner has called it off.
fn ends_by_itself(operation: &Operation) -> bool {
    match operation.raw.kind() {
        Kind::Poll | Kind::Timeout | Kind::Open => false,
        _ if operation.raw.is_transfer() => {
            operation.file.as_ref().is_some_and(|file| file.traits().kind == FileKind::Storage)
        }
        _ => true,
    }
}
