//! Wraps another backend and injects faults: short transfers, errors, results that require a retry,
//! and events that are late, starve or are out of order. A [`FaultPlan`] selects them, by rates
//! from a seed or for single steps. For tests of the queue and of programs.

mod plan;
#[cfg(ringway_linux)]
mod signal;
#[cfg(not(ringway_linux))]
#[path = "faulty/signal/elsewhere.rs"]
mod signal;

pub use plan::{FaultPlan, FaultStep, Late};

use super::{
    Backend, BackendFull, CANCEL_PAUSES, EventKind, FileKind, Job, JobEvent, LimitKeeper, Wait,
};
use crate::file::Traits;
use crate::op::{Opcode, Raw, Readv, RwFlags, Transfer, Writev};
use crate::refusal::Refusal;
use crate::slots::Token;
use crate::sys::eventfd::EventFd;
use crate::sys::{RawFd, libc};
use plan::{Fault, Steps};
use signal::Signal;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Direct transfers are shortened to multiples of the largest block size of devices.
const BLOCK: u64 = 4096;

/// How long to wait for the inner backend while events are delayed.
const INNER_WAIT: Duration = Duration::from_millis(1);

/// After this time without a job or an event, starving events are the only work left for a caller
/// that polls.
const IDLE_POLLED: Duration = Duration::from_millis(5);

/// The same, while the inner backend has jobs: these may depend on a starving event, or never
/// complete.
const IDLE: Duration = Duration::from_millis(50);

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn hits(&mut self, per_thousand: u16) -> bool {
        per_thousand > 0 && self.below(1000) < u64::from(per_thousand)
    }

    fn one_of(&mut self, errnos: &[i32]) -> i32 {
        errnos[self.below(errnos.len() as u64) as usize]
    }
}

/// An event that is delayed.
struct DelayedEvent {
    event: JobEvent,
    late: Late,
    /// The deadline of its operation: it is not delayed beyond that.
    deadline: Option<Instant>,
}

/// The faults of a job that the inner backend has.
struct PendingFault {
    late: Option<Late>,
    deadline: Option<Instant>,
    /// The errno that replaces the result.
    errno: Option<i32>,
}

pub(crate) struct Faulty {
    inner: Box<dyn Backend>,
    plan: FaultPlan,
    /// Counts jobs, for faults of single steps.
    steps: Steps,
    /// Decides the faults of jobs, in the order in which they are pushed.
    fault_rng: Random,
    /// Decides the order of events, and which cancels miss. Separate from `fault_rng`, since how
    /// many events come together, and which cancels find something, depends on time.
    order_rng: Random,
    /// Jobs of the inner backend that are not completed.
    in_inner: usize,
    /// Those of them whose event is delayed or changed.
    pending_faults: HashMap<Token, PendingFault>,
    delayed: Vec<DelayedEvent>,
    /// Jobs that a cancel did not find, and when it is said.
    missed: Vec<(Token, Instant)>,
    /// When the last job was pushed or the last event returned.
    last_activity: Instant,
    /// Events of the inner backend that are not processed yet.
    inner_events: Vec<JobEvent>,
    /// The descriptor of [`Backend::poll_fd`]: readable when the inner backend's descriptor is, and
    /// while delayed events exist that need no cancel.
    signal: Signal,
}

impl Faulty {
    /// Errors: those of `eventfd(2)`.
    pub fn new(inner: Box<dyn Backend>, plan: FaultPlan) -> io::Result<Self> {
        Ok(Self {
            inner,
            steps: Steps::default(),
            fault_rng: Random(plan.seed),
            order_rng: Random(!plan.seed),
            plan,
            in_inner: 0,
            pending_faults: HashMap::new(),
            delayed: Vec::new(),
            missed: Vec::new(),
            last_activity: Instant::now(),
            inner_events: Vec::new(),
            signal: Signal::new()?,
        })
    }

    /// The errno with which a job fails at random, if it does.
    fn failure(&mut self, raw: &Raw) -> Option<i32> {
        let opcode = raw.opcode();
        if opcode == Opcode::Close {
            return None; // Failing without closing would leak the descriptor.
        }
        if self.fault_rng.hits(self.plan.retryable) {
            return Some(self.fault_rng.one_of(&[libc::EINTR, libc::EAGAIN, libc::ECANCELED]));
        }
        if raw.is_sync() && self.fault_rng.hits(self.plan.syncs) {
            return Some(self.fault_rng.one_of(&[libc::EIO, libc::ENOSPC]));
        }
        if matches!(opcode, Opcode::Nop | Opcode::Timeout | Opcode::Poll)
            || !self.fault_rng.hits(self.plan.errors)
        {
            return None;
        }
        Some(match opcode {
            Opcode::Write | Opcode::Writev | Opcode::WriteFile | Opcode::Fallocate => {
                self.fault_rng.one_of(&[libc::EIO, libc::ENOSPC])
            }
            _ => libc::EIO,
        })
    }

    /// Shortens a transfer if the plan asks for it.
    fn cut(&mut self, job: &Job, fault: &Fault) -> Raw {
        if !job.raw.is_transfer() || !(fault.cut || self.fault_rng.hits(self.plan.short)) {
            return job.raw;
        }
        let shorter = match job.raw {
            Raw::Readv(Readv { count, .. }) | Raw::Writev(Writev { count, .. }) if count < 2 => {
                job.raw
            }
            Raw::Readv(readv) => {
                Readv { count: 1 + self.fault_rng.below(readv.count as u64 - 1) as usize, ..readv }
                    .into()
            }
            Raw::Writev(writev) => Writev {
                count: 1 + self.fault_rng.below(writev.count as u64 - 1) as usize,
                ..writev
            }
            .into(),
            other => {
                let unit = if is_direct(job) { BLOCK } else { 1 };
                // It can be shortened before each unit but the first.
                let cuts = len(&other).div_ceil(unit).saturating_sub(1);
                if cuts == 0 {
                    other
                } else {
                    let mut part = other.piece(0, unit * (1 + self.fault_rng.below(cuts)));
                    // The kernel would refuse a part of an untorn write.
                    if let Some(flags) = part.rw_flags_mut() {
                        flags.clear(RwFlags::ATOMIC);
                    }
                    part
                }
            }
        };
        // With empty buffers only, the result 0 would mean the end of the file.
        if len(&shorter) == 0 { job.raw } else { shorter }
    }

    /// A random delay of an event.
    fn random_delay(&mut self) -> Option<Late> {
        if self.fault_rng.hits(self.plan.starve) {
            Some(Late::Last)
        } else if self.fault_rng.hits(self.plan.delay) {
            Some(Late::Enters(
                1 + self.fault_rng.below(u64::from(self.plan.longest_delay.max(1))) as u32,
            ))
        } else {
            None
        }
    }

    /// Whether a cancel that missed is still to be told: it is of no interest without its job.
    fn has_missed(&self) -> bool {
        !self.missed.is_empty() && self.in_inner > 0
    }

    /// Makes the descriptor readable while there are events that need no cancel.
    fn signal_if_delayed(&mut self) {
        let is_due = |delayed: &DelayedEvent| delayed.late != Late::Forever;
        if self.signal.is_polled() && (self.has_missed() || self.delayed.iter().any(is_due)) {
            self.signal.raise(&mut *self.inner);
        }
    }

    /// Enters the inner backend, and holds back the events that are to be late.
    fn enter_inner(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        let mut inner_events = std::mem::take(&mut self.inner_events);
        let entered = self.inner.enter(want, until, &mut inner_events);
        for mut event in inner_events.drain(..) {
            if !event.kind.is_completion() {
                events.push(event);
                continue;
            }
            self.in_inner -= 1;
            let pending = self.pending_faults.remove(&event.token);
            if let Some(errno) = pending.as_ref().and_then(|pending| pending.errno) {
                event.kind = EventKind::Result(-i64::from(errno));
            }
            match pending.and_then(|pending| Some((pending.late?, pending.deadline))) {
                Some((late, deadline)) => self.delayed.push(DelayedEvent { event, late, deadline }),
                None => events.push(event),
            }
        }
        self.inner_events = inner_events;
        entered
    }

    /// Whether a cancel goes to the inner backend. It does not if the plan lets it miss the job,
    /// which is told at this time, nor for a delayed event, which the next enter returns unless the
    /// plan lets it stay late.
    fn passes_cancel(&mut self, token: Token, told_at: Instant) -> bool {
        let stays_late = self.order_rng.hits(self.plan.late_cancels);
        // (It would never come.)
        let kept = |late| if late == Late::Forever { Late::Last } else { late };
        if let Some(delayed) = self.delayed.iter_mut().find(|delayed| delayed.event.token == token)
        {
            delayed.late = if stays_late { kept(delayed.late) } else { Late::Enters(0) };
            self.signal_if_delayed();
            return false;
        }
        if let Some(pending) = self.pending_faults.get_mut(&token) {
            pending.late = pending.late.filter(|_| stays_late).map(kept);
        }
        if self.order_rng.hits(self.plan.missed_cancels) {
            self.missed.push((token, told_at));
            self.signal_if_delayed();
            return false;
        }
        true
    }

    /// Returns the events whose delay is over.
    fn release_due(&mut self, events: &mut Vec<JobEvent>) {
        let now = Instant::now();
        self.delayed.retain_mut(|delayed| {
            let due = delayed.late == Late::Enters(0)
                || delayed.deadline.is_some_and(|deadline| deadline <= now);
            if due {
                events.push(delayed.event);
            } else if let Late::Enters(enters) = &mut delayed.late {
                *enters -= 1;
            }
            !due
        });
    }

    /// Returns up to `missing` events that are delayed by some enters, so that a caller that waits
    /// for them gets them.
    fn release_delayed(&mut self, mut missing: usize, events: &mut Vec<JobEvent>) {
        self.delayed.retain(|delayed| {
            let keep = missing == 0 || !matches!(delayed.late, Late::Enters(_));
            if !keep {
                missing -= 1;
                events.push(delayed.event);
            }
            keep
        });
    }

    /// Returns the oldest event that is delayed until everything else is done.
    fn release_last(&mut self, events: &mut Vec<JobEvent>) {
        if let Some(at) = self.delayed.iter().position(|delayed| delayed.late == Late::Last) {
            events.push(self.delayed.remove(at).event);
        }
    }
}

fn len(raw: &Raw) -> u64 {
    match raw.transfer() {
        Transfer::None => 0,
        Transfer::Bytes(len) | Transfer::Stream(len) | Transfer::Vector(len) => len,
    }
}

/// Whether the file is open for direct I/O; the queue does not always check.
fn is_direct(job: &Job) -> bool {
    match (job.file, job.raw.fd()) {
        (FileKind::Unknown, Some(fd)) => Traits::of(fd).direct,
        _ => job.direct,
    }
}

impl Backend for Faulty {
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull> {
        let fault = self.steps.fault(&self.plan, job);
        let before = self.fault_rng.clone();
        let errno = fault.errno.or_else(|| self.failure(&job.raw));
        // A close closes the descriptor whatever its result, unless it did not start.
        let closes = job.raw.opcode() == Opcode::Close && errno != Some(libc::ECANCELED);
        if let Some(errno) = errno.filter(|_| !closes) {
            let late = fault.late.or_else(|| self.random_delay()).unwrap_or(Late::Enters(0));
            let event = JobEvent { token: job.token, kind: EventKind::Result(-i64::from(errno)) };
            self.delayed.push(DelayedEvent { event, late, deadline: job.deadline });
            self.signal_if_delayed();
        } else {
            let raw = self.cut(job, &fault);
            // SAFETY: `raw` covers a part of what `job.raw` covers, and the caller keeps all of
            // that valid.
            let pushed = unsafe { self.inner.push(&Job { raw, ..*job }) };
            // The job comes again, with the same faults: how full a backend is depends on time.
            pushed.inspect_err(|_| self.fault_rng = before)?;
            self.in_inner += 1;
            let late = fault.late.or_else(|| self.random_delay());
            if late.is_some() || errno.is_some() {
                self.pending_faults
                    .insert(job.token, PendingFault { late, deadline: job.deadline, errno });
            }
        }
        self.steps.taken(&self.plan, job);
        self.last_activity = Instant::now();
        Ok(())
    }

    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait> {
        if let Some(left) = &mut self.plan.enters {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        }
        let before = events.len();
        let enough = before + want;
        if self.signal.is_polled() {
            self.signal.clear();
        }
        let now = Instant::now();
        let due = self.missed.extract_if(.., |(_, at)| *at <= now);
        events.extend(due.map(|(token, _)| JobEvent { token, kind: EventKind::CancelMissed }));
        if !self.delayed.is_empty() {
            self.release_due(events);
        }
        let missing = enough.saturating_sub(events.len());
        let entered = if self.delayed.is_empty() && !self.has_missed() {
            self.enter_inner(missing, until, events)
        } else if self.in_inner == 0 {
            self.enter_inner(0, None, events)
        } else {
            // Jobs of the inner backend may depend on delayed events.
            let inner_until = Instant::now() + INNER_WAIT;
            self.enter_inner(
                missing,
                Some(until.map_or(inner_until, |until| until.min(inner_until))),
                events,
            )
        };
        let missing = enough.saturating_sub(events.len());
        self.release_delayed(missing, events);
        if events.len() > before {
            self.last_activity = Instant::now();
        } else if !self.delayed.is_empty() {
            let idle_time = match (self.in_inner, missing) {
                (0, 0) => IDLE_POLLED,
                (0, _) => Duration::ZERO,
                _ => IDLE,
            };
            if self.last_activity.elapsed() >= idle_time {
                self.release_last(events);
            }
            if events.len() == before && missing > 0 && self.in_inner == 0 {
                // Only a cancel releases what is delayed, or the fallback pool has events.
                let left = until
                    .map_or(INNER_WAIT, |until| until.saturating_duration_since(Instant::now()));
                std::thread::sleep(left.min(INNER_WAIT));
            }
        }
        if self.order_rng.hits(self.plan.reorder) {
            let batch = &mut events[before..];
            for last in (1..batch.len()).rev() {
                batch.swap(last, self.order_rng.below(last as u64 + 1) as usize);
            }
        }
        self.signal_if_delayed();
        entered
    }

    fn cancel(&mut self, token: Token) {
        if self.passes_cancel(token, Instant::now()) {
            self.inner.cancel(token);
        }
    }

    fn cancel_later(&mut self, token: Token, pause: usize) {
        if self.missed.iter().any(|(missed, _)| *missed == token) {
            return;
        }
        if self.passes_cancel(token, Instant::now() + CANCEL_PAUSES[pause]) {
            self.inner.cancel_later(token, pause);
        }
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        let is_first = !self.signal.is_polled();
        let fd = self.signal.poll_fd(&mut *self.inner)?;
        if is_first {
            self.signal_if_delayed();
        }
        Ok(fd)
    }

    fn wake(&mut self) {
        self.signal.raise(&mut *self.inner);
    }

    fn poll_eventfd(&self) -> Option<Arc<EventFd>> {
        self.inner.poll_eventfd()
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.inner.watch(eventfd, active);
    }

    fn set_timer(&mut self, token: Token, at: Instant) {
        self.inner.set_timer(token, at);
    }

    fn supports(&self, job: &Job) -> bool {
        self.inner.supports(job)
    }

    fn push_would_enter(&self, entries: usize) -> bool {
        self.inner.push_would_enter(entries)
    }

    /// None, whatever the inner backend supports: a fault must break a chain as the owner sees it,
    /// not as the kernel does.
    fn chain_capacity(&self) -> usize {
        0
    }

    fn limit_keeper(&self) -> LimitKeeper {
        self.inner.limit_keeper()
    }

    unsafe fn register_buffers(&mut self, memory: &[libc::iovec]) -> Result<u16, i32> {
        // SAFETY: the caller keeps the memory valid.
        unsafe { self.inner.register_buffers(memory) }
    }

    fn register_file(&mut self, fd: RawFd) -> Result<u32, i32> {
        self.inner.register_file(fd)
    }

    fn unregister_file(&mut self, index: u32) {
        self.inner.unregister_file(index);
    }

    fn end(mut self: Box<Self>, until: Instant, events: &mut Vec<JobEvent>) -> bool {
        // Only the plan forbids entering the inner backend.
        self.plan.enters = None;
        while self.in_inner + self.delayed.len() > 0 {
            if Instant::now() >= until || self.enter(1, Some(until), events).is_err() {
                return self.inner.end(until, events);
            }
        }
        true
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut descriptors = self.inner.descriptors();
        descriptors.extend(self.signal.descriptors());
        descriptors
    }

    fn refusals(&self) -> &[Refusal] {
        self.inner.refusals()
    }

    fn system_calls(&self) -> u64 {
        self.inner.system_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::super::null::Null;
    use super::*;
    use crate::op::{Close, Fsync, Nop, Read, Write};
    use crate::sys::eventfd::wait_readable;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn job(number: u64, raw: impl Into<Raw>) -> Job {
        Job::new(Token(number), raw.into(), FileKind::Storage, false)
    }

    /// The address is never used, since [`Null`] takes the job.
    fn read(len: usize) -> Read {
        Read { fd: -1, buf: std::ptr::null_mut(), len, offset: 0, flags: RwFlags::NONE }
    }

    fn faulty(plan: FaultPlan) -> Faulty {
        Faulty::new(Box::new(Null::default()), plan).unwrap()
    }

    fn push(faulty: &mut Faulty, job: &Job) {
        // SAFETY: the null backend does not access what the jobs of these tests point at.
        unsafe { faulty.push(job) }.unwrap();
    }

    /// Runs jobs, waiting for one event at a time; returns their numbers and results.
    fn run(plan: FaultPlan, jobs: &[Job]) -> Vec<(u64, i64)> {
        let mut faulty = faulty(plan);
        for job in jobs {
            push(&mut faulty, job);
        }
        let mut events = Vec::new();
        while events.len() < jobs.len() {
            let before = events.len();
            faulty.enter(1, None, &mut events).unwrap();
            assert!(events.len() > before, "no event came");
        }
        events.iter().map(|event| (event.token.0, result(event))).collect()
    }

    fn result(event: &JobEvent) -> i64 {
        match event.kind {
            EventKind::Result(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// As `run`, sorted by number.
    fn results(plan: FaultPlan, jobs: &[Job]) -> BTreeMap<u64, i64> {
        run(plan, jobs).into_iter().collect()
    }

    #[test]
    fn a_new_plan_injects_no_faults() {
        let jobs: Vec<Job> = (0..100).map(|number| job(number, read(number as usize))).collect();
        let expected: Vec<(u64, i64)> = (0..100).map(|number| (number, number as i64)).collect();
        assert_eq!(run(FaultPlan::new(1), &jobs), expected);
    }

    #[test]
    fn rates_are_kept() {
        let jobs: Vec<Job> = (0..10_000).map(|number| job(number, read(100))).collect();
        let count = |plan, hit: fn(i64) -> bool| {
            results(plan, &jobs).values().filter(|result| hit(**result)).count()
        };
        let near = |count: usize| (1800..2200).contains(&count);
        assert!(near(count(FaultPlan::new(1).short(200), |result| (1..100).contains(&result))));
        assert!(near(
            count(FaultPlan::new(1).errors(200), |result| result == -i64::from(libc::EIO))
        ));
        assert!(near(count(FaultPlan::new(1).retryable(200), |result| {
            [libc::EINTR, libc::EAGAIN, libc::ECANCELED].map(i64::from).contains(&-result)
        })));
    }

    #[test]
    fn each_opcode_fails_with_its_own_errors() {
        let always = FaultPlan::new(3).errors(1000);
        let jobs: Vec<Job> = (0..50)
            .flat_map(|number| {
                let write = Write {
                    fd: -1,
                    buf: std::ptr::null(),
                    len: 10,
                    offset: 0,
                    flags: RwFlags::NONE,
                };
                [
                    job(4 * number, write),
                    job(4 * number + 1, Fsync { fd: -1, data_only: false }),
                    job(4 * number + 2, Nop),
                    job(4 * number + 3, Close { fd: -1 }),
                ]
            })
            .collect();
        let of_all = results(always.clone(), &jobs);
        let of = |rest: u64| {
            of_all
                .iter()
                .filter(move |(number, _)| **number % 4 == rest)
                .map(|(_, result)| -*result as i32)
        };
        assert!(of(0).all(|errno| [libc::EIO, libc::ENOSPC].contains(&errno)));
        assert!(of(0).any(|errno| errno == libc::EIO) && of(0).any(|errno| errno == libc::ENOSPC));
        assert!(of(1).all(|errno| errno == libc::EIO));
        assert!(of(2).all(|errno| errno == 0));
        assert!(of(3).all(|errno| errno == libc::EBADF), "closes are done");
        assert_eq!(results(always.retryable(1000), &jobs[3..4])[&3], -i64::from(libc::EBADF));
    }

    #[test]
    fn shortened_transfers_are_not_empty_and_keep_to_blocks() {
        let always = FaultPlan::new(5).short(1000);
        let jobs: Vec<Job> =
            (0..200).map(|number| job(number, read(number as usize % 7))).collect();
        for (number, result) in results(always.clone(), &jobs) {
            let len = number as i64 % 7;
            assert!(result < len.max(2) && result >= len.min(1), "{result} of {len}");
        }
        let lens = [0, 512, 4096, 4608, 16384, 20000];
        let direct =
            |number: u64| Job { direct: true, ..job(number, read(lens[number as usize % 6])) };
        let jobs: Vec<Job> = (0..200).map(direct).collect();
        for (number, result) in results(always.clone(), &jobs) {
            let len = lens[number as usize % 6] as i64;
            assert!(
                result == len.min(4096) || (result < len && result > 0 && result % 4096 == 0),
                "{result} of {len}"
            );
        }
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 10 }; 3];
        iov[0].iov_len = 0;
        let iov = &iov;
        let vectors = |count| {
            (0..50).map(move |number| {
                job(
                    number,
                    Readv { fd: -1, iov: iov.as_ptr(), count, offset: 0, flags: RwFlags::NONE },
                )
            })
        };
        let of_three: Vec<i64> =
            results(always.clone(), &vectors(3).collect::<Vec<_>>()).into_values().collect();
        assert!(of_three.contains(&10) && of_three.contains(&20) && of_three.len() == 50);
        assert!(!of_three.contains(&0));
        assert!(
            results(always, &vectors(1).collect::<Vec<_>>()).values().all(|result| *result == 0)
        );
    }

    #[test]
    fn delayed_events_come_after_some_enters_or_when_waited_for() {
        let mut faulty = faulty(FaultPlan::new(0).delay(1000, 1));
        let mut events = Vec::new();
        let fd = faulty.poll_fd().unwrap();
        let readable = || wait_readable([fd], Some(Instant::now())).unwrap() == [true];
        assert!(!readable());
        push(&mut faulty, &job(0, Nop));
        for _ in 0..2 {
            faulty.enter(0, None, &mut events).unwrap();
            assert_eq!(events, []);
            assert!(readable());
        }
        faulty.cancel(Token(0));
        faulty.enter(0, None, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        faulty.enter(0, None, &mut events).unwrap();
        assert!(!readable());
        push(&mut faulty, &job(1, Nop));
        push(&mut faulty, &job(2, Nop));
        faulty.enter(1, None, &mut events).unwrap();
        assert_eq!(events.len(), 2);
        faulty.enter(1, None, &mut events).unwrap();
        assert_eq!(events.len(), 3);
        faulty.enter(0, None, &mut events).unwrap();
        assert!(!readable());
        faulty.wake();
        assert!(readable());
        faulty.enter(0, None, &mut events).unwrap();
        assert!(!readable());
    }

    #[test]
    fn batches_are_shuffled() {
        let mut faulty = faulty(FaultPlan::new(11).reorder(1000));
        for number in 0..100 {
            push(&mut faulty, &job(number, Nop));
        }
        let mut events = vec![JobEvent { token: Token(1000), kind: EventKind::TimerExpired }];
        faulty.enter(100, None, &mut events).unwrap();
        let mut numbers: Vec<u64> = events.iter().map(|event| event.token.0).collect();
        assert_eq!(numbers[0], 1000, "earlier events keep their place");
        assert!(!numbers[1..].is_sorted());
        numbers.sort();
        assert_eq!(numbers[..100], Vec::from_iter(0..100));
    }

    #[test]
    fn single_steps_fail_are_shortened_and_starve() {
        let jobs = [
            job(0, read(100)),
            job(1, Fsync { fd: -1, data_only: false }),
            job(2, read(100)),
            job(3, Fsync { fd: -1, data_only: true }),
            job(4, read(100)),
            job(5, Close { fd: -1 }),
        ];
        let plan = FaultPlan::new(1)
            .fail(FaultStep::Opcode(Opcode::Fsync, 0), libc::ENOSPC)
            .fail(FaultStep::Fdatasync(0), libc::EIO)
            .cut(FaultStep::Job(2))
            .late(FaultStep::Opcode(Opcode::Read, 0), Late::Last)
            .fail(FaultStep::Opcode(Opcode::Read, 2), 0)
            .late(FaultStep::Opcode(Opcode::Read, 2), Late::Last)
            .fail(FaultStep::Job(5), libc::EINTR);
        let done = run(plan, &jobs);
        assert_eq!(
            done[4..],
            [(4, 0), (0, 100)],
            "starving events come last, the failed job first"
        );
        let done: BTreeMap<u64, i64> = done.into_iter().collect();
        assert!((1..100).contains(&done[&2]), "{done:?}");
        let errnos = [libc::ENOSPC, libc::EIO, libc::EINTR].map(|errno| -i64::from(errno));
        assert_eq!([done[&1], done[&3], done[&5]], errnos);
    }

    /// Pieces and retries of an operation count as its jobs, not as those of others.
    #[test]
    fn jobs_are_counted_by_operation() {
        let key = |index| crate::slots::Key { index, generation: std::num::NonZeroU32::MIN };
        let of = |index, piece| Job { token: Token::new(key(index), piece), ..job(0, read(100)) };
        let plan = FaultPlan::new(1).fail(FaultStep::Piece { operation: 1, job: 2 }, libc::EIO);
        let jobs = [of(7, 0), of(3, 0), of(7, 1), of(3, 1), of(7, 2), of(3, 2), of(3, 3)];
        let failed: Vec<u64> = run(plan, &jobs)
            .into_iter()
            .filter(|(_, result)| *result < 0)
            .map(|(token, _)| token)
            .collect();
        assert_eq!(failed, [of(3, 2).token.0]);
    }

    #[test]
    fn an_event_delayed_forever_is_released_by_a_cancel() {
        let mut faulty = faulty(FaultPlan::new(1).late(FaultStep::Job(1), Late::Forever));
        let mut events = Vec::new();
        let fd = faulty.poll_fd().unwrap();
        let readable = || wait_readable([fd], Some(Instant::now())).unwrap() == [true];
        for number in 0..3 {
            push(&mut faulty, &job(number, Nop));
        }
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        for _ in 0..3 {
            faulty.enter(3, soon(), &mut events).unwrap();
        }
        assert_eq!(events.iter().map(|event| event.token.0).collect::<Vec<_>>(), [0, 2]);
        assert!(!readable(), "only a cancel releases it");
        faulty.cancel(Token(1));
        assert!(readable());
        faulty.enter(1, None, &mut events).unwrap();
        assert_eq!((events[2].token, result(&events[2])), (Token(1), 0));
    }

    /// As of an operation that a cancel cannot stop.
    #[test]
    fn an_event_may_stay_late_after_a_cancel() {
        let plan = FaultPlan::new(1).late_cancels(1000);
        let plan = plan.late(FaultStep::Job(0), Late::Enters(2));
        let mut faulty = faulty(plan.late(FaultStep::Job(1), Late::Forever));
        let mut events = Vec::new();
        for number in 0..2 {
            push(&mut faulty, &job(number, Nop));
            faulty.cancel(Token(number));
        }
        faulty.enter(0, None, &mut events).unwrap();
        faulty.cancel(Token(0));
        for _ in 0..2 {
            faulty.enter(0, None, &mut events).unwrap();
            assert_eq!(events, []);
        }
        faulty.enter(0, None, &mut events).unwrap();
        assert_eq!(events.iter().map(|event| event.token.0).collect::<Vec<_>>(), [0]);
        while events.len() < 2 {
            faulty.enter(1, None, &mut events).unwrap();
        }
    }

    #[test]
    fn no_event_starves_beyond_its_deadline() {
        let mut faulty = faulty(FaultPlan::new(1).late(FaultStep::Job(0), Late::Forever));
        let mut events = Vec::new();
        push(&mut faulty, &Job { deadline: Some(Instant::now() + INNER_WAIT), ..job(0, Nop) });
        while events.is_empty() {
            faulty.enter(1, None, &mut events).unwrap();
        }
        assert_eq!(events[0].token, Token(0));
    }

    fn plans() -> impl Strategy<Value = FaultPlan> {
        let rate = || prop_oneof![Just(0u16), Just(1000), 0u16..1000];
        let rates = (rate(), rate(), rate(), rate(), rate(), rate());
        (any::<u64>(), rates, 0u32..10).prop_map(
            |(seed, (short, errors, retryable, delay, starve, reorder), longest)| {
                FaultPlan::new(seed)
                    .short(short)
                    .errors(errors)
                    .retryable(retryable)
                    .delay(delay, longest)
                    .starve(starve)
                    .reorder(reorder)
            },
        )
    }

    proptest! {
        /// With any plan and any pace each job completes exactly once, and the same plan gives the
        /// same results.
        #[test]
        fn every_job_completes_once(
            plan in plans(),
            steps in proptest::collection::vec((0usize..20, 0usize..8), 0..30),
        ) {
            let play = || {
                let mut faulty = faulty(plan.clone());
                let mut events = Vec::new();
                let mut pushed = 0;
                for (jobs, want) in &steps {
                    for _ in 0..*jobs {
                        push(&mut faulty, &job(pushed, read(pushed as usize)));
                        pushed += 1;
                    }
                    let before = events.len();
                    faulty.enter(*want, None, &mut events).unwrap();
                    let wanted = (*want).min(pushed as usize - before);
                    assert!(plan.starve > 0 || events.len() - before >= wanted);
                }
                while events.len() < pushed as usize {
                    let before = events.len();
                    faulty.enter(pushed as usize - before, None, &mut events).unwrap();
                    assert!(events.len() > before);
                }
                let mut numbers: Vec<u64> = events.iter().map(|event| event.token.0).collect();
                numbers.sort();
                assert_eq!(numbers, Vec::from_iter(0..pushed));
                assert!(faulty.in_inner == 0 && faulty.delayed.is_empty());
                assert!(faulty.pending_faults.is_empty());
                if plan.starve > 0 {
                    // How long an event starves depends on time; its result does not.
                    events.sort_by_key(|event| event.token.0);
                }
                events
            };
            prop_assert_eq!(play(), play());
        }
    }
}
