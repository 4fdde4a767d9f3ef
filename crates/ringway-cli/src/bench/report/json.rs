//! The report for scripts. A figure that fio has, has fio's name and unit, so programs that read
//! `fio --output-format=json` can read this. Everything else is under `ringway`. There are only
//! keys of measured figures: fio's `slat_ns`, `iodepth_level` and others are missing.
//! `docs/command-line.md` documents the keys; they are stable.

use super::configuration::configuration;
use super::model::Model;
use crate::bench::plan::size_text;
use crate::bench::result::{Direction, Measurement, Report, Run, add};
use crate::bench::workload::{Backend, Rate, Sizes, Start, Stop, Target, Workload};
use hdrhistogram::Histogram;
use jiff::Zoned;
use ringway_measure::stats::percentile;
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
        return run
            .jobs
            .iter()
            .map(|job_run| job(group, measurement, job_run, 1, own(measurement, job_run)))
            .collect();
    }
    let mut own = own(measurement, run);
    let mut rates: Vec<f64> = measurement.runs.iter().map(Run::ops_per_second).collect();
    rates.sort_by(f64::total_cmp);
    own["ops_per_second_of_runs"] = json!({
        "median": rounded(run.ops_per_second()),
        "min": rates.first().map(|rate| rounded(*rate)),
        "max": rates.last().map(|rate| rounded(*rate)),
    });
    own["runs"] = measurement.runs.iter().map(figures).collect();
    vec![job(group, measurement, run, measurement.workload.jobs, own)]
}

/// One entry of `jobs`, which stands for this many jobs.
fn job(group: usize, measurement: &Measurement, run: &Run, jobs: u32, own: Value) -> Value {
    let usage = &run.usage;
    // fio adds up the time measurement a group's jobs, and its CPU shares are measurement that sum.
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
        "trim": direction(&Direction::new(), Duration::ZERO),
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
    let errors: Vec<Value> = run
        .errors
        .iter()
        .map(|(errno, times)| json!({ "errno": errno, "requests": times }))
        .collect();
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
    let none = Direction::new();
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
fn options(workload: &Workload) -> Map<String, Value> {
    let mut options = Map::new();
    let mut set = |key: &str, value: &dyn ToString| {
        options.insert(key.to_owned(), value.to_string().into());
    };
    set("name", &workload.name);
    match &workload.target {
        Target::Scratch { size } => set("size", size),
        Target::Files(paths) => set("filename", &fio_names(paths)),
        Target::SizedFiles { paths, size } => {
            set("filename", &fio_names(paths));
            set("size", size);
        }
        Target::Directory { path, size, files } => {
            set("directory", &path.to_string_lossy());
            set("nrfiles", files);
            set("filesize", size);
        }
    }
    if workload.percent != 100 {
        set("size", &format!("{}%", workload.percent));
    }
    match workload.start {
        Start::Byte(0) | Start::Percent(0) => {}
        Start::Byte(byte) => set("offset", &byte),
        Start::Percent(percent) => set("offset", &format!("{percent}%")),
    }
    set("rw", &workload.access.name());
    if workload.access.is_mixed() {
        set("rwmixread", &workload.read_percent);
    }
    let block_size = size_text(workload.block_size);
    match &workload.sizes {
        Sizes::One => set("bs", &block_size),
        Sizes::UpTo(largest) => set("bsrange", &format!("{block_size}-{}", size_text(*largest))),
        Sizes::Split(sizes) => {
            let part = |(size, percent): &(u64, u8)| format!("{}/{percent}", size_text(*size));
            set("bssplit", &sizes.iter().map(part).collect::<Vec<_>>().join(":"));
        }
    }
    // fio has no engine that is a pool of threads.
    match workload.backend {
        Backend::Uring => set("ioengine", &"io_uring"),
        Backend::Kaio => set("ioengine", &"libaio"),
        backend => set("ioengine", &backend.name()),
    }
    set("iodepth", &workload.depth);
    set("numjobs", &workload.jobs);
    set("direct", &u8::from(workload.direct));
    set("iodepth_batch_submit", &workload.group());
    set("iodepth_batch_complete_min", &workload.complete_min);
    let runtime = match workload.stop {
        Stop::After(time) => Some(time),
        Stop::Requests(requests) => {
            set("number_ios", &requests);
            None
        }
        Stop::Bytes(bytes, time) => {
            set("io_size", &bytes);
            time
        }
        Stop::Whole(time) => time,
    };
    for (key, on) in [
        ("sqthread_poll", workload.sqpoll),
        ("hipri", workload.iopoll),
        ("passthrough", workload.passthrough),
        ("fixedbufs", workload.fixed_buffers),
        ("registerfiles", workload.fixed_files),
        ("norandommap", workload.no_random_map),
        ("group_reporting", workload.group_reporting),
        ("time_based", matches!(workload.stop, Stop::After(_))),
    ] {
        if on {
            set(key, &1);
        }
    }
    if let Some(time) = runtime {
        set("runtime", &fio_time(time));
    }
    if !workload.ramp.is_zero() {
        set("ramp_time", &fio_time(workload.ramp));
    }
    match workload.rate {
        Some(Rate::Requests(rate)) => set("rate_iops", &rate),
        Some(Rate::Bytes(rate)) => set("rate", &rate),
        None => {}
    }
    if let Some(pause) = workload.pause {
        set("thinktime", &pause.time.as_micros());
        set("thinktime_blocks", &pause.after);
    }
    if let Some(sync) = workload.sync {
        set(sync.name(), &sync.every());
    }
    set("randseed", &workload.seed);
    set("randrepeat", &u8::from(workload.rand_repeat));
    options
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;

    /// The keys of fio 3.33 that are measured here, by their place.
    const OF_FIO: [(&str, &str); 7] = [
        ("", "timestamp|timestamp_ms|time|global options|jobs"),
        (
            "/jobs/0",
            "jobname|groupid|error|eta|elapsed|job options|read|write|trim|sync|job_runtime|\
             usr_cpu|sys_cpu|ctx",
        ),
        ("/jobs/0/read", "io_bytes|io_kbytes|bw_bytes|bw|iops|runtime|total_ios|clat_ns|lat_ns"),
        ("/jobs/0/read/clat_ns", "min|max|mean|stddev|N|percentile"),
        (
            "/jobs/0/read/clat_ns/percentile",
            "1.000000|5.000000|10.000000|20.000000|30.000000|40.000000|50.000000|60.000000|\
             70.000000|80.000000|90.000000|95.000000|99.000000|99.500000|99.900000|99.950000|\
             99.990000",
        ),
        ("/jobs/0/read/lat_ns", "min|max|mean|stddev|N"),
        ("/jobs/0/sync/lat_ns", "min|max|mean|stddev|N|percentile"),
    ];

    fn parse(report: &Report) -> Value {
        serde_json::from_str(&render(&Model::new(report))).unwrap()
    }

    #[test]
    fn the_keys_are_those_of_fio_and_ringway() {
        let whole = parse(&samples::mixed());
        for (place, keys) in OF_FIO {
            let object = whole.pointer(place).unwrap().as_object().unwrap();
            let known: Vec<&str> = object
                .keys()
                .map(String::as_str)
                .filter(|key| !key.starts_with("ringway"))
                .collect();
            assert_eq!(known.join("|"), keys, "at {place}");
        }
        assert!(whole.get("fio version").is_none());
        assert_eq!(whole["ringway version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn the_units_are_those_of_fio() {
        let mut report = samples::one_measurement();
        let run = &mut report.measurements[0].runs[0];
        run.read.ops = 1000;
        run.read.bytes = 4_096_000;
        run.usage.real = Duration::from_millis(2000);
        run.usage.user = Duration::from_millis(500);
        report.measurements[0].workload.jobs = 2;
        let whole = parse(&report);
        let job = &whole["jobs"][0];
        assert_eq!(job["read"]["bw_bytes"], 2_048_000);
        assert_eq!(job["read"]["bw"], 2000, "KiB/s");
        assert_eq!(job["read"]["iops"], 500.0);
        assert_eq!(job["read"]["runtime"], 2000, "ms");
        assert_eq!(job["job_runtime"], 4000, "of both jobs");
        assert_eq!(job["usr_cpu"], 12.5);
        assert_eq!(job["write"]["total_ios"], 0);
        assert_eq!(job["job options"]["bs"], "4k");
        assert_eq!(job["job options"]["ioengine"], "io_uring");
        assert_eq!(job["job options"]["runtime"], "5");
        assert_eq!(job["trim"]["runtime"], 0);
    }

    #[test]
    fn all_runs_and_the_date_are_there() {
        let report = samples::depths();
        let at =
            jiff::Timestamp::from_second(1_770_091_506).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
        let whole: Value = serde_json::from_str(&render_at(&Model::new(&report), &at)).unwrap();
        assert_eq!(whole["time"], "Tue Feb  3 04:05:06 2026");
        assert_eq!(whole["timestamp"], 1_770_091_506);
        assert_eq!(whole["jobs"].as_array().unwrap().len(), 12);
        let own = &whole["jobs"][3]["ringway"];
        assert_eq!(own["backend"], "kaio");
        assert_eq!(own["runs"].as_array().unwrap().len(), 3);
        let rates = &own["ops_per_second_of_runs"];
        assert!(rates["min"].as_f64() < rates["median"].as_f64(), "{rates}");
        assert!(rates["median"].as_f64() < rates["max"].as_f64(), "{rates}");
        let summary = &whole["ringway"]["summary"];
        assert!(summary["headline"].as_str().unwrap().contains("uring"), "{summary}");
        assert_eq!(summary["workloads"].as_array().unwrap().len(), 1);
        let common = whole["global options"].as_object().unwrap();
        assert_eq!(common["rw"], "randread");
        assert!(!common.contains_key("iodepth") && !common.contains_key("ioengine"), "{common:?}");
    }

    #[test]
    fn jobs_without_group_reporting_have_separate_entries() {
        let mut report = samples::one_measurement();
        let measured = &mut report.measurements[0];
        measured.workload.jobs = 3;
        let run = &mut measured.runs[0];
        run.jobs = vec![Run::default(), run.clone(), Run { errors: vec![(5, 1)], ..run.clone() }];
        let whole = parse(&report);
        let jobs = whole["jobs"].as_array().unwrap();
        assert_eq!(
            jobs.iter().map(|job| job["groupid"].as_u64()).collect::<Vec<_>>(),
            [Some(0); 3]
        );
        assert_eq!(
            jobs.iter().map(|job| job["error"].as_u64()).collect::<Vec<_>>(),
            [Some(0), Some(0), Some(5)]
        );
        assert_eq!(
            (&jobs[0]["read"]["total_ios"], &jobs[1]["job_runtime"]),
            (&0.into(), &5000.into())
        );
    }

    #[test]
    fn at_a_fixed_rate_the_latencies_of_fio_count_from_submission() {
        let mut report = samples::one_measurement();
        let measured = &mut report.measurements[0];
        measured.workload.rate = Some(Rate::Requests(1000));
        let run = &mut measured.runs[0];
        run.read = Direction::new();
        run.read.count(4096, 5_000_000, Some(1_000));
        run.read.latency.record(9_000_000).unwrap();
        run.not_started = 1;
        let whole = parse(&report);
        let job = &whole["jobs"][0];
        for key in ["clat_ns", "lat_ns"] {
            assert_eq!(
                (&job["read"][key]["N"], &job["read"][key]["max"]),
                (&1.into(), &1000.into()),
                "{key}"
            );
        }
        assert_eq!(
            (&job["write"]["clat_ns"]["N"], &job["ringway"]["lat_ns"]["N"]),
            (&0.into(), &1.into())
        );
        assert_eq!(
            (&job["ringway"]["schedule_lat_ns"]["N"], &job["ringway"]["not_started"]),
            (&2.into(), &1.into())
        );
    }

    #[test]
    fn engines_have_the_names_of_fio() {
        let names =
            [(Backend::Uring, "io_uring"), (Backend::Kaio, "libaio"), (Backend::Psync, "psync")];
        for (backend, name) in names {
            let mut report = samples::one_measurement();
            report.measurements[0].workload.backend = backend;
            let whole = parse(&report);
            assert_eq!(whole["jobs"][0]["job options"]["ioengine"], name);
            assert_eq!(whole["jobs"][0]["ringway"]["backend"], backend.name());
        }
    }

    #[test]
    fn a_measurement_that_did_not_run_is_not_a_job() {
        let mut report = samples::depths();
        report.measurements[0].runs.clear();
        report.measurements[0].notes.push("io_uring_setup: EPERM".into());
        let whole = parse(&report);
        assert_eq!(whole["jobs"].as_array().unwrap().len(), 11);
        assert_eq!(whole["ringway"]["not_run"][0]["backend"], "uring");
        assert_eq!(whole["ringway"]["not_run"][0]["notes"][0], "io_uring_setup: EPERM");
    }

    #[test]
    fn file_names_keep_their_colons() {
        let mut report = samples::one_measurement();
        report.measurements[0].workload.target =
            Target::Files(vec!["/a:b".into(), "/\"c\"".into()]);
        assert_eq!(parse(&report)["jobs"][0]["job options"]["filename"], "/a\\:b:/\"c\"");
    }

    #[test]
    fn times_are_written_as_fio_reads_them() {
        assert_eq!(fio_time(Duration::from_secs(90)), "90");
        assert_eq!(fio_time(Duration::from_millis(1500)), "1500ms");
        assert_eq!(fio_time(Duration::from_micros(1500)), "1500us");
    }
}
