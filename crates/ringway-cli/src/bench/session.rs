//! `ringway bench` from its options to its reports.

use super::interrupt::{Catch, is_interrupted};
use super::memory::available_memory;
use super::options::BenchArgs;
use super::plan::{self, Plan};
use super::report::{self, configuration};
use super::result::{Interrupted, Machine, Measurement, Report, Run, add_note};
use super::run::{self, Outcome};
use super::target::{JobFiles, Targets};
use super::workload::{Backend, Cache, Target, Workload};
use super::{job_file, target};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringway_core::device::PathFacts;
use ringway_core::refusal::bytes_text;
use ringway_measure::scratch;
use ringway_measure::text::{plural, wrap};
use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit status if bytes were wrong.
const WRONG_BYTES: u8 = 3;
/// The exit status if requests failed.
const FAILED_REQUESTS: u8 = 4;
/// The exit status after Ctrl-C, as shells report it: 128 and the signal's number.
const INTERRUPTED: u8 = 130;
/// The maximum size of a job file.
const MAX_JOB_FILE: u64 = 1 << 20;
/// The size of the file that the null backend pretends to read.
const NULL_SIZE: u64 = 1 << 30;

/// Runs the bench, writes its reports and returns the exit status.
///
/// # Errors
///
/// Errors that keep it from running or from writing a report. Refused backends and failed requests
/// are in the report instead.
pub fn run(args: &BenchArgs, command: String) -> anyhow::Result<ExitCode> {
    let (plan, is_job_file) = plan_of(args)?;
    if args.dry_run {
        return dry_run(&plan, is_job_file);
    }
    let outputs = Outputs::open(args)?;
    let repeat = args.repeat.unwrap_or(if is_job_file { 1 } else { plan::REPEAT });
    let cache = args.cache.unwrap_or(if is_job_file { Cache::Cold } else { Cache::Warm });

    let show = Show::new(args.quiet);
    let mut remarks = [plan.differences, plan.notes].concat();
    let mut workloads = plan.workloads;
    let scratch_folder = args.scratch.clone().unwrap_or_else(|| PathBuf::from("."));
    outputs.protect_files(&args.files, &workloads)?;
    let files = prepare(&workloads, args, &scratch_folder, &show)?;
    let files = use_buffered_where_direct_fails(&mut workloads, files, &mut remarks);
    remarks.extend(cache_remark(cache, &workloads, &files));

    let mut measurements: Vec<Measurement> = workloads
        .into_iter()
        .map(|workload| Measurement { workload, runs: Vec::new(), notes: Vec::new() })
        .collect();
    let catch = Catch::new();
    show.start_runs(&measurements, repeat);
    let mut refused = Vec::new();
    // A configuration that was refused once is refused again.
    let mut is_refused = vec![false; measurements.len()];
    'runs: for number in 0..repeat {
        for (at, (measurement, files)) in measurements.iter_mut().zip(&files).enumerate() {
            if is_refused[at] {
                show.run_ended();
                continue;
            }
            show.run_starts(&measurement.workload);
            let outcome =
                run::run(&measurement.workload, files, cache, number, &mut || show.tick())?;
            if is_interrupted() {
                break 'runs;
            }
            match outcome {
                Outcome::Ran(run, notes) => {
                    measurement.runs.push(*run);
                    notes.into_iter().for_each(|note| add_note(&mut measurement.notes, note));
                }
                Outcome::Refused(reason) => {
                    is_refused[at] = true;
                    let backend = measurement.workload.backend.name();
                    add_note(&mut refused, format!("{backend}: {reason}"));
                    add_note(&mut measurement.notes, reason);
                }
            }
            show.run_ended();
        }
    }
    drop(catch);
    show.end();
    let interrupted =
        is_interrupted().then(|| note_missing_runs(&mut measurements, &is_refused, repeat));

    let machine = machine(&measurements, &files, &scratch_folder, remarks, refused)?;
    let report = Report { machine, measurements, command, interrupted };
    outputs.write(&report)?;
    Ok(status(&report, is_job_file))
}

/// Adds a note to each configuration that an interrupted bench has not finished.
fn note_missing_runs(
    measurements: &mut [Measurement],
    is_refused: &[bool],
    repeat: u32,
) -> Interrupted {
    let mut interrupted = Interrupted { finished: 0, planned: 0 };
    for (measurement, is_refused) in measurements.iter_mut().zip(is_refused) {
        let finished = measurement.runs.len() as u64;
        interrupted.finished += finished;
        interrupted.planned += if *is_refused { finished } else { u64::from(repeat) };
        if !is_refused && finished < u64::from(repeat) {
            let note =
                format!("interrupted: {finished} of {} finished", plural(repeat.into(), "run"));
            measurement.notes.push(note);
        }
    }
    interrupted
}

/// Prints what would run, and for job files how that differs from fio.
fn dry_run(plan: &Plan, is_job_file: bool) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for workload in &plan.workloads {
        text += &wrap(&format!("{}: ", workload.name), &configuration::describe_all(workload));
    }
    if is_job_file && plan.differences.is_empty() {
        text += "\nAll keys have the meaning of fio.\n";
    }
    for (title, lines) in [("Differences from fio", &plan.differences), ("Notes", &plan.notes)] {
        if !lines.is_empty() {
            text += &format!("\n{title}\n");
            text.extend(lines.iter().map(|line| wrap("  - ", line)));
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// 130 after Ctrl-C, otherwise 3 for wrong bytes, 4 for failed requests, 1 if nothing, or not every
/// job of a job file, could run, otherwise 0.
fn status(report: &Report, is_job_file: bool) -> ExitCode {
    let measurements = &report.measurements;
    let runs = || measurements.iter().flat_map(|measurement| &measurement.runs);
    let mut status = 0;
    let (ran, refused): (Vec<_>, Vec<_>) = measurements.iter().partition(|of| !of.runs.is_empty());
    // Null rows measure the harness. They count only if nothing else was requested.
    let harness_only = measurements.iter().all(|of| of.workload.is_null());
    if report.interrupted.is_some() {
        // What has not run is in the report.
    } else if !ran.iter().any(|of| harness_only || !of.workload.is_null()) {
        eprintln!("ringway: no configuration can run here");
        status = 1;
    } else if is_job_file && !refused.is_empty() {
        let names: Vec<&str> = refused.iter().map(|of| of.workload.name.as_str()).collect();
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
        eprintln!("ringway: {wrong} blocks of 512 bytes had wrong bytes");
        status = WRONG_BYTES;
    }
    if let Some(Interrupted { finished, planned }) = report.interrupted {
        eprintln!("ringway: interrupted: {finished} of {planned} runs finished");
        status = INTERRUPTED;
    }
    ExitCode::from(status)
}

/// The plan, and whether it comes from job files.
fn plan_of(args: &BenchArgs) -> anyhow::Result<(Plan, bool)> {
    let mut jobs = Plan::default();
    let mut data = Vec::new();
    for path in &args.files {
        match job_text(path)? {
            Some(text) => {
                let mut include = |from: &str, name: &str| included(path, from, name);
                let parsed = job_file::parse(&text, &mut include)
                    .with_context(|| path.display().to_string())?;
                jobs.workloads.extend(parsed.jobs);
                jobs.notes.extend(parsed.notes);
                jobs.differences.extend(parsed.differences);
            }
            None => data.push(path.clone()),
        }
    }
    if jobs.workloads.is_empty() {
        return Ok((plan::plan(args, &target(args, data)?), false));
    }
    if let Some(path) = data.first() {
        bail!(
            "{} is not a job file; give job files or files to measure on, not both",
            path.display()
        );
    }
    let given = args.job_options();
    if !given.is_empty() {
        bail!("{} cannot be used with a job file; set it in the job file", given.join(", "));
    }
    jobs.workloads.iter_mut().for_each(|workload| workload.verify = args.verify);
    Ok((jobs, true))
}

/// The text of a job file; `None` for anything else.
fn job_text(path: &Path) -> anyhow::Result<Option<String>> {
    let name = || path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "fio") {
        return fs::read_to_string(path).with_context(name).map(Some);
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_JOB_FILE => {
            let text = fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Ok(text.filter(|text| begins_with_section(text)))
        }
        // Errors are reported when the file is opened to measure on.
        _ => Ok(None),
    }
}

/// The name and the text of a file that `from`, or the job file if `from` is empty, includes. As in
/// fio, it is in the current folder or in the folder of the file that includes it.
fn included(job_file: &Path, from: &str, name: &str) -> Result<(String, String), String> {
    let from = if from.is_empty() { job_file } else { Path::new(from) };
    let sibling = from.with_file_name(name);
    let path = if Path::new(name).exists() { Path::new(name) } else { &sibling };
    let text = fs::File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(MAX_JOB_FILE).read_to_string(&mut text)?;
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

/// Checks, creates and fills the files. A bench of the null backend alone needs none.
fn prepare(
    workloads: &[Workload],
    args: &BenchArgs,
    folder: &Path,
    show: &Show,
) -> anyhow::Result<Vec<JobFiles>> {
    let mut announce = |what: &str, bytes: u64| show.file_starts(what, bytes);
    let mut progress = |bytes: u64| show.bytes_written(bytes);
    let mut targets =
        Targets::new(folder.to_owned(), args.overwrite, args.fill, &mut announce, &mut progress);
    if workloads.iter().all(Workload::is_null) {
        return workloads.iter().map(|of| targets.nothing(of.jobs, NULL_SIZE)).collect();
    }
    let files = targets.prepare(workloads)?;
    let uses_commands = |(workload, _): &(&Workload, &JobFiles)| workload.passthrough;
    for (_, files) in workloads.iter().zip(&files).filter(uses_commands) {
        if let Some(source) = files.iter().flatten().find(|source| source.generic().is_none()) {
            bail!(
                "--passthrough needs a whole NVMe disk (/dev/nvme0n1) with a generic device \
                 (/dev/ng0n1), on kernel 5.19 or newer; this is a {}",
                source.facts.kind
            );
        }
    }
    Ok(files)
}

/// Replaces direct by buffered I/O where the file system does not support it, and adds a remark.
fn use_buffered_where_direct_fails(
    workloads: &mut Vec<Workload>,
    files: Vec<JobFiles>,
    remarks: &mut Vec<String>,
) -> Vec<JobFiles> {
    let mut kept: Vec<Workload> = Vec::new();
    let mut kept_files = Vec::new();
    for (mut workload, files) in std::mem::take(workloads).into_iter().zip(files) {
        let without = files.iter().flatten().find(|source| !source.facts.direct.supported);
        if let Some(source) = without.filter(|_| workload.direct) {
            let file_system = &source.facts.file_system;
            let remark = format!("{file_system} does not support direct I/O: measured buffered");
            add_note(remarks, remark);
            (workload.direct, workload.iopoll) = (false, false);
            if kept.contains(&workload) {
                continue;
            }
        }
        kept.push(workload);
        kept_files.push(files);
    }
    *workloads = kept;
    kept_files
}

fn cache_remark(cache: Cache, workloads: &[Workload], files: &[JobFiles]) -> Option<String> {
    let is_cached = |of: &Workload| !of.direct && !of.is_null() && of.access.reads();
    let largest = files.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    let state = match cache {
        Cache::Warm if largest > available_memory() / 2 => {
            "the file is too large for the page cache, which is left as it is"
        }
        Cache::Warm => "the file is in the page cache",
        Cache::Cold => "the file is dropped from the page cache before each run",
        Cache::Keep => "the page cache is left as it is after the previous run",
    };
    workloads.iter().any(is_cached).then(|| format!("buffered runs: {state}"))
}

fn machine(
    measurements: &[Measurement],
    files: &[JobFiles],
    folder: &Path,
    mut remarks: Vec<String>,
    refused: Vec<String>,
) -> anyhow::Result<Machine> {
    let mut facts: Vec<&PathFacts> = Vec::new();
    for source in files.iter().flatten().flatten() {
        if !facts.contains(&&source.facts) {
            facts.push(&source.facts);
        }
    }
    let size = files.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    let only_null = measurements.iter().all(|of| of.workload.is_null());
    let named = match measurements.first().map(|of| &of.workload.target) {
        _ if only_null => "no file: the null backend does no I/O".to_owned(),
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
        texts.into_iter().for_each(|text| add_note(&mut all, text));
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

/// The reports to write. Their files are opened before anything is measured: a wrong path must not
/// lose the results.
struct Outputs(Vec<(Render, Output)>);

type Render = fn(&Report) -> anyhow::Result<String>;

enum Output {
    Stdout,
    File(PathBuf, fs::File),
}

impl Outputs {
    fn open(args: &BenchArgs) -> anyhow::Result<Self> {
        let formats: [(&Option<PathBuf>, Render); 3] = [
            (&args.json, |report| Ok(report::json::render(report))),
            (&args.csv, |report| Ok(report::csv::render(report))),
            (&args.html, report::html::render),
        ];
        let mut outputs = Self(Vec::new());
        for (path, render) in formats {
            let Some(path) = path else { continue };
            if path.as_os_str() == "-" {
                if outputs.use_stdout() {
                    bail!("only one report can go to standard output");
                }
                outputs.0.push((render, Output::Stdout));
                continue;
            }
            // It is truncated when the report is written.
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = file.with_context(|| path.display().to_string())?;
            if file.metadata()?.file_type().is_block_device() {
                bail!("{} is a block device; give a file for the report", path.display());
            }
            outputs.0.push((render, Output::File(path.clone(), file)));
        }
        Ok(outputs)
    }

    /// Whether a report goes to standard output, instead of the table.
    fn use_stdout(&self) -> bool {
        self.0.iter().any(|(_, output)| matches!(output, Output::Stdout))
    }

    /// Fails if a report would overwrite a file that is measured on, a job file or another report;
    /// nothing has been written then.
    fn protect_files(&self, named: &[PathBuf], workloads: &[Workload]) -> anyhow::Result<()> {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let targets = workloads.iter().flat_map(target::paths);
        let paths = named.iter().cloned().chain(targets);
        let mut taken: Vec<_> = paths.filter_map(|path| fs::metadata(path).ok()).map(id).collect();
        for (_, output) in &self.0 {
            let Output::File(path, file) = output else { continue };
            let metadata = file.metadata().with_context(|| path.display().to_string())?;
            if !metadata.is_file() {
                continue;
            }
            let id = id(metadata);
            if taken.contains(&id) {
                bail!(
                    "{} is a file of the bench or of another report; give another file for the \
                     report",
                    path.display()
                );
            }
            taken.push(id);
        }
        Ok(())
    }

    fn write(self, report: &Report) -> anyhow::Result<()> {
        let mut printed = None;
        for (render, output) in &self.0 {
            let text = render(report)?;
            match output {
                Output::Stdout => printed = Some(text),
                Output::File(path, file) => {
                    // A pipe or a terminal cannot be truncated.
                    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
                    let truncated = if is_file { file.set_len(0) } else { Ok(()) };
                    let written = truncated.and_then(|()| (&*file).write_all(text.as_bytes()));
                    written.with_context(|| path.display().to_string())?;
                }
            }
        }
        // Last: after Ctrl-C nobody may read standard output any more.
        let printed = printed.unwrap_or_else(|| {
            let (table, summary) = (report::table::render(report), report::summary::render(report));
            format!("{table}\n{summary}")
        });
        std::io::stdout().write_all(printed.as_bytes())?;
        Ok(())
    }
}

/// The progress on standard error: a bar on a terminal, otherwise a line for each file that is
/// written.
struct Show {
    quiet: bool,
    bar: RefCell<ProgressBar>,
    has_announced: Cell<bool>,
}

impl Show {
    fn new(quiet: bool) -> Self {
        Self { quiet, bar: RefCell::new(ProgressBar::hidden()), has_announced: Cell::new(false) }
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

    fn file_starts(&self, what: &str, bytes: u64) {
        if !self.quiet {
            self.end();
            eprintln!("writing {}: {what}", bytes_text(bytes));
        }
        self.start(bytes, "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    }

    fn bytes_written(&self, bytes: u64) {
        self.bar.borrow().inc(bytes);
    }

    fn start_runs(&self, measurements: &[Measurement], repeat: u32) {
        self.end();
        let runs = measurements.len() as u64 * u64::from(repeat);
        if !self.quiet {
            eprintln!("{runs} runs: {} configurations, {repeat} times each", measurements.len());
        }
        self.start(runs, "{bar:40} {pos} of {len}, {eta} left: {msg}");
    }

    fn run_starts(&self, workload: &Workload) {
        let io = if workload.direct { "direct" } else { "buffered" };
        let message = format!("{} {}, {io}", workload.backend.name(), workload.name);
        self.bar.borrow().set_message(message);
    }

    /// A run goes on, perhaps for a while after an interrupt: until its requests have completed.
    fn tick(&self) {
        self.bar.borrow().tick();
        if is_interrupted() && !self.quiet && !self.has_announced.replace(true) {
            self.end();
            eprintln!("ringway: interrupted; press Ctrl-C again to end without a report");
        }
    }

    fn run_ended(&self) {
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
    fn job_files_are_recognised_by_their_first_line() {
        assert!(begins_with_section("; a comment\n\n [global]\nrw=read\n"));
        assert!(!begins_with_section("text\n[global]\n"));
        assert!(!begins_with_section(""));
    }
}
