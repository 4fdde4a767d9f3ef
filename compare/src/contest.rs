//! The parent: row after row, round after round, one contestant after the other.

use crate::child;
use crate::contestants::{self, Contestant};
use crate::figures::{Figures, Median, Metric};
use crate::job::{Assignment, Job};
use crate::options::Options;
use crate::report;
use crate::scratch::Scratch;
use crate::shape::{Shape, Work, size};
use crate::suite;
use anyhow::Context;
use serde::Serialize;
use std::env;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

/// What is written to; small, for no more of it is written than the disk takes.
const WRITE_SIZE: u64 = 256 << 20;
const NULL_SIZE: u64 = 1 << 20;
/// What is measured at least for each reader, and for each KiB that it reads, so that most have
/// their turn.
const A_READER: Duration = Duration::from_micros(20);
const A_KIB: Duration = Duration::from_nanos(500);
/// What is measured where there is a read every 20 ms only.
const FEW_READS: Duration = Duration::from_secs(1);
/// Where that makes turns long, there are fewer of them.
const LONG: Duration = Duration::from_secs(1);
const LONG_ROUNDS: u32 = 3;

/// What came of one row.
#[derive(Debug, Serialize)]
pub struct Row {
    pub shape: Shape,
    pub entries: Vec<Entry>,
    /// Who took no part in it, and why.
    pub left_out: Vec<(&'static str, String)>,
}

/// What came of one contestant in a row.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub contestant: &'static str,
    pub turns: Vec<Figures>,
}

impl Row {
    pub fn entry(&self, contestant: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.contestant == contestant)
    }

    /// The median of the ratios of two contestants' turns that followed each other, so that a disk
    /// that changes its pace changes it for both.
    pub fn ratio(&self, of: &str, to: &str, metric: Metric) -> Option<Median> {
        self.compared(of, to, metric, |of, to| of / to)
    }

    /// The median of their differences.
    pub fn difference(&self, of: &str, to: &str, metric: Metric) -> Option<Median> {
        self.compared(of, to, metric, |of, to| of - to)
    }

    fn compared(
        &self,
        of: &str,
        to: &str,
        metric: Metric,
        how: fn(f64, f64) -> f64,
    ) -> Option<Median> {
        let (of, to) = (self.entry(of)?, self.entry(to)?);
        let compared = of
            .turns
            .iter()
            .zip(&to.turns)
            .map(|(of, to)| Some(how(metric.of(of)?, metric.of(to)?)));
        Median::of(compared.collect::<Option<Vec<f64>>>()?)
    }
}

impl Entry {
    pub fn median(&self, metric: Metric) -> Option<Median> {
        Median::of(self.turns.iter().map(|turn| metric.of(turn)).collect::<Option<Vec<f64>>>()?)
    }
}

/// Measures and reports.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let wanted = contestants(&options.contestants)?;
    let (shapes, too_large) = suite::chosen(options)?;
    let mut arena = Arena::new(options, &shapes)?;
    report::opening(options);
    let mut rows = Vec::new();
    for shape in shapes {
        let row = arena.row(shape, &wanted)?;
        report::row(&row, options);
        rows.push(row);
    }
    report::closing(&rows, &too_large, options)
}

/// Does so many operations of one row with one contestant, in this process.
pub fn count(
    options: &Options,
    contestant: &str,
    row: &str,
    operations: u64,
) -> anyhow::Result<()> {
    let contestant = contestants::by_name(contestant)
        .with_context(|| format!("there is no contestant {contestant}"))?;
    let shape = suite::row(row)?;
    let mut arena = Arena::new(options, &[shape])?;
    let scratch = arena.scratch(shape.work)?;
    scratch.prepare(shape.is_cached())?;
    let (file, size) = (scratch.path(), scratch.size());
    let assignment = Assignment {
        operations: Some(operations),
        ..arena.assignment(contestant, shape, &file, size)
    };
    let figures = contestant.run(Job::new(assignment))?;
    println!("{} operations, {:?}", figures.operations, figures.usage);
    // What is still in flight goes with the process.
    process::exit(0);
}

fn contestants(names: &[String]) -> anyhow::Result<Vec<&'static dyn Contestant>> {
    if names.is_empty() {
        return Ok(contestants::ALL.to_vec());
    }
    let find = |name: &String| {
        contestants::by_name(name).with_context(|| format!("there is no contestant {name}"))
    };
    names.iter().map(find).collect()
}

/// What a scratch file is for.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Use {
    Read,
    Write,
    /// Opened, and never read.
    Null,
    Sum,
}

impl Use {
    fn of(work: Work) -> Self {
        match work {
            Work::Read
            | Work::Ranges
            | Work::Cold
            | Work::Busy
            | Work::BlockOn
            | Work::Submitted => Self::Read,
            Work::Write | Work::Puts => Self::Write,
            Work::Null { .. } | Work::Polls => Self::Null,
            Work::Sum | Work::Timer | Work::Small => Self::Sum,
        }
    }
}

/// What the rows have in common.
struct Arena<'a> {
    options: &'a Options,
    program: PathBuf,
    read: Option<Scratch>,
    write: Option<Scratch>,
    null: Option<Scratch>,
    sum: Option<Scratch>,
}

impl<'a> Arena<'a> {
    fn new(options: &'a Options, shapes: &[Shape]) -> anyhow::Result<Self> {
        let wanted = |what: Use, bytes| {
            let any = shapes.iter().any(|shape| Use::of(shape.work) == what);
            any.then(|| {
                eprintln!("a scratch file of {}", size(bytes));
                Scratch::new(&options.scratch, bytes)
            })
            .transpose()
        };
        Ok(Self {
            options,
            program: env::current_exe()?,
            read: wanted(Use::Read, options.size)?,
            write: wanted(Use::Write, WRITE_SIZE)?,
            null: wanted(Use::Null, NULL_SIZE)?,
            sum: wanted(Use::Sum, options.sum_size)?,
        })
    }

    fn row(&mut self, shape: Shape, wanted: &[&'static dyn Contestant]) -> anyhow::Result<Row> {
        eprintln!("{shape}");
        let mut left_out = Vec::new();
        let mut part = Vec::new();
        for contestant in
            wanted.iter().filter(|contestant| contestants::concerns(&shape, contestant.name()))
        {
            match self.leaves_out(*contestant, &shape) {
                Some(why) => left_out.push((contestant.name(), why)),
                None => part.push((*contestant, Vec::new())),
            }
        }
        let scratch = self.scratch(shape.work)?;
        scratch.prepare(shape.is_cached())?;
        let (file, size) = (scratch.path(), scratch.size());
        let rounds = self.rounds(shape);
        for round in 1..=rounds {
            eprint!("  round {round} of {rounds}:");
            part.retain_mut(|(contestant, turns)| {
                eprint!(" {}", contestant.name());
                match child::measure(
                    self.program(*contestant),
                    &self.assignment(*contestant, shape, &file, size),
                ) {
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
        Ok(Row { shape, entries: part.into_iter().map(entry).collect(), left_out })
    }

    fn leaves_out(&self, contestant: &dyn Contestant, shape: &Shape) -> Option<String> {
        if contestant.needs_tokio_io_uring() && self.options.tokio_io_uring.is_none() {
            return Some("wants a second build of this program (--tokio-io-uring)".into());
        }
        contestant.leaves_out(shape)
    }

    fn scratch(&mut self, work: Work) -> anyhow::Result<&mut Scratch> {
        let scratch = match Use::of(work) {
            Use::Read => &mut self.read,
            Use::Write => &mut self.write,
            Use::Null => &mut self.null,
            Use::Sum => &mut self.sum,
        };
        let scratch = scratch.as_mut().context("the row's scratch file")?;
        Ok(scratch)
    }

    fn program(&self, contestant: &dyn Contestant) -> &Path {
        match &self.options.tokio_io_uring {
            Some(program) if contestant.needs_tokio_io_uring() => program,
            _ => &self.program,
        }
    }

    fn time(&self, shape: Shape) -> Duration {
        let each = A_READER + A_KIB * (shape.block >> 10) as u32;
        let least =
            if shape.work == Work::Submitted { FEW_READS } else { each * shape.readers as u32 };
        self.options.time.max(least)
    }

    fn rounds(&self, shape: Shape) -> u32 {
        let most =
            if self.time(shape) > self.options.time.max(LONG) { LONG_ROUNDS } else { u32::MAX };
        self.options.rounds.min(most)
    }

    fn assignment(
        &self,
        contestant: &dyn Contestant,
        shape: Shape,
        file: &Path,
        size: u64,
    ) -> Assignment {
        Assignment {
            contestant: contestant.name().into(),
            shape,
            file: file.into(),
            size,
            warm_up: self.options.warm_up.max(self.time(shape) / 3),
            time: self.time(shape),
            operations: None,
        }
    }
}
