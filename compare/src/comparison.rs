//! The parent process: measures row by row, and in each row round by round, with the contestants in
//! turn.

use crate::child;
use crate::contestants::{self, Contestant};
use crate::figures::{Figures, Metric};
use crate::job::{Assignment, Job};
use crate::options::Options;
use crate::report;
use crate::suite;
use crate::workload::{Operation, Workload};
use anyhow::Context;
use ringway_core::refusal::bytes_text;
use ringway_measure::scratch;
use ringway_measure::stats::Spread;
use serde::Serialize;
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

/// The file that is written: small, since durable writes are slow.
const WRITE_SIZE: u64 = 256 << 20;
const NULL_SIZE: u64 = 1 << 20;
/// The least measured time for each reader, and for each KiB that a reader reads, so that most
/// readers complete operations.
const TIME_FOR_READER: Duration = Duration::from_micros(20);
const TIME_FOR_KIB: Duration = Duration::from_nanos(500);
/// The least measured time where there is only one read every 20 ms.
const TIME_FOR_FEW_READS: Duration = Duration::from_secs(1);
/// Turns longer than this have fewer rounds.
const LONG_TURN: Duration = Duration::from_secs(1);
const LONG_TURN_ROUNDS: u32 = 3;
/// The seed of the scratch files' content.
const SEED: u64 = 1;

/// The results of one row.
#[derive(Debug, Serialize)]
pub struct Row {
    pub workload: Workload,
    pub entries: Vec<Entry>,
    /// Contestants that did not take part, with the reason.
    pub left_out: Vec<(&'static str, String)>,
}

/// The results of one contestant in a row.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub contestant: &'static str,
    pub turns: Vec<Figures>,
}

impl Row {
    pub fn entry(&self, contestant: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.contestant == contestant)
    }

    /// The ratios of two contestants' turns in each round. If the disk's speed changes, it changes
    /// for both turns of a round.
    pub fn ratio(&self, of: &str, to: &str, metric: Metric) -> Option<Spread> {
        self.compared(of, to, metric, |of, to| of / to)
    }

    /// The differences between two contestants' turns in each round.
    pub fn difference(&self, of: &str, to: &str, metric: Metric) -> Option<Spread> {
        self.compared(of, to, metric, |of, to| of - to)
    }

    fn compared(
        &self,
        of: &str,
        to: &str,
        metric: Metric,
        how: fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        let (of, to) = (self.entry(of)?, self.entry(to)?);
        let rounds = of.turns.iter().zip(&to.turns);
        let compared = rounds.map(|(of, to)| Some(how(metric.of(of)?, metric.of(to)?)));
        Spread::of(compared.collect::<Option<Vec<f64>>>()?)
    }
}

impl Entry {
    /// The metric over all turns; `None` if a turn did not measure it.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(self.turns.iter().map(|turn| metric.of(turn)).collect::<Option<Vec<f64>>>()?)
    }
}

/// Measures and reports.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let contestants = selected_contestants(&options.contestants)?;
    let (rows, too_large) = suite::selected(options)?;
    let mut runner = Runner::new(options, &rows)?;
    report::opening(options);
    let mut results = Vec::new();
    for workload in rows {
        let row = runner.row(workload, &contestants)?;
        report::row(&row, options);
        results.push(row);
    }
    report::closing(&results, &too_large, options)
}

/// Runs a number of operations of one row with one contestant, in this process.
pub fn count(
    options: &Options,
    contestant: &str,
    row: &str,
    operations: u64,
) -> anyhow::Result<()> {
    let contestant = contestants::by_name(contestant)?;
    let workload = suite::row(row)?;
    let runner = Runner::new(options, &[workload])?;
    let scratch = runner.scratch(workload)?;
    scratch.prepare(workload.is_cached())?;
    let assignment = Assignment {
        operations: Some(operations),
        ..runner.assignment(contestant, workload, scratch)
    };
    let figures = contestant.run(Job::new(assignment))?;
    println!("{} operations, {:?}", figures.operations, figures.usage);
    // Exits even if operations are in flight.
    process::exit(0);
}

fn selected_contestants(names: &[String]) -> anyhow::Result<Vec<&'static dyn Contestant>> {
    if names.is_empty() {
        return Ok(contestants::ALL.to_vec());
    }
    names.iter().map(|name| contestants::by_name(name)).collect()
}

/// What a scratch file is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    Read,
    Write,
    /// Opened, but never read.
    Null,
    Sum,
}

impl Purpose {
    fn of(workload: Workload) -> Self {
        match workload.operation {
            Operation::Read
            | Operation::Ranges
            | Operation::Cold
            | Operation::Busy
            | Operation::BlockOn
            | Operation::Submitted => Self::Read,
            Operation::Write | Operation::Puts => Self::Write,
            Operation::Null { .. } | Operation::Polls => Self::Null,
            Operation::Sum | Operation::Timer | Operation::Small => Self::Sum,
        }
    }

    fn size(self, options: &Options) -> u64 {
        match self {
            Self::Read => options.size,
            Self::Write => WRITE_SIZE,
            Self::Null => NULL_SIZE,
            Self::Sum => options.sum_size,
        }
    }
}

struct Scratch {
    purpose: Purpose,
    file: File,
    size: u64,
}

impl Scratch {
    fn new(purpose: Purpose, options: &Options) -> anyhow::Result<Self> {
        let size = purpose.size(options);
        eprintln!("writing a scratch file of {}", bytes_text(size));
        let file = scratch::create(&options.scratch, size, SEED, &mut |_| ())?;
        Ok(Self { purpose, file, size })
    }

    /// Loads the whole file into the page cache, or drops it from there.
    fn prepare(&self, cached: bool) -> anyhow::Result<()> {
        scratch::drop_page_cache(&self.file)?;
        if cached {
            scratch::load_page_cache(&self.file, self.size)?;
        }
        Ok(())
    }
}

/// Runs the rows: the options, and one scratch file for each purpose.
struct Runner<'a> {
    options: &'a Options,
    program: PathBuf,
    scratch: Vec<Scratch>,
}

impl<'a> Runner<'a> {
    fn new(options: &'a Options, rows: &[Workload]) -> anyhow::Result<Self> {
        let is_used = |purpose| rows.iter().any(|row| Purpose::of(*row) == purpose);
        let purposes = [Purpose::Read, Purpose::Write, Purpose::Null, Purpose::Sum];
        let used = purposes.into_iter().filter(|purpose| is_used(*purpose));
        let scratch = used.map(|purpose| Scratch::new(purpose, options)).collect::<Result<_, _>>();
        Ok(Self { options, program: env::current_exe()?, scratch: scratch? })
    }

    fn row(
        &mut self,
        workload: Workload,
        contestants: &[&'static dyn Contestant],
    ) -> anyhow::Result<Row> {
        eprintln!("{workload}");
        let mut left_out = Vec::new();
        let mut running = Vec::new();
        for contestant in contestants
            .iter()
            .filter(|contestant| contestants::concerns(&workload, contestant.name()))
        {
            match self.leaves_out(*contestant, &workload) {
                Some(why) => left_out.push((contestant.name(), why)),
                None => running.push((*contestant, Vec::new())),
            }
        }
        let scratch = self.scratch(workload)?;
        scratch.prepare(workload.is_cached())?;
        let rounds = self.rounds(workload);
        for round in 1..=rounds {
            eprint!("  round {round} of {rounds}:");
            running.retain_mut(|(contestant, turns)| {
                eprint!(" {}", contestant.name());
                let assignment = self.assignment(*contestant, workload, scratch);
                match child::measure(self.program(*contestant), &assignment) {
                    Ok(figures) => turns.push(figures),
                    Err(error) => left_out.push((contestant.name(), format!("failed: {error:#}"))),
                }
                turns.len() == round as usize
            });
            eprintln!();
        }
        let entry = |(contestant, turns): (&'static dyn Contestant, _)| Entry {
            contestant: contestant.name(),
            turns,
        };
        Ok(Row { workload, entries: running.into_iter().map(entry).collect(), left_out })
    }

    fn leaves_out(&self, contestant: &dyn Contestant, workload: &Workload) -> Option<String> {
        if contestant.needs_tokio_io_uring() && self.options.tokio_io_uring.is_none() {
            return Some("needs a second build of this program (--tokio-io-uring)".into());
        }
        contestant.leaves_out(workload)
    }

    fn scratch(&self, workload: Workload) -> anyhow::Result<&Scratch> {
        let purpose = Purpose::of(workload);
        let scratch = self.scratch.iter().find(|scratch| scratch.purpose == purpose);
        scratch.context("the row has no scratch file")
    }

    fn program(&self, contestant: &dyn Contestant) -> &Path {
        match &self.options.tokio_io_uring {
            Some(program) if contestant.needs_tokio_io_uring() => program,
            _ => &self.program,
        }
    }

    fn time(&self, workload: Workload) -> Duration {
        let each = TIME_FOR_READER + TIME_FOR_KIB * (workload.block >> 10) as u32;
        let least = match workload.operation {
            Operation::Submitted => TIME_FOR_FEW_READS,
            _ => each * workload.readers as u32,
        };
        self.options.time.max(least)
    }

    fn rounds(&self, workload: Workload) -> u32 {
        let is_long = self.time(workload) > self.options.time.max(LONG_TURN);
        self.options.rounds.min(if is_long { LONG_TURN_ROUNDS } else { u32::MAX })
    }

    fn assignment(
        &self,
        contestant: &dyn Contestant,
        workload: Workload,
        scratch: &Scratch,
    ) -> Assignment {
        Assignment {
            contestant: contestant.name().into(),
            workload,
            file: scratch::path(&scratch.file),
            size: scratch.size,
            warm_up: self.options.warm_up.max(self.time(workload) / 3),
            time: self.time(workload),
            operations: None,
        }
    }
}
