//! The exit status of a bench, and why it is one, on standard error.

use super::result::{Interrupted, Report, Run};
use std::process::ExitCode;

/// Nothing, or not every job of a job file, could run.
const NOT_RUN: u8 = 1;
/// Bytes were wrong.
const WRONG_BYTES: u8 = 3;
/// Requests failed.
const FAILED_REQUESTS: u8 = 4;
/// Ctrl-C, as shells report it: 128 and the signal's number.
const INTERRUPTED: u8 = 130;

/// The last of the reasons counts.
pub fn exit_status(report: &Report, is_job_file: bool) -> ExitCode {
    let measurements = &report.measurements;
    let mut status = 0;
    let (ran, not_run): (Vec<_>, Vec<_>) =
        measurements.iter().partition(|measurement| !measurement.runs.is_empty());
    // Null rows measure the harness. They count only if nothing else was requested.
    let harness_only = measurements.iter().all(|measurement| measurement.workload.is_null());
    let has_run = ran.iter().any(|ran| harness_only || !ran.workload.is_null());
    // What an interrupted bench has not run is in the report.
    if report.interrupted.is_none() && !has_run {
        eprintln!("ringway: no configuration can run here");
        status = NOT_RUN;
    } else if report.interrupted.is_none() && is_job_file && !not_run.is_empty() {
        let names: Vec<&str> =
            not_run.iter().map(|not_run| not_run.workload.name.as_str()).collect();
        eprintln!("ringway: not run: {}", names.join(", "));
        status = NOT_RUN;
    }
    let sum = |count: fn(&Run) -> u64| {
        let runs = measurements.iter().flat_map(|measurement| &measurement.runs);
        runs.map(count).fold(0, u64::saturating_add)
    };
    let failed = sum(Run::failed);
    if failed > 0 {
        let all = sum(|run| run.ops() + run.sync.ops).saturating_add(failed);
        let percent = failed as f64 * 100.0 / all as f64;
        eprintln!("ringway: {failed} of {all} requests failed ({percent:.3} %)");
        status = FAILED_REQUESTS;
    }
    let wrong = sum(|run| run.verified.map_or(0, |(_, wrong)| wrong));
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
