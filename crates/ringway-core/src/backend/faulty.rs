//! Wraps another backend and injects what kernels and devices do on a bad day, from a seed: short transfers,
//! errors, answers that ask to be tried again, late answers and answers out of order. For tests of what stands
//! above.

use super::eventfd::{Epoll, EventFd};
use super::{Answer, Backend, Event, FileKind, Job, NoRoom};
use crate::file::Traits;
use crate::op::{Kind, Raw, Readv, Shape, Writev};
use crate::refusal::Refusal;
use crate::slots::Token;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is to go wrong, and how often. Rates are per thousand; by itself a plan does nothing.
///
/// The same plan gives the same faults to the same sequence of operations.
///
/// ```
/// # use ringway_core::{op, FaultPlan, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = FaultPlan::new(7).short(500).retryable(200).delay(300, 4).reorder(500);
/// let mut queue = Options::new().faults(plan).build()?;
/// let file = File::open("/etc/passwd")?;
/// queue.push(op::read(&file, vec![0; 64], 0).exact())?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(64));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    short: u16,
    errors: u16,
    retryable: u16,
    delay: u16,
    longest_delay: u32,
    reorder: u16,
}

impl FaultPlan {
    /// Nothing goes wrong yet; the seed decides what will.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Transfers are cut: to at least one byte, for direct I/O to whole blocks of 4 KiB, and vectored ones between
    /// two buffers.
    pub fn short(self, per_thousand: u16) -> Self {
        Self { short: per_thousand, ..self }
    }

    /// Operations on files and paths fail with EIO, those that need room on the device also with ENOSPC, and are not
    /// carried out.
    pub fn errors(self, per_thousand: u16) -> Self {
        Self { errors: per_thousand, ..self }
    }

    /// Operations answer EINTR, EAGAIN or an ECANCELED that nobody asked for, and are not carried out. At 1000 or
    /// more nothing is ever carried out.
    pub fn retryable(self, per_thousand: u16) -> Self {
        Self { retryable: per_thousand, ..self }
    }

    /// Answers are held back while the backend is entered up to `longest` times. (Nothing is held back from who would
    /// wait for it in vain.)
    pub fn delay(self, per_thousand: u16, longest: u32) -> Self {
        Self { delay: per_thousand, longest_delay: longest, ..self }
    }

    /// Answers that come together are shuffled.
    pub fn reorder(self, per_thousand: u16) -> Self {
        Self { reorder: per_thousand, ..self }
    }
}

impl FromStr for FaultPlan {
    type Err = String;

    /// The methods' names with their numbers: `seed=7 short=500 errors=10 retryable=200 delay=300/4 reorder=500`, in any order, parted
    /// by spaces or commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no fault: name=number"))?;
            let invalid = |_| format!("`{value}` is no number for the fault {name}");
            let rate = || value.parse::<u16>().map_err(invalid);
            plan = match name {
                "seed" => Self { seed: value.parse().map_err(invalid)?, ..plan },
                "short" => plan.short(rate()?),
                "errors" => plan.errors(rate()?),
                "retryable" => plan.retryable(rate()?),
                "reorder" => plan.reorder(rate()?),
                "delay" => {
                    let (rate, longest) = value.split_once('/').ok_or("a delay is rate/enters, such as 300/4")?;
                    plan.delay(rate.parse().map_err(invalid)?, longest.parse().map_err(invalid)?)
                }
                _ => return Err(format!("`{name}` is no fault: seed, short, errors, retryable, delay or reorder")),
            };
        }
        Ok(plan)
    }
}

/// Direct transfers are cut at multiples of it: the largest block that devices have.
const BLOCK: u64 = 4096;

/// As long as this the inner backend is waited for while something is held back.
const PATIENCE: Duration = Duration::from_millis(1);

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
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

/// An answer that is held back.
struct Held {
    event: Event,
    /// How often more `enter` goes without it.
    enters: u32,
}

pub(crate) struct Faulty {
    inner: Box<dyn Backend>,
    plan: FaultPlan,
    /// Decides what becomes of a job, in the order in which they are carried.
    fates: Random,
    /// Decides on the order of answers: apart, since that many come together depends on time.
    orders: Random,
    /// Jobs that the inner backend has not answered.
    in_inner: usize,
    /// For how many `enter`s these will be held back, once they are answered.
    delays: HashMap<Token, u32>,
    held: Vec<Held>,
    /// The inner backend's answers before they are looked through.
    answers: Vec<Event>,
    /// Readable while something is held.
    eventfd: EventFd,
    /// What [`Backend::poll_fd`] gave out: readable when the inner backend's descriptor or `eventfd` is.
    epoll: Option<Epoll>,
}

impl Faulty {
    /// Errors: those of `eventfd(2)`.
    pub fn new(inner: Box<dyn Backend>, plan: FaultPlan) -> io::Result<Self> {
        Ok(Self {
            inner,
            fates: Random(plan.seed),
            orders: Random(!plan.seed),
            plan,
            in_inner: 0,
            delays: HashMap::new(),
            held: Vec::new(),
            answers: Vec::new(),
            eventfd: EventFd::new()?,
            epoll: None,
        })
    }

    /// The errno that a job is answered with at once, if it is.
    fn failure(&mut self, raw: &Raw) -> Option<i32> {
        let kind = raw.kind();
        if kind == Kind::Close {
            return None; // Not carried out, it would leak a descriptor.
        }
        if self.fates.hits(self.plan.retryable) {
            return Some(self.fates.one_of(&[libc::EINTR, libc::EAGAIN, libc::ECANCELED]));
        }
        if matches!(kind, Kind::Nop | Kind::Timeout | Kind::Poll) || !self.fates.hits(self.plan.errors) {
            return None;
        }
        Some(match kind {
            Kind::Write | Kind::Writev | Kind::Fallocate => self.fates.one_of(&[libc::EIO, libc::ENOSPC]),
            _ => libc::EIO,
        })
    }

    /// A shorter transfer in the place of this one.
    fn cut(&mut self, job: &Job) -> Raw {
        if !job.raw.is_transfer() || !self.fates.hits(self.plan.short) {
            return job.raw;
        }
        let shorter = match job.raw {
            Raw::Readv(Readv { count, .. }) | Raw::Writev(Writev { count, .. }) if count < 2 => job.raw,
            Raw::Readv(readv) => Readv { count: 1 + self.fates.below(readv.count as u64 - 1) as usize, ..readv }.into(),
            Raw::Writev(writev) => {
                Writev { count: 1 + self.fates.below(writev.count as u64 - 1) as usize, ..writev }.into()
            }
            other => {
                let unit = if is_direct(job) { BLOCK } else { 1 };
                // Cuts are possible before each unit but the first.
                let cuts = len(&other).div_ceil(unit).saturating_sub(1);
                if cuts == 0 { other } else { other.piece(0, unit * (1 + self.fates.below(cuts))) }
            }
        };
        // Of empty buffers alone there would be nothing to transfer, which says that the file ends.
        if len(&shorter) == 0 { job.raw } else { shorter }
    }

    fn delay(&mut self) -> u32 {
        if self.fates.hits(self.plan.delay) {
            1 + self.fates.below(u64::from(self.plan.longest_delay.max(1))) as u32
        } else {
            0
        }
    }

    fn hold(&mut self, event: Event, enters: u32) {
        self.held.push(Held { event, enters });
        self.tell();
    }

    /// Keeps the descriptor right: readable while something is held.
    fn tell(&self) {
        if self.epoll.is_some() && !self.held.is_empty() {
            self.eventfd.signal();
        }
    }

    /// Enters the inner backend, and keeps what is to be late.
    fn enter_inner(&mut self, want: usize, until: Option<Instant>, events: &mut Vec<Event>) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        let entered = self.inner.enter(want, until, &mut answers);
        for event in answers.drain(..) {
            if event.answer == Answer::Expired {
                events.push(event);
                continue;
            }
            self.in_inner -= 1;
            match self.delays.remove(&event.token) {
                Some(enters) => self.held.push(Held { event, enters }),
                None => events.push(event),
            }
        }
        self.answers = answers;
        entered
    }
}

fn len(raw: &Raw) -> u64 {
    match raw.shape() {
        Shape::Whole => 0,
        Shape::Bytes(len) | Shape::Stream(len) | Shape::Vector(len) => len,
    }
}

/// Whether the file is open for direct I/O; the queue does not always look.
fn is_direct(job: &Job) -> bool {
    match (job.file, job.raw.fd()) {
        (FileKind::Unknown, Some(fd)) => Traits::of(fd).direct,
        _ => job.direct,
    }
}

impl Backend for Faulty {
    unsafe fn carry(&mut self, job: &Job) -> Result<(), NoRoom> {
        if let Some(errno) = self.failure(&job.raw) {
            let delay = self.delay();
            self.hold(Event { token: job.token, answer: Answer::Result(-i64::from(errno)) }, delay);
            return Ok(());
        }
        let raw = self.cut(job);
        // SAFETY: the caller's promise for the whole of what `job.raw` points at covers a part of it.
        unsafe { self.inner.carry(&Job { raw, ..*job }) }?;
        self.in_inner += 1;
        match self.delay() {
            0 => {}
            enters => _ = self.delays.insert(job.token, enters),
        }
        Ok(())
    }

    fn enter(&mut self, want: usize, until: Option<Instant>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        let enough = before + want;
        if self.epoll.is_some() {
            self.eventfd.drain();
        }
        self.held.retain_mut(|held| {
            let due = held.enters == 0;
            if due {
                events.push(held.event);
            }
            held.enters = held.enters.saturating_sub(1);
            !due
        });
        let missing = enough.saturating_sub(events.len());
        let entered = if self.held.is_empty() {
            self.enter_inner(missing, until, events)
        } else if self.in_inner == 0 {
            self.enter_inner(0, None, events)
        } else {
            // What the inner backend has may be waiting for something that follows from what is held.
            let patience = Instant::now() + PATIENCE;
            self.enter_inner(missing, Some(until.map_or(patience, |until| until.min(patience))), events)
        };
        let missing = enough.saturating_sub(events.len()).min(self.held.len());
        events.extend(self.held.drain(..missing).map(|held| held.event));
        if self.orders.hits(self.plan.reorder) {
            let batch = &mut events[before..];
            for last in (1..batch.len()).rev() {
                batch.swap(last, self.orders.below(last as u64 + 1) as usize);
            }
        }
        self.tell();
        entered
    }

    /// What is held has been answered; its answer comes.
    fn cancel(&mut self, token: Token) {
        if self.held.iter().all(|held| held.event.token != token) {
            self.inner.cancel(token);
        }
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        if let Some(epoll) = &self.epoll {
            return Ok(epoll.as_raw_fd());
        }
        let epoll = Epoll::over([self.inner.poll_fd()?, self.eventfd.as_raw_fd()])?;
        let fd = self.epoll.insert(epoll).as_raw_fd();
        self.tell();
        Ok(fd)
    }

    fn wake(&mut self) {
        self.eventfd.signal();
    }

    fn echo(&self) -> Option<Arc<EventFd>> {
        self.inner.echo()
    }

    fn watch(&mut self, eventfd: RawFd, active: bool) {
        self.inner.watch(eventfd, active);
    }

    fn set_timer(&mut self, token: Token, at: Instant) {
        self.inner.set_timer(token, at);
    }

    fn can_carry(&self, job: &Job) -> bool {
        self.inner.can_carry(job)
    }

    /// None, whatever the inner backend has: a fault has to break a chain as its owner sees it, not as the kernel
    /// does.
    fn chain_room(&self) -> usize {
        0
    }

    fn keeps_deadlines(&self) -> bool {
        self.inner.keeps_deadlines()
    }

    unsafe fn register_buffers(&mut self, memory: &[libc::iovec]) -> Result<u16, i32> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.register_buffers(memory) }
    }

    fn register_file(&mut self, fd: RawFd) -> Result<u32, i32> {
        self.inner.register_file(fd)
    }

    fn unregister_file(&mut self, index: u32) {
        self.inner.unregister_file(index);
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
    use super::super::eventfd::wait_readable;
    use super::super::null::Null;
    use super::*;
    use crate::op::{Close, Fsync, Nop, Read, Write};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn job(number: u64, raw: impl Into<Raw>) -> Job {
        Job::new(Token(number), raw.into(), FileKind::Storage, false)
    }

    /// Nobody looks at the address, since [`Null`] carries it.
    fn read(len: usize) -> Read {
        Read { fd: -1, addr: std::ptr::null_mut(), len, offset: 0 }
    }

    fn faulty(plan: FaultPlan) -> Faulty {
        Faulty::new(Box::new(Null::new()), plan).unwrap()
    }

    fn carry(faulty: &mut Faulty, job: &Job) {
        // SAFETY: nothing is done to what the jobs of these tests point at.
        unsafe { faulty.carry(job) }.unwrap();
    }

    /// What becomes of these jobs, by waiting for one answer at a time.
    fn run(plan: FaultPlan, jobs: &[Job]) -> Vec<(u64, i64)> {
        let mut faulty = faulty(plan);
        jobs.iter().for_each(|job| carry(&mut faulty, job));
        let mut events = Vec::new();
        while events.len() < jobs.len() {
            let before = events.len();
            faulty.enter(1, None, &mut events).unwrap();
            assert!(events.len() > before, "nothing came, and nothing ever would");
        }
        events.iter().map(|event| (event.token.0, result(event))).collect()
    }

    fn result(event: &Event) -> i64 {
        match event.answer {
            Answer::Result(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// As `run`, by number.
    fn results(plan: FaultPlan, jobs: &[Job]) -> BTreeMap<u64, i64> {
        run(plan, jobs).into_iter().collect()
    }

    #[test]
    fn a_plan_by_itself_does_nothing() {
        let jobs: Vec<Job> = (0..100).map(|number| job(number, read(number as usize))).collect();
        let expected: Vec<(u64, i64)> = (0..100).map(|number| (number, number as i64)).collect();
        assert_eq!(run(FaultPlan::new(1), &jobs), expected);
    }

    #[test]
    fn rates_are_kept() {
        let jobs: Vec<Job> = (0..10_000).map(|number| job(number, read(100))).collect();
        let count = |plan, hit: fn(i64) -> bool| results(plan, &jobs).values().filter(|result| hit(**result)).count();
        let near = |count: usize| (1800..2200).contains(&count);
        assert!(near(count(FaultPlan::new(1).short(200), |result| (1..100).contains(&result))));
        assert!(near(count(FaultPlan::new(1).errors(200), |result| result == -i64::from(libc::EIO))));
        let retryable = [libc::EINTR, libc::EAGAIN, libc::ECANCELED].map(i64::from);
        assert_eq!(retryable, [4, 11, 125]);
        assert!(near(count(FaultPlan::new(1).retryable(200), |result| [-4, -11, -125].contains(&result))));
    }

    #[test]
    fn each_operation_fails_in_its_own_way() {
        let always = FaultPlan::new(3).errors(1000);
        let jobs: Vec<Job> = (0..50)
            .flat_map(|number| {
                let write = Write { fd: -1, addr: std::ptr::null(), len: 10, offset: 0 };
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
            of_all.iter().filter(move |(number, _)| **number % 4 == rest).map(|(_, result)| -*result as i32)
        };
        assert!(of(0).all(|errno| [libc::EIO, libc::ENOSPC].contains(&errno)));
        assert!(of(0).any(|errno| errno == libc::EIO) && of(0).any(|errno| errno == libc::ENOSPC));
        assert!(of(1).all(|errno| errno == libc::EIO));
        assert!(of(2).all(|errno| errno == 0));
        assert!(of(3).all(|errno| errno == libc::EBADF), "carried out");
        assert_eq!(results(always.retryable(1000), &jobs[3..4])[&3], -i64::from(libc::EBADF));
    }

    #[test]
    fn cuts_leave_something_and_keep_to_blocks() {
        let always = FaultPlan::new(5).short(1000);
        let jobs: Vec<Job> = (0..200).map(|number| job(number, read(number as usize % 7))).collect();
        for (number, result) in results(always.clone(), &jobs) {
            let len = number as i64 % 7;
            assert!(result < len.max(2) && result >= len.min(1), "{result} of {len}");
        }
        let lens = [0, 512, 4096, 4608, 16384, 20000];
        let direct = |number: u64| Job { direct: true, ..job(number, read(lens[number as usize % 6])) };
        let jobs: Vec<Job> = (0..200).map(direct).collect();
        for (number, result) in results(always.clone(), &jobs) {
            let len = lens[number as usize % 6] as i64;
            assert!(result == len.min(4096) || (result < len && result > 0 && result % 4096 == 0), "{result} of {len}");
        }
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 10 }; 3];
        iov[0].iov_len = 0;
        let iov = &iov;
        let vectors =
            |count| (0..50).map(move |number| job(number, Readv { fd: -1, iov: iov.as_ptr(), count, offset: 0 }));
        let of_three: Vec<i64> = results(always.clone(), &vectors(3).collect::<Vec<_>>()).into_values().collect();
        assert!(of_three.contains(&10) && of_three.contains(&20) && of_three.len() == 50);
        assert!(!of_three.contains(&0));
        assert!(results(always, &vectors(1).collect::<Vec<_>>()).values().all(|result| *result == 0));
    }

    #[test]
    fn late_answers_come_after_so_many_enters_or_when_they_are_waited_for() {
        let mut faulty = faulty(FaultPlan::new(0).delay(1000, 1));
        let mut events = Vec::new();
        let fd = faulty.poll_fd().unwrap();
        let readable = || wait_readable([fd], Some(Instant::now())).unwrap() == [true];
        assert!(!readable());
        carry(&mut faulty, &job(0, Nop));
        for _ in 0..2 {
            assert!(readable());
            faulty.enter(0, None, &mut events).unwrap();
            assert_eq!(events, []);
        }
        assert!(readable());
        faulty.cancel(Token(0));
        faulty.enter(0, None, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        faulty.enter(0, None, &mut events).unwrap();
        assert!(!readable());
        carry(&mut faulty, &job(1, Nop));
        carry(&mut faulty, &job(2, Nop));
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
        (0..100).for_each(|number| carry(&mut faulty, &job(number, Nop)));
        let mut events = vec![Event { token: Token(1000), answer: Answer::Expired }];
        faulty.enter(100, None, &mut events).unwrap();
        let mut numbers: Vec<u64> = events.iter().map(|event| event.token.0).collect();
        assert_eq!(numbers[0], 1000, "what was there before stays in its place");
        assert!(!numbers[1..].is_sorted());
        numbers.sort();
        assert_eq!(numbers[..100], Vec::from_iter(0..100));
    }

    #[test]
    fn a_plan_is_read_from_text() {
        let plan = "seed=7 short=500,errors=10 retryable=200 delay=300/4 reorder=900".parse();
        assert_eq!(plan, Ok(FaultPlan::new(7).short(500).errors(10).retryable(200).delay(300, 4).reorder(900)));
        assert_eq!("".parse(), Ok(FaultPlan::default()));
        for text in ["short", "short=", "short=x", "short=65536", "delay=3", "delay=3/x", "shorts=1", "seed=-1"] {
            assert!(text.parse::<FaultPlan>().is_err(), "{text}");
        }
    }

    fn plans() -> impl Strategy<Value = FaultPlan> {
        let rate = || prop_oneof![Just(0u16), Just(1000), 0u16..1000];
        (any::<u64>(), rate(), rate(), rate(), rate(), 0u32..10, rate()).prop_map(
            |(seed, short, errors, retryable, delay, longest, reorder)| {
                FaultPlan::new(seed)
                    .short(short)
                    .errors(errors)
                    .retryable(retryable)
                    .delay(delay, longest)
                    .reorder(reorder)
            },
        )
    }

    proptest! {
        /// Under any plan and any pace each job is answered exactly once, and twice the same is the same twice.
        #[test]
        fn every_job_is_answered_once(
            plan in plans(),
            steps in proptest::collection::vec((0usize..20, 0usize..8), 0..30),
        ) {
            let play = || {
                let mut faulty = faulty(plan.clone());
                let mut events = Vec::new();
                let mut carried = 0;
                for (jobs, want) in &steps {
                    for _ in 0..*jobs {
                        carry(&mut faulty, &job(carried, read(carried as usize)));
                        carried += 1;
                    }
                    let before = events.len();
                    faulty.enter(*want, None, &mut events).unwrap();
                    assert!(events.len() - before >= (*want).min(carried as usize - before));
                }
                faulty.enter(carried as usize, None, &mut events).unwrap();
                let mut numbers: Vec<u64> = events.iter().map(|event| event.token.0).collect();
                numbers.sort();
                assert_eq!(numbers, Vec::from_iter(0..carried));
                assert!(faulty.in_inner == 0 && faulty.held.is_empty() && faulty.delays.is_empty());
                events
            };
            prop_assert_eq!(play(), play());
        }
    }
}
