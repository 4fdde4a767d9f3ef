//! The report for scripts. A figure that fio has, has fio's name and unit, so programs that read
//! `fio --output-format=json` can read this. Everything else is under `ringway`. There are only
//! keys of measured figures: fio's `slat_ns`, `iodepth_level` and others are missing.
//! `docs/command-line.md` documents the keys; they are stable.

use super::configuration::configuration;
use super::model::Model;
use crate::bench::result::{Direction, Measurement, Report, Run, add};
use crate::bench::workload::{Amount, Backend, Rate, Sizes, Stop, Target, Workload};
use hdrhistogram::Histogram;
use jiff::Zoned;
use ringway_measure::stats::{Spread, percentile};
use ringway_measure::units::size_text;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// fio's default percentiles.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The report, dated now.
pub fn render(model: &Model) -> String {
    render_at(model, &Zoned::now())
}

/// The report with the given date.
pub fn render_at(model: &Model, at: &Zoned) -> String {
    let (report, summary) = (model.report, &model.summary);
    let (mut jobs, mut not_run) = (Vec::new(), Vec::new());
    let mut groups = 0;
    for measurement in &report.measurements {
        if measurement.runs.is_empty() {
            not_run.push(json!({
                "jobname": measurement.workload.name,
                "backend": measurement.workload.backend.name(),
                "job options": options(&measurement.workload),
                "notes": measurement.notes,
            }));
        } else {
            jobs.extend(jobs_of(groups, measurement));
            groups += 1;
        }
    }
    let mut whole = json!({
        "ringway version": env!("CARGO_PKG_VERSION"),
        "timestamp": at.timestamp().as_second(),
        "timestamp_ms": at.timestamp().as_millisecond(),
        "time": at.strftime("%a %b %e %H:%M:%S %Y").to_string(),
        "global options": common_options(report),
        "jobs": jobs,
        "ringway": {
            "command": report.command,
            "machine": report.machine,
            "not_run": not_run,
            "summary": {
                "headline": summary.headline,
                "workloads": summary.groups,
                "warnings": summary.warnings,
            },
        },
    });
    if let Some(interrupted) = report.interrupted {
        whole["ringway"]["interrupted"] = json!(interrupted);
    }
    format!("{whole:#}\n")
}

/// The median run, as a whole or by job.
fn jobs_of(group: usize, measurement: &Measurement) -> Vec<Value> {
    let Some(run) = measurement.median() else { return Vec::new() };
    if !run.jobs.is_empty() {
        let one = |run| job(group, measurement, run, 1, own(measurement, run));
        return run.jobs.iter().map(one).collect();
    }
    let mut own = own(measurement, run);
    let rates = Spread::of(measurement.runs.iter().map(Run::ops_per_second));
    own["ops_per_second_of_runs"] = json!({
        "median": rounded(run.ops_per_second()),
        "min": rates.map(|rates| rounded(rates.low)),
        "max": rates.map(|rates| rounded(rates.high)),
    });
    own["runs"] = measurement.runs.iter().map(figures).collect();
    vec![job(group, measurement, run, measurement.workload.jobs, own)]
}

/// One entry of `jobs`, which stands for this many jobs.
fn job(group: usize, measurement: &Measurement, run: &Run, jobs: u32, own: Value) -> Value {
    let usage = &run.usage;
    // fio adds up the time of a group's jobs, and its CPU shares are of that sum.
    let job_runtime = usage.real.as_secs_f64() * f64::from(jobs.max(1));
    let share = |time: Duration| rounded(time.as_secs_f64() * 100.0 / job_runtime.max(1e-9));
    json!({
        "jobname": measurement.workload.name,
        "groupid": group,
        "error": run.errors.first().map_or(0, |&(errno, _)| errno),
        "eta": 0,
        "elapsed": usage.real.as_secs_f64().ceil() as u64,
        "job options": options(&measurement.workload),
        "read": direction(&run.read, usage.real),
        "write": direction(&run.write, usage.real),
        // fio's readers expect the key; bench never trims.
        "trim": direction(&Direction::default(), Duration::ZERO),
        "sync": { "total_ios": run.sync.ops, "lat_ns": latency(&run.sync.latency, true) },
        "job_runtime": (job_runtime * 1e3) as u64,
        "usr_cpu": share(usage.user),
        "sys_cpu": share(usage.system),
        "ctx": usage.context_switches(),
        "ringway": own,
    })
}

/// What fio has no name for.
fn own(measurement: &Measurement, run: &Run) -> Value {
    let workload = &measurement.workload;
    let mut own = figures(run);
    own["backend"] = workload.backend.name().into();
    own["configuration"] = configuration(workload).into();
    own["block_size"] = workload.block_size.into();
    own["depth"] = workload.depth.into();
    own["jobs"] = workload.jobs.into();
    own["direct"] = workload.direct.into();
    own["latency"] = "clat_ns and lat_ns are the same: from submission to completion".into();
    own["notes"] = measurement.notes.clone().into();
    own
}

/// The figures of one run.
fn figures(run: &Run) -> Value {
    let usage = &run.usage;
    let error = |(errno, times): &(i32, u64)| json!({ "errno": errno, "requests": times });
    let errors: Vec<Value> = run.errors.iter().map(error).collect();
    let mut out = json!({
        "ops": run.ops(),
        "bytes": run.bytes(),
        "ops_per_second": rounded(run.ops_per_second()),
        "real_seconds": usage.real.as_secs_f64(),
        "user_seconds": usage.user.as_secs_f64(),
        "system_seconds": usage.system.as_secs_f64(),
        "system_calls": run.system_calls,
        "helpers": {
            "sqpoll_seconds": usage.sqpoll.as_secs_f64(),
            "io_wq_seconds": usage.io_wq.as_secs_f64(),
            "io_wq_workers": usage.io_wq_workers,
        },
        "errors": errors,
    });
    if run.ops() > 0 {
        let per_op = |value: u64| rounded(value as f64 / run.ops() as f64);
        out["cpu_us_per_op"] = rounded(run.cpu_us_per_op());
        out["context_switches_per_op"] = per_op(usage.context_switches());
        out["system_calls_per_op"] = per_op(run.system_calls);
    }
    let mut both = run.read.completion().clone();
    add(&mut both, run.write.completion());
    if !both.is_empty() {
        out["lat_ns"] = latency(&both, true);
    }
    if run.read.submitted.is_some() || run.write.submitted.is_some() || run.not_started > 0 {
        // From the scheduled start, with requests that were due and never started.
        out["schedule_lat_ns"] = latency(&run.latency(), true);
        out["not_started"] = run.not_started.into();
    }
    if let Some(processors) = run.other_processors {
        out["other_processors"] = rounded(processors);
    }
    if let Some((blocks, wrong)) = run.verified {
        out["verify"] = json!({ "blocks": blocks, "wrong": wrong });
    }
    out
}

/// One direction in fio's units: bandwidth in KiB/s and B/s, run time in milliseconds.
fn direction(direction: &Direction, real: Duration) -> Value {
    let real = if direction.ops > 0 { real } else { Duration::ZERO };
    let none = Direction::default();
    // Without a completed request, the histogram has those that were never started.
    let completion = if direction.ops > 0 { direction.completion() } else { &none.latency };
    let per_second = |n: u64| n as f64 / real.as_secs_f64().max(1e-9);
    json!({
        "io_bytes": direction.bytes,
        "io_kbytes": direction.bytes / 1024,
        "bw_bytes": per_second(direction.bytes) as u64,
        "bw": (per_second(direction.bytes) / 1024.0) as u64,
        "iops": rounded(per_second(direction.ops)),
        "runtime": real.as_millis() as u64,
        "total_ios": direction.ops,
        "clat_ns": latency(completion, true),
        "lat_ns": latency(completion, false),
    })
}

fn latency(samples: &Histogram<u64>, percentiles: bool) -> Value {
    if samples.is_empty() {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    }
    let mut out = json!({
        "min": samples.min(),
        "max": samples.max(),
        "mean": rounded(samples.mean()),
        "stddev": rounded(samples.stdev()),
        "N": samples.len(),
    });
    if percentiles {
        let value =
            |percent: f64| Some((format!("{percent:.6}"), percentile(samples, percent)?.into()));
        let known = PERCENTILES.into_iter().filter_map(value).collect::<Map<_, _>>();
        out["percentile"] = known.into();
    }
    out
}

/// The settings as fio's options. Flags have the value `1`.
pub fn options(workload: &Workload) -> Map<String, Value> {
    let mut options = vec![("name", workload.name.clone())];
    options.extend(files(workload));
    options.push(("rw", workload.access.name().to_owned()));
    if workload.access.is_mixed() {
        options.push(("rwmixread", workload.read_percent.to_string()));
    }
    options.push(sizes(workload));
    // fio has no engine that is a pool of threads.
    let engine = match workload.backend {
        Backend::Uring => "io_uring",
        Backend::Kaio => "libaio",
        backend => backend.name(),
    };
    options.extend([
        ("ioengine", engine.to_owned()),
        ("iodepth", workload.depth.to_string()),
        ("numjobs", workload.jobs.to_string()),
        ("direct", u8::from(workload.direct).to_string()),
        ("iodepth_batch_submit", workload.group().to_string()),
        ("iodepth_batch_complete_min", workload.complete_min.to_string()),
    ]);
    match workload.stop {
        Stop::Requests(requests) => options.push(("number_ios", requests.to_string())),
        Stop::Bytes(bytes, _) => options.push(("io_size", bytes.to_string())),
        Stop::After(_) | Stop::Whole(_) => {}
    }
    let flags = [
        ("sqthread_poll", workload.sqpoll),
        ("hipri", workload.iopoll),
        ("passthrough", workload.passthrough),
        ("fixedbufs", workload.fixed_buffers),
        ("registerfiles", workload.fixed_files),
        ("norandommap", workload.no_random_map),
        ("group_reporting", workload.group_reporting),
        ("time_based", matches!(workload.stop, Stop::After(_))),
    ];
    let set = flags.into_iter().filter(|(_, on)| *on);
    options.extend(set.map(|(key, _)| (key, "1".to_owned())));
    let ramp = Some(workload.ramp).filter(|ramp| !ramp.is_zero());
    options.extend(workload.stop.runtime().map(|time| ("runtime", fio_time(time))));
    options.extend(ramp.map(|time| ("ramp_time", fio_time(time))));
    options.extend(workload.rate.map(|rate| match rate {
        Rate::Requests(rate) => ("rate_iops", rate.to_string()),
        Rate::Bytes(rate) => ("rate", rate.to_string()),
    }));
    if let Some(pause) = workload.pause {
        options.push(("thinktime", pause.time.as_micros().to_string()));
        options.push(("thinktime_blocks", pause.after.to_string()));
    }
    options.extend(workload.sync.map(|sync| (sync.name(), sync.every.to_string())));
    options.push(("randseed", workload.seed.to_string()));
    options.push(("randrepeat", u8::from(workload.rand_repeat).to_string()));
    options.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// The options of the files, and the part of them that is used.
fn files(workload: &Workload) -> Vec<(&'static str, String)> {
    let mut options = match &workload.target {
        Target::Scratch { size } => vec![("size", size.to_string())],
        Target::Files { paths, size } => {
            let size = size.map(|size| ("size", size.to_string()));
            std::iter::once(("filename", fio_names(paths))).chain(size).collect()
        }
        Target::Directory { path, size, files } => vec![
            ("directory", path.to_string_lossy().into_owned()),
            ("nrfiles", files.to_string()),
            ("filesize", size.to_string()),
        ],
    };
    if workload.percent != 100 {
        options.push(("size", format!("{}%", workload.percent)));
    }
    match workload.start {
        Amount::Bytes(0) | Amount::Percent(0) => {}
        Amount::Bytes(byte) => options.push(("offset", byte.to_string())),
        Amount::Percent(percent) => options.push(("offset", format!("{percent}%"))),
    }
    options
}

/// The option of the sizes of requests.
fn sizes(workload: &Workload) -> (&'static str, String) {
    let least = size_text(workload.block_size);
    match &workload.sizes {
        Sizes::One => ("bs", least),
        Sizes::UpTo(largest) => ("bsrange", format!("{least}-{}", size_text(*largest))),
        Sizes::Split(sizes) => {
            let part = |(size, percent): &(u64, u8)| format!("{}/{percent}", size_text(*size));
            ("bssplit", sizes.iter().map(part).collect::<Vec<_>>().join(":"))
        }
    }
}

/// The options that all measurements share.
fn common_options(report: &Report) -> Map<String, Value> {
    let mut all = report.measurements.iter().map(|measurement| options(&measurement.workload));
    let mut common = all.next().unwrap_or_default();
    for other in all {
        common.retain(|key, value| other.get(key) == Some(value));
    }
    common.shift_remove("name");
    common
}

/// In fio a colon separates names, and a colon in a name is written `\:`.
fn fio_names(paths: &[PathBuf]) -> String {
    let names: Vec<String> =
        paths.iter().map(|path| path.to_string_lossy().replace(':', "\\:")).collect();
    names.join(":")
}

/// Whole seconds without a unit, as usual in fio; otherwise with one.
fn fio_time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_micros()) {
        (seconds, 0) => seconds.to_string(),
        (_, micros) if micros.is_multiple_of(1000) => format!("{}ms", time.as_millis()),
        _ => format!("{}us", time.as_micros()),
    }
}

/// Six digits after the point, as fio writes them.
fn rounded(value: f64) -> Value {
    // Larger values have no such digits.
    let scaled = value * 1e6;
    if scaled.abs() < 2f64.powi(53) { (scaled.round() / 1e6).into() } else { value.into() }
}
