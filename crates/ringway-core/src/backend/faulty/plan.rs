//! The plan of faults: rates, single steps, and their text form. Pure data: injecting them is left
//! to the faulty backend.

use super::super::Job;
use crate::op::{Fsync, Opcode, Raw};
use crate::refusal::errno_from_name;
use crate::slots::Key;
use std::collections::HashMap;
use std::str::FromStr;

/// Which faults to inject, and how often. Rates are per thousand; a new plan injects none.
///
/// The same plan injects the same faults into the same sequence of operations. Operations on the
/// fallback pool are not affected. So that these are the same everywhere, a ring with faults also
/// makes the transfers that a memory cgroup of version 1 with a limit leaves to threads: do not
/// fill the memory of such a cgroup.
///
/// ```
/// # use ringway_core::{op, FaultPlan, FaultStep, File, Late, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = FaultPlan::new(7).short(500).retryable(200).delay(300, 4).reorder(500);
/// let mut queue = Options::new().faults(plan).build()?;
/// let file = File::open("/etc/passwd")?;
/// queue.push(op::read(&file, vec![0; 64], 0).exact())?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(64));
///
/// // The second operation comes after all others, and fails.
/// let second = FaultStep::Job(1);
/// let plan = FaultPlan::new(0).late(second, Late::Last).fail(second, libc::EIO);
/// # assert_eq!("late=1/last fail=1/EIO".parse(), Ok(plan));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    pub(super) seed: u64,
    pub(super) short: u16,
    pub(super) errors: u16,
    pub(super) syncs: u16,
    pub(super) retryable: u16,
    pub(super) missed_cancels: u16,
    pub(super) late_cancels: u16,
    pub(super) delay: u16,
    pub(super) longest_delay: u32,
    pub(super) starve: u16,
    pub(super) reorder: u16,
    pub(super) enters: Option<u32>,
    /// Faults of single jobs.
    steps: Vec<(FaultStep, Fault)>,
}

/// One of the jobs that the backend is given. An operation has one job, or several: one for each
/// piece of a long transfer, for each retry, and for the rest of a short transfer. Numbers count
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultStep {
    /// The job with this number.
    Job(u64),
    /// A job of one operation. Operations are numbered in the order of their first jobs.
    Piece {
        /// The operation's number.
        operation: u64,
        /// The job's number among the jobs of the operation.
        job: u64,
    },
    /// The job with this number among those with this opcode; `Opcode::Fsync` covers `fsync` and
    /// `fdatasync`.
    Opcode(Opcode, u64),
    /// The job with this number among those of `fdatasync`.
    Fdatasync(u64),
}

/// How long an event is delayed. Cancelling its operation ends each delay, unless the plan has
/// [`late_cancels`](FaultPlan::late_cancels); so does closing the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Late {
    /// While the backend is entered this many times, or until the caller would wait for nothing
    /// else.
    Enters(u32),
    /// Until everything else that the backend was given is done; if that never happens, until
    /// nothing has happened for 50 ms.
    Last,
    /// Forever.
    Forever,
}

/// The faults of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fault {
    /// The errno of its result; 0: a transfer of zero bytes.
    pub errno: Option<i32>,
    pub cut: bool,
    pub late: Option<Late>,
}

impl FaultPlan {
    /// A plan without faults; the seed determines random ones.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Shortens transfers: to at least one byte, direct ones to whole blocks of 4 KiB, vectored
    /// ones to whole buffers.
    pub fn short(self, per_thousand: u16) -> Self {
        Self { short: per_thousand, ..self }
    }

    /// Makes operations on files and paths fail with EIO, or with ENOSPC if they allocate space,
    /// without being done.
    pub fn errors(self, per_thousand: u16) -> Self {
        Self { errors: per_thousand, ..self }
    }

    /// Makes syncs fail with EIO or ENOSPC, without being done.
    pub fn sync_errors(self, per_thousand: u16) -> Self {
        Self { syncs: per_thousand, ..self }
    }

    /// Makes operations fail with EINTR, EAGAIN or an unrequested ECANCELED, without being done. At
    /// 1000 or more no operation is ever done.
    pub fn retryable(self, per_thousand: u16) -> Self {
        Self { retryable: per_thousand, ..self }
    }

    /// Makes cancels miss operations, as they may on Linux before 5.18. They are repeated, after 50
    /// of them with pauses that grow to 128 ms; at 1000 or more, all miss.
    pub fn missed_cancels(self, per_thousand: u16) -> Self {
        Self { missed_cancels: per_thousand, ..self }
    }

    /// Makes cancels leave an event as late as it is: an operation that has begun may neither be
    /// stopped by a cancel nor become faster. What was delayed forever starves then.
    pub fn late_cancels(self, per_thousand: u16) -> Self {
        Self { late_cancels: per_thousand, ..self }
    }

    /// Delays events while the backend is entered up to `longest` times, as [`Late::Enters`].
    pub fn delay(self, per_thousand: u16, longest: u32) -> Self {
        Self { delay: per_thousand, longest_delay: longest, ..self }
    }

    /// Makes events starve, as [`Late::Last`].
    pub fn starve(self, per_thousand: u16) -> Self {
        Self { starve: per_thousand, ..self }
    }

    /// Shuffles events that come together.
    pub fn reorder(self, per_thousand: u16) -> Self {
        Self { reorder: per_thousand, ..self }
    }

    /// Makes the backend fail: after it was entered this many times, it fails with EBADF, as a ring
    /// does whose descriptor was closed.
    pub fn enters(self, number: u32) -> Self {
        Self { enters: Some(number), ..self }
    }

    /// Makes this job fail with `errno` without being done; 0 is a transfer of zero bytes. (A close
    /// is done, unless the errno is ECANCELED.)
    pub fn fail(self, step: FaultStep, errno: i32) -> Self {
        self.at(step, |fault| fault.errno = Some(errno))
    }

    /// Shortens this job, if it is a transfer that can be shortened.
    pub fn cut(self, step: FaultStep) -> Self {
        self.at(step, |fault| fault.cut = true)
    }

    /// Delays the event of this job, whatever its result.
    pub fn late(self, step: FaultStep, late: Late) -> Self {
        self.at(step, |fault| fault.late = Some(late))
    }

    fn at(mut self, step: FaultStep, change: impl FnOnce(&mut Fault)) -> Self {
        match self.steps.iter_mut().find(|(known, _)| *known == step) {
            Some((_, fault)) => change(fault),
            None => {
                let mut fault = Fault::default();
                change(&mut fault);
                self.steps.push((step, fault));
            }
        }
        self
    }
}

/// Counts jobs, for faults of single steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    jobs: u64,
    opcodes: HashMap<Opcode, u64>,
    fdatasyncs: u64,
    /// The number of each operation, and of its jobs so far.
    operations: HashMap<Key, (u64, u64)>,
}

fn is_fdatasync(raw: &Raw) -> bool {
    matches!(raw, Raw::Fsync(Fsync { data_only: true, .. }))
}

impl Steps {
    /// The faults of the next job.
    pub fn fault(&self, plan: &FaultPlan, job: &Job) -> Fault {
        let is_next = |step: &FaultStep| match *step {
            FaultStep::Job(number) => number == self.jobs,
            FaultStep::Piece { operation, job: number } => {
                let known = job.token.key().and_then(|key| self.operations.get(&key)).copied();
                known.unwrap_or((self.operations.len() as u64, 0)) == (operation, number)
            }
            FaultStep::Opcode(kind, number) => {
                job.raw.opcode() == kind && number == self.opcodes.get(&kind).copied().unwrap_or(0)
            }
            FaultStep::Fdatasync(number) => is_fdatasync(&job.raw) && number == self.fdatasyncs,
        };
        let mut all = Fault::default();
        for (_, fault) in plan.steps.iter().filter(|(step, _)| is_next(step)) {
            all.errno = all.errno.or(fault.errno);
            all.cut |= fault.cut;
            all.late = all.late.or(fault.late);
        }
        all
    }

    /// Counts a job.
    pub fn taken(&mut self, plan: &FaultPlan, job: &Job) {
        if plan.steps.is_empty() {
            return;
        }
        self.jobs += 1;
        *self.opcodes.entry(job.raw.opcode()).or_default() += 1;
        self.fdatasyncs += u64::from(is_fdatasync(&job.raw));
        if let Some(key) = job.token.key() {
            let next = self.operations.len() as u64;
            self.operations.entry(key).or_insert((next, 0)).1 += 1;
        }
    }
}

impl FromStr for FaultStep {
    type Err = String;

    /// Parses a job's number, `OPERATION.JOB`, or `OPCODE.NUMBER` with an opcode's name or
    /// `fdatasync`: `3`, `0.2`, `write.0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>();
        let invalid = || {
            format!(
                "`{text}` is not a step; write JOB, OPERATION.JOB or \
        OPCODE.NUMBER"
            )
        };
        let Some((first, last)) = text.split_once('.') else {
            return number(text).map(Self::Job).map_err(|_| invalid());
        };
        let last = number(last).map_err(|_| invalid())?;
        match (first, Opcode::from_name(first), number(first)) {
            ("fdatasync", ..) => Ok(Self::Fdatasync(last)),
            (_, Some(kind), _) => Ok(Self::Opcode(kind, last)),
            (_, _, Ok(operation)) => Ok(Self::Piece { operation, job: last }),
            _ => Err(invalid()),
        }
    }
}

impl FromStr for Late {
    type Err = String;

    /// Parses a number of enters, `last` or `forever`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            "forever" => Ok(Self::Forever),
            _ => text
                .parse()
                .map(Self::Enters)
                .map_err(|_| format!("`{text}` is not a number of enters, last or forever")),
        }
    }
}

impl FromStr for FaultPlan {
    type Err = String;

    /// Parses names with values, in any order, separated by spaces or commas:
    /// `seed=7 short=500 errors=10 sync_errors=5 retryable=200 delay=300/4 starve=20 reorder=500`,
    /// `missed_cancels=100`, `late_cancels=100`, `enters=100`,
    /// and for single steps `fail=STEP/ERRNO`, `cut=STEP` and `late=STEP/HOW`, such as
    /// `fail=fdatasync.0/EIO late=0.2/last`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                format!(
                    "`{word}` is not a fault; write \
                name=value"
                )
            })?;
            let invalid = |_| format!("`{value}` is not a number, for the fault {name}");
            let rate = || value.parse::<u16>().map_err(invalid);
            let pair = |example: &str| {
                value
                    .split_once('/')
                    .ok_or_else(|| format!("`{value}`: write the fault as {name}={example}"))
            };
            plan = match name {
                "seed" => Self { seed: value.parse().map_err(invalid)?, ..plan },
                "short" => plan.short(rate()?),
                "errors" => plan.errors(rate()?),
                "sync_errors" => plan.sync_errors(rate()?),
                "retryable" => plan.retryable(rate()?),
                "missed_cancels" => plan.missed_cancels(rate()?),
                "late_cancels" => plan.late_cancels(rate()?),
                "starve" => plan.starve(rate()?),
                "reorder" => plan.reorder(rate()?),
                "enters" => plan.enters(value.parse().map_err(invalid)?),
                "delay" => {
                    let (rate, longest) = pair("300/4")?;
                    plan.delay(rate.parse().map_err(invalid)?, longest.parse().map_err(invalid)?)
                }
                "fail" => {
                    let (step, errno) = pair("3/EIO")?;
                    let known = errno
                        .parse()
                        .ok()
                        .filter(|errno| *errno >= 0)
                        .or_else(|| errno_from_name(errno));
                    plan.fail(
                        step.parse()?,
                        known.ok_or_else(|| {
                            format!(
                                "`{errno}` is not an \
                    error"
                            )
                        })?,
                    )
                }
                "cut" => plan.cut(value.parse()?),
                "late" => {
                    let (step, late) = pair("3/last")?;
                    plan.late(step.parse()?, late.parse()?)
                }
                _ => {
                    return Err(format!(
                        "`{name}` is not a fault; use seed, short, errors, sync_errors, \
                        retryable, missed_cancels, late_cancels, delay, starve, reorder, enters, \
                        fail, cut or late"
                    ));
                }
            };
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::libc;

    #[test]
    fn a_plan_is_parsed_from_text() {
        let plan = "seed=7 short=500,errors=10 retryable=200 delay=300/4 reorder=900".parse();
        assert_eq!(
            plan,
            Ok(FaultPlan::new(7).short(500).errors(10).retryable(200).delay(300, 4).reorder(900))
        );
        let plan = format!(
            "sync_errors=5 late_cancels=3 starve=20 enters=9 fail=3/EIO fail=fdatasync.0/{} \
             cut=write.2 late=0.1/last late=9/forever,late=3/7",
            libc::ENOSPC
        );
        let expected = FaultPlan::new(0)
            .sync_errors(5)
            .late_cancels(3)
            .starve(20)
            .enters(9)
            .fail(FaultStep::Job(3), libc::EIO)
            .fail(FaultStep::Fdatasync(0), libc::ENOSPC)
            .cut(FaultStep::Opcode(Opcode::Write, 2))
            .late(FaultStep::Piece { operation: 0, job: 1 }, Late::Last)
            .late(FaultStep::Job(9), Late::Forever)
            .late(FaultStep::Job(3), Late::Enters(7));
        assert_eq!(plan.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(FaultPlan::default()));
        for text in [
            "short",
            "short=",
            "short=x",
            "short=65536",
            "delay=3",
            "delay=3/x",
            "shorts=1",
            "seed=-1",
            "fail=3",
            "fail=3/EWHAT",
            "fail=3/-5",
            "fail=x/EIO",
            "fail=mystery.1/EIO",
            "fail=write./EIO",
            "cut=",
            "late=1",
            "late=1/first",
            "starve=x",
        ] {
            assert!(text.parse::<FaultPlan>().is_err(), "{text}");
        }
    }
}
