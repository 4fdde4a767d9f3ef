//! What holds for all writers: any report is written, every figure is a number, and percentiles
//! have enough samples. Then what each writer shows of the samples.

use super::configuration::{Setting, configuration, describe, names, notes};
use super::model::{Figures, Model};
use super::samples::{self, measurement, workload};
use super::{csv, html, json, terminal};
use crate::bench::result::{Direction, Interrupted, Measurement, Report, Run};
use crate::bench::workload::{Backend, Rate, Sizes, Target};
use Backend::{Kaio, Null, Psync, Threads, Uring};
use proptest::prelude::*;
use ringway_measure::text::{ABSENT, COLUMNS};
use roxmltree::{Document, ParsingOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

fn text(report: &Report) -> String {
    terminal::render(&Model::new(report))
}

/// The text as one line, so that it does not matter where lines are broken.
fn flat(report: &Report) -> String {
    text(report).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json_of(report: &Report) -> Value {
    serde_json::from_str(&json::render(&Model::new(report))).unwrap()
}

fn csv_of(report: &Report) -> Vec<Vec<String>> {
    let text = csv::render(&Model::new(report));
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

fn page(report: &Report) -> String {
    html::render(&Model::new(report)).unwrap()
}

/// The page as a tree. It is well-formed XML, so a strict parser can read it.
fn tree(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

/// All text of the page.
fn words(page: &str) -> String {
    tree(page).descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

/// A report with a change to each measurement.
fn with(mut report: Report, mut change: impl FnMut(&mut Measurement)) -> Report {
    for measured in &mut report.measurements {
        change(measured);
    }
    report
}

/// Measurements at depth 32 with these operations a second and costs.
fn duel(backends: &[(Backend, f64, f64)], spread: f64) -> Report {
    let measured = |&(backend, ops, cpu): &(_, f64, f64)| {
        measurement(workload(backend, 32), ops, cpu, 3, spread)
    };
    samples::report(backends.iter().map(measured).collect())
}

fn files(paths: &[&str]) -> Target {
    Target::Files { paths: paths.iter().map(Into::into).collect(), size: None }
}

/// serde_json writes null for a figure that is not a number.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.iter().any(has_null),
        Value::Object(all) => all.values().any(has_null),
        _ => false,
    }
}

/// Writes a report in all formats and reads each with a strict parser.
fn check(report: &Report) {
    let (text, page, rows, whole) = (text(report), page(report), csv_of(report), json_of(report));
    for text in [&text, &page, &rows.concat().join(" ")] {
        assert!(!text.is_empty() && !samples::has_no_number(text), "{text}");
    }
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    let runs = report.measurements.iter().map(|measurement| measurement.runs.len().max(1));
    assert_eq!(rows.len(), 1 + runs.sum::<usize>());
    assert!(!has_null(&whole), "{whole:#}");
    let jobs = whole["jobs"].as_array().unwrap();
    let groups: BTreeSet<_> = jobs.iter().map(|job| job["groupid"].as_u64()).collect();
    let not_run = whole["ringway"]["not_run"].as_array().unwrap();
    assert_eq!(groups.len() + not_run.len(), report.measurements.len());
    tree(&page);
}

#[test]
fn odd_reports_are_written() {
    for mut report in samples::odd() {
        check(&report);
        report.measurements.retain(|measurement| measurement.workload.backend != Threads);
        check(&report);
        let is_empty = report.measurements.is_empty();
        assert_eq!(text(&report).contains("Nothing was measured.\n"), is_empty);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_is_written(report in samples::anything()) {
        check(&report);
    }
}

#[test]
fn percentiles_need_enough_samples() {
    let with_samples = |samples| {
        with(samples::along_depths(&[32], |_| {}), |measured| {
            for run in &mut measured.runs {
                run.read.latency.reset();
                run.read.latency.record_n(1000, samples).unwrap();
            }
        })
    };
    let report = with_samples(999);
    let table = text(&report);
    let headings = table.lines().filter(|line| line.contains("p99  ")).collect::<String>();
    assert!(!headings.is_empty() && !headings.contains("p99.9"), "{table}");
    let rows = csv_of(&report);
    let value = |percent: &str| &rows[1][column(&format!("read_latency_{percent}_ns"))];
    assert_eq!(value("p99"), value("p50"));
    assert_eq!([value("p99.9"), value("p99.99")], ["", ""]);
    let whole = json_of(&report);
    let percentiles = whole["jobs"][0]["read"]["clat_ns"]["percentile"].as_object().unwrap();
    assert_eq!(percentiles.keys().next_back().unwrap(), "99.500000");
    assert_eq!(percentiles.len(), 14);
    // In the latency chart: 50, 75, 90, 95 and 99, and one in the legend; three backends.
    let page = page(&report);
    let chart = &page[page.find("Latency at depth 32").unwrap()..];
    assert_eq!(chart.matches("<circle").count(), 3 * (5 + 1));

    let mut report = with_samples(999);
    let latency = &mut report.measurements[0].runs[0].read.latency;
    latency.reset();
    latency.record_n(1000, 99).unwrap();
    assert_eq!(text(&report).matches(ABSENT).count(), 1, "no p99 of uring\n{}", text(&report));
}

/// The headline, then texts that the report shows, and texts that it does not.
type Words = (Report, &'static str, Texts, Texts);

/// Backends with their operations a second and costs, and the spread of their runs; then the words
/// as in [`Words`].
type Duel = (&'static [(Backend, f64, f64)], f64, &'static str, Texts, Texts);
type Texts = &'static [&'static str];

const DUELS: &[Duel] = &[
    (
        &[(Uring, 1e5, 5.0), (Kaio, 1.01e5, 5.0)],
        0.02,
        "The runs show no difference: kaio and uring (equal).",
        &["uring 100 k ops/s ±2.0 % (equal)"],
        &["Fastest"],
    ),
    (
        &[(Uring, 1.5e5, 4.0), (Kaio, 1e5, 8.0)],
        0.02,
        "Fastest and least CPU time an operation: uring.",
        &["kaio 100 k ops/s ±2.0 % (0.67×) at 8.00 CPU µs/op (2.00×)"],
        &["(equal)"],
    ),
    (
        // The runs overlap.
        &[(Uring, 1e5, 5.0), (Kaio, 1.03e5, 5.0)],
        0.02,
        "Fastest: undecided between kaio and uring. Least CPU time an operation: kaio and uring \
         (equal).",
        &["uring 100 k ops/s ±2.0 % (undecided)"],
        &[],
    ),
    (
        // They lie further than a fifth from their median.
        &[(Uring, 1.8e5, 4.0), (Kaio, 1e5, 4.0)],
        0.25,
        "Fastest: undecided between uring and kaio. Least CPU time an operation: uring and kaio \
         (equal).",
        &["kaio 100 k ops/s ±25.0 % (undecided)", "uring; kaio: the runs lie further than"],
        &[],
    ),
    (
        // Then only runs that are far apart decide.
        &[(Uring, 1e6, 4.0), (Kaio, 1e5, 4.0)],
        0.25,
        "Fastest and least CPU time an operation: uring.",
        &[],
        &[],
    ),
    (
        &[(Uring, 1e5, 8.0), (Kaio, 1.001e5, 4.0)],
        0.02,
        "Fastest: kaio and uring (equal). Least CPU time an operation: kaio.",
        &["uring 100 k ops/s ±2.0 % (equal) at 8.00 CPU µs/op (2.00×)"],
        &[],
    ),
    (
        &[(Uring, 1.5e5, 8.0), (Kaio, 1e5, 4.0)],
        0.02,
        "Fastest: uring. Least CPU time an operation: kaio.",
        &["kaio 100 k ops/s ±2.0 % (0.67×) at 4.00 CPU µs/op (0.50×)"],
        &[],
    ),
    (
        &[(Uring, 1e5, 5.0), (Null, 1.5e5, 3.0)],
        0.01,
        "Only uring was measured, so there is nothing to compare.",
        &["The harness alone does less than twice", "it limits the figures"],
        &[],
    ),
];

/// Other reports and their words.
fn others() -> Vec<Words> {
    let harness = |measured: &Measurement| measured.workload.backend == Null;
    let (mut only_harness, mut nothing) = (samples::depths(), samples::depths());
    only_harness.measurements.retain(harness);
    nothing.measurements.clear();
    let mut on_disk = with(samples::depths(), |measured| {
        for run in &mut measured.runs {
            run.usage.io_wq_workers = 3;
            run.usage.io_wq = run.usage.system / 2;
        }
    });
    on_disk.machine.device = "sda, scheduler mq-deadline, nr_requests 64".into();
    on_disk.machine.file_system = "tmpfs".into();
    let mut interrupted = samples::depths();
    interrupted.interrupted = Some(Interrupted { finished: 35, planned: 36 });
    let single = with(duel(&[(Uring, 1e5, 5.0), (Kaio, 1.07e5, 5.0)], 0.0), |measured| {
        measured.runs.truncate(1);
    });
    let rates = [(Uring, 2e4, 9.0), (Kaio, 2e4, 5.0), (Threads, 1.2e4, 20.0)];
    let fixed_rate = with(duel(&rates, 0.0), |measured| {
        measured.workload.rate = Some(Rate::Requests(20_000));
    });
    // Of requests with different sizes, the smaller one of each pair gives the block size.
    let bytes = with(duel(&[(Kaio, 500.0, 5.0), (Threads, 100.0, 20.0)], 0.0), |measured| {
        measured.workload.rate = Some(Rate::Bytes(16 << 20));
        measured.workload.sizes = Sizes::Split(vec![(4096, 50), (65_536, 50)]);
        measured.runs.iter_mut().for_each(|run| run.read.bytes = run.read.ops * 34 * 1024);
    });
    let busy = |processors: f64, which: std::ops::Range<usize>| {
        let mut report = with(samples::depths(), |measured| {
            measured.runs.iter_mut().for_each(|run| run.other_processors = Some(0.75));
        });
        for run in report.measurements[which].iter_mut().flat_map(|measured| &mut measured.runs) {
            run.other_processors = Some(processors);
        }
        report
    };
    vec![
        (
            samples::depths(),
            "Fastest: uring and kaio (equal) at depth 1; uring at depth 32 and 128. Least CPU time \
             an operation: uring at every depth measured.",
            &["Depth 32: uring", "The harness itself costs 0.10"],
            &["it limits the figures", "scheduler mq", "Warnings"],
        ),
        (
            samples::block_sizes(),
            "The fastest of 6 comparisons (one for each workload and depth): uring in 6.",
            &["randread, 64 KiB, direct, 1 job, depth 32 "],
            &[],
        ),
        (
            samples::one_measurement(),
            "Only uring was measured, so there is nothing to compare.",
            &["depth 32, 1 job, 5.00 s"],
            &["Fastest"],
        ),
        (
            single,
            "Fastest and least CPU time an operation: undecided between kaio and uring.",
            &["differences below 10 % are undecided"],
            &["±"],
        ),
        (
            fixed_rate,
            "Keeps the rate of 20.0 k requests a second at the least CPU time an operation: kaio. \
             threads fell behind the rate.",
            &[
                "threads 12.0 k ops/s ±0.0 % (0.60×)",
                "kaio 20.0 k ops/s ±0.0 % (equal) at 5.00 CPU µs/op (0.56×)",
            ],
            &[],
        ),
        (
            bytes,
            "Keeps the rate of 16 MiB a second at the least CPU time an operation: kaio. threads \
             fell behind the rate.",
            &[],
            &[],
        ),
        (nothing, "Nothing was measured: no configuration completed an operation.", &[], &[]),
        (only_harness, "No backend was measured, only the harness.", &[], &[]),
        (
            samples::odd().remove(3),
            "",
            &["Nothing was measured of kaio.", "kaio: io_setup: EAGAIN; fix: raise fs.aio-max-nr"],
            &[],
        ),
        (
            on_disk,
            "",
            &["The mq-deadline scheduler", "holds 64 requests", "no device", "3 worker threads"],
            &[],
        ),
        (interrupted, "", &["Interrupted: 35 of 36 runs finished. Fastest: "], &[]),
        (busy(0.75, 0..0), "", &[], &["busy"]),
        (
            busy(1.5, 4..5),
            "",
            &["other programs used up to 1.50 of 8 processors during kaio at depth 32."],
            &[],
        ),
        (busy(1.0, 0..12), "", &["1.00 of 8 processors during all rows."], &[]),
    ]
}

#[test]
fn conclusions_claim_no_more_than_the_runs_show() {
    let duels = DUELS.iter().map(|&(backends, spread, headline, shown, hidden)| -> Words {
        (duel(backends, spread), headline, shown, hidden)
    });
    for (report, headline, shown, hidden) in duels.chain(others()) {
        let (text, summary) = (flat(&report), Model::new(&report).summary);
        assert!(headline.is_empty() || summary.headline == headline, "{}", summary.headline);
        for part in shown {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        // What the headings of the table say is no conclusion.
        let words = [&[summary.headline], &summary.warnings[..], &summary.reading].concat();
        let words =
            words.into_iter().chain(summary.groups.into_iter().flat_map(|group| {
                group.reasons.into_iter().chain([group.choice]).collect::<Vec<_>>()
            }));
        let words = words.collect::<Vec<_>>().join(" ");
        assert!(hidden.iter().all(|part| !words.contains(part)), "{hidden:?}: {words}");
    }
}

#[test]
fn each_depth_has_its_own_conclusion() {
    let rates = [(1, 1e4, 1.2e4), (32, 2e5, 1.5e5), (128, 2.01e5, 1.5e5)];
    let measured = |(depth, uring, kaio)| {
        [(Uring, uring), (Kaio, kaio)]
            .map(|(backend, rate)| measurement(workload(backend, depth), rate, 4.0, 3, 0.01))
    };
    let report = samples::report(rates.into_iter().flat_map(measured).collect());
    let group = &Model::new(&report).summary.groups[0];
    let choice = "Fastest and least CPU time an operation: kaio at depth 1; uring at depth 32 and \
                  128.";
    assert_eq!(group.choice, choice);
    let enough = "Depth 32 is enough for uring: more depth adds no ops/s.";
    assert_eq!(group.reasons.last().unwrap(), enough);
}

/// Whatever the table shows, the configuration that the headline calls the fastest is in its first
/// place, and no other is equal.
#[test]
fn the_fastest_is_the_first_of_the_table() {
    for (uring, kaio) in [(100.0, 99.0), (99.0, 100.0), (100.0, 80.0), (80.0, 100.0)] {
        for spread in [0.0, 0.02, 0.3] {
            let report = duel(&[(Uring, uring, 8.0), (Kaio, kaio, 4.0)], spread);
            let summary = Model::new(&report).summary;
            let mut order = ["uring", "kaio"];
            order.sort_by_key(|name| (*name == "uring") != (uring > kaio));
            let [is_decided, names_other] = order.map(|name| {
                let texts = ["Fastest: ", "Fastest and least CPU time an operation: "];
                texts.iter().any(|text| summary.headline.contains(&format!("{text}{name}.")))
            });
            let others = summary.groups[0].reasons[0].split_once("; ").unwrap().1;
            let has_ratio = others.split_once(" at ").unwrap().0.contains('×');
            assert!(!names_other && is_decided == has_ratio, "{} {others}", summary.headline);
        }
    }
}

#[test]
fn a_configuration_is_named_by_backend_and_options() {
    let mut named = workload(Uring, 32);
    let settings = [Setting::Access, Setting::BlockSize, Setting::Jobs, Setting::Direct];
    assert_eq!(describe(&named, &settings), "randread, 4 KiB, 1 job, direct");
    (named.sqpoll, named.fixed_buffers) = (true, true);
    assert_eq!(configuration(&named), "uring +sqpoll +fixedbufs");
    (named.fixed_files, named.batch, named.complete_min) = (true, Some(8), 4);
    assert_eq!(configuration(&named), "uring +sqpoll +fixed batch=8 min=4");
}

#[test]
fn a_note_that_several_share_appears_once() {
    let report = with(samples::depths(), |measured| {
        if measured.workload.backend == Kaio {
            measured.notes.push("ran on \x1b[31mthreads".into());
        }
    });
    assert_eq!(notes(&report), ["kaio: ran on \u{fffd}[31mthreads"]);
    let some = |report: &'static Report, has: fn(&Measurement) -> bool, count| {
        let rows = report.measurements.iter().filter(|row| has(row)).take(count);
        names(report, &rows.collect::<Vec<_>>())
    };
    let report = Box::leak(Box::new(report));
    assert_eq!(some(report, |row| !row.notes.is_empty(), 2), "kaio at depth 1 and 32");
    let report = Box::leak(Box::new(samples::everything()));
    let name = "uring +sqpoll +fixed, write";
    assert_eq!(some(report, |row| row.runs.is_empty(), 4), name);
    assert_eq!(some(report, |row| row.runs.is_empty(), 1), format!("{name} at depth 1"));
}

#[test]
fn a_group_holds_what_can_be_compared() {
    let report = samples::block_sizes();
    let model = Model::new(&report);
    assert_eq!(model.groups(Setting::Depth).len(), 6, "one for each block size");
    let by_size = model.groups(Setting::BlockSize);
    assert_eq!((by_size.len(), by_size[0].entries.len()), (1, 4 * 6));
    assert_eq!(by_size[0].title, "randread, direct, depth 32, 1 job");
    // Without operations there are no figures.
    let idle = with(report, |measured| measured.runs.iter_mut().for_each(|run| run.read.ops = 0));
    assert!(idle.measurements.iter().all(|measured| Figures::new(measured).is_none()));
}

#[test]
fn equal_rows_have_names() {
    let mut report = samples::depths();
    let mut twin = report.measurements[0].clone();
    twin.workload.name = "again\x1b[2J".into();
    report.measurements.push(twin);
    let groups = Model::new(&report).groups(Setting::Depth)[0].entries.len();
    assert_eq!(groups, 13);
    let text = text(&report);
    assert!(flat(&report).contains("uring (again\u{fffd}[2J) 12.3 k ops/s"), "{text}");
    assert!(text.contains("  name ") && !text.contains('\x1b'), "{text}");
}

#[test]
fn shared_settings_are_above_the_table_and_columns_are_aligned() {
    let text = text(&samples::depths());
    assert!(text.contains("\nrandread, 4 KiB, direct, 1 job, 5.00 s\n"), "{text}");
    assert!(text.contains("median of 3 runs"), "{text}");
    let rows: Vec<usize> = text
        .lines()
        .filter(|line| !line.contains("ops/s") && line.contains(" %  "))
        .map(|line| line.chars().count())
        .collect();
    assert!(rows.len() == 12 && rows.iter().all(|width| *width == rows[0]), "{text}");
    let headings: String = text.lines().filter(|line| line.starts_with("backend")).collect();
    for gone in [" rw", "block", "jobs", "I/O", "real", "SQPOLL"] {
        assert!(!headings.contains(gone), "{gone} is the same everywhere\n{text}");
    }
    for kept in ["ops/s", "±", "MB/s", "CPU µs/op", "p99.99", "max", "user", "system"] {
        assert_eq!(headings.matches(kept).count(), 1, "{kept}\n{text}");
    }
}

#[test]
fn a_report_fits_a_terminal() {
    use samples::{block_sizes, depths, everything, mixed};
    for text in [depths(), mixed(), block_sizes(), everything()].map(|report| text(&report)) {
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }
}

#[test]
fn rows_show_directions_helpers_failures_and_notes() {
    let mixed = text(&samples::mixed());
    let parts = mixed.matches("\nbackend ").count();
    for part in ["\n  reads ", "\n  writes ", "\n  syncs "] {
        assert_eq!(mixed.matches(part).count(), parts * 8, "{part}\n{mixed}");
    }
    assert!(mixed.contains("randrw 70/30, 4 KiB, direct, 1 job, fsync after 16 writes"), "{mixed}");

    let mut report = samples::everything();
    report.measurements[0].notes.push("fixed files refused".into());
    report.measurements[0].runs[1].errors = vec![(5, 4)];
    report.measurements[0].runs[2].verified = Some((1000, 2));
    for part in [
        "4.85 s",
        "7 requests failed: EIO (Input/output error)",
        "2 of 1,000 checked blocks had wrong bytes",
        "fixed files refused",
        "SQPOLL refused: EPERM; fix: run with CAP_SYS_NICE",
        "did not run",
    ] {
        assert!(flat(&report).contains(part), "{part}: {}", text(&report));
    }
}

/// The headings are an interface: existing ones keep their name and place.
const HEADINGS: &str = "\
    name backend rw read_percent block_size_bytes depth jobs direct sqpoll iopoll passthrough \
    fixed_buffers fixed_files batch complete_min stop_after_seconds stop_after_requests_per_job \
    stop_after_bytes_per_job ramp_seconds rate_per_job_per_second fsync_every_writes \
    fdatasync_every_writes verify target run runs is_median real_seconds user_seconds \
    system_seconds sqpoll_seconds io_wq_seconds io_wq_workers context_switches system_calls ops \
    bytes ops_per_second bytes_per_second cpu_us_per_op read_ops read_bytes read_latency_min_ns \
    read_latency_mean_ns read_latency_p50_ns read_latency_p99_ns read_latency_p99.9_ns \
    read_latency_p99.99_ns read_latency_max_ns write_ops write_bytes write_latency_min_ns \
    write_latency_mean_ns write_latency_p50_ns write_latency_p99_ns write_latency_p99.9_ns \
    write_latency_p99.99_ns write_latency_max_ns sync_ops sync_latency_min_ns \
    sync_latency_mean_ns sync_latency_p50_ns sync_latency_p99_ns sync_latency_p99.9_ns \
    sync_latency_p99.99_ns sync_latency_max_ns failed_requests verified_blocks \
    verified_wrong_blocks notes largest_request_bytes rate_bytes_per_job_per_second \
    not_started_requests other_processors";

fn column(name: &str) -> usize {
    HEADINGS.split(' ').position(|heading| heading == name).unwrap()
}

#[test]
fn csv_has_a_row_for_each_run() {
    let report = samples::mixed();
    let rows = csv_of(&report);
    assert_eq!(rows[0].join(" "), HEADINGS);
    let run = &report.measurements[0].runs[1];
    for (name, value) in [
        ("run", "2".to_owned()),
        ("ops", run.ops().to_string()),
        ("read_bytes", run.read.bytes.to_string()),
        ("fsync_every_writes", "16".to_owned()),
        ("sync_latency_max_ns", run.sync.latency.max().to_string()),
        ("ops_per_second", run.ops_per_second().to_string()),
        ("failed_requests", "0".to_owned()),
    ] {
        assert_eq!(rows[2][column(name)], value, "{name}");
    }
    let medians = rows.iter().filter(|row| row[column("is_median")] == "true").count();
    assert_eq!(medians, 8, "one of each measurement");

    let hostile = with(samples::one_measurement(), |measured| {
        measured.workload.target = files(&["a,\"b\"\r\nc"]);
        measured.runs.clear();
        measured.notes = vec!["refused, \"why\"".into()];
    });
    let rows = csv_of(&hostile);
    let cells = ["target", "notes", "ops"].map(|name| &rows[1][column(name)]);
    assert_eq!(cells, ["a,\"b\"\r\nc", "refused, \"why\"", ""]);
}

/// The keys of fio 3.33 that are measured here, by their place.
const OF_FIO: &[(&str, &str)] = &[
    ("", "timestamp timestamp_ms time global\u{a0}options jobs"),
    (
        "/jobs/0",
        "jobname groupid error eta elapsed job\u{a0}options read write trim sync job_runtime \
         usr_cpu sys_cpu ctx",
    ),
    ("/jobs/0/read", "io_bytes io_kbytes bw_bytes bw iops runtime total_ios clat_ns lat_ns"),
    ("/jobs/0/read/clat_ns", "min max mean stddev N percentile"),
    (
        "/jobs/0/read/clat_ns/percentile",
        "1.000000 5.000000 10.000000 20.000000 30.000000 40.000000 50.000000 60.000000 70.000000 \
         80.000000 90.000000 95.000000 99.000000 99.500000 99.900000 99.950000 99.990000",
    ),
    ("/jobs/0/read/lat_ns", "min max mean stddev N"),
    ("/jobs/0/sync/lat_ns", "min max mean stddev N percentile"),
];

#[test]
fn the_keys_of_json_are_those_of_fio_and_ringway() {
    let whole = json_of(&samples::mixed());
    for (place, keys) in OF_FIO {
        let object = whole.pointer(place).unwrap().as_object().unwrap();
        let known = object.keys().filter(|key| !key.starts_with("ringway"));
        let known: Vec<String> = known.map(|key| key.replace(' ', "\u{a0}")).collect();
        assert_eq!(known.join(" "), *keys, "at {place}");
    }
    assert!(whole.get("fio version").is_none());
    assert_eq!(whole["ringway version"], env!("CARGO_PKG_VERSION"));
}

/// One measurement after a change, and values of its JSON.
type Values = (fn(&mut Measurement), &'static [(&'static str, &'static str)]);

const VALUES: &[Values] = &[
    (
        |measured| {
            let run = &mut measured.runs[0];
            (run.read.ops, run.read.bytes) = (1000, 4_096_000);
            run.usage.real = Duration::from_millis(2000);
            run.usage.user = Duration::from_millis(500);
            measured.workload.jobs = 2;
        },
        &[
            ("/jobs/0/read/bw_bytes", "2048000"),
            ("/jobs/0/read/bw", "2000"),
            ("/jobs/0/read/iops", "500.0"),
            ("/jobs/0/read/runtime", "2000"),
            ("/jobs/0/job_runtime", "4000"),
            ("/jobs/0/usr_cpu", "12.5"),
            ("/jobs/0/write/total_ios", "0"),
            ("/jobs/0/trim/runtime", "0"),
            ("/jobs/0/job options/bs", "\"4k\""),
            ("/jobs/0/job options/ioengine", "\"io_uring\""),
            ("/jobs/0/job options/runtime", "\"5\""),
        ],
    ),
    (
        // Without group_reporting, jobs have separate entries.
        |measured| {
            measured.workload.jobs = 3;
            let run = &mut measured.runs[0];
            let failed = Run { errors: vec![(5, 1)], ..run.clone() };
            run.jobs = vec![Run::default(), run.clone(), failed];
        },
        &[
            ("/jobs/0/groupid", "0"),
            ("/jobs/2/groupid", "0"),
            ("/jobs/0/error", "0"),
            ("/jobs/2/error", "5"),
            ("/jobs/0/read/total_ios", "0"),
            ("/jobs/1/job_runtime", "5000"),
        ],
    ),
    (
        // At a fixed rate the latencies of fio count from submission.
        |measured| {
            measured.workload.rate = Some(Rate::Requests(1000));
            let run = &mut measured.runs[0];
            run.read = Direction::default();
            run.read.count(4096, 5_000_000, Some(1_000));
            run.read.latency.record(9_000_000).unwrap();
            run.not_started = 1;
        },
        &[
            ("/jobs/0/read/clat_ns/N", "1"),
            ("/jobs/0/read/clat_ns/max", "1000"),
            ("/jobs/0/read/lat_ns/N", "1"),
            ("/jobs/0/read/lat_ns/max", "1000"),
            ("/jobs/0/write/clat_ns/N", "0"),
            ("/jobs/0/ringway/lat_ns/N", "1"),
            ("/jobs/0/ringway/schedule_lat_ns/N", "2"),
            ("/jobs/0/ringway/not_started", "1"),
        ],
    ),
    (
        |measured| measured.workload.backend = Kaio,
        &[("/jobs/0/job options/ioengine", "\"libaio\""), ("/jobs/0/ringway/backend", "\"kaio\"")],
    ),
    (
        |measured| measured.workload.backend = Psync,
        &[("/jobs/0/job options/ioengine", "\"psync\""), ("/jobs/0/ringway/backend", "\"psync\"")],
    ),
    (
        |measured| {
            measured.workload.target = files(&["/a:b", "/\"c\""]);
            measured.workload.ramp = Duration::from_millis(1500);
            measured.workload.stop =
                crate::bench::workload::Stop::Bytes(4096, Some(Duration::from_micros(1500)));
        },
        &[
            ("/jobs/0/job options/filename", r#""/a\\:b:/\"c\"""#),
            ("/jobs/0/job options/ramp_time", "\"1500ms\""),
            ("/jobs/0/job options/runtime", "\"1500us\""),
        ],
    ),
    (
        |measured| {
            measured.runs.clear();
            measured.notes.push("io_uring_setup: EPERM".into());
        },
        &[
            ("/jobs", "[]"),
            ("/ringway/not_run/0/backend", "\"uring\""),
            ("/ringway/not_run/0/notes", "[\"io_uring_setup: EPERM\"]"),
        ],
    ),
];

#[test]
fn the_values_of_json_are_those_of_fio() {
    for (change, values) in VALUES {
        let whole = json_of(&with(samples::one_measurement(), change));
        for (place, value) in *values {
            let found = whole.pointer(place).unwrap_or_else(|| panic!("{place}: {whole:#}"));
            assert_eq!(found.to_string(), *value, "{place}");
        }
    }
}

#[test]
fn json_has_all_runs_the_date_and_the_summary() {
    let at = jiff::Timestamp::from_second(1_770_091_506).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
    let report = samples::depths();
    let whole = json::render_at(&Model::new(&report), &at);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["time"], "Tue Feb  3 04:05:06 2026");
    assert_eq!(whole["timestamp"], 1_770_091_506);
    assert_eq!(whole["jobs"].as_array().unwrap().len(), 12);
    let own = &whole["jobs"][3]["ringway"];
    assert_eq!((&own["backend"], own["runs"].as_array().unwrap().len()), (&json!("kaio"), 3));
    let [min, median, max] =
        ["min", "median", "max"].map(|key| own["ops_per_second_of_runs"][key].as_f64().unwrap());
    assert!(min < median && median < max);
    let summary = &whole["ringway"]["summary"];
    assert!(summary["headline"].as_str().unwrap().contains("uring"), "{summary}");
    assert_eq!(summary["workloads"].as_array().unwrap().len(), 1);
    let common = whole["global options"].as_object().unwrap();
    assert_eq!(common["rw"], "randread");
    assert!(!common.contains_key("iodepth") && !common.contains_key("ioengine"), "{common:?}");
}

/// Reports, the number of elements or marks of their pages, and texts.
type Page = (Report, &'static [(&'static str, usize)], &'static [&'static str]);

#[test]
fn a_page_has_its_charts_its_table_and_its_summary() {
    let pages: [Page; 4] = [
        (
            samples::depths(),
            // Operations and CPU time by depth, and latency at each of 3 depths. Speed has 3
            // backends by 3 depths; CPU the harness too; latency 7 percentiles. Each line has a
            // circle in the legend.
            &[
                ("<figure ", 2 + 3),
                ("<tr>", 1 + 12),
                ("<circle", (9 + 3) + (12 + 4) + 3 * 3 * (7 + 1)),
            ],
            &[
                "Fastest: uring and kaio (equal) at depth 1; uring at depth 32 and 128.",
                "Linux 6.12.9, 8 processors",
                "ringway bench --rw randread --bs 4k --depth 1,32,128 --runs 3",
            ],
        ),
        (
            // Speed, and CPU time with the harness.
            samples::along_depths(&[32], |_| {}),
            &[("<figure ", 2), ("<rect ", 2 + 3 + 4)],
            &["CPU time an operation"],
        ),
        (samples::block_sizes(), &[], &["bytes a second", "64 KiB"]),
        (
            samples::odd().remove(3),
            &[(">did not run<", 3), ("<circle", (6 + 2) + (9 + 3) + 3 * 2 * (7 + 1))],
            &["kaio: io_setup: EAGAIN; fix: raise fs.aio-max-nr"],
        ),
    ];
    for (report, counts, texts) in pages {
        let page = page(&report);
        for (mark, count) in counts {
            assert_eq!(page.matches(mark).count(), *count, "{mark}");
        }
        let words = words(&page);
        assert!(texts.iter().all(|text| words.contains(text)), "{texts:?}\n{words}");
    }
}

#[test]
fn a_page_loads_nothing_from_elsewhere_and_hostile_names_stay_text() {
    let hostile = "</title><script>alert(\"1\")</script>'&\u{0}";
    let mut number = 0;
    let mut report = with(samples::everything(), |measured| {
        number += 1;
        measured.workload.name = hostile.into();
        measured.workload.target = files(&[&format!("{hostile}{}", number % 2)]);
        measured.notes = vec![hostile.into()];
    });
    report.command = hostile.into();
    report.machine.kernel = hostile.into();
    report.machine.device = hostile.into();
    report.machine.remarks = vec![hostile.into()];
    report.machine.refused = vec![hostile.into()];
    let page = page(&report);
    assert!(words(&page).contains("<script>alert(\"1\")</script>'&\u{fffd}"));
    for foreign in ["https:", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // The name of SVG's namespace is not an address.
    assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("http:"));
}
