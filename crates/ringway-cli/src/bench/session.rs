//! `ringway bench` from its options to its reports.

use super::memory::available_memory;
use super::options::{BenchArgs, Cache};
use super::plan::{self, Plan};
use super::report;
use super::result::{Cell, Machine, Report, Run};
use super::run::{self, Outcome};
use super::target::{Ground, Targets};
use super::workload::{Backend, Target, Workload};
use super::{job_file, scratch, target};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringway_core::device::PathFacts;
use ringway_core::refusal::bytes_text;
use std::cell::RefCell;
use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit status when bytes were wrong.
const WRONG_BYTES: u8 = 3;
/// The exit status when requests failed.
const FAILED_REQUESTS: u8 = 4;
/// A job file is not longer.
const LONGEST_JOB_FILE: u64 = 1 << 20;
/// Files that only null works on are not looked at, so their size is a mere number.
const NULL_SIZE: u64 = 1 << 30;

/// Runs the bench and writes its reports; the status to exit with.
///
/// # Errors
///
/// What kept it from running, or a report from being written. Backends that are refused, and
/// requests that fail, are in the report instead.
pub fn run(args: &BenchArgs, command: String) -> anyhow::Result<ExitCode> {
    let (plan, is_job_file) = plan_of(args)?;
    let outputs = Outputs::open(args)?;
    let repeat = args.repeat.unwrap_or(if is_job_file { 1 } else { plan::REPEAT });
    let cache = args.cache.unwrap_or(if is_job_file { Cache::Cold } else { Cache::Warm });

    let show = Show::new(args.quiet);
    let mut remarks = plan.notes.clone();
    let mut cells = plan.cells;
    let scratch_folder = args.scratch.clone().unwrap_or_else(|| PathBuf::from("."));
    outputs.keep_off(&args.files, &cells)?;
    let ground = prepare(&cells, args, &scratch_folder, &show)?;
    let ground = use_buffered_where_direct_fails(&mut cells, ground, &mut remarks);
    remarks.push(cache_remark(cache, &cells, &ground));
    remarks.retain(|remark| !remark.is_empty());

    let mut cells: Vec<Cell> = cells
        .into_iter()
        .map(|workload| Cell { workload, runs: Vec::new(), notes: Vec::new() })
        .collect();
    show.begin_runs(&cells, repeat);
    let mut refused = Vec::new();
    for number in 0..repeat {
        for (cell, ground) in cells.iter_mut().zip(&ground) {
            // Refused once is refused again.
            if cell.runs.len() < number as usize {
                show.run_is_over();
                continue;
            }
            show.run_begins(&cell.workload);
            match run::run(&cell.workload, ground, cache, number, &mut || show.tick())? {
                Outcome::Ran(run, notes) => {
                    cell.runs.push(*run);
                    notes.into_iter().for_each(|note| add(&mut cell.notes, note));
                }
                Outcome::Refused(reason) => {
                    add(
                        &mut refused,
                        format!("{}: {reason}", run::backend_name(cell.workload.backend)),
                    );
                    add(&mut cell.notes, reason);
                }
            }
            show.run_is_over();
        }
    }
    show.end();

    let machine = machine(&cells, &ground, &scratch_folder, remarks, refused)?;
    let report = Report { machine, cells, command };
    outputs.write(&report)?;
    Ok(status(&report, is_job_file))
}

fn add(to: &mut Vec<String>, text: String) {
    if !to.contains(&text) {
        to.push(text);
    }
}

/// 3 for wrong bytes, 4 for requests that failed, 1 when nothing, or not every job of a job file,
/// could be run, else 0.
fn status(report: &Report, is_job_file: bool) -> ExitCode {
    let runs = || report.cells.iter().flat_map(|cell| &cell.runs);
    let mut status = 0;
    let refused: Vec<&Cell> = report.cells.iter().filter(|cell| cell.runs.is_empty()).collect();
    // What null ran is the harness: it counts where nothing else was asked for.
    let is_null = |cell: &Cell| cell.workload.backend == Backend::Null;
    let harness_only = report.cells.iter().all(is_null);
    if !report.cells.iter().any(|cell| !cell.runs.is_empty() && (harness_only || !is_null(cell))) {
        eprintln!("ringway: none of this could be run here");
        status = 1;
    } else if is_job_file && !refused.is_empty() {
        let names: Vec<&str> = refused.iter().map(|cell| cell.workload.name.as_str()).collect();
        eprintln!("ringway: not run: {}", names.join(", "));
        status = 1;
    }
    let failed = runs().map(Run::failed).fold(0, u64::saturating_add);
    if failed > 0 {
        let all = runs().map(|run| run.ops() + run.sync.ops).fold(failed, u64::saturating_add);
        let percent = failed as f64 * 100.0 / all as f64;
        eprintln!("ringway: {failed} of {all} requests failed ({percent:.3} %)");
        status = FAILED_REQUESTS;
    }
    let wrong = runs()
        .filter_map(|run| run.verified)
        .fold(0, |sum: u64, (_, wrong)| sum.saturating_add(wrong));
    if wrong > 0 {
        eprintln!("ringway: {wrong} blocks of 512 bytes were not what they should have been");
        status = WRONG_BYTES;
    }
    ExitCode::from(status)
}

/// The cells, and whether they come from job files.
fn plan_of(args: &BenchArgs) -> anyhow::Result<(Plan, bool)> {
    let mut jobs = Plan { cells: Vec::new(), notes: Vec::new() };
    let mut data = Vec::new();
    for path in &args.files {
        match job_text(path)? {
            Some(text) => {
                let mut include = |from: &str, name: &str| included(path, from, name);
                let parsed = job_file::parse(&text, &mut include)
                    .with_context(|| path.display().to_string())?;
                jobs.cells.extend(parsed.jobs);
                jobs.notes.extend(parsed.notes);
            }
            None => data.push(path.clone()),
        }
    }
    if jobs.cells.is_empty() {
        return Ok((plan::plan(args, &target(args, data)?), false));
    }
    if let Some(path) = data.first() {
        bail!("{} is no job file; give job files or files to measure on, not both", path.display());
    }
    let given = args.job_options();
    if !given.is_empty() {
        bail!("{} cannot be used with a job file: what it says belongs in there", given.join(", "));
    }
    jobs.cells.iter_mut().for_each(|cell| cell.verify = args.verify);
    Ok((jobs, true))
}

/// The text of a job file; `None` for anything else.
fn job_text(path: &Path) -> anyhow::Result<Option<String>> {
    let name = || path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "fio") {
        return fs::read_to_string(path).with_context(name).map(Some);
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= LONGEST_JOB_FILE => {
            let text = fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Ok(text.filter(|text| begins_with_section(text)))
        }
        // What is wrong with it is told when it is to be used.
        _ => Ok(None),
    }
}

/// The name and the text of a file that the file `from`, or else the job file, includes: as fio,
/// from the current folder or else from beside that file.
fn included(job_file: &Path, from: &str, name: &str) -> Result<(String, String), String> {
    let from = if from.is_empty() { job_file } else { Path::new(from) };
    let beside = from.with_file_name(name);
    let path = if Path::new(name).exists() { Path::new(name) } else { &beside };
    let text = fs::File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(LONGEST_JOB_FILE).read_to_string(&mut text)?;
        Ok(text)
    });
    text.map(|text| (path.display().to_string(), text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn begins_with_section(text: &str) -> bool {
    let first =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with([';', '#']));
    first.is_some_and(|line| line.starts_with('[') && line.contains(']'))
}

fn target(args: &BenchArgs, data: Vec<PathBuf>) -> anyhow::Result<Target> {
    Ok(match (data.is_empty(), args.size) {
        (false, Some(size)) => Target::SizedFiles { paths: data, size },
        (false, None) => Target::Files(data),
        (true, Some(size)) => Target::Scratch { size },
        (true, None) if only_null(&args.backend) => Target::Scratch { size: NULL_SIZE },
        (true, None) => {
            let folder = args.scratch.as_deref().unwrap_or(Path::new("."));
            Target::Scratch { size: scratch::default_size(folder)? }
        }
    })
}

fn only_null(backends: &[Backend]) -> bool {
    !backends.is_empty() && backends.iter().all(|backend| *backend == Backend::Null)
}

/// Makes and checks the files. Where nothing but null is to be run, none are needed.
fn prepare(
    cells: &[Workload],
    args: &BenchArgs,
    folder: &Path,
    show: &Show,
) -> anyhow::Result<Vec<Ground>> {
    let mut announce = |what: &str, bytes: u64| show.file_begins(what, bytes);
    let mut progress = |bytes: u64| show.bytes_written(bytes);
    let mut targets =
        Targets::new(folder.to_owned(), args.overwrite, args.fill, &mut announce, &mut progress);
    if cells.iter().all(|cell| cell.backend == Backend::Null) {
        return cells.iter().map(|cell| targets.nothing(cell.jobs, NULL_SIZE)).collect();
    }
    targets.prepare(cells)
}

/// Direct I/O is not to be had everywhere; a measurement without it is better than none, when it
/// says so.
fn use_buffered_where_direct_fails(
    cells: &mut Vec<Workload>,
    ground: Vec<Ground>,
    remarks: &mut Vec<String>,
) -> Vec<Ground> {
    let mut kept: Vec<Workload> = Vec::new();
    let mut kept_ground = Vec::new();
    for (mut cell, ground) in std::mem::take(cells).into_iter().zip(ground) {
        let without = ground.iter().flatten().find(|source| !source.facts.direct.supported);
        if let Some(source) = without.filter(|_| cell.direct) {
            let file_system = &source.facts.file_system;
            add(
                remarks,
                format!(
                    "there is no direct I/O on this {file_system}: buffered I/O is measured instead"
                ),
            );
            cell.direct = false;
            cell.iopoll = false;
            if kept.contains(&cell) {
                continue;
            }
        }
        kept.push(cell);
        kept_ground.push(ground);
    }
    *cells = kept;
    kept_ground
}

fn cache_remark(cache: Cache, cells: &[Workload], ground: &[Ground]) -> String {
    let buffered = |cell: &&Workload| !cell.direct && cell.backend != Backend::Null && cell.reads();
    if !cells.iter().any(|cell| buffered(&cell)) {
        return String::new();
    }
    let largest = ground.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    match cache {
        Cache::Warm if largest > available_memory() / 2 => {
            "buffered runs: the file is too large for the page cache, which is left as it is"
                .to_owned()
        }
        Cache::Warm => "buffered runs: the file is in the page cache".to_owned(),
        Cache::Cold => {
            "buffered runs: the file is dropped from the page cache before each".to_owned()
        }
        Cache::Keep => "buffered runs: the page cache is as the run before left it".to_owned(),
    }
}

fn machine(
    cells: &[Cell],
    ground: &[Ground],
    folder: &Path,
    mut remarks: Vec<String>,
    refused: Vec<String>,
) -> anyhow::Result<Machine> {
    let mut facts: Vec<&PathFacts> = Vec::new();
    for source in ground.iter().flatten().flatten() {
        if !facts.contains(&&source.facts) {
            facts.push(&source.facts);
        }
    }
    let size = ground.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    let only_null = cells.iter().all(|cell| cell.workload.backend == Backend::Null);
    let named = match cells.first().map(|cell| &cell.workload.target) {
        _ if only_null => "no file: null does nothing with it".to_owned(),
        Some(Target::Scratch { size }) => {
            let folder = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
            format!(
                "target: a scratch file of {} in {}, removed afterwards",
                bytes_text(*size),
                folder.display()
            )
        }
        Some(Target::Files(paths) | Target::SizedFiles { paths, .. }) => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("target: {}", paths.join(", "))
        }
        Some(Target::Directory { path, .. }) => {
            format!("target: files in {}, which are kept", path.display())
        }
        None => String::new(),
    };
    remarks.insert(0, named);
    if only_null {
        facts.clear();
    }
    let joined = |texts: Vec<String>| {
        let mut all = Vec::new();
        texts.into_iter().for_each(|text| add(&mut all, text));
        all.join("; ")
    };
    Ok(Machine {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        file_system: joined(facts.iter().map(|facts| facts.file_system.clone()).collect()),
        device: joined(
            facts.iter().filter_map(|facts| Some(facts.device.as_ref()?.to_string())).collect(),
        ),
        target_size: if only_null { 0 } else { size },
        remarks,
        refused,
    })
}

/// Where the reports go. Files are opened before anything is measured: a mistyped path should not
/// cost the results.
struct Outputs {
    json: Option<Output>,
    csv: Option<Output>,
    html: Option<Output>,
}

enum Output {
    Stdout,
    File(PathBuf, fs::File),
}

impl Outputs {
    fn open(args: &BenchArgs) -> anyhow::Result<Self> {
        let open = |path: &Option<PathBuf>| match path {
            None => Ok(None),
            Some(path) if path.as_os_str() == "-" => Ok(Some(Output::Stdout)),
            Some(path) => {
                // Emptied when there is something to put into it.
                let options =
                    fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
                let file = options.with_context(|| path.display().to_string())?;
                if file.metadata()?.file_type().is_block_device() {
                    bail!("{} is a block device: a report goes to a file", path.display());
                }
                anyhow::Ok(Some(Output::File(path.clone(), file)))
            }
        };
        let outputs =
            Self { json: open(&args.json)?, csv: open(&args.csv)?, html: open(&args.html)? };
        if [&outputs.json, &outputs.csv, &outputs.html]
            .iter()
            .filter(|output| output.is_stdout())
            .count()
            > 1
        {
            bail!("only one report can go to standard output");
        }
        Ok(outputs)
    }

    /// Fails where a report would be written over a file that is measured on or read as a job file,
    /// or over another report; nothing has been written then.
    fn keep_off(&self, named: &[PathBuf], cells: &[Workload]) -> anyhow::Result<()> {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let targets = cells.iter().flat_map(target::paths);
        for path in named.iter().cloned().chain(targets) {
            taken.extend(fs::metadata(path).ok().map(id));
        }
        for output in [&self.json, &self.csv, &self.html].into_iter().flatten() {
            let Output::File(path, file) = output else { continue };
            let metadata = file.metadata().with_context(|| path.display().to_string())?;
            if !metadata.is_file() {
                continue;
            }
            let id = id(metadata);
            if taken.contains(&id) {
                bail!(
                    "{} is a file of the benchmark or has another report already: a report would replace it",
                    path.display()
                );
            }
            taken.push(id);
        }
        Ok(())
    }

    fn write(self, report: &Report) -> anyhow::Result<()> {
        let takes_stdout =
            [&self.json, &self.csv, &self.html].iter().any(|output| output.is_stdout());
        if !takes_stdout {
            let text =
                format!("{}\n{}", report::table::render(report), report::verdict::render(report));
            std::io::stdout().write_all(text.as_bytes())?;
        }
        put(self.json, || report::json::render(report))?;
        put(self.csv, || report::csv::render(report))?;
        put(self.html, || report::html::render(report))
    }
}

/// Writes a report to where it goes, if it goes anywhere.
fn put(output: Option<Output>, render: impl FnOnce() -> String) -> anyhow::Result<()> {
    match output {
        None => Ok(()),
        Some(Output::Stdout) => Ok(std::io::stdout().write_all(render().as_bytes())?),
        Some(Output::File(path, mut file)) => {
            let text = render();
            // A pipe or a terminal has no length.
            let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
            let emptied = if is_file { file.set_len(0) } else { Ok(()) };
            let written = emptied.and_then(|()| file.write_all(text.as_bytes()));
            written.with_context(|| path.display().to_string())
        }
    }
}

trait MaybeStdout {
    fn is_stdout(&self) -> bool;
}

impl MaybeStdout for &Option<Output> {
    fn is_stdout(&self) -> bool {
        matches!(self, Some(Output::Stdout))
    }
}

/// What is shown while it runs: a bar on a terminal, a line for each file that is written
/// elsewhere.
struct Show {
    quiet: bool,
    bar: RefCell<ProgressBar>,
}

impl Show {
    fn new(quiet: bool) -> Self {
        Self { quiet, bar: RefCell::new(ProgressBar::hidden()) }
    }

    fn start(&self, length: u64, template: &str) {
        if self.quiet || !std::io::stderr().is_terminal() {
            return;
        }
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(length).with_style(style.progress_chars("=> "));
        self.bar.replace(bar).finish_and_clear();
    }

    fn file_begins(&self, what: &str, bytes: u64) {
        if !self.quiet {
            self.end();
            eprintln!("writing {}: {what}", bytes_text(bytes));
        }
        self.start(bytes, "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    }

    fn bytes_written(&self, bytes: u64) {
        self.bar.borrow().inc(bytes);
    }

    fn begin_runs(&self, cells: &[Cell], repeat: u32) {
        self.end();
        let runs = cells.len() as u64 * u64::from(repeat);
        if !self.quiet {
            eprintln!("{runs} runs: {} combinations, {repeat} times each", cells.len());
        }
        self.start(runs, "{bar:40} {pos} of {len}, {eta} left: {msg}");
    }

    fn run_begins(&self, cell: &Workload) {
        let io = if cell.direct { "direct" } else { "buffered" };
        let backend = run::backend_name(cell.backend);
        self.bar.borrow().set_message(format!("{backend} {}, {io}", cell.name));
    }

    fn tick(&self) {
        self.bar.borrow().tick();
    }

    fn run_is_over(&self) {
        self.bar.borrow().inc(1);
    }

    fn end(&self) {
        self.bar.borrow().finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_files_are_told_by_their_first_line() {
        assert!(begins_with_section("; a comment\n\n [global]\nrw=read\n"));
        assert!(!begins_with_section("text\n[global]\n"));
        assert!(!begins_with_section(""));
    }
}
