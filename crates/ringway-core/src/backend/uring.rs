//! The io_uring backend: a ring of the `io-uring` crate, the features that are available and those
//! that were refused.
//!
//! References: io_uring(7), io_uring_setup(2), io_uring_enter(2), io_uring_register(2).

mod cancels;
mod entries;
mod exiting;
mod links;
mod memory;
mod passthrough;
mod retry;
mod tokens;
mod workers;

use super::{Backend, BackendFull, EventKind, FileKind, Job, JobEvent, LimitKeeper, Wait};
use crate::memory_cgroup::workers_may_cache;
use crate::op::{
    CURRENT_POSITION, Cancel, Raw, SqeContext, SqeData, is_direct_for_worker, is_for_worker,
};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::Token;
use crate::sys::eventfd::{EventFd, drain, poll_now, wait_readable};
use cancels::Cancels;
pub(crate) use entries::{Entries, UsualEntries};
use io_uring::squeue::EntryMarker;
use io_uring::squeue::Flags;
use io_uring::{EnterFlags, IoUring, Probe, Submitter, cqueue, opcode, squeue, types};
use links::PushedEntries;
pub(crate) use passthrough::CommandEntries;
use retry::{Retry, TimerPoll, is_transient};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use tokens::{
    CANCEL, CANCEL_PAUSE, CANCEL_RETRY, CANCEL_WATCH, CUT_OFF, LINK_TIMEOUT, RETRY, START_WORKER,
    TICK, TIMEOUT, WAKE, WATCH,
};
use workers::Workers;

/// The requested settings of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Submission queue entries.
    pub entries: u32,
    /// Completion queue entries.
    pub completion_entries: u32,
    /// A kernel thread polls the submission queue: idle time in milliseconds, processor.
    pub sqpoll: Option<(u32, Option<u32>)>,
    /// A ring whose kernel threads are shared.
    pub attach: Option<RawFd>,
    pub iopoll: bool,
    pub single_issuer: bool,
    /// The descriptor to poll is an eventfd.
    pub eventfd: bool,
    /// The most io-wq workers, for bounded and for unbounded work.
    pub io_wq_workers: Option<[u32; 2]>,
    /// Faults are injected, into what workers do as well: the memory cgroup is not asked.
    pub injects_faults: bool,
}

/// The kernel copies it when it takes the entry.
static TICK_LENGTH: types::Timespec =
    types::Timespec::new().nsec(workers::TICK_INTERVAL.subsec_nanos());

/// The result of a transfer that a ring cannot poll for.
const CANNOT_POLL: i64 = -(libc::EOPNOTSUPP as i64);

/// The most registered buffers, and the most registered files.
const MAX_FIXED: u32 = 64;

pub(crate) struct Uring<R: Entries> {
    ring: IoUring<R::Sqe, R::Cqe>,
    entries: R,
    /// The ring polls the device: it takes only direct transfers, and a completion is found by a
    /// thread in the kernel alone. So it has no descriptor to poll, and no timeouts.
    is_iopoll: bool,
    /// The [`SqeData`] of slots that have needed it; boxed, so that their addresses do not change.
    sqe_data: Vec<Option<Box<UnsafeCell<SqeData>>>>,
    /// Whether the kernel supports each opcode.
    opcodes: Box<[bool]>,
    /// Jobs that are not completed.
    in_flight: usize,
    /// Events that do not come from the kernel.
    unsupported: Vec<JobEvent>,
    /// The entries of a chain that is not complete yet.
    linked: Vec<R::Sqe>,
    /// `None`: the ring has no links.
    links: Option<PushedEntries<R::Sqe>>,
    /// Entries pushed so far: the tail of the submission queue.
    pushed: u32,
    cancels: Cancels,
    watch: Option<RawFd>,
    watch_armed: bool,
    workers: Workers,
    /// The process's memory cgroup lets them wait for memory, as far as it is known.
    workers_may_cache: bool,
    /// A [`TICK`] is in flight; it has completed.
    ticking: bool,
    ticked: bool,
    /// The watched eventfd was readable: `enter` must return.
    fallback_ready: bool,
    eventfd: Option<EventFd>,
    /// `poll_fd` returns an eventfd. It is made by that call, where the kernel allows that while
    /// operations are in flight: before, signalling and draining it for each completion would be
    /// wasted.
    wants_eventfd: bool,
    buffers: Buffers,
    files: Option<Vec<u32>>,
    /// Hangs up when the kernel has released the ring, and so everything that was in flight on it:
    /// see [`register_release_pipe`].
    release_pipe: Option<OwnedFd>,
    /// Submits again what the kernel did not take.
    retry: Retry,
    /// `poll_fd` was called.
    polled: bool,
    /// A push was refused, since the kernel did not take what is in the submission queue.
    starved: bool,
    /// There is an [`EventKind::Unsupported`] since the beginning of `enter`.
    has_unsupported: bool,
    /// Enters of a ring that polls for completions, one after the other, that found none.
    empty_enters: u32,
    /// Entries in the submission queue since it was last empty, and jobs among them.
    unsubmitted: (usize, usize),
    system_calls: u64,
    available: Vec<Feature>,
    refusals: Vec<Refusal>,
    submitters: exiting::Submitters,
    _closing: exiting::Closing,
}

/// The registered buffers.
#[derive(Default)]
struct Buffers {
    /// The memory under each index.
    memory: Vec<libc::iovec>,
    /// How many of them the kernel has: all, unless registering failed and could not be undone.
    usable: usize,
    /// Whether the kernel has a table with free entries (5.19), to which buffers can be added at
    /// any time. `None`: nothing was registered yet.
    sparse: Option<bool>,
}

// SAFETY: this value owns the ring's mappings and the `SqeData`. Only a ring with a single issuer
// is tied to a thread, and there the kernel fails calls of other threads with EEXIST.
unsafe impl<R: Entries> Send for Uring<R> {}

/// How an enter of the backend goes on after one of the kernel that failed.
enum AfterError {
    /// A signal has ended the wait.
    Interrupted,
    /// As after one that succeeded.
    Proceed,
    /// At once.
    Repeat,
    /// Not at all.
    Stop,
}

/// Setup flags, from which refused ones are dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SetupFlags {
    entries: u32,
    completion_entries: u32,
    no_sq_array: bool,
    defer: bool,
    coop: bool,
    submit_all: bool,
    cq_size: bool,
    clamp: bool,
    sqpoll: bool,
    attach: bool,
    iopoll: bool,
}

impl SetupFlags {
    /// All that help, and those that the program asks for.
    fn requested(settings: &Settings) -> Self {
        let polled = settings.sqpoll.is_some();
        Self {
            entries: settings.entries,
            completion_entries: settings.completion_entries.max(settings.entries),
            no_sq_array: true,
            // Both leave completions to the next system call of the thread that submitted, so the
            // same thread must wait: io_uring_setup(2). The kernel refuses both with SQPOLL.
            defer: settings.single_issuer && !polled,
            coop: settings.single_issuer && !polled,
            submit_all: true,
            cq_size: true,
            clamp: true,
            sqpoll: polled,
            attach: settings.attach.is_some(),
            iopoll: settings.iopoll,
        }
    }

    fn build<R: Entries>(self, settings: &Settings) -> io::Result<IoUring<R::Sqe, R::Cqe>> {
        let mut builder = IoUring::<R::Sqe, R::Cqe>::builder();
        builder.dontfork();
        if self.no_sq_array {
            builder.setup_no_sqarray();
        }
        if self.defer {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        } else if self.coop {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if self.submit_all {
            builder.setup_submit_all();
        }
        if self.cq_size {
            builder.setup_cqsize(self.completion_entries);
        }
        if self.clamp {
            builder.setup_clamp();
        }
        if let Some((idle, cpu)) = settings.sqpoll.filter(|_| self.sqpoll) {
            builder.setup_sqpoll(idle);
            if let Some(cpu) = cpu {
                builder.setup_sqpoll_cpu(cpu);
            }
        }
        if let Some(ring) = settings.attach.filter(|_| self.attach) {
            builder.setup_attach_wq(ring);
        }
        if self.iopoll {
            builder.setup_iopoll();
        }
        builder.build(self.entries)
    }

    /// Drops the newest or least needed feature that is still requested, and returns it.
    fn drop_feature(&mut self, errno: i32) -> Option<Feature> {
        let take = |flag: &mut bool, feature| std::mem::take(flag).then_some(feature);
        if errno == libc::ENOMEM && (self.entries > 8 || self.completion_entries > 32) {
            // This memory counts against RLIMIT_MEMLOCK: a smaller ring may fit.
            self.entries = (self.entries / 2).max(2);
            self.completion_entries = (self.completion_entries / 2).max(self.entries);
            return Some(Feature::CqSize);
        }
        if errno == libc::ENOSYS || errno == libc::EMFILE || errno == libc::ENFILE {
            return None;
        }
        if let Some(feature) = take(&mut self.attach, Feature::AttachWq) {
            return Some(feature);
        }
        if errno != libc::EINVAL {
            return take(&mut self.sqpoll, Feature::SqPoll)
                .or_else(|| take(&mut self.iopoll, Feature::IoPoll));
        }
        take(&mut self.no_sq_array, Feature::NoSqArray)
            .or_else(|| take(&mut self.defer, Feature::DeferTaskrun))
            .or_else(|| take(&mut self.coop, Feature::CoopTaskrun))
            .or_else(|| take(&mut self.submit_all, Feature::SubmitAll))
            .or_else(|| take(&mut self.sqpoll, Feature::SqPoll))
            .or_else(|| take(&mut self.iopoll, Feature::IoPoll))
            .or_else(|| take(&mut self.cq_size, Feature::CqSize))
            .or_else(|| take(&mut self.clamp, Feature::Clamp))
    }

    fn available(self) -> Vec<Feature> {
        [
            (self.no_sq_array, Feature::NoSqArray),
            (self.defer, Feature::SingleIssuer),
            (self.defer, Feature::DeferTaskrun),
            (self.coop && !self.defer, Feature::CoopTaskrun),
            (self.submit_all, Feature::SubmitAll),
            (self.cq_size, Feature::CqSize),
            (self.sqpoll, Feature::SqPoll),
            (self.attach, Feature::AttachWq),
            (self.iopoll, Feature::IoPoll),
        ]
        .into_iter()
        .filter_map(|(is, feature)| is.then_some(feature))
        .collect()
    }
}

impl<R: Entries> Uring<R> {
    /// Makes a ring as close to the settings as the kernel allows; refused features are in
    /// [`refusals`](Self::refusals).
    pub fn new(settings: &Settings) -> Result<Self, Refusal> {
        let mut setup = SetupFlags::requested(settings);
        let mut refusals = Vec::new();
        let mut ring = loop {
            let error = match memory::wait_for(|| setup.build::<R>(settings)) {
                Ok(ring) => break ring,
                Err(error) => errno_of(&error),
            };
            match setup.drop_feature(error) {
                Some(feature) => refusals.push(Refusal::new(feature, error)),
                None => return Err(Refusal::new(Feature::Uring, error)),
            }
        };
        // If other flags were refused too, they may be the reason why the first attempt failed.
        if settings.attach.is_some() && !setup.attach && refusals.len() > 1 {
            let attached = SetupFlags { attach: true, ..setup };
            if let Ok(other) = attached.build::<R>(settings) {
                (ring, setup) = (other, attached);
                refusals.retain(|refusal| refusal.feature != Feature::AttachWq);
            }
        }
        if settings.single_issuer && settings.sqpoll.is_some() {
            refusals.push(Refusal::new(Feature::DeferTaskrun, libc::EINVAL));
        }
        let opcodes = opcodes(&ring).map_err(|errno| Refusal::new(Feature::Uring, errno))?;
        // (A smaller ring than that is named in a refusal.)
        setup.cq_size &= !refusals.iter().any(|refusal| refusal.feature == Feature::CqSize);
        let available = setup.available();
        // (Without links, the queue starts the members of a chain itself, and keeps time limits.)
        let links = PushedEntries::map(&ring).ok();
        let mut this = Self {
            is_iopoll: ring.params().is_setup_iopoll(),
            opcodes,
            ring,
            entries: R::default(),
            sqe_data: Vec::new(),
            in_flight: 0,
            unsupported: Vec::new(),
            linked: Vec::new(),
            links,
            pushed: 0,
            cancels: Cancels::new(!available.contains(&Feature::SubmitAll)),
            watch: None,
            watch_armed: false,
            workers: Workers::new(None, false),
            ticking: false,
            ticked: false,
            fallback_ready: false,
            eventfd: None,
            wants_eventfd: settings.eventfd,
            buffers: Buffers::default(),
            files: None,
            release_pipe: None,
            retry: Retry::default(),
            polled: false,
            starved: false,
            has_unsupported: false,
            empty_enters: 0,
            unsubmitted: (0, 0),
            system_calls: 0,
            available,
            refusals,
            workers_may_cache: settings.iopoll || settings.injects_faults || workers_may_cache(),
            submitters: exiting::Submitters::default(),
            _closing: exiting::Closing,
        };
        this.register(settings);
        Ok(this)
    }

    /// Registers with a new ring what it needs.
    fn register(&mut self, settings: &Settings) {
        if !self.workers_may_cache {
            self.refusals.push(Refusal::new(Feature::CachedByIoWq, libc::EOPNOTSUPP));
        }
        if !self.ring.params().is_feature_ext_arg() {
            self.refusals.push(Refusal::new(Feature::ExtArg, libc::ENOSYS));
        }
        self.release_pipe = register_release_pipe(&self.ring).ok();
        if self.release_pipe.is_some() {
            self.files = Some((1..=MAX_FIXED).rev().collect());
        }
        self.limit_workers(settings);
        // Before kernel 5.18, which added SUBMIT_ALL, registering an eventfd waits until nothing is
        // in flight, and a poll may be in flight for ever. So it is not left to `poll_fd` there.
        if self.wants_eventfd && !settings.iopoll && !self.available.contains(&Feature::SubmitAll) {
            // (If it fails, `poll_fd` tries again and reports the error.)
            let _ = self.make_eventfd();
        }
    }

    /// Sets the limits of the thread's workers, and learns what they are.
    fn limit_workers(&mut self, settings: &Settings) {
        // What is handed over to workers on purpose is unbounded work for the kernel, whose limit
        // is that of the user's processes. A limit that another ring of the thread has set stays.
        let current = worker_limits(&self.ring.submitter());
        let is_unlimited = current.is_some_and(|[_, unbounded]| unbounded > workers::MAX_WORKERS);
        let mut wanted = match settings.io_wq_workers.unwrap_or_default() {
            [0, 0] if is_unlimited => [0, HANDED_OVER_WORKERS],
            [bounded, 0] => [bounded, bounded],
            both => both,
        };
        if wanted != [0, 0] {
            let done = self.ring.submitter().register_iowq_max_workers(&mut wanted);
            if settings.io_wq_workers.is_some() {
                self.note(Feature::IoWqWorkers, done);
            }
        }
        // A ring that polls for completions supports no timeouts.
        if !settings.iopoll {
            let all_are_bounded = !self.available.contains(&Feature::SubmitAll);
            self.workers = Workers::new(worker_limits(&self.ring.submitter()), all_are_bounded);
        }
    }

    fn make_eventfd(&mut self) -> io::Result<()> {
        let eventfd = EventFd::new()?;
        self.ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        eventfd.signal(); // For earlier completions.
        self.eventfd = Some(eventfd);
        Ok(())
    }

    fn note(&mut self, feature: Feature, done: io::Result<()>) -> bool {
        match done {
            Ok(()) => self.available.push(feature),
            Err(ref error) => self.refusals.push(Refusal::new(feature, errno_of(error))),
        }
        done.is_ok()
    }

    /// The available features.
    pub fn available(&self) -> &[Feature] {
        &self.available
    }

    /// The refused features.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The ring's descriptor, for another ring that shares its kernel threads.
    pub fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// The `SqeData` of a slot.
    #[cold]
    fn sqe_data(&mut self, slot: u32) -> *mut SqeData {
        let slot = slot as usize;
        if self.sqe_data.len() <= slot {
            self.sqe_data.resize_with(slot + 1, || None);
        }
        self.sqe_data[slot].get_or_insert_default().get()
    }

    /// Makes sure that the submission queue has `count` free entries, if need be by an enter.
    fn reserve(&mut self, count: usize) -> bool {
        let free = |ring: &mut IoUring<R::Sqe, R::Cqe>| {
            let queue = ring.submission();
            queue.capacity() - queue.len()
        };
        if free(&mut self.ring) >= count {
            return true;
        }
        self.system_calls += 1;
        let waiting = self.ring.submission().len();
        self.prepare_submission(waiting);
        // An error occurs again at the next enter, which reports it.
        let _ = self.ring.submit();
        self.note_taken();
        if free(&mut self.ring) < count && self.ring.params().is_setup_sqpoll() {
            self.system_calls += 1;
            let _ = self.ring.submitter().squeue_wait();
        }
        let is_free = free(&mut self.ring) >= count;
        self.starved |= !is_free;
        is_free
    }

    /// Call it after a submission, and before entries are added.
    #[inline]
    fn note_taken(&mut self) {
        let waiting = self.ring.submission().len();
        if waiting == 0 {
            self.unsubmitted = (0, 0);
            self.retry.all_taken();
        } else if waiting < self.unsubmitted.0 {
            self.replace_cut_off(waiting as u32);
        }
    }

    /// The kernel has taken a part of the entries, and `waiting` are left. If it has cut a link, it
    /// has started what it took of it, and would start the rest on its own: replaces that.
    #[cold]
    fn replace_cut_off(&mut self, waiting: u32) {
        let Some(links) = &mut self.links else { return };
        let mut at = self.pushed.wrapping_sub(waiting);
        let mut is_cut_off = links.is_linked(at.wrapping_sub(1));
        while is_cut_off && at != self.pushed {
            is_cut_off = links.is_linked(at);
            let token = links.token(at);
            if !token.is_internal() {
                links.replace(at, opcode::Nop::new().build().user_data(CUT_OFF.0).into());
                self.workers.end(token);
                _ = self.entries.end(token, 0);
                // The queue has it made when its turn comes.
                self.unsupported.push(JobEvent { token, kind: EventKind::Unsupported });
            } else if token.without_number() == LINK_TIMEOUT
                && let Some(Some(data)) = self.sqe_data.get(token.number() as usize)
            {
                // SAFETY: the kernel does not write to `SqeData`, and no other reference to it
                // exists.
                let timespec = unsafe { &raw const (*data.get()).link_timespec };
                let timeout = opcode::Timeout::new(timespec).flags(types::TimeoutFlags::ABS);
                let token = TIMEOUT.with_number(token.number());
                links.replace(at, timeout.build().user_data(token.0).into());
            }
            at = at.wrapping_add(1);
        }
    }

    /// Call it when the program may not enter the ring again before its descriptor is readable.
    /// Makes it readable after a pause if there are entries, or refused jobs, to submit. Returns
    /// false if that is not possible: then only the caller can submit again.
    fn retry_later(&mut self) -> bool {
        let is_done = !self.starved && self.ring.submission().is_empty();
        is_done || self.ring.params().is_setup_sqpoll() || self.retry.pause()
    }

    /// Makes the ring poll the timer of [`Retry`], while the kernel takes entries.
    fn arm_retry(&mut self) {
        let params = self.ring.params();
        // (The kernel's thread, which submits with SQPOLL, tries again by itself.)
        let wants = self.polled && self.retry.may_poll();
        if !wants || params.is_setup_sqpoll() || params.is_setup_iopoll() {
            return;
        }
        // From 5.13 on, as the other feature, such a poll goes on after a completion.
        let multi = params.is_feature_resource_tagging();
        let Ok(timer) = self.retry.make_timer() else { return };
        let poll = opcode::PollAdd::new(types::Fd(timer), libc::POLLIN as u32).multi(multi);
        if self.push_internal(poll.build(), RETRY) {
            self.retry.poll = TimerPoll::Queued;
        }
    }

    /// Call it before a submission of so many entries.
    #[inline]
    fn prepare_submission(&mut self, entries: usize) {
        // (The kernel's thread, which submits with SQPOLL, has no other ring.)
        if entries > 0 && !self.ring.params().is_setup_sqpoll() {
            self.submitters.prepare(self.ring.as_raw_fd());
        }
    }

    /// Adds an entry to the submission queue; the caller has reserved it.
    fn push_entry(&mut self, entry: &R::Sqe) {
        self.unsubmitted.0 += 1;
        self.pushed = self.pushed.wrapping_add(1);
        // SAFETY: what the entry points at stays valid until its completion: for a job by the
        // contract of `push`; internal entries point at nothing, or at `sqe_data`.
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "the entries were reserved");
    }

    /// Adds linked entries together, so that no submission comes in between. The caller has
    /// reserved all of them.
    #[inline]
    fn push_linked(&mut self, entry: R::Sqe, more: bool) {
        if self.linked.is_empty() && !more {
            return self.push_entry(&entry);
        }
        self.linked.push(entry);
        if !more {
            self.unsubmitted.0 += self.linked.len();
            self.pushed = self.pushed.wrapping_add(self.linked.len() as u32);
            // SAFETY: as for one entry.
            let pushed = unsafe { self.ring.submission().push_multiple(&self.linked) };
            debug_assert!(pushed.is_ok(), "the entries were reserved");
            self.linked.clear();
        }
    }

    /// Adds an internal entry, if there is a free one.
    fn push_internal(&mut self, entry: squeue::Entry, token: Token) -> bool {
        let free = self.reserve(1);
        if free {
            self.push_entry(&entry.user_data(token.0).into());
        }
        free
    }

    /// The entries that wait, and whether completions need an enter: those that did not fit, and
    /// those that the owner's task work makes.
    #[inline]
    fn state_of_queue(&mut self) -> (usize, bool) {
        let queue = self.ring.submission();
        (queue.len(), queue.cq_overflow() || queue.taskrun())
    }

    /// Whether something that has completed leaves entries to add.
    fn must_add(&self) -> bool {
        self.ticked || self.cancels.must_add() || self.polled && self.retry.wants_poll()
    }

    fn add_entries(&mut self) {
        while let Some((entry, token)) = self.cancels.next_entry() {
            if !self.push_internal(entry, token) {
                break;
            }
            self.cancels.added();
        }
        if let Some(eventfd) = self.watch.filter(|_| !self.watch_armed && !self.is_iopoll) {
            let poll = opcode::PollAdd::new(types::Fd(eventfd), libc::POLLIN as u32).build();
            self.watch_armed = self.push_internal(poll, WATCH);
        }
        self.arm_retry();
        if std::mem::take(&mut self.ticked) {
            self.change_worker_limits();
        }
        if !self.ticking && self.workers.may_be_exhausted() {
            self.ticking =
                self.push_internal(opcode::Timeout::new(&raw const TICK_LENGTH).build(), TICK);
        }
    }

    fn change_worker_limits(&mut self) {
        let submitter = self.ring.submitter();
        let changed = self.workers.tick(|| worker_limits(&submitter));
        let Some(mut limits) = changed else { return };
        self.system_calls += 2;
        let changed = limits;
        match self.ring.submitter().register_iowq_max_workers(&mut limits) {
            Ok(()) => self.start_workers(changed),
            Err(_) => self.workers.disable(),
        }
    }

    /// Makes the kernel start workers of the kinds whose limits were raised: it does so only when
    /// new work arrives.
    fn start_workers(&mut self, [bounded, unbounded]: [u32; 2]) {
        if bounded > 0 {
            let nop = opcode::Nop::new().build().flags(Flags::ASYNC);
            self.push_internal(nop, START_WORKER);
        }
        if unbounded > 0 {
            // It fails, since there is no such descriptor, which a worker finds out.
            let read = opcode::Read::new(types::Fd(-1), std::ptr::null_mut(), 0).build();
            self.push_internal(read.flags(Flags::ASYNC), START_WORKER);
        }
    }

    /// Reaps the completion queue; returns the number of events.
    fn reap(&mut self, events: &mut Vec<JobEvent>) -> usize {
        let before = events.len();
        self.has_unsupported |= !self.unsupported.is_empty();
        events.append(&mut self.unsupported);
        let mut others = 0;
        let is_polled = self.is_iopoll;
        for entry in self.ring.completion() {
            let entry: cqueue::Entry = entry.into();
            let token = Token(entry.user_data());
            if token.is_internal() {
                let event = match token.without_number() {
                    WATCH => {
                        (self.watch_armed, self.fallback_ready) = (false, true);
                        None
                    }
                    RETRY => {
                        self.retry.expired(entry.result(), cqueue::more(entry.flags()));
                        None
                    }
                    TICK => {
                        (self.ticking, self.ticked) = (false, true);
                        None
                    }
                    CANCEL_PAUSE => {
                        self.cancels.pause_ended(token.number());
                        None
                    }
                    CANCEL => self.cancels.ended(token.number(), entry.result()),
                    LINK_TIMEOUT if entry.result() == -libc::ETIME => None,
                    LINK_TIMEOUT | TIMEOUT => {
                        let slot = self.sqe_data.get(token.number() as usize);
                        expired_limit(slot.and_then(Option::as_deref))
                    }
                    _ => None,
                };
                others += usize::from(event.is_some());
                events.extend(event);
                continue;
            }
            self.workers.end(token);
            let kind = match self.entries.end(token, entry.result()) {
                // A direct file on a device or file system that cannot be polled.
                EventKind::Result(CANNOT_POLL) if is_polled => {
                    self.has_unsupported = true;
                    EventKind::Unsupported
                }
                kind => kind,
            };
            events.push(JobEvent { token, kind });
        }
        let taken = events.len() - before;
        debug_assert!(taken - others <= self.in_flight, "a job completed twice");
        self.in_flight -= (taken - others).min(self.in_flight);
        taken
    }

    /// Entries that were not submitted, and jobs that may need workers, are among those in flight.
    fn check(&mut self) {
        let waiting = self.ring.submission().len();
        assert!(
            waiting <= self.unsubmitted.0,
            "{waiting} entries wait, but only {} were added",
            self.unsubmitted.0
        );
        assert!(self.linked.is_empty(), "a chain is incomplete");
        let (work, unsupported) = (self.workers.jobs() as usize, self.unsupported.len());
        assert!(
            work + unsupported <= self.in_flight,
            "{work} for workers, {unsupported} unsupported, {} in flight",
            self.in_flight
        );
    }

    /// Called after an enter of a ring that polls for completions.
    ///
    /// The kernel polls until one is there. But while no job has reached the device it returns at
    /// once: all of them are with io-wq workers, as before kernel 5.13 those on cached pages are.
    /// Sleeping leaves the processor to the workers, where entering again and again would not.
    fn back_off(&mut self, is_empty: bool) {
        self.empty_enters = if is_empty { self.empty_enters.saturating_add(1) } else { 0 };
        // (A poll may also end early because the scheduler wants the processor.)
        if let Some(doublings) = self.empty_enters.checked_sub(2) {
            std::thread::sleep(SHORTEST_BACK_OFF * (1 << doublings.min(MOST_BACK_OFF_DOUBLINGS)));
        }
    }

    /// Called before reaping, so that later completions make the eventfd readable again.
    ///
    /// A ring with deferred task work signals the eventfd where the work is queued. If that happens
    /// during the write to another eventfd (one that an operation polls, or that of the threads),
    /// current kernels (seen on 6.18) postpone the signal once, do not notice that it was given,
    /// and then postpone all later ones forever. Registering the eventfd again resets that.
    fn drain_eventfd(&mut self) {
        let Some(eventfd) = &self.eventfd else { return };
        if eventfd.drain() && self.available.contains(&Feature::DeferTaskrun) {
            self.system_calls += 2;
            let submitter = self.ring.submitter();
            let _ = submitter.unregister_eventfd();
            if submitter.register_eventfd(eventfd.as_raw_fd()).is_err() {
                // No memory now: the program polls, returns here, and this is tried again.
                eventfd.signal();
            }
        }
    }

    /// Arms the timer of [`Retry`], and submits what the kernel has not taken before.
    ///
    /// Errors: those of the kernel, if it still does not take jobs. They stay for the next enter.
    fn begin_polling(&mut self) -> io::Result<()> {
        let has_jobs = !self.ring.submission().is_empty();
        self.arm_retry();
        let mut last = Ok(());
        for _ in 0..MOST_BRIEF_PAUSES {
            last = self.ring.submit().map(drop);
            self.note_taken();
            if !last.as_ref().is_err_and(is_transient) || self.retry.poll == TimerPoll::Armed {
                break;
            }
            std::thread::sleep(BRIEF_PAUSE);
        }
        // (Without jobs, only the timer is missing, and the next enter that fails says so.)
        if has_jobs && !self.retry_later() { last } else { Ok(()) }
    }

    /// Submits what there is. If the kernel does not take it, that stays for the next enter, and
    /// the descriptor becomes readable for it.
    fn submit_now(&mut self) {
        self.system_calls += 1;
        let _ = self.ring.submit();
        self.note_taken();
        self.retry_later();
    }

    /// How `enter` goes on after an `io_uring_enter` that failed, before which `reaped` completions
    /// were there and `missing` were waited for.
    ///
    /// Errors: the kernel's, unless another enter may succeed.
    fn after_error(
        &mut self,
        error: io::Error,
        (reaped, missing): (usize, usize),
        want: usize,
    ) -> io::Result<AfterError> {
        match error.raw_os_error() {
            Some(libc::EINTR) if missing > 0 => return Ok(AfterError::Interrupted),
            Some(libc::ETIME) if self.must_add() => return Ok(AfterError::Proceed),
            Some(libc::ETIME) => return Ok(AfterError::Stop),
            _ if !is_transient(&error) => return Err(error),
            _ if reaped > 0 => return Ok(AfterError::Repeat),
            _ => {}
        }
        // The kernel has no memory, or takes nothing before completions are reaped. The submission
        // queue stays as it is for the next enter. (Without a wait, no signal matters.)
        if !self.retry_later() {
            std::thread::sleep(BRIEF_PAUSE);
            // Nobody else notices that there is something to submit.
            if self.polled && want == 0 {
                return Err(error);
            }
        } else if missing > 0 {
            std::thread::sleep(BRIEF_PAUSE);
        }
        Ok(AfterError::Stop)
    }

    /// Polls the watched eventfd again, if it was readable. At once: a program that polls the
    /// ring's descriptor calls again only when it is readable.
    fn watch_again(&mut self) {
        if std::mem::take(&mut self.fallback_ready)
            && let Some(eventfd) = self.watch
        {
            drain(eventfd);
            self.add_entries();
            self.submit_now();
        }
    }

    /// One `io_uring_enter`. Returns the number of submitted entries and how the wait ended.
    fn enter_once(&mut self, want: usize, until: Option<Instant>) -> io::Result<(usize, Wait)> {
        self.system_calls += 1;
        // A ring that polls for completions spins in the kernel, and takes no timeout.
        // (And the kernel waits for no more completions than its queue has room for.)
        let most = if self.is_iopoll { 1 } else { self.ring.params().cq_entries() as usize };
        let mut want = want.min(most);
        let waiting = self.ring.submission().len();
        self.prepare_submission(waiting);
        let submitted = match until {
            // (To such a ring, poll(2) never shows a completion.)
            Some(until) if want > 0 && !self.is_iopoll => {
                if self.ring.params().is_feature_ext_arg() {
                    let timespec =
                        types::Timespec::from(until.saturating_duration_since(Instant::now()));
                    let args = types::SubmitArgs::new().timespec(&timespec);
                    self.ring.submitter().submit_with_args(want, &args)?
                } else {
                    want = 1;
                    let submitted = self.ring.submit()?;
                    wait_readable([self.ring.as_raw_fd()], Some(until))?;
                    submitted
                }
            }
            // A cancel leaves the completion to deferred task work, for which the kernel would have
            // to be entered again.
            _ if want == 0
                && self.cancels.has_unsubmitted()
                && self.available.contains(&Feature::DeferTaskrun) =>
            {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument is passed.
                unsafe {
                    self.ring.submitter().enter::<libc::sigset_t>(waiting as u32, 0, flags, None)?
                }
            }
            _ => self.ring.submit_and_wait(want)?,
        };
        self.note_taken();
        self.cancels.submitted(submitted >= waiting);
        // The kernel returns EINTR only if it submitted nothing and nothing has completed;
        // otherwise a signal shows in that it waited for less. It does not wait if it could not
        // submit everything.
        let is_short = submitted == waiting && self.ring.completion().len() < want;
        Ok((submitted, if is_short { Wait::cut_short(until) } else { Wait::Ended }))
    }
}

impl<R: Entries> Backend for Uring<R> {
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull> {
        if !self.reserve(1 + usize::from(job.deadline.is_some())) {
            return Err(BackendFull);
        }
        let data = match job.raw {
            Raw::Open(_) | Raw::Timeout(_) => self.sqe_data(job.token.index()),
            _ if job.deadline.is_some() => self.sqe_data(job.token.index()),
            _ => std::ptr::null_mut(),
        };
        let context = SqeContext {
            fixed_file: job.fixed_file,
            fixed_buffer: job
                .fixed_buffer
                .filter(|index| usize::from(*index) < self.buffers.usable),
            socket: job.socket,
            data,
        };
        self.in_flight += 1;
        let is_supported = |entry: &squeue::Entry| is_supported(&self.opcodes, entry);
        let Some(mut entry) = self.entries.begin(job, &context, is_supported) else {
            self.unsupported.push(JobEvent { token: job.token, kind: EventKind::Unsupported });
            return Ok(());
        };
        let by_worker = is_by_worker(job);
        self.unsubmitted.1 += 1;
        self.workers.begin(job.token, &job.raw, by_worker);
        entry.set_user_data(job.token.0);
        if job.link || job.deadline.is_some() {
            entry = R::with_flags(entry, Flags::IO_LINK);
        }
        if by_worker {
            entry = R::with_flags(entry, Flags::ASYNC);
        }
        let linked = job.link || job.deadline.is_some();
        self.push_linked(entry, linked);
        if let Some(deadline) = job.deadline {
            // SAFETY: `data` belongs to this job's slot; the kernel reads the time when it takes
            // the entry. Later pieces of an operation use the time that its first piece wrote.
            let timespec = unsafe {
                if job.token.piece() == 0 {
                    (*data).link_timespec = to_monotonic(deadline);
                    (*data).time_limit = Some((job.token, deadline));
                }
                &raw const (*data).link_timespec
            };
            let timeout =
                opcode::LinkTimeout::new(timespec).flags(types::TimeoutFlags::ABS).build();
            // Includes the slot's index, to find the operation of a cancelled timer.
            let token = LINK_TIMEOUT.with_number(job.token.index());
            self.push_linked(timeout.user_data(token.0).into(), false);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        self.drain_eventfd();
        self.add_entries();
        self.has_unsupported = false;
        let mut taken = self.reap(events);
        let mut wait = Wait::Ended;
        loop {
            if self.must_add() {
                self.add_entries();
            }
            let (waiting, needs_enter) = self.state_of_queue();
            self.note_taken();
            let polled = self.is_iopoll && self.in_flight > 0 && taken == 0;
            // Before the wait, refused jobs are to be pushed, and unsupported ones to begin
            // elsewhere: what would be waited for may depend on them.
            let must_return = self.fallback_ready || self.starved || self.has_unsupported;
            let missing = if must_return || wait == Wait::Interrupted {
                0
            } else {
                want.saturating_sub(taken)
            };
            if waiting == 0 && missing == 0 && !needs_enter && !polled {
                break;
            }
            let entered = self.enter_once(missing, until);
            let reaped = self.reap(events);
            taken += reaped;
            match entered {
                // (The taskrun flag stays set for work of a thread that has ended.)
                Ok((0, _)) if missing == 0 && (!needs_enter || reaped == 0) && !self.must_add() => {
                    break;
                }
                Ok((_, Wait::Interrupted)) => wait = Wait::Interrupted,
                Ok(_) => {}
                Err(error) => match self.after_error(error, (reaped, missing), want)? {
                    AfterError::Interrupted => wait = Wait::Interrupted,
                    AfterError::Proceed => {}
                    AfterError::Repeat => continue,
                    AfterError::Stop => break,
                },
            }
            if self.must_add() {
                // Add workers and repeat cancels now: the program may not call again before that.
                continue;
            }
            if self.ring.params().is_setup_sqpoll() && missing == 0 {
                break; // The kernel thread takes the entries later.
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            if self.is_iopoll {
                self.back_off(missing > 0 && taken == 0);
                break;
            }
        }
        self.watch_again();
        self.retry_later();
        self.starved = false;
        if cfg!(debug_assertions) {
            self.check();
        }
        Ok(wait)
    }

    fn cancel(&mut self, token: Token) {
        self.cancels.push(token);
    }

    fn cancel_later(&mut self, token: Token, pause: usize) {
        self.cancels.push_later(token, pause);
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        if self.is_iopoll {
            // Such a ring completes operations only while a thread is in the kernel for it.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // A ring with deferred task work does not wake a thread in poll(2) on it; an eventfd does.
        let wanted = self.wants_eventfd || self.available.contains(&Feature::DeferTaskrun);
        if wanted && self.eventfd.is_none() {
            self.make_eventfd()?;
        }
        if !std::mem::replace(&mut self.polled, true) {
            self.begin_polling()?;
        }
        Ok(self.eventfd.as_ref().map_or(self.ring.as_raw_fd(), AsRawFd::as_raw_fd))
    }

    fn wake(&mut self) {
        if let Some(eventfd) = &self.eventfd {
            // Not by a NOP: a completion that does not fit into the completion queue signals
            // nothing.
            return eventfd.signal();
        }
        self.push_internal(opcode::Nop::new().build(), WAKE);
        self.submit_now();
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.watch = active.then_some(eventfd);
    }

    fn set_timer(&mut self, _: Token, _: Instant) {
        debug_assert!(false, "a ring has no timers without jobs");
    }

    fn supports(&self, job: &Job) -> bool {
        // A ring that polls for completions supports only direct transfers. A direct transfer at
        // the current position does not advance it when it completes asynchronously. A write to a
        // terminal that takes a part of it blocks the submitter for the rest. A buffered write may
        // wait behind another one that hangs. The kernel's polling thread keeps the credentials of
        // the time when the ring was made, and no later restriction is for it.
        let is_polled = job.direct && job.raw.is_transfer();
        if job.for_threads {
            return false;
        }
        (!self.is_iopoll || is_polled)
            && !(job.direct && job.raw.offset() == Some(CURRENT_POSITION))
            && !(job.raw.is_write()
                && (job.file == FileKind::Device || !job.direct && self.workers.has_hung_jobs()))
            && !(self.ring.params().is_setup_sqpoll() && job.raw.is_on_path())
            && (self.workers_may_cache || !needs_memory_of_worker(job))
    }

    fn push_would_enter(&self, entries: usize) -> bool {
        // SAFETY: as in `chain_capacity`.
        let queue = unsafe { self.ring.submission_shared() };
        // (The kernel's thread empties a queue that is full with SQPOLL, and says so to nobody.)
        let is_emptied_by_enter = !queue.is_empty() && !self.ring.params().is_setup_sqpoll();
        is_emptied_by_enter && queue.capacity() - queue.len() < entries
    }

    fn chain_capacity(&self) -> usize {
        if self.links.is_none() {
            return 0;
        }
        // SAFETY: only the length is read, and no other view of the submission queue exists.
        let queue = unsafe { self.ring.submission_shared() };
        queue.capacity() - queue.len()
    }

    fn can_link(&self, job: &Job) -> bool {
        let mut data = SqeData::default();
        let context = SqeContext {
            fixed_file: job.fixed_file,
            fixed_buffer: job.fixed_buffer,
            socket: job.socket,
            data: &raw mut data,
        };
        self.links.is_some()
            && job.deadline.is_none()
            && (!job.link || ends_chains(&job.raw))
            && self.supports(job)
            && job.raw.sqe(&context).is_some_and(|entry| is_supported(&self.opcodes, &entry))
    }

    fn ends_by_cancel(&self, raw: &Raw, is_storage: bool) -> bool {
        // The submitting thread has passed such a transfer to the device, unless a worker does that
        // later.
        !(raw.is_transfer() && is_storage) || is_for_worker(raw)
    }

    /// A ring that polls for completions takes no linked timeout: it would cancel the transfer,
    /// which ends by itself.
    fn limit_keeper(&self) -> LimitKeeper {
        match self.links {
            _ if self.is_iopoll => LimitKeeper::Nothing,
            Some(_) => LimitKeeper::Backend,
            None => LimitKeeper::Fallback,
        }
    }

    unsafe fn register_buffers(&mut self, memory: &[libc::iovec]) -> Result<u16, i32> {
        let first = self.buffers.memory.len();
        if first + memory.len() > MAX_FIXED as usize {
            return Err(libc::ENOSPC);
        }
        let sparse = match self.buffers.sparse {
            Some(sparse) => sparse,
            None => *self.buffers.sparse.insert(make_sparse_table(&self.ring)?),
        };
        self.buffers.memory.extend_from_slice(memory);
        // SAFETY: the caller keeps the memory valid until this backend is dropped.
        let registered = unsafe {
            if sparse { self.add_buffers(first) } else { self.register_all_buffers(first) }
        };
        match registered {
            Ok(()) => self.buffers.usable = self.buffers.memory.len(),
            Err(_) => self.buffers.memory.truncate(first),
        }
        registered.map(|()| first as u16)
    }

    fn register_file(&mut self, fd: RawFd) -> Result<u32, i32> {
        let errno = |error: io::Error| errno_of(&error);
        if self.files.is_none() {
            self.end_internal_entries()?;
            // Not by the request for a sparse table, which kernels before 5.19 do not know.
            self.ring.submitter().register_files(&[-1; MAX_FIXED as usize]).map_err(errno)?;
            self.files = Some((0..MAX_FIXED).rev().collect());
        }
        let index = self.files.as_mut().and_then(Vec::pop).ok_or(libc::ENOSPC)?;
        let registered = self.ring.submitter().register_files_update(index, &[fd]);
        if registered.is_err() {
            self.unregister_file(index);
        }
        registered.map_err(errno)?;
        Ok(index)
    }

    fn unregister_file(&mut self, index: u32) {
        // Fails only without a table, and then there is no registration.
        let _ = self.ring.submitter().register_files_update(index, &[-1]);
        if let Some(free) = &mut self.files {
            free.push(index);
        }
    }

    fn end(mut self: Box<Self>, until: Instant, events: &mut Vec<JobEvent>) -> bool {
        if self.cancel_without_entering(until, events) {
            return true;
        }
        let release_pipe = self.release_pipe.take();
        let sqe_data = std::mem::take(&mut self.sqe_data);
        // The kernel cancels what is in flight on a ring without owners.
        drop(self);
        // (It may release the ring much later: this is dropped then.)
        let _closing = exiting::Closing;
        let is_released = release_pipe.is_some_and(|release_pipe| {
            loop {
                let pipe = release_pipe.as_raw_fd();
                let readable = wait_readable([pipe], Some(until));
                // (Which may be a guess: this is not.)
                if poll_now(pipe, libc::POLLIN).is_ok_and(|events| events != 0) {
                    return true;
                }
                if readable.is_err() || Instant::now() >= until {
                    return false;
                }
            }
        });
        if !is_released {
            std::mem::forget(sqe_data);
        }
        is_released
    }

    /// Closing a child's copy of the ring's descriptor cancels nothing of the parent: the kernel
    /// cancels at most what the closing process has submitted itself (before 5.12), and the rest
    /// only when the last copy is closed.
    fn descriptors(&self) -> Vec<RawFd> {
        let eventfd = self.eventfd.iter().map(AsRawFd::as_raw_fd);
        let release_pipe = self.release_pipe.iter().map(AsRawFd::as_raw_fd);
        let timer = self.retry.timer();
        [self.ring.as_raw_fd()]
            .into_iter()
            .chain(eventfd)
            .chain(release_pipe)
            .chain(timer)
            .collect()
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

impl<R: Entries> Uring<R> {
    /// Cancels all submitted jobs and reaps them, as far as possible without entering the ring;
    /// returns true if the kernel has finished with all jobs.
    ///
    /// The ring's descriptor may have been duplicated; then dropping the ring does not end it.
    fn cancel_without_entering(&mut self, until: Instant, events: &mut Vec<JobEvent>) -> bool {
        self.reap(events);
        let waiting = self.ring.submission().len();
        let (entries, jobs) = self.unsubmitted;
        // Entries that the kernel has not taken have not started: none, or all since the queue was
        // empty. If it took a part, it is unknown which.
        let not_begun = match waiting {
            0 => 0,
            _ if waiting == entries && !self.ring.params().is_setup_sqpoll() => jobs,
            _ => return false,
        };
        let soon = until.min(Instant::now() + CANCEL_WAIT);
        loop {
            if self.in_flight <= not_begun {
                return true;
            }
            // (From 6.0. On older kernels this only waits for operations that end by themselves.)
            let all = types::CancelBuilder::any();
            let cancelled =
                self.ring.submitter().register_sync_cancel(Some(types::Timespec::new()), all);
            // EEXIST: the ring belongs to another thread.
            let is_ours = !cancelled.is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST));
            if !is_ours || Instant::now() >= soon {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.reap(events);
        }
    }

    /// Adds the buffers from index `first` on to the sparse table.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until this backend is dropped.
    unsafe fn add_buffers(&mut self, first: usize) -> Result<(), i32> {
        let submitter = self.ring.submitter();
        // One at a time: of several, the kernel may take some and report no error.
        let mut added = first;
        let update = |index: usize, memory: libc::iovec| {
            // SAFETY: the caller keeps the memory valid.
            unsafe { submitter.register_buffers_update(index as u32, &[memory], None) }
        };
        while let Some(memory) = self.buffers.memory.get(added) {
            if let Err(error) = update(added, *memory) {
                let free = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                for index in first..added {
                    _ = update(index, free);
                }
                return Err(errno_of(&error));
            }
            added += 1;
        }
        Ok(())
    }

    /// Registers all buffers anew, of which the kernel may have `registered` now. If that fails,
    /// registers these again.
    ///
    /// Errors: EBUSY while jobs are in flight, for whose end the kernel would wait.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until this backend is dropped.
    unsafe fn register_all_buffers(&mut self, registered: usize) -> Result<(), i32> {
        self.end_internal_entries()?;
        let submitter = self.ring.submitter();
        if self.buffers.usable > 0 {
            submitter.unregister_buffers().map_err(|error| errno_of(&error))?;
            self.buffers.usable = 0;
        }
        let memory = &self.buffers.memory;
        // SAFETY: the caller keeps the memory valid.
        let register = |count: usize| unsafe { submitter.register_buffers(&memory[..count]) };
        let done = register(memory.len()).map_err(|error| errno_of(&error));
        if done.is_err() && registered > 0 && register(registered).is_ok() {
            self.buffers.usable = registered;
        }
        done
    }

    /// Ends everything that is in flight on the ring without jobs, for a registration that waits in
    /// the kernel until nothing is. Errors: EBUSY if there are jobs.
    fn end_internal_entries(&mut self) -> Result<(), i32> {
        if self.in_flight > 0 {
            return Err(libc::EBUSY);
        }
        // The other internal entries end by themselves, a pause within 128 ms.
        if self.watch_armed {
            self.push_internal(Cancel { user_data: WATCH.0 }.sqe(), CANCEL_WATCH);
        }
        if self.retry.poll != TimerPoll::Missing {
            self.push_internal(Cancel { user_data: RETRY.0 }.sqe(), CANCEL_RETRY);
        }
        while self.watch_armed || self.retry.poll != TimerPoll::Missing {
            self.system_calls += 1;
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    return Err(errno_of(&error));
                }
                // Only jobs have events.
                _ => _ = self.reap(&mut Vec::new()),
            }
        }
        Ok(())
    }
}

/// The event of a slot's time limit whose timer has ended without cancelling the operation.
///
/// Usually the operation has completed. But if the thread that submitted it has ended, its timer is
/// cancelled (ECANCELED), or finds no operation to cancel (ENOENT, before kernel 5.16), and the
/// operation goes on. So it does where the kernel has cut the timer off.
fn expired_limit(data: Option<&UnsafeCell<SqeData>>) -> Option<JobEvent> {
    // SAFETY: the kernel does not write to `SqeData`, and no other reference to it exists.
    let (token, until) = data.and_then(|data| unsafe { (*data.get()).time_limit })?;
    (Instant::now() >= until).then_some(JobEvent { token, kind: EventKind::TimerExpired })
}

impl<R: Entries> Drop for Uring<R> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // Closing the ring does not wait for operations in flight, and a polling kernel thread
            // may still read entries.
            std::mem::forget(std::mem::take(&mut self.sqe_data));
        }
    }
}

/// Whether a job is handed to a worker at once. (A transfer on a pipe would occupy the worker.)
fn is_by_worker(job: &Job) -> bool {
    let is_large = if job.direct { is_direct_for_worker } else { is_for_worker };
    job.may_wait || job.file == FileKind::Storage && is_large(&job.raw)
}

/// Whether a worker may do a transfer, and allocate pages for it.
fn needs_memory_of_worker(job: &Job) -> bool {
    job.file == FileKind::Storage && (job.raw.is_write() && !job.direct || is_by_worker(job))
}

/// The most workers for transfers that are handed over, unless the program says otherwise.
const HANDED_OVER_WORKERS: u32 = 24;

/// How long an enter that waits sleeps when the kernel takes nothing.
const BRIEF_PAUSE: Duration = Duration::from_micros(100);
const MOST_BRIEF_PAUSES: u32 = 100;

/// How long [`Uring::back_off`] sleeps at first, and how often it doubles that.
const SHORTEST_BACK_OFF: Duration = Duration::from_micros(20);
const MOST_BACK_OFF_DOUBLINGS: u32 = 5;

/// How long jobs of a ring that cannot be entered are cancelled and reaped before it is dropped.
const CANCEL_WAIT: Duration = Duration::from_millis(500);

/// Registers as fixed file 0 the write end of a pipe that nothing else has. The read end hangs up
/// when the kernel has released the ring, which happens when nothing is in flight on it any more.
/// There is no other way to learn that of a closed ring.
///
/// Errors: EMFILE, and those of a kernel without updates of registered files (before 5.5).
fn register_release_pipe<S: EntryMarker, C: cqueue::EntryMarker>(
    ring: &IoUring<S, C>,
) -> io::Result<OwnedFd> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two descriptors into an array of two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `pipe2` has just returned these descriptors; they have no other owner.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut files = [-1; MAX_FIXED as usize + 1];
    files[0] = write.as_raw_fd();
    ring.submitter().register_files(&files)?;
    Ok(read)
}

/// Registers a table of buffers whose entries are free. Returns false if the kernel does not
/// support that (before 5.19).
fn make_sparse_table<S: EntryMarker, C: cqueue::EntryMarker>(
    ring: &IoUring<S, C>,
) -> Result<bool, i32> {
    // A kernel without this feature (before 5.13) first waits until nothing is in flight.
    if !ring.params().is_feature_resource_tagging() {
        return Ok(false);
    }
    match ring.submitter().register_buffers_sparse(MAX_FIXED) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(errno_of(&error)),
    }
}

/// Whether the kernel ends a chain when this operation fails. It does not for fsync, rename and
/// many others (they never call `req_set_fail`), so these may only be the last of a linked chain.
fn ends_chains(raw: &Raw) -> bool {
    matches!(raw, Raw::Nop(_) | Raw::Open(_) | Raw::Close(_) | Raw::Poll(_) | Raw::Fadvise(_))
        || raw.is_transfer()
}

/// Whether the kernel supports an entry.
fn is_supported(opcodes: &[bool], entry: &squeue::Entry) -> bool {
    opcodes.get(entry.get_opcode() as usize).copied().unwrap_or(false)
}

/// The thread's limits of bounded and of unbounded workers; `None` before 5.15.
fn worker_limits(submitter: &Submitter<'_>) -> Option<[u32; 2]> {
    let mut limits = [0, 0];
    submitter.register_iowq_max_workers(&mut limits).ok().map(|()| limits)
}

/// Which opcodes the kernel supports. A kernel without the table (before 5.6) supports the first
/// few. Errors: those of a filter that refuses `io_uring_register(2)`.
fn opcodes<S: EntryMarker, C: cqueue::EntryMarker>(
    ring: &IoUring<S, C>,
) -> Result<Box<[bool]>, i32> {
    let mut probe = Probe::new();
    let mut registered = ring.submitter().register_probe(&mut probe);
    for _ in 0..MOST_BRIEF_PAUSES {
        if !registered.as_ref().is_err_and(is_transient) {
            break;
        }
        std::thread::sleep(BRIEF_PAUSE);
        registered = ring.submitter().register_probe(&mut probe);
    }
    match registered.map_err(|error| errno_of(&error)) {
        Ok(()) => Ok((0..=u8::MAX).map(|code| probe.is_supported(code)).collect()),
        Err(errno @ (libc::EPERM | libc::EACCES | libc::ENOSYS)) => Err(errno),
        Err(_) => Ok((0..=u8::MAX)
            .map(|code| code <= opcode::Writev::CODE.max(opcode::PollAdd::CODE))
            .collect()),
    }
}

/// The time on the monotonic clock, as the kernel takes it.
fn to_monotonic(at: Instant) -> types::Timespec {
    // (First, so that the timer does not expire before that time.)
    let left = at.saturating_duration_since(Instant::now());
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes during the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    types::Timespec::from(now.saturating_add(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CANCEL_PAUSES;
    use crate::op::{Nop, Poll};
    use crate::slots::Key;
    use std::num::NonZeroU32;
    use std::os::unix::fs::OpenOptionsExt as _;

    pub(super) fn token() -> Token {
        Token::new(Key { index: 0, generation: NonZeroU32::MIN }, 0)
    }

    /// A small ring; `None` where the kernel has no such ring.
    pub(super) fn ring<R: Entries>(iopoll: bool) -> Option<Uring<R>> {
        let settings = Settings {
            entries: 4,
            completion_entries: 8,
            sqpoll: None,
            attach: None,
            iopoll,
            single_issuer: false,
            eventfd: false,
            io_wq_workers: None,
            injects_faults: false,
        };
        match Uring::new(&settings) {
            Ok(ring) if !iopoll || ring.available().contains(&Feature::IoPoll) => {
                // (A ring of 5.1 to 5.5 is as good as none.)
                let is_usable = ring.opcodes.get(usize::from(opcode::Read::CODE)) == Some(&true);
                if !is_usable {
                    println!("skipped: no io_uring");
                }
                is_usable.then_some(ring)
            }
            other => {
                assert!(std::env::var_os("CI").is_none());
                println!("skipped: no such ring: {:?}", other.err());
                None
            }
        }
    }

    /// A poll of a pipe that nothing is written to.
    fn ring_with_poll() -> Option<(Uring<UsualEntries>, (io::PipeReader, io::PipeWriter))> {
        let mut ring = ring(false)?;
        let (reader, writer) = io::pipe().unwrap();
        let raw = Poll { fd: reader.as_raw_fd(), events: libc::POLLIN as u16 }.into();
        // SAFETY: a poll points at nothing.
        let pushed = unsafe { ring.push(&Job::new(token(), raw, FileKind::Stream, false)) };
        pushed.unwrap();
        Some((ring, (reader, writer)))
    }

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(10))
    }

    #[test]
    fn a_cancel_follows_its_pause() {
        let Some((mut ring, _pipe)) = ring_with_poll() else { return };
        let began = Instant::now();
        let mut events = Vec::new();
        // Several cancels have one pause, the first one's. (The longest, so that a busy machine
        // does not reach its end where the test does not expect it.)
        ring.cancel_later(token(), CANCEL_PAUSES.len() - 1);
        ring.cancel_later(token(), 0);
        ring.enter(0, None, &mut events).unwrap();
        ring.cancel_later(token(), 0);
        ring.enter(1, soon(), &mut events).unwrap();
        let kind = EventKind::Result(-i64::from(libc::ECANCELED));
        assert_eq!(events, [JobEvent { token: token(), kind }]);
        assert!(began.elapsed() >= *CANCEL_PAUSES.last().unwrap());
        assert!(ring.cancels.is_empty());
    }

    /// Makes the kernel take the first of the entries that wait, as it does if it has no memory for
    /// more.
    fn submit_one_entry(ring: &Uring<UsualEntries>) {
        // SAFETY: no argument is passed.
        let taken = unsafe { ring.ring.submitter().enter::<libc::sigset_t>(1, 0, 0, None) };
        assert_eq!(taken.unwrap(), 1);
    }

    fn numbered(index: u32) -> Token {
        Token::new(Key { index, generation: NonZeroU32::MIN }, 0)
    }

    /// The rest would run although its beginning has failed.
    #[test]
    fn the_rest_of_a_chain_that_the_kernel_has_cut_does_not_run() {
        let Some(mut ring) = ring::<UsualEntries>(false) else { return };
        let file = std::fs::File::open("/dev/null").unwrap();
        let raw = crate::op::Write {
            fd: file.as_raw_fd(),
            buf: c"text".as_ptr().cast(),
            len: 4,
            offset: 0,
            flags: crate::op::RwFlags::NONE,
        };
        // A queue of four entries, and chains of three: the chain is anywhere in it.
        for round in 0..8 {
            let members: [(Raw, bool); 4] = [
                (raw.into(), true),
                (Nop.into(), true),
                (Nop.into(), false),
                (Nop.into(), false), // Not in the chain.
            ];
            for (number, (raw, link)) in (0..).zip(members).take(3 + round % 2) {
                let job = Job::new(numbered(number), raw, FileKind::Storage, false);
                // SAFETY: the text is static, and the file is kept until the end.
                unsafe { ring.push(&Job { link, ..job }) }.unwrap();
            }
            submit_one_entry(&ring);
            let mut events = Vec::new();
            while ring.in_flight > 0 {
                ring.enter(1, soon(), &mut events).unwrap();
            }
            events.sort_by_key(|event| event.token.index());
            let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
            let mut expected = vec![
                EventKind::Result(-i64::from(libc::EBADF)),
                EventKind::Unsupported,
                EventKind::Unsupported,
            ];
            expected.extend((round % 2 == 1).then_some(EventKind::Result(0)));
            assert_eq!(kinds, expected, "round {round}");
            assert_eq!(ring.workers.jobs(), 0);
        }
    }

    /// The operation would go on for ever.
    #[test]
    fn a_time_limit_that_the_kernel_has_cut_off_is_kept() {
        let Some(mut ring) = ring::<UsualEntries>(false) else { return };
        let (reader, _writer) = io::pipe().unwrap();
        let raw = Poll { fd: reader.as_raw_fd(), events: libc::POLLIN as u16 }.into();
        let deadline = Instant::now() + Duration::from_millis(20);
        let job = Job::new(token(), raw, FileKind::Stream, false);
        // SAFETY: a poll points at nothing.
        unsafe { ring.push(&Job { deadline: Some(deadline), ..job }) }.unwrap();
        submit_one_entry(&ring);
        let (mut events, until) = (Vec::new(), soon());
        while events.is_empty() && Instant::now() < until.unwrap() {
            ring.enter(1, until, &mut events).unwrap();
        }
        assert_eq!(events, [JobEvent { token: token(), kind: EventKind::TimerExpired }]);
        assert!(Instant::now() >= deadline);
    }

    /// Long transfers are unbounded work for the kernel, but work on files for the program.
    #[test]
    fn the_limit_of_workers_for_files_includes_long_transfers() {
        for (wanted, registered) in [
            (Some([2, 0]), [Some(2), Some(2)]),
            (Some([2, 5]), [Some(2), Some(5)]),
            (Some([0, 0]), [None, Some(HANDED_OVER_WORKERS)]),
            (None, [None, Some(HANDED_OVER_WORKERS)]),
        ] {
            let settings = Settings {
                entries: 4,
                completion_entries: 8,
                sqpoll: None,
                attach: None,
                iopoll: false,
                single_issuer: false,
                eventfd: false,
                io_wq_workers: wanted,
                injects_faults: false,
            };
            let check = move || {
                let Ok(ring) = Uring::<UsualEntries>::new(&settings) else {
                    return println!("skipped: no io_uring");
                };
                if wanted.is_some() && !ring.available().contains(&Feature::IoWqWorkers) {
                    return println!("skipped: a kernel before 5.15");
                }
                let mut limits = [0, 0];
                ring.ring.submitter().register_iowq_max_workers(&mut limits).unwrap();
                for (limit, registered) in limits.into_iter().zip(registered) {
                    assert_eq!(limit, registered.unwrap_or(limit));
                }
            };
            // The limits are the thread's, and remain for a while after its last ring.
            std::thread::spawn(check).join().unwrap();
        }
    }

    /// A program that polls the descriptor and never waits in `enter` gets there too.
    #[test]
    fn the_end_of_a_pause_makes_the_descriptor_readable() {
        let Some((mut ring, _pipe)) = ring_with_poll() else { return };
        let descriptor = ring.poll_fd().unwrap();
        let mut events = Vec::new();
        ring.cancel_later(token(), 1);
        let until = soon();
        while events.is_empty() {
            assert!(Instant::now() < until.unwrap(), "the poll is not cancelled");
            ring.enter(0, None, &mut events).unwrap();
            if events.is_empty() {
                wait_readable([descriptor], until).unwrap();
            }
        }
        assert_eq!(events[0].kind, EventKind::Result(-i64::from(libc::ECANCELED)));
    }

    /// A filter may forbid the poll of the timer: that is no reason to try for ever.
    #[test]
    fn a_poll_of_the_timer_that_is_refused_is_given_up() {
        let Some(mut ring) = ring::<UsualEntries>(false) else { return };
        let timer = ring.retry.make_timer().unwrap();
        let path = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/");
        // SAFETY: the call takes numbers, and the timer's descriptor stays open, as another file.
        // The kernel refuses every operation on it.
        assert_eq!(unsafe { libc::dup2(path.unwrap().as_raw_fd(), timer) }, timer);
        ring.poll_fd().unwrap();
        for _ in 0..20 {
            ring.enter(0, None, &mut Vec::new()).unwrap();
        }
        assert!(!ring.must_add() && ring.retry.poll == TimerPoll::Missing);
    }

    /// A pause whose job has completed cancels nothing, not even the next job of the slot.
    #[test]
    fn a_pause_outlives_its_job() {
        let Some((mut ring, (_reader, mut writer))) = ring_with_poll() else { return };
        let mut events = Vec::new();
        ring.cancel_later(token(), CANCEL_PAUSES.len() - 1);
        ring.enter(0, None, &mut events).unwrap();
        io::Write::write_all(&mut writer, b"x").unwrap();
        ring.enter(1, soon(), &mut events).unwrap();
        let kind = EventKind::Result(i64::from(libc::POLLIN));
        events.retain(|event| event.kind.is_completion());
        assert_eq!(std::mem::take(&mut events), [JobEvent { token: token(), kind }]);
        let next = Token::new(Key { index: 0, generation: NonZeroU32::new(2).unwrap() }, 0);
        let (other, _writer) = io::pipe().unwrap();
        let raw = Poll { fd: other.as_raw_fd(), events: libc::POLLIN as u16 }.into();
        // SAFETY: a poll points at nothing.
        unsafe { ring.push(&Job::new(next, raw, FileKind::Stream, false)) }.unwrap();
        let until = Instant::now() + 2 * *CANCEL_PAUSES.last().unwrap();
        while Instant::now() < until {
            ring.enter(1, Some(until), &mut events).unwrap();
            events.retain(|event| event.kind.is_completion());
        }
        assert_eq!(events, [], "the next job goes on");
        assert!(ring.cancels.is_empty());
    }
}
