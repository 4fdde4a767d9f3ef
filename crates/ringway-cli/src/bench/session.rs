//! `ringway bench` from its options to its reports and its exit status.

use super::input;
use super::interrupt::{Catch, is_interrupted};
use super::machine::{cache_remark, machine};
use super::options::BenchArgs;
use super::outputs::Outputs;
use super::plan;
use super::prepare::{prepare, use_buffered_where_direct_fails};
use super::progress::Progress;
use super::result::{Interrupted, Measurement, Report, add_note};
use super::run::{self, Outcome};
use super::status::exit_status;
use super::target::JobFiles;
use super::workload::Cache;
use crate::cli::print;
use ringway_measure::text::plural;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the bench, writes its reports and returns the exit status.
///
/// # Errors
///
/// Errors that keep it from running or from writing a report. Refused backends and failed requests
/// are in the report instead.
pub fn run(args: &BenchArgs, command: String) -> anyhow::Result<ExitCode> {
    let (plan, is_job_file) = input::plan(args)?;
    if args.dry_run {
        print(&plan.text(is_job_file))?;
        return Ok(ExitCode::SUCCESS);
    }
    let outputs = Outputs::open(args)?;
    let repeat = args.repeat.unwrap_or(if is_job_file { 1 } else { plan::REPEAT });
    let cache = args.cache.unwrap_or(if is_job_file { Cache::Cold } else { Cache::Warm });

    let progress = Progress::new(args.quiet);
    let mut remarks = [plan.differences, plan.notes].concat();
    let mut workloads = plan.workloads;
    let scratch_folder = args.scratch.clone().unwrap_or_else(|| PathBuf::from("."));
    outputs.protect_files(&[&args.files[..], &plan.included].concat(), &workloads)?;
    let files = prepare(&workloads, args, &scratch_folder, &progress)?;
    let files = use_buffered_where_direct_fails(&mut workloads, files, &mut remarks);
    remarks.extend(cache_remark(cache, args.cache.is_some(), &workloads, &files));

    let mut measurements: Vec<Measurement> = workloads.into_iter().map(Measurement::new).collect();
    let catch = Catch::new();
    progress.start_runs(measurements.len(), repeat);
    for number in 0..repeat {
        measure(&mut measurements, &files, cache, number, &progress)?;
    }
    drop(catch);
    progress.end();
    let interrupted = is_interrupted().then(|| note_missing_runs(&mut measurements, repeat));

    let machine = machine(&measurements, &files, &scratch_folder, remarks)?;
    let report = Report { machine, measurements, command, interrupted };
    let written = outputs.write(&report);
    let status = exit_status(&report, is_job_file);
    written.map(|()| status)
}

/// Makes one run of each configuration, until Ctrl-C. One that was refused is not tried again.
fn measure(
    measurements: &mut [Measurement],
    files: &[JobFiles],
    cache: Cache,
    number: u32,
    progress: &Progress,
) -> anyhow::Result<()> {
    for (measurement, files) in measurements.iter_mut().zip(files) {
        if is_interrupted() {
            return Ok(());
        }
        if measurement.refused.is_none() {
            progress.run_starts(&measurement.workload);
            match run::run(&measurement.workload, files, cache, number, progress)? {
                // It did not run to its end.
                _ if is_interrupted() => return Ok(()),
                Outcome::Ran(run, notes) => {
                    measurement.runs.push(*run);
                    for note in notes {
                        add_note(&mut measurement.notes, note);
                    }
                }
                Outcome::Refused(reason) => {
                    add_note(&mut measurement.notes, reason.clone());
                    measurement.refused = Some(reason);
                }
            }
        }
        progress.run_ended();
    }
    Ok(())
}

/// Adds a note to each configuration that an interrupted bench has not finished.
fn note_missing_runs(measurements: &mut [Measurement], repeat: u32) -> Interrupted {
    let mut interrupted = Interrupted { finished: 0, planned: 0 };
    for measurement in measurements {
        let finished = measurement.runs.len() as u64;
        let planned = if measurement.refused.is_some() { finished } else { u64::from(repeat) };
        if finished < planned {
            let note = format!("interrupted: {finished} of {} finished", plural(planned, "run"));
            measurement.notes.push(note);
        }
        interrupted.finished += finished;
        interrupted.planned += planned;
    }
    interrupted
}
