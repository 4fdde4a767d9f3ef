//! The report for scripts. Where fio has a figure it has fio's name and unit, so that what reads
//! `fio --output-format=json` reads this; what only ringway knows is under `ringway`. A key is
//! there only when its figure was measured: fio's `slat_ns`, `iodepth_level` and the like are not.

use super::words;
use crate::bench::result::{Cell, Direction, Report, Run};
use crate::bench::workload::{Backend, Rate, Sizes, Start, Stop, Sync, Target, Workload};
use hdrhistogram::Histogram;
use jiff::Zoned;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The percentiles that fio reports unless told otherwise.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The report, dated now.
pub fn render(report: &Report) -> String {
    render_at(report, &Zoned::now())
}

/// The report with a date of its own.
pub fn render_at(report: &Report, at: &Zoned) -> String {
    let ran = || report.cells.iter().filter(|cell| !cell.runs.is_empty());
    let jobs: Vec<Value> = ran().enumerate().flat_map(|(group, cell)| jobs(group, cell)).collect();
    let not_run: Vec<Value> = report
        .cells
        .iter()
        .filter(|cell| cell.runs.is_empty())
        .map(|cell| {
            json!({
                "jobname": cell.workload.name,
                "backend": words::backend(cell.workload.backend),
                "job options": options(&cell.workload),
                "notes": cell.notes,
            })
        })
        .collect();
    let whole = json!({
        "ringway version": env!("CARGO_PKG_VERSION"),
        "timestamp": at.timestamp().as_second(),
        "timestamp_ms": at.timestamp().as_millisecond(),
        "time": at.strftime("%a %b %e %H:%M:%S %Y").to_string(),
        "global options": common_options(&report.cells),
        "jobs": jobs,
        "ringway": {
            "command": report.command,
            "machine": report.machine,
            "not_run": not_run,
        },
    });
    let mut text = serde_json::to_string_pretty(&whole).expect("all keys are strings");
    text.push('\n');
    text
}

/// The median run under fio's names, as a whole or each of its jobs.
fn jobs(group: usize, cell: &Cell) -> Vec<Value> {
    let Some(run) = cell.median() else { return Vec::new() };
    if run.jobs.is_empty() {
        let mut own = own(cell, run);
        own.append(&mut runs(cell));
        return vec![job(group, cell, run, cell.workload.jobs, own)];
    }
    run.jobs.iter().map(|of_job| job(group, cell, of_job, 1, own(cell, of_job))).collect()
}

/// What this many jobs did under fio's names, and the rest.
fn job(group: usize, cell: &Cell, run: &Run, jobs: u32, own: Map<String, Value>) -> Value {
    let of = &cell.workload;
    let usage = &run.usage;
    // fio adds up the time of a group's jobs, and its shares are of that sum.
    let job_runtime = usage.real.as_secs_f64() * f64::from(jobs.max(1));
    let share = |time: Duration| rounded(time.as_secs_f64() * 100.0 / job_runtime.max(1e-9));
    json!({
        "jobname": of.name,
        "groupid": group,
        "error": run.errors.first().map_or(0, |&(errno, _)| errno),
        "eta": 0,
        "elapsed": usage.real.as_secs_f64().ceil() as u64,
        "job options": options(of),
        "read": direction(&run.read, usage.real),
        "write": direction(&run.write, usage.real),
        // There are no trims, so these are zero in truth.
        "trim": direction(&Direction::new(), Duration::ZERO),
        "sync": { "total_ios": run.sync.ops, "lat_ns": latency(&run.sync.latency, true) },
        "job_runtime": (job_runtime * 1e3) as u64,
        "usr_cpu": share(usage.user),
        "sys_cpu": share(usage.system),
        "ctx": usage.context_switches,
        "ringway": own,
    })
}

/// What fio has no name for.
fn own(cell: &Cell, run: &Run) -> Map<String, Value> {
    let of = &cell.workload;
    let mut out = figures(run);
    let mut add = |key: &str, value: Value| out.insert(key.to_owned(), value);
    add("backend", words::backend(of.backend).into());
    add("contender", words::contender(of).into());
    add("block_size", of.block_size.into());
    add("depth", of.depth.into());
    add("jobs", of.jobs.into());
    add("direct", of.direct.into());
    add("latency", "clat_ns and lat_ns hold the same figure: from submission to completion".into());
    add("notes", cell.notes.clone().into());
    out
}

/// All runs of a cell.
fn runs(cell: &Cell) -> Map<String, Value> {
    let mut rates: Vec<f64> = cell.runs.iter().map(Run::ops_per_second).collect();
    rates.sort_by(f64::total_cmp);
    let mut out = Map::new();
    let median = cell.median().map(|run| rounded(run.ops_per_second()));
    let (min, max) =
        (rates.first().map(|&rate| rounded(rate)), rates.last().map(|&rate| rounded(rate)));
    out.insert(
        "ops_per_second_of_runs".to_owned(),
        json!({ "median": median, "min": min, "max": max }),
    );
    out.insert("runs".to_owned(), cell.runs.iter().map(figures).collect::<Vec<_>>().into());
    out
}

/// The figures of one run.
fn figures(run: &Run) -> Map<String, Value> {
    let usage = &run.usage;
    let mut out = Map::new();
    let mut add = |key: &str, value: Value| out.insert(key.to_owned(), value);
    add("ops", run.ops().into());
    add("bytes", run.bytes().into());
    add("ops_per_second", rounded(run.ops_per_second()));
    add("real_seconds", usage.real.as_secs_f64().into());
    add("user_seconds", usage.user.as_secs_f64().into());
    add("system_seconds", usage.system.as_secs_f64().into());
    let per_op = |value: f64| rounded(value / run.ops() as f64);
    if run.ops() > 0 {
        add("cpu_us_per_op", rounded(run.cpu_us_per_op()));
        add("context_switches_per_op", per_op(usage.context_switches as f64));
        if let Some(calls) = usage.system_calls {
            add("system_calls_per_op", per_op(calls as f64));
        }
    }
    if let Some(calls) = usage.system_calls {
        add("system_calls", calls.into());
    }
    add(
        "helpers",
        json!({
            "sqpoll_seconds": usage.sqpoll.as_secs_f64(),
            "io_wq_seconds": usage.io_wq.as_secs_f64(),
            "io_wq_workers": usage.io_wq_workers,
        }),
    );
    let mut both = run.read.completion().clone();
    both.add(run.write.completion()).expect("both histograms have the same bounds");
    if !both.is_empty() {
        add("lat_ns", latency(&both, true));
    }
    if [&run.read, &run.write].iter().any(|direction| direction.submitted.is_some())
        || run.not_started > 0
    {
        // From when requests were due, with those that were due and never started.
        add("schedule_lat_ns", latency(&run.latency(), true));
        add("not_started", run.not_started.into());
    }
    if let Some((blocks, wrong)) = run.verified {
        add("verify", json!({ "blocks": blocks, "wrong": wrong }));
    }
    let errors: Vec<Value> = run
        .errors
        .iter()
        .map(|(errno, times)| json!({ "errno": errno, "requests": times }))
        .collect();
    add("errors", errors.into());
    out
}

/// One direction as fio writes it: bandwidth in KiB/s and B/s, run time in milliseconds.
fn direction(of: &Direction, real: Duration) -> Value {
    let real = if of.ops > 0 { real } else { Duration::ZERO };
    let none = Direction::new();
    // Those never started are in the other one.
    let completion = if of.ops > 0 { of.completion() } else { &none.latency };
    let a_second = |n: u64| n as f64 / real.as_secs_f64().max(1e-9);
    json!({
        "io_bytes": of.bytes,
        "io_kbytes": of.bytes / 1024,
        "bw_bytes": a_second(of.bytes) as u64,
        "bw": (a_second(of.bytes) / 1024.0) as u64,
        "iops": rounded(a_second(of.ops)),
        "runtime": real.as_millis() as u64,
        "total_ios": of.ops,
        "clat_ns": latency(completion, true),
        "lat_ns": latency(completion, false),
    })
}

fn latency(of: &Histogram<u64>, percentiles: bool) -> Value {
    if of.is_empty() {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    }
    let mut out = json!({
        "min": of.min(),
        "max": of.max(),
        "mean": rounded(of.mean()),
        "stddev": rounded(of.stdev()),
        "N": of.len(),
    });
    if percentiles {
        let values = PERCENTILES
            .iter()
            .map(|&percent| (format!("{percent:.6}"), of.value_at_percentile(percent).into()))
            .collect::<Map<_, _>>();
        out["percentile"] = values.into();
    }
    out
}

/// The settings as fio's options. fio's flags that take no value are written as `1`.
fn options(of: &Workload) -> Map<String, Value> {
    let mut out = Map::new();
    let mut add = |key: &str, value: String| out.insert(key.to_owned(), value.into());
    add("name", of.name.clone());
    match &of.target {
        Target::Scratch { size } => add("size", size.to_string()),
        Target::Files(paths) => add("filename", fio_names(paths)),
        Target::SizedFiles { paths, size } => {
            add("filename", fio_names(paths));
            add("size", size.to_string())
        }
        Target::Directory { path, size, files } => {
            add("directory", path.to_string_lossy().into_owned());
            add("nrfiles", files.to_string());
            add("filesize", size.to_string())
        }
    };
    if of.percent != 100 {
        add("size", format!("{}%", of.percent));
    }
    match of.start {
        Start::Byte(0) | Start::Percent(0) => None,
        Start::Byte(byte) => add("offset", byte.to_string()),
        Start::Percent(percent) => add("offset", format!("{percent}%")),
    };
    add("rw", of.access.name().to_owned());
    if words::is_mixed(of.access) {
        add("rwmixread", of.read_percent.to_string());
    }
    match &of.sizes {
        Sizes::One => add("bs", fio_size(of.block_size)),
        Sizes::UpTo(largest) => {
            add("bsrange", format!("{}-{}", fio_size(of.block_size), fio_size(*largest)))
        }
        Sizes::Split(sizes) => {
            let parts =
                sizes.iter().map(|(size, percent)| format!("{}/{percent}", fio_size(*size)));
            add("bssplit", parts.collect::<Vec<_>>().join(":"))
        }
    };
    // fio's names; it has no engine that is a pool of threads.
    let engine = match of.backend {
        Backend::Uring => "io_uring",
        Backend::Kaio => "libaio",
        Backend::Threads => "threads",
        Backend::Psync => "psync",
        Backend::Null => "null",
    };
    add("ioengine", engine.to_owned());
    add("iodepth", of.depth.to_string());
    add("numjobs", of.jobs.to_string());
    add("direct", u8::from(of.direct).to_string());
    let flags = [
        ("sqthread_poll", of.sqpoll),
        ("hipri", of.iopoll),
        ("fixedbufs", of.fixed_buffers),
        ("registerfiles", of.fixed_files),
        ("norandommap", of.no_random_map),
        ("group_reporting", of.group_reporting),
    ];
    for (flag, _) in flags.iter().filter(|(_, set)| *set) {
        add(flag, "1".to_owned());
    }
    add("iodepth_batch_submit", of.group().to_string());
    add("iodepth_batch_complete_min", of.complete_min.to_string());
    let time = match of.stop {
        Stop::After(time) => {
            add("time_based", "1".to_owned());
            Some(time)
        }
        Stop::Requests(requests) => {
            add("number_ios", requests.to_string());
            None
        }
        Stop::Bytes(bytes, time) => {
            add("io_size", bytes.to_string());
            time
        }
        Stop::Whole(time) => time,
    };
    if let Some(time) = time {
        add("runtime", fio_time(time));
    }
    if !of.ramp.is_zero() {
        add("ramp_time", fio_time(of.ramp));
    }
    match of.rate {
        Some(Rate::Requests(rate)) => add("rate_iops", rate.to_string()),
        Some(Rate::Bytes(rate)) => add("rate", rate.to_string()),
        None => None,
    };
    if let Some(pause) = of.pause {
        add("thinktime", pause.time.as_micros().to_string());
        add("thinktime_blocks", pause.after.to_string());
    }
    match of.sync {
        Some(Sync::Fsync(every)) => add("fsync", every.to_string()),
        Some(Sync::Fdatasync(every)) => add("fdatasync", every.to_string()),
        None => None,
    };
    add("randseed", of.seed.to_string());
    add("randrepeat", u8::from(of.rand_repeat).to_string());
    out
}

/// The options that are the same for every cell.
fn common_options(cells: &[Cell]) -> Map<String, Value> {
    let mut all = cells.iter().map(|cell| options(&cell.workload));
    let mut common = all.next().unwrap_or_default();
    for other in all {
        common.retain(|key, value| other.get(key) == Some(value));
    }
    common.shift_remove("name");
    common
}

/// A colon separates names in fio, and is written `\:` within one.
fn fio_names(paths: &[PathBuf]) -> String {
    let names: Vec<String> =
        paths.iter().map(|path| path.to_string_lossy().replace(':', "\\:")).collect();
    names.join(":")
}

/// `4k`, as fio's options are usually written.
fn fio_size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        n if n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}k", n >> 10),
        n => n.to_string(),
    }
}

/// Seconds, fio's unit without a suffix, where they are whole.
fn fio_time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_micros()) {
        (seconds, 0) => seconds.to_string(),
        (_, micros) if micros.is_multiple_of(1000) => format!("{}ms", time.as_millis()),
        _ => format!("{}us", time.as_micros()),
    }
}

/// Six digits after the point, as fio writes them.
fn rounded(value: f64) -> Value {
    // Values too large for this have no such digits.
    let scaled = value * 1e6;
    if scaled.abs() < 2f64.powi(53) { (scaled.round() / 1e6).into() } else { value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use proptest::prelude::*;

    /// The keys that fio 3.33 writes and that are measured here, by where they stand.
    const OF_FIO: [(&str, &[&str]); 7] = [
        ("", &["timestamp", "timestamp_ms", "time", "global options", "jobs"]),
        (
            "/jobs/0",
            &[
                "jobname",
                "groupid",
                "error",
                "eta",
                "elapsed",
                "job options",
                "read",
                "write",
                "trim",
                "sync",
                "job_runtime",
                "usr_cpu",
                "sys_cpu",
                "ctx",
            ],
        ),
        (
            "/jobs/0/read",
            &[
                "io_bytes",
                "io_kbytes",
                "bw_bytes",
                "bw",
                "iops",
                "runtime",
                "total_ios",
                "clat_ns",
                "lat_ns",
            ],
        ),
        ("/jobs/0/read/clat_ns", &["min", "max", "mean", "stddev", "N", "percentile"]),
        (
            "/jobs/0/read/clat_ns/percentile",
            &[
                "1.000000",
                "5.000000",
                "10.000000",
                "20.000000",
                "30.000000",
                "40.000000",
                "50.000000",
                "60.000000",
                "70.000000",
                "80.000000",
                "90.000000",
                "95.000000",
                "99.000000",
                "99.500000",
                "99.900000",
                "99.950000",
                "99.990000",
            ],
        ),
        ("/jobs/0/read/lat_ns", &["min", "max", "mean", "stddev", "N"]),
        ("/jobs/0/sync/lat_ns", &["min", "max", "mean", "stddev", "N", "percentile"]),
    ];

    fn parse(report: &Report) -> Value {
        serde_json::from_str(&render(report)).unwrap()
    }

    #[test]
    fn the_keys_are_fios_and_ringways_alone() {
        let whole = parse(&samples::mixed());
        for (place, keys) in OF_FIO {
            let object = whole.pointer(place).unwrap().as_object().unwrap();
            let known: Vec<&str> = object
                .keys()
                .map(String::as_str)
                .filter(|key| !key.starts_with("ringway"))
                .collect();
            assert_eq!(known, keys, "at {place}");
        }
        assert!(whole.get("fio version").is_none());
        assert_eq!(whole["ringway version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn the_units_are_fios() {
        let mut report = samples::one_cell();
        let run = &mut report.cells[0].runs[0];
        run.read.ops = 1000;
        run.read.bytes = 4_096_000;
        run.usage.real = Duration::from_millis(2000);
        run.usage.user = Duration::from_millis(500);
        report.cells[0].workload.jobs = 2;
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
    fn every_run_is_there_and_the_date_is_the_given_one() {
        let report = samples::depths();
        let at =
            jiff::Timestamp::from_second(1_770_091_506).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
        let whole: Value = serde_json::from_str(&render_at(&report, &at)).unwrap();
        assert_eq!(whole["time"], "Tue Feb  3 04:05:06 2026");
        assert_eq!(whole["timestamp"], 1_770_091_506);
        assert_eq!(whole["jobs"].as_array().unwrap().len(), 12);
        let own = &whole["jobs"][3]["ringway"];
        assert_eq!(own["backend"], "kaio");
        assert_eq!(own["runs"].as_array().unwrap().len(), 3);
        let rates = &own["ops_per_second_of_runs"];
        assert!(rates["min"].as_f64() < rates["median"].as_f64(), "{rates}");
        assert!(rates["median"].as_f64() < rates["max"].as_f64(), "{rates}");
        let common = whole["global options"].as_object().unwrap();
        assert_eq!(common["rw"], "randread");
        assert!(!common.contains_key("iodepth") && !common.contains_key("ioengine"), "{common:?}");
    }

    #[test]
    fn jobs_that_are_not_reported_as_a_group_have_an_entry_each() {
        let mut report = samples::one_cell();
        let cell = &mut report.cells[0];
        cell.workload.jobs = 3;
        let run = &mut cell.runs[0];
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
    fn at_a_fixed_rate_fios_latencies_are_from_submission_and_of_what_was_started() {
        let mut report = samples::one_cell();
        let cell = &mut report.cells[0];
        cell.workload.rate = Some(Rate::Requests(1000));
        let run = &mut cell.runs[0];
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
    fn engines_have_fios_names() {
        let names =
            [(Backend::Uring, "io_uring"), (Backend::Kaio, "libaio"), (Backend::Psync, "psync")];
        for (backend, name) in names {
            let mut report = samples::one_cell();
            report.cells[0].workload.backend = backend;
            let whole = parse(&report);
            assert_eq!(whole["jobs"][0]["job options"]["ioengine"], name);
            assert_eq!(whole["jobs"][0]["ringway"]["backend"], words::backend(backend));
        }
    }

    #[test]
    fn what_did_not_run_is_no_job() {
        let mut report = samples::depths();
        report.cells[0].runs.clear();
        report.cells[0].notes.push("io_uring_setup: EPERM".into());
        let whole = parse(&report);
        assert_eq!(whole["jobs"].as_array().unwrap().len(), 11);
        assert_eq!(whole["ringway"]["not_run"][0]["backend"], "uring");
        assert_eq!(whole["ringway"]["not_run"][0]["notes"][0], "io_uring_setup: EPERM");
    }

    #[test]
    fn file_names_keep_their_colons() {
        let mut report = samples::one_cell();
        report.cells[0].workload.target = Target::Files(vec!["/a:b".into(), "/\"c\"".into()]);
        assert_eq!(parse(&report)["jobs"][0]["job options"]["filename"], "/a\\:b:/\"c\"");
    }

    #[test]
    fn times_and_sizes_are_written_as_fio_reads_them() {
        assert_eq!(fio_time(Duration::from_secs(90)), "90");
        assert_eq!(fio_time(Duration::from_millis(1500)), "1500ms");
        assert_eq!(fio_time(Duration::from_micros(1500)), "1500us");
        assert_eq!(fio_size(4096), "4k");
        assert_eq!(fio_size(1 << 20), "1m");
        assert_eq!(fio_size(512), "512");
    }

    /// Anything that is not a number becomes null when it is written.
    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(all) => all.iter().any(has_null),
            Value::Object(all) => all.values().any(has_null),
            _ => false,
        }
    }

    #[test]
    fn odd_reports_are_readable() {
        for report in samples::odd() {
            assert!(!has_null(&parse(&report)), "{}", render(&report));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_report_is_readable_and_every_figure_a_number(report in samples::anything()) {
            let whole = parse(&report);
            prop_assert!(!has_null(&whole));
            let groups: std::collections::BTreeSet<_> =
                whole["jobs"].as_array().unwrap().iter().map(|job| job["groupid"].as_u64()).collect();
            let cells = groups.len() + whole["ringway"]["not_run"].as_array().unwrap().len();
            prop_assert_eq!(cells, report.cells.len());
        }
    }
}
