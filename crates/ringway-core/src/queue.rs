//! The queue: push operations, submit them, reap completions.
//!
//! It owns every operation from its push on, decides whose turn it is (chains, barriers), cuts long transfers and
//! continues short ones, tries again what was interrupted, and hands the results out. How an operation reaches
//! the kernel is the backend's business; beside a backend that cannot carry all of them stand threads.

mod completion;
mod fixed;
mod options;

pub use completion::Completion;
pub use options::{BackendKind, Explanation, Options, SqPoll};

use crate::backend::threads::Threads;
use crate::backend::{Answer, Backend, Event, FileKind, Job};
use crate::error::{Error, PushError, Reason};
use crate::file::{File, Traits};
use crate::fork::Home;
use crate::op::{self, CURSOR, Held, Kind, Open, Operation, Raw, Shape, bind};
use crate::slots::{Counts, Key, Slots, State, Token};
use crate::split::{Piece, Progress, Round};
use fixed::Fixed;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Names an operation in flight; never used for another one while it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(Key);

/// What is known of a file that nobody has looked at.
const UNKNOWN: Traits = Traits { kind: FileKind::Unknown, direct: false };
/// A transfer longer than this is looked at more closely; no device takes less in one request.
const SURELY_ONE_REQUEST: u64 = 64 << 10;
/// The longest piece of any transfer; the kernel itself stops just short of 2 GiB.
const LONGEST_PIECE: u64 = 1 << 30;
/// After so many EAGAINs an operation goes to the threads, where it may block.
const PATIENCE: u8 = 8;

/// A completion queue with one owner. It may move between threads (not with
/// [`Options::single_issuer`]), but is used by one at a time.
///
/// Made by [`Options::build`]. It has no thread and no runtime of its own: things move when it is called, and what waits for
/// something else (the rest of a chain, what stands behind a barrier) is submitted by [`reap`](Self::reap).
///
/// Dropping it cancels what is in flight and waits for it, at most for [`Options::close_wait`]; what will not end is
/// leaked, never freed, since the kernel may still touch it.
pub struct Queue {
    main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads beside a backend that does not carry everything; started at the first need.
    side: ManuallyDrop<Option<Threads>>,
    slots: ManuallyDrop<Slots<Flight>>,
    /// Operations whose turn it is.
    pending: VecDeque<Key>,
    /// Operations behind a barrier, and barriers, in the order they were pushed.
    staged: VecDeque<Key>,
    done: VecDeque<Key>,
    /// Of `done`, those that somebody waits for.
    ready: usize,
    /// Operations that nobody waits for and that are not over.
    abandoned: usize,
    /// Operations of which something is queued or carried, or that such a one's chain will reach.
    active: usize,
    /// Operations held behind another one of their chain.
    held: usize,
    /// A barrier has been let through and is not done.
    draining: bool,
    /// Jobs that the main backend has not answered.
    carried: usize,
    events: Vec<Event>,
    batch: Vec<Operation>,
    fixed: Fixed,
    options: Options,
    explanation: Explanation,
    ring_fd: Option<RawFd>,
    home: Home,
    closed: bool,
    /// The descriptor has been asked for.
    polled: bool,
    /// The main backend waits for the threads too.
    watching: bool,
    retries: u64,
    continued: u64,
    to_threads: u64,
    late: u64,
}

/// An operation in its slot.
struct Flight {
    operation: Operation,
    progress: Progress,
    /// What follows in its chain.
    next: Option<Key>,
    /// What comes before it in its chain, if the kernel was given both.
    after: Option<Key>,
    /// It was counted into `active`.
    counted: bool,
    ending: Ending,
    /// The threads carry it, since the main backend cannot.
    to_side: bool,
    abandoned: bool,
    /// A close that has taken the descriptor out of its file, and now is its owner.
    owns_descriptor: bool,
    retries: u8,
    deadline: Option<Instant>,
    result: i64,
}

/// Why an operation that fails with ECANCELED was meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It was not.
    Natural,
    /// Its owner asked for it.
    Cancelled,
    /// Its time was up.
    TimedOut,
    /// What it was linked behind failed.
    Broken,
}

/// What the queue has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations: pushed = delivered + orphaned + in flight, at every moment.
    pub counts: Counts,
    /// System calls made for I/O, by the threads too.
    pub system_calls: u64,
    /// Answers that were not shown but led to another try (EINTR, EAGAIN, ECANCELED that nobody asked for).
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that went to the threads because the backend could not carry them.
    pub to_threads: u64,
    /// Answers for operations that were over.
    pub late: u64,
}

impl Queue {
    fn assemble(main: Box<dyn Backend>, ring_fd: Option<RawFd>, options: &Options, explanation: Explanation) -> Self {
        Self {
            main: ManuallyDrop::new(main),
            side: ManuallyDrop::new(None),
            slots: ManuallyDrop::new(Slots::new(options.cap())),
            pending: VecDeque::new(),
            staged: VecDeque::new(),
            done: VecDeque::new(),
            ready: 0,
            abandoned: 0,
            active: 0,
            held: 0,
            draining: false,
            carried: 0,
            events: Vec::new(),
            batch: Vec::new(),
            fixed: Fixed::default(),
            options: options.clone(),
            explanation,
            ring_fd,
            home: Home::here(),
            closed: false,
            polled: false,
            watching: false,
            retries: 0,
            continued: 0,
            to_threads: 0,
            late: 0,
        }
    }

    // --- Pushing ---------------------------------------------------------------------------------------------------

    /// Takes an operation in. Nothing is submitted yet, and nothing blocks.
    ///
    /// Errors, all before anything is submitted, the operation coming back with them: the queue is full
    /// ([`PushError::is_full`]) or closed, the operation is invalid, or this is a forked child.
    #[inline]
    pub fn push(&mut self, mut operation: Operation) -> Result<OpId, PushError> {
        match self.push_in_place(&mut operation) {
            Ok(id) => Ok(id),
            Err(reason) => Err(PushError::new(reason, vec![operation])),
        }
    }

    /// Takes the operation out of its place, unless it is refused: a move by reference, since each copy of an operation
    /// costs as much as all the rest of a push.
    fn push_in_place(&mut self, operation: &mut Operation) -> Result<OpId, Reason> {
        if let Some(reason) = self.refuse(operation, 1) {
            return Err(reason);
        }
        let drain = operation.drain;
        let key = self.insert(operation);
        if drain || self.draining || !self.staged.is_empty() {
            self.stage(key);
        } else {
            self.release(key);
        }
        Ok(OpId(key))
    }

    /// Takes in operations of which each begins when the one before it has succeeded, and gives the first one's id.
    ///
    /// When one fails, or transfers less than it was to, what follows answers ECANCELED; behind
    /// [`Operation::always`] it begins all the same. Cancelling one ends the chain there. Where the kernel has links
    /// they are used; elsewhere, and where a chain has members that it cannot take whole, [`reap`](Self::reap) moves it along.
    ///
    /// Errors: as for [`push`](Self::push), for all of them together: none is taken. EINVAL for a chain of none.
    pub fn push_chain(&mut self, chain: impl IntoIterator<Item = Operation>) -> Result<OpId, PushError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(chain);
        let refused = match batch.len() {
            0 => Some(Reason::Invalid("a chain of no operations")),
            count => batch.iter().find_map(|operation| self.refuse(operation, count)),
        };
        if let Some(reason) = refused {
            return Err(PushError::new(reason, batch));
        }
        let drain = batch.iter().any(|operation| operation.drain);
        let mut first: Option<Key> = None;
        let mut last: Option<Key> = None;
        for mut operation in batch.drain(..) {
            operation.drain = drain && first.is_none();
            let key = self.insert(&mut operation);
            match last.and_then(|last| self.slots.get_mut(last)) {
                Some(before) => {
                    before.next = Some(key);
                    self.held += 1;
                }
                None => first = Some(key),
            }
            last = Some(key);
        }
        self.batch = batch;
        match first {
            Some(first) => {
                self.stage(first);
                Ok(OpId(first))
            }
            None => Err(PushError::new(Reason::Full, Vec::new())),
        }
    }

    /// Takes in an operation by its numbers and addresses, owning nothing: for interfaces to other languages.
    ///
    /// # Safety
    ///
    /// Until the operation's completion has been handed out, or for ever if the queue is dropped or closed before:
    /// everything that `raw` points at must be valid for what the operation does with it, from any thread, and its
    /// descriptors must stay open.
    pub unsafe fn push_raw(&mut self, raw: Raw, settings: RawSettings) -> Result<OpId, Reason> {
        let mut operation = Operation::borrowed(raw).user_data(settings.user_data);
        operation.exact = settings.exact;
        operation.drain = settings.drain;
        if let Some(limit) = settings.timeout {
            operation = operation.timeout(limit);
        }
        self.push_in_place(&mut operation)
    }

    /// Why an operation cannot be taken in, if it cannot.
    #[inline]
    fn refuse(&self, operation: &Operation, room: usize) -> Option<Reason> {
        if !self.home.is_here() {
            return Some(Reason::Forked);
        }
        if self.closed {
            return Some(Reason::Closed);
        }
        if let Some(fault) = operation.fault {
            return Some(Reason::Invalid(fault.text()));
        }
        if let Some(offset) = operation.raw.offset()
            && offset != CURSOR
            && offset > i64::MAX as u64
        {
            return Some(Reason::Invalid("an offset over i64::MAX"));
        }
        (self.slots.room() < room).then_some(Reason::Full)
    }

    /// Takes in an operation that there is room for.
    #[inline]
    fn insert(&mut self, operation: &mut Operation) -> Key {
        let progress = self.cut(operation);
        let (key, flight) = self.slots.insert().expect("there was room");
        std::mem::swap(&mut flight.operation, operation);
        flight.progress = progress;
        flight.next = None;
        flight.after = None;
        flight.ending = Ending::Natural;
        flight.counted = false;
        flight.to_side = false;
        flight.abandoned = false;
        flight.owns_descriptor = false;
        flight.retries = 0;
        flight.deadline = None;
        bind(&mut flight.operation);
        key
    }

    /// How a transfer is cut: in pieces of what the device takes in one request, where that is less.
    #[inline]
    fn cut(&self, operation: &Operation) -> Progress {
        match operation.raw.shape() {
            Shape::Whole => Progress::whole(),
            Shape::Bytes(total) if total <= SURELY_ONE_REQUEST => Progress::new(total, 0),
            Shape::Bytes(total) => Progress::new(total, piece_limit(operation.file.as_ref())),
            Shape::Stream(total) | Shape::Vector(total) => Progress::new(total, 0),
        }
    }

    // --- Whose turn it is ------------------------------------------------------------------------------------------

    /// Lets an operation that has just been pushed wait behind a barrier, or have its turn.
    fn stage(&mut self, key: Key) {
        self.staged.push_back(key);
        self.unstage();
    }

    /// Lets through what no barrier holds back any more.
    fn unstage(&mut self) {
        while let Some(key) = self.staged.front().copied() {
            let drain = match self.slots.get(key) {
                Some(flight) if self.slots.state(key) == Some(State::Held) => flight.operation.drain,
                // Cancelled while it waited.
                _ => {
                    self.staged.pop_front();
                    continue;
                }
            };
            if self.draining || (drain && self.active > 0) {
                return;
            }
            self.draining = drain;
            self.staged.pop_front();
            self.release(key);
        }
    }

    /// An operation's turn has come.
    #[inline]
    fn release(&mut self, key: Key) {
        self.slots.set_state(key, State::Held, State::Queued);
        self.pending.push_back(key);
        if let Some(flight) = self.slots.get_mut(key)
            && !std::mem::replace(&mut flight.counted, true)
        {
            self.active += 1;
        }
    }

    // --- Submitting ------------------------------------------------------------------------------------------------

    /// Submits what was pushed: one system call for any number on uring and kaio. Does not wait.
    ///
    /// Gives the number of completions that are there to be reaped without waiting.
    /// Errors: of the backend as a whole (EEXIST: another thread than the single issuer; ECHILD: a forked child); nothing is lost by one.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.advance(0, None)?;
        if self.ready > 0 && self.polled {
            self.main.wake();
        }
        Ok(self.ready)
    }

    /// Gives the backends as much as they take.
    fn carry(&mut self) {
        while let Some(key) = self.pending.front().copied() {
            if self.slots.state(key) != Some(State::Queued) {
                self.pending.pop_front(); // Cancelled while it waited.
                continue;
            }
            match self.carry_one(key) {
                Carried::All => {
                    self.pending.pop_front();
                }
                Carried::NoRoom => return,
            }
        }
    }

    fn carry_one(&mut self, key: Key) -> Carried {
        if let Err(errno) = self.take_over(key) {
            self.slots.set_state(key, State::Queued, State::Carried);
            self.finish(key, -i64::from(errno));
            return Carried::All;
        }
        if self.slots.get(key).is_some_and(|flight| flight.next.is_some()) && self.carry_chain(key) {
            return Carried::All;
        }
        loop {
            let Some(flight) = self.slots.get_mut(key) else { return Carried::All };
            let Some(piece) = flight.progress.next_piece() else { break };
            if flight.operation.timeout.is_some() && flight.deadline.is_none() {
                self.set_deadline(key);
            }
            let Some(flight) = self.slots.get(key) else { return Carried::All };
            let raw = flight.piece(piece);
            let mut job = self.job(key, flight, raw, piece.number);
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
                // SAFETY: the operation owns what the job points at, or its owner has promised for it, and stays in its slot
                // until the job has been answered; slots are leaked rather than freed when the queue goes before that.
                unsafe { self.main.carry(&job) }
            };
            if carried.is_err() {
                self.carried -= usize::from(!to_side);
                if let Some(flight) = self.slots.get_mut(key) {
                    flight.progress.put_back();
                }
                return Carried::NoRoom;
            }
            if to_side && let Some(flight) = self.slots.get_mut(key) {
                self.to_threads += u64::from(!std::mem::replace(&mut flight.to_side, true));
            }
        }
        self.slots.set_state(key, State::Queued, State::Carried);
        Carried::All
    }

    fn job(&self, key: Key, flight: &Flight, raw: Raw, piece: u8) -> Job {
        let file = flight.operation.file.as_ref();
        let buffer = match &flight.operation.held {
            Held::Buffer(buffer) => Some(buffer),
            _ => None,
        };
        // A ring that takes everything need not be told what kind of file it is.
        let traits = match (self.takes_all(), file) {
            (true, _) => UNKNOWN,
            (false, Some(file)) => file.traits(),
            (false, None) if self.explanation.backend == BackendKind::Threads => UNKNOWN,
            (false, None) => raw.fd().map_or(UNKNOWN, Traits::of),
        };
        Job {
            token: Token::new(key, piece),
            raw,
            file: traits.kind,
            direct: traits.direct,
            fixed_file: self.fixed.file(file),
            fixed_buffer: self.fixed.buffer(buffer, &raw),
            link: false,
            deadline: flight.deadline,
        }
    }

    /// A ring that does not poll for completions, or nothing at all: it asks nothing about the file.
    fn takes_all(&self) -> bool {
        match self.explanation.backend {
            BackendKind::Uring => !self.explanation.granted.contains(&crate::refusal::Feature::IoPoll),
            BackendKind::Null => true,
            BackendKind::Kaio | BackendKind::Threads => false,
        }
    }

    /// The whole of a chain to the kernel, linked; false when it is to go one by one.
    fn carry_chain(&mut self, first: Key) -> bool {
        let mut count = 0;
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(flight) = self.slots.get(key) else { return false };
            let waits = matches!(self.slots.state(key), Some(State::Queued | State::Held));
            let job = self.job(key, flight, flight.operation.raw, 0);
            let fits = waits
                && flight.progress.is_single()
                && flight.ending == Ending::Natural
                && flight.operation.timeout.is_none()
                && !(flight.operation.always && flight.next.is_some())
                && !(flight.operation.raw.kind() == Kind::Close && flight.operation.file.is_some())
                && !flight.to_side
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
            let job = Job { link: at.is_some(), ..self.job(key, flight, raw, piece.number) };
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
        match flight.operation.file.take().map(File::into_only) {
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
            BackendKind::Uring | BackendKind::Null => {}
        }
    }

    // --- Threads beside the backend --------------------------------------------------------------------------------

    fn side(&mut self) -> Option<&mut Threads> {
        if self.side.is_none() {
            *self.side = Threads::new(self.options.thread_options()).ok();
        }
        self.side.as_mut()
    }

    fn carry_beside(&mut self, job: &Job) -> Result<(), crate::backend::NoRoom> {
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
    fn beside(&self) -> usize {
        self.side.as_ref().map_or(0, Threads::pending)
    }

    // --- Reaping ---------------------------------------------------------------------------------------------------

    /// Submits what was pushed, waits until at least `at_least` completions are there, and hands out all that are.
    ///
    /// With 0 it does not wait. It never waits for more than are in flight: with nothing in flight it returns at once.
    /// Completions come in no particular order but that of chains and barriers. What is not taken from the iterator
    /// stays for the next call. A signal does not end the wait.
    ///
    /// Errors: as for [`submit`](Self::submit).
    #[inline]
    pub fn reap(&mut self, at_least: usize) -> io::Result<Completions<'_>> {
        self.advance(at_least, None)?;
        Ok(Completions { queue: self })
    }

    /// As [`reap`](Self::reap), and returns at the latest at `deadline` with what there is, which may be nothing.
    pub fn reap_until(&mut self, at_least: usize, deadline: Instant) -> io::Result<Completions<'_>> {
        self.advance(at_least, Some(deadline))?;
        Ok(Completions { queue: self })
    }

    /// Submits, waits for `want` completions, and sorts out what has been answered.
    fn advance(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let want = want.min(self.slots.in_flight() - self.abandoned);
        loop {
            self.carry();
            let missing = want.saturating_sub(self.ready);
            // Operations whose turn has not come may be what is waited for, and only an answer brings it.
            let waiting = self.held + self.staged.len() + self.pending.len();
            let patient = missing.saturating_sub(waiting).max(usize::from(missing > 0));
            let entered = self.enter(patient, until);
            let moved = !self.events.is_empty();
            self.sort_out();
            entered?;
            let served = self.ready >= want;
            // With no room in the backend for what is pending, and nobody waiting, it stays pending.
            if served && (self.pending.is_empty() || !moved) {
                return Ok(());
            }
            if !moved && self.carried + self.beside() == 0 && self.pending.is_empty() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }

    /// Enters the backends; events go to `self.events`.
    fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
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
        self.enter_main(want, until)?;
        self.enter_side(0, None)
    }

    fn enter_main(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let before = self.events.len();
        let entered = self.main.enter(want, until, &mut self.events);
        let answered = self.events[before..].iter().filter(|event| event.answer != Answer::Expired).count();
        self.carried = self.carried.saturating_sub(answered);
        entered
    }

    fn enter_side(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        match self.side.as_mut() {
            Some(side) => side.enter(want, until, &mut self.events),
            None => Ok(()),
        }
    }

    /// Timers of operations that the main backend carries are with the threads where it has none of its own.
    fn side_has_timers(&self) -> bool {
        self.side.is_some() && self.explanation.backend == BackendKind::Kaio
    }

    // --- Answers ---------------------------------------------------------------------------------------------------

    fn sort_out(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.sort_out_one(event);
        }
        self.events = events;
    }

    #[inline]
    fn sort_out_one(&mut self, event: Event) {
        let Some(key) = event.token.key() else { return };
        let Some(flight) = self.slots.get_mut(key) else {
            self.late += u64::from(event.answer != Answer::Expired);
            return;
        };
        let result = match event.answer {
            Answer::Result(result) => result,
            Answer::CannotCarry => {
                flight.to_side = true;
                self.to_threads += 1;
                // As an answer that is to be tried again: this time on the threads.
                if let Some(round) = flight.progress.answered(event.token.piece(), -i64::from(libc::EAGAIN)) {
                    self.again(key, round);
                }
                return;
            }
            Answer::Expired => return self.end_early(key, Ending::TimedOut),
        };
        if matches!(flight.operation.raw.shape(), Shape::Whole) {
            // Without a length there are no pieces: the answer is the outcome, or a reason to ask again.
            let errno = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            flight.progress.answered(0, 0);
            if errno != 0 && flight.is_to_be_tried_again(errno) {
                return self.again(key, Round { done: 0, gained: 0, errno });
            }
            return self.finish(key, result);
        }
        match flight.progress.answered(event.token.piece(), result) {
            Some(round) => self.settle(key, round),
            None => {
                let more = flight.progress.has_more();
                if more && self.slots.state(key) == Some(State::Carried) {
                    self.slots.set_state(key, State::Carried, State::Queued);
                    self.pending.push_back(key);
                }
            }
        }
    }

    /// A round of a transfer is over: is that the result, or does it go on?
    #[inline]
    fn settle(&mut self, key: Key, round: Round) {
        if self.slots.state(key) == Some(State::Queued) {
            // More pieces were wanted when the last answer came; they are not any more.
            self.slots.set_state(key, State::Queued, State::Carried);
        }
        let Some(flight) = self.slots.get_mut(key) else { return };
        let total = flight.progress.total();
        if round.errno == 0 {
            let exact = flight.operation.exact;
            let complete = round.done == total || round.gained == 0 || !exact || flight.is_end_of_file(round.done);
            if !complete && flight.ending != Ending::Natural {
                return self.finish(key, -i64::from(libc::ECANCELED));
            }
            if complete {
                let done = i64::try_from(round.done).unwrap_or(i64::MAX);
                return self.finish(key, done);
            }
            self.continued += 1;
            return self.again(key, round);
        }
        if flight.is_to_be_tried_again(round.errno) {
            return self.again(key, round);
        }
        // What was transferred before the error is the result, as for the system call, unless all was asked for.
        let result = if round.done > 0 && !flight.operation.exact {
            i64::try_from(round.done).unwrap_or(i64::MAX)
        } else {
            -i64::from(round.errno)
        };
        self.finish(key, result);
    }

    /// Once more from where it stopped.
    fn again(&mut self, key: Key, round: Round) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if round.errno != 0 {
            self.retries += 1;
        }
        if round.gained > 0 {
            flight.retries = 0;
        } else if round.errno == libc::EAGAIN {
            flight.retries = flight.retries.saturating_add(1);
            if flight.retries > PATIENCE && !flight.to_side && self.explanation.backend != BackendKind::Threads {
                flight.to_side = true;
                self.to_threads += 1;
            }
        }
        let done = round.done;
        let before = flight.after.take();
        let limit = flight.progress.limit();
        flight.progress.restart(done, limit);
        // The kernel cancelled it because what it was linked behind came back early; that one goes on, and so it waits again.
        let waits = round.errno == libc::ECANCELED
            && before.is_some_and(|before| !matches!(self.slots.state(before), None | Some(State::Done)));
        if waits {
            self.slots.set_state(key, State::Carried, State::Held);
            self.held += 1;
            return;
        }
        self.slots.set_state(key, State::Carried, State::Queued);
        self.pending.push_back(key);
    }

    /// The result is known.
    #[inline]
    fn finish(&mut self, key: Key, result: i64) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        flight.result = flight.final_result(result);
        flight.close_if_still_open();
        let complete = flight.succeeded();
        let next = flight.next.take();
        let drain = flight.operation.drain;
        let always = flight.operation.always;
        let counted = std::mem::take(&mut flight.counted);
        let abandoned = flight.abandoned;
        // Behind its last operation a file may be closed: a completion does not hold it.
        let file = flight.operation.file.take();
        drop(file);
        let from = self.slots.state(key).unwrap_or(State::Free);
        self.slots.set_state(key, from, State::Done);
        if let Some(next) = next {
            if complete || always {
                self.go_on(next);
            } else {
                self.break_off(next);
            }
        }
        self.active -= usize::from(counted);
        if abandoned {
            self.abandoned -= 1;
            self.slots.orphan(key, Flight::let_go);
        } else {
            self.ready += 1;
            self.done.push_back(key);
        }
        if drain {
            self.draining = false;
        }
        if !self.staged.is_empty() {
            self.unstage();
        }
    }

    /// The next of a chain, whose turn has come.
    fn go_on(&mut self, key: Key) {
        if self.slots.state(key) == Some(State::Held) {
            self.held -= 1;
            self.release(key);
        }
        // A carried one is linked, and the kernel has begun it or will answer ECANCELED, upon which it is tried again.
    }

    /// The rest of a chain, which has failed.
    fn break_off(&mut self, key: Key) {
        match self.slots.state(key) {
            Some(State::Held) => {
                self.held -= 1;
                self.finish(key, -i64::from(libc::ECANCELED));
            }
            Some(State::Carried) => {
                // Linked: the kernel cancels it.
                if let Some(flight) = self.slots.get_mut(key)
                    && flight.ending == Ending::Natural
                {
                    flight.ending = Ending::Broken;
                }
            }
            _ => {}
        }
    }

    // --- Cancelling ------------------------------------------------------------------------------------------------

    /// Asks that an operation be cancelled; true if it is in flight and its result not known yet.
    ///
    /// Its completion comes in any case: with ECANCELED, or, when it could not be stopped any more (a transfer that the device
    /// has begun), with its result. Does not block; a cancel of something submitted takes effect with the next submit or reap.
    pub fn cancel(&mut self, id: OpId) -> bool {
        let known = self.home.is_here()
            && !matches!(self.slots.state(id.0), None | Some(State::Done))
            && self.slots.get(id.0).is_some();
        if known {
            self.end_early(id.0, Ending::Cancelled);
            self.announce();
        }
        known
    }

    /// Asks that everything in flight be cancelled; how many operations that were.
    pub fn cancel_all(&mut self) -> usize {
        let keys: Vec<Key> = self.slots.keys().collect();
        keys.into_iter().filter(|key| self.cancel(OpId(*key))).count()
    }

    /// Gives an operation up: it is cancelled if that is still possible, its completion is not handed out, and what it owns is
    /// dropped when the kernel is done with it; a file that it opens is closed. False if there is no such operation in flight.
    ///
    /// Its place in the queue is free again with its completion, not before.
    pub fn abandon(&mut self, id: OpId) -> bool {
        let key = id.0;
        if !self.home.is_here() {
            return false;
        }
        match self.slots.state(key) {
            None => false,
            Some(State::Done) => {
                self.ready -= 1;
                self.slots.orphan(key, Flight::let_go);
                true
            }
            Some(_) => {
                let Some(flight) = self.slots.get_mut(key) else { return false };
                if !std::mem::replace(&mut flight.abandoned, true) {
                    self.abandoned += 1;
                    self.end_early(key, Ending::Cancelled);
                }
                true
            }
        }
    }

    /// Cancels, for the reason given.
    fn end_early(&mut self, key: Key, ending: Ending) {
        let state = self.slots.state(key);
        let Some(flight) = self.slots.get_mut(key) else { return };
        if state == Some(State::Done) {
            return;
        }
        if flight.ending == Ending::Natural {
            flight.ending = ending;
        }
        match state {
            Some(State::Held) => {
                // One behind another of its chain is counted as held; one behind a barrier stands in `staged`.
                if !self.staged.contains(&key) {
                    self.held -= 1;
                }
                self.finish(key, -i64::from(libc::ECANCELED));
            }
            Some(State::Queued | State::Carried) => {
                if matches!(flight.operation.raw.shape(), Shape::Whole) {
                    if state == Some(State::Queued) {
                        return self.finish(key, -i64::from(libc::ECANCELED));
                    }
                } else if let Some(round) = flight.progress.stop() {
                    return self.settle(key, round);
                }
                let numbers = flight.progress.numbers();
                let to_side = flight.to_side;
                for number in numbers {
                    let token = Token::new(key, number);
                    match self.side.as_mut().filter(|_| to_side) {
                        Some(side) => side.cancel(token),
                        None => self.main.cancel(token),
                    }
                }
            }
            _ => {}
        }
    }

    /// Something is there to be reaped that no backend knows of: whoever polls the descriptor must learn of it.
    fn announce(&mut self) {
        if self.polled && self.ready > 0 {
            self.main.wake();
        }
    }

    // --- Closing ---------------------------------------------------------------------------------------------------

    /// Takes no more operations, cancels everything in flight and waits for it, at most for `wait`. How many
    /// operations are still in flight after that: the device has them.
    ///
    /// Completions, those of the cancelled included, can be reaped as before. Closing again waits again.
    /// Errors: as for [`submit`](Self::submit).
    pub fn close(&mut self, wait: Duration) -> io::Result<usize> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        self.closed = true;
        self.cancel_all();
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        loop {
            // Abandoned operations are waited for too, though nobody will be handed their completions.
            let left = self.slots.in_flight() - self.ready;
            if left == 0 || Instant::now() >= until {
                return Ok(left);
            }
            self.carry();
            let entered = self.enter(1, Some(until));
            self.sort_out();
            entered?;
        }
    }

    // --- Being looked at -------------------------------------------------------------------------------------------

    /// The descriptor that is readable when there may be something to reap, for `poll(2)` and its like.
    ///
    /// From the first call on, it is kept right: never is something there to be reaped and the descriptor not readable. The contrary happens:
    /// it may be readable for nothing. So: when it is, [`reap`](Self::reap) with 0 until that gives nothing, then wait for it again.
    ///
    /// Errors: EOPNOTSUPP for a ring that polls for completions ([`Options::iopoll`]); EMFILE.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let fd = self.main.poll_fd()?;
        self.polled = true;
        self.announce();
        // SAFETY: the descriptor belongs to the backend, which lives at least as long as this borrow of the queue.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Operations that were pushed and whose completions have not been handed out.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// How many more operations there is room for.
    pub fn room(&self) -> usize {
        self.slots.room()
    }

    /// Which backend it has, what that was granted, and what was refused and why.
    pub fn explain(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        explanation.refusals.extend_from_slice(self.main.refusals());
        explanation.refusals.extend_from_slice(self.side.as_ref().map_or(&[], |side| side.refusals()));
        explanation
    }

    /// The backend.
    pub fn backend(&self) -> BackendKind {
        self.explanation.backend
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            counts: self.slots.counts(),
            system_calls: self.main.system_calls() + self.side.as_ref().map_or(0, |side| side.system_calls()),
            retries: self.retries,
            continued: self.continued,
            to_threads: self.to_threads,
            late: self.late,
        }
    }

    /// The ring, for another queue to attach to.
    fn ring_fd(&self) -> Option<RawFd> {
        self.ring_fd
    }
}

/// What goes with an operation that is pushed by its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawSettings {
    /// As [`Operation::user_data`].
    pub user_data: u64,
    /// As [`Operation::exact`].
    pub exact: bool,
    /// As [`Operation::drain`].
    pub drain: bool,
    /// As [`Operation::timeout`].
    pub timeout: Option<Duration>,
}

enum Carried {
    All,
    NoRoom,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            operation: op::nop(),
            progress: Progress::whole(),
            next: None,
            after: None,
            counted: false,
            ending: Ending::Natural,
            to_side: false,
            abandoned: false,
            owns_descriptor: false,
            retries: 0,
            deadline: None,
            result: 0,
        }
    }
}

impl Flight {
    /// What a backend is given of it.
    #[inline]
    fn piece(&self, piece: Piece) -> Raw {
        let all = piece.start == 0 && piece.len == self.progress.total();
        if all { self.operation.raw } else { self.operation.raw.piece(piece.start, piece.len) }
    }

    /// EINTR, EAGAIN, and an ECANCELED that nobody asked for are not shown.
    fn is_to_be_tried_again(&self, errno: i32) -> bool {
        if self.ending != Ending::Natural {
            return false;
        }
        match errno {
            libc::EINTR if matches!(self.operation.raw, Raw::Close(_)) => false,
            libc::EAGAIN => true,
            // The kernel may have enforced the time limit.
            libc::EINTR | libc::ECANCELED => self.deadline.is_none_or(|deadline| Instant::now() < deadline),
            _ => false,
        }
    }

    /// A direct transfer that stopped between two blocks has met the end of the file: to go on from there would be
    /// refused for its alignment.
    fn is_end_of_file(&self, done: u64) -> bool {
        self.operation
            .file
            .as_ref()
            .filter(|file| file.is_direct())
            .is_some_and(|file| done % u64::from(file.direct_io().offset_align.max(1)) != 0)
    }

    /// What the owner is shown for what the kernel said.
    fn final_result(&self, result: i64) -> i64 {
        let errno = match result {
            0.. => return result,
            _ => i32::try_from(-result).unwrap_or(libc::EIO),
        };
        let stopped = matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN);
        match (&self.operation.raw, self.ending) {
            // Its time having come is what was asked of it.
            (Raw::Timeout(_), _) if errno == libc::ETIME => 0,
            // An interrupted close has closed the descriptor all the same (close(2), NOTES).
            (Raw::Close(_), _) if errno == libc::EINTR => 0,
            (_, Ending::TimedOut) if stopped => -i64::from(libc::ETIMEDOUT),
            (_, Ending::Cancelled | Ending::Broken) if stopped => -i64::from(libc::ECANCELED),
            // The kernel kept the time limit itself.
            (_, Ending::Natural) if stopped && self.deadline.is_some() => -i64::from(libc::ETIMEDOUT),
            _ => result,
        }
    }

    /// A close that was cancelled before it began has left its descriptor open, and nobody else knows of it.
    fn close_if_still_open(&mut self) {
        if let Raw::Close(close) = self.operation.raw
            && std::mem::take(&mut self.owns_descriptor)
            && self.result == -i64::from(libc::ECANCELED)
        {
            // SAFETY: the operation took the descriptor out of its only owner, and the kernel has not closed it.
            drop(unsafe { OwnedFd::from_raw_fd(close.fd) });
        }
    }

    /// What follows in a chain may begin.
    fn succeeded(&self) -> bool {
        match self.result {
            ..0 => false,
            done => !self.operation.raw.is_transfer() || done as u64 == self.progress.total(),
        }
    }

    /// The end of an operation that nobody waits for: a file that it opened is closed.
    fn let_go(&mut self) {
        self.operation.held = Held::Nothing;
        if matches!(self.operation.raw, Raw::Open(_)) {
            drop(Open::opened(self.result));
        }
    }

    #[inline]
    fn complete(&mut self, key: Key) -> Completion {
        let kind = self.operation.kind();
        let opened = if kind == Kind::Open { Open::opened(self.result) } else { None };
        let result = match u64::try_from(self.result) {
            Ok(_) if kind == Kind::Open => Ok(0),
            Ok(done) => Ok(done),
            Err(_) => Err(Error::new(i32::try_from(-self.result).unwrap_or(libc::EIO), kind)),
        };
        Completion {
            id: OpId(key),
            user_data: self.operation.user_data,
            kind,
            result,
            held: std::mem::replace(&mut self.operation.held, Held::Nothing),
            opened,
        }
    }
}

/// Completions that are there; each comes once. From [`Queue::reap`].
pub struct Completions<'a> {
    queue: &'a mut Queue,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        loop {
            let key = self.queue.done.pop_front()?;
            // One that was abandoned after it was done is gone.
            if let Some(completion) = self.queue.slots.deliver(key, |flight| flight.complete(key)) {
                self.queue.ready -= 1;
                return Some(completion);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.queue.ready, Some(self.queue.ready))
    }
}

impl ExactSizeIterator for Completions<'_> {}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        self.queue.announce();
    }
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completions({})", self.queue.ready)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("backend", &self.explanation.backend).field("counts", &self.slots.counts()).finish()
    }
}

/// The longest piece of a transfer: of a direct one, what the device takes in one request.
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

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return; // All of it is the parent's.
        }
        // A queue that cannot be closed is one whose kernel side does not answer: then nothing is freed below.
        let left = self.close(self.options.drop_wait()).unwrap_or(usize::MAX);
        // SAFETY: this is the last use of the two.
        unsafe {
            ManuallyDrop::drop(&mut self.side);
            // Giving a KAIO context back waits for what is in it, without a bound.
            if left == 0 || self.explanation.backend != BackendKind::Kaio {
                ManuallyDrop::drop(&mut self.main);
            }
        }
        if left == 0 {
            // Nothing is in flight any more, so nothing in the slots is the kernel's.
            for key in self.slots.keys().collect::<Vec<_>>() {
                self.slots.orphan(key, Flight::let_go);
            }
            // SAFETY: this is its last use.
            unsafe { ManuallyDrop::drop(&mut self.slots) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation in flight costs at most this beside its buffer.
    #[test]
    fn a_slot_is_small() {
        let size = Slots::<Flight>::slot_size();
        assert!(size <= 256, "{size} bytes");
    }
}
