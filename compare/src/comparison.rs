//! The parent process: measures row by row, and in each row round by round, with the contestants in
//! turn. It returns rows; what is printed of them is for the report.

use crate::contestants::{self, Contestant};
use crate::job::{Assignment, Job};
use crate::options::{Options, Ranges, Stalls};
use crate::scan::{self, Scan};
use crate::suite;
use crate::workload::{Operation, Workload};
use crate::{child, disturbance};
use anyhow::{Context, ensure};
use ringway_core::refusal::bytes_text;
use ringway_measure::rounds::{Row, Turn};
use ringway_measure::scratch;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;
use tempfile::NamedTempFile;

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

/// Runs a number of operations of one row with one contestant, in this process.
pub fn count(
    options: &Options,
    contestant: &str,
    row: &str,
    operations: u64,
) -> anyhow::Result<()> {
    let workload = suite::row(row)?;
    let contestant = contestants::by_name(workload.operation, contestant)?;
    let runner = Runner::new(options, &[workload])?;
    let target = runner.target(workload)?;
    target.prepare(workload)?;
    let assignment = Assignment {
        operations: Some(operations),
        ..runner.assignment(contestant, workload, target)
    };
    let turn = contestant.run(Job::new(assignment))?;
    for (name, figure) in &turn.figures {
        println!("{name}: {figure}");
    }
    // Exits even if operations are in flight.
    process::exit(0);
}

/// The size of the scratch file that such rows use. Rows with the same size share the file.
fn scratch_size(operation: Operation, options: &Options) -> u64 {
    match operation {
        Operation::Write | Operation::Puts => WRITE_SIZE,
        operation if operation.is_null() => NULL_SIZE,
        Operation::Sum | Operation::Timer | Operation::Small => options.sum_size,
        _ => options.size,
    }
}

/// A file that is measured.
struct Target {
    file: File,
    path: PathBuf,
    size: u64,
}

impl Target {
    fn scratch(size: u64, options: &Options) -> anyhow::Result<Self> {
        eprintln!("writing a scratch file of {}", bytes_text(size));
        let file = scratch::create(&options.scratch, size, SEED, &mut |_| ())?;
        let path = scratch::path(&file);
        Ok(Self { file, path, size })
    }

    /// Loads the whole file into the page cache, or drops it from there. That of a scan is checked.
    fn prepare(&self, workload: Workload) -> anyhow::Result<()> {
        match workload.operation {
            Operation::Scan { cached: true } => return scan::file::load_cached(&self.file),
            Operation::Scan { cached: false } => return scan::file::drop_cached(&self.file),
            Operation::Stall { .. } => {}
            _ => scratch::drop_page_cache(&self.file)?,
        }
        if workload.is_cached() {
            scratch::load_page_cache(&self.file, self.size)?;
        }
        Ok(())
    }
}

/// What scans read, and what they must find.
struct Scanned {
    scan: Scan,
    answer: String,
    ranges: usize,
    /// Removed when the runner is dropped.
    _list: NamedTempFile,
}

/// Runs the rows: the options, and the files.
pub struct Runner<'a> {
    options: &'a Options,
    /// The least measured time of a turn.
    time: Duration,
    rounds: u32,
    program: PathBuf,
    targets: Vec<Target>,
    scanned: Option<Scanned>,
}

impl<'a> Runner<'a> {
    /// With scratch files for these rows.
    pub fn new(options: &'a Options, rows: &[Workload]) -> anyhow::Result<Self> {
        let mut sizes: Vec<u64> =
            rows.iter().map(|row| scratch_size(row.operation, options)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let targets = sizes.into_iter().map(|size| Target::scratch(size, options));
        Self::with(options, targets.collect::<Result<_, _>>()?)
    }

    fn with(options: &'a Options, targets: Vec<Target>) -> anyhow::Result<Self> {
        let Options { time, rounds, .. } = *options;
        let program = env::current_exe()?;
        Ok(Self { options, time, rounds, program, targets, scanned: None })
    }

    /// For tasks next to syncs in the folder that the options name.
    pub fn of_stalls(options: &'a Options, stalls: &Stalls) -> anyhow::Result<Self> {
        let about = || stalls.folder.display().to_string();
        let folder = fs::canonicalize(&stalls.folder).with_context(about)?;
        let (file, path) = disturbance::file(&folder).with_context(about)?;
        let target = Target { file, path, size: disturbance::SIZE };
        Ok(Self { time: stalls.time, rounds: 1, ..Self::with(options, vec![target])? })
    }

    /// For scans of the file and the list that the options name.
    pub fn of_ranges(options: &'a Options, ranges: &Ranges) -> anyhow::Result<Self> {
        let file = scan::file::open(&ranges.file, ranges.size)?;
        let size = file.metadata()?.len();
        let list = match &ranges.ranges {
            Some(list) => scan::list::read(list)?,
            None => scan::list::synthetic(ranges.count, size),
        };
        ensure!(!list.is_empty(), "there are no ranges to read");
        let copy = NamedTempFile::new()?;
        fs::write(copy.path(), scan::list::text(&list))?;
        let scan = Scan {
            list: copy.path().into(),
            bytes: list.iter().map(|range| range.end - range.start).sum(),
            whole: ranges.verify,
        };
        let answer = scan::file::expected(&file, &list, ranges.verify)?;
        let path = fs::canonicalize(&ranges.file)?;
        Ok(Self {
            rounds: if ranges.verify { 1 } else { options.rounds },
            scanned: Some(Scanned { scan, answer, ranges: list.len(), _list: copy }),
            ..Self::with(options, vec![Target { file, path, size }])?
        })
    }

    /// How many ranges are scanned, and their bytes.
    pub fn ranges(&self) -> Option<(usize, u64)> {
        self.scanned.as_ref().map(|scanned| (scanned.ranges, scanned.scan.bytes))
    }

    /// Measures a row.
    pub fn row(&self, workload: Workload) -> anyhow::Result<Row> {
        eprintln!("{workload}");
        let mut left_out = Vec::new();
        let mut running = Vec::new();
        for contestant in self.selected(workload.operation)? {
            let name = contestant.name;
            match self.leaves_out(contestant, &workload) {
                _ if !contestant.concerns(&workload) => {}
                Some(why) => left_out.push((name.to_owned(), why)),
                None => running.push((name, contestant)),
            }
        }
        let target = self.target(workload)?;
        target.prepare(workload)?;
        let answer = self.scanned.as_ref().map(|scanned| scanned.answer.clone());
        let (title, rounds) = (workload.to_string(), self.rounds(workload));
        let mut row = Row::measure(title, rounds, running, answer, |contestant| {
            self.turn(contestant, workload, target)
        });
        for (name, why) in std::mem::take(&mut row.left_out) {
            left_out.push((name, format!("failed: {why}")));
        }
        Ok(Row { left_out, ..row })
    }

    fn turn(
        &self,
        contestant: &Contestant,
        workload: Workload,
        target: &Target,
    ) -> anyhow::Result<Turn> {
        if matches!(workload.operation, Operation::Scan { .. }) {
            target.prepare(workload)?;
        }
        let assignment = self.assignment(contestant, workload, target);
        child::measure(self.program(contestant), &assignment)
    }

    fn selected(&self, operation: Operation) -> anyhow::Result<Vec<&'static Contestant>> {
        let names = &self.options.contestants;
        if names.is_empty() {
            return Ok(contestants::of(operation).to_vec());
        }
        names.iter().map(|name| contestants::by_name(operation, name)).collect()
    }

    fn leaves_out(&self, contestant: &Contestant, workload: &Workload) -> Option<String> {
        if contestant.needs_tokio_io_uring && self.options.tokio_io_uring.is_none() {
            return Some("needs a second build of this program (--tokio-io-uring)".into());
        }
        (contestant.leaves_out)(workload)
    }

    fn target(&self, workload: Workload) -> anyhow::Result<&Target> {
        if let [only] = &self.targets[..] {
            return Ok(only);
        }
        let size = scratch_size(workload.operation, self.options);
        self.targets.iter().find(|target| target.size == size).context("the row has no file")
    }

    fn program(&self, contestant: &Contestant) -> &Path {
        match &self.options.tokio_io_uring {
            Some(program) if contestant.needs_tokio_io_uring => program,
            _ => &self.program,
        }
    }

    fn time(&self, workload: Workload) -> Duration {
        let each = TIME_FOR_READER + TIME_FOR_KIB * (workload.block >> 10) as u32;
        let least = match workload.operation {
            Operation::Submitted => TIME_FOR_FEW_READS,
            _ => each * workload.readers as u32,
        };
        self.time.max(least)
    }

    fn rounds(&self, workload: Workload) -> u32 {
        let is_long = self.time(workload) > self.time.max(LONG_TURN);
        self.rounds.min(if is_long { LONG_TURN_ROUNDS } else { u32::MAX })
    }

    fn assignment(
        &self,
        contestant: &Contestant,
        workload: Workload,
        target: &Target,
    ) -> Assignment {
        Assignment {
            contestant: contestant.name.into(),
            workload,
            file: target.path.clone(),
            size: target.size,
            warm_up: self.options.warm_up.max(self.time(workload) / 3),
            time: self.time(workload),
            operations: None,
            scan: self.scanned.as_ref().map(|scanned| scanned.scan.clone()),
        }
    }
}
