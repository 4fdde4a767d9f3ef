//! The report for spreadsheets and data frames: one row for each run, in raw units that the
//! headings name. Statistics are left to the reader.

use super::model::Model;
use crate::bench::result::{Direction, Measurement, Run};
use crate::bench::workload::{Rate, Stop, Target, Workload};
use hdrhistogram::Histogram;
use ringway_measure::stats;

/// One row for each run. A measurement that did not run has one row without figures, whose notes
/// contain the reason.
pub fn render(model: &Model) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |fields: &[Field], is_heading: bool| {
        let texts = fields.iter().map(|(name, text)| if is_heading { name } else { text });
        writer.write_record(texts).expect("rows in memory have the same length");
    };
    // A run of nothing has every column.
    write(&row(&Measurement::new(Workload::default()), None), true);
    for measurement in &model.report.measurements {
        let median = measurement.median();
        for (number, run) in (1..).zip(&measurement.runs) {
            let is_median = median.is_some_and(|median| std::ptr::eq(median, run));
            write(&row(measurement, Some((number, run, is_median))), false);
        }
        if measurement.runs.is_empty() {
            write(&row(measurement, None), false);
        }
    }
    let bytes = writer.into_inner().expect("writing to memory does not fail");
    String::from_utf8(bytes).expect("all fields are text")
}

/// A heading and a text.
type Field = (String, String);

/// All columns. Their order is stable; new ones are added at the end.
fn row(measurement: &Measurement, run: Option<(usize, &Run, bool)>) -> Vec<Field> {
    let workload = &measurement.workload;
    let (requests, bytes) = match workload.stop {
        Stop::Requests(requests) => (Some(requests), None),
        Stop::Bytes(bytes, _) => (None, Some(bytes)),
        Stop::After(_) | Stop::Whole(_) => (None, None),
    };
    let (rate, rate_bytes) = match workload.rate {
        Some(Rate::Requests(rate)) => (Some(rate), None),
        Some(Rate::Bytes(rate)) => (None, Some(rate)),
        None => (None, None),
    };
    let sync = |name| workload.sync.filter(|sync| sync.name() == name).map(|sync| sync.every);
    let target = match &workload.target {
        Target::Scratch { .. } => String::new(),
        Target::Files { paths, .. } => {
            paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":")
        }
        Target::Directory { path, .. } => path.to_string_lossy().into_owned(),
    };
    let run_only = run.map(|(_, run, _)| run);
    let mut fields = named([
        ("name", workload.name.clone()),
        ("backend", workload.backend.name().to_owned()),
        ("rw", workload.access.name().to_owned()),
        ("read_percent", text(workload.access.is_mixed().then_some(workload.read_percent))),
        ("block_size_bytes", workload.block_size.to_string()),
        ("depth", workload.depth.to_string()),
        ("jobs", workload.jobs.to_string()),
        ("direct", workload.direct.to_string()),
        ("sqpoll", workload.sqpoll.to_string()),
        ("iopoll", workload.iopoll.to_string()),
        ("passthrough", workload.passthrough.to_string()),
        ("fixed_buffers", workload.fixed_buffers.to_string()),
        ("fixed_files", workload.fixed_files.to_string()),
        ("batch", workload.group().to_string()),
        ("complete_min", workload.complete_min.to_string()),
        ("stop_after_seconds", text(workload.stop.runtime().map(|time| time.as_secs_f64()))),
        ("stop_after_requests_per_job", text(requests)),
        ("stop_after_bytes_per_job", text(bytes)),
        ("ramp_seconds", workload.ramp.as_secs_f64().to_string()),
        ("rate_per_job_per_second", text(rate)),
        ("fsync_every_writes", text(sync("fsync"))),
        ("fdatasync_every_writes", text(sync("fdatasync"))),
        ("verify", workload.verify.to_string()),
        ("target", target),
        ("run", text(run.map(|(number, ..)| number))),
        ("runs", text(run.map(|_| measurement.runs.len()))),
        ("is_median", text(run.map(|(.., is_median)| is_median))),
    ]);
    fields.extend(figures(run_only));
    fields.extend(named([
        ("notes", measurement.notes.join("; ")),
        ("largest_request_bytes", workload.largest_request().to_string()),
        ("rate_bytes_per_job_per_second", text(rate_bytes)),
        ("not_started_requests", text(run_only.map(|run| run.not_started))),
        ("other_processors", text(run_only.and_then(|run| run.other_processors))),
    ]));
    fields
}

/// The figures of a run; empty without one.
fn figures(run: Option<&Run>) -> Vec<Field> {
    let seconds = |time: fn(&Run) -> std::time::Duration| text(run.map(|r| time(r).as_secs_f64()));
    let number = |value: fn(&Run) -> u64| text(run.map(value));
    let ran = run.filter(|run| run.ops() > 0);
    let mut fields = named([
        ("real_seconds", seconds(|run| run.usage.real)),
        ("user_seconds", seconds(|run| run.usage.user)),
        ("system_seconds", seconds(|run| run.usage.system)),
        ("sqpoll_seconds", seconds(|run| run.usage.sqpoll)),
        ("io_wq_seconds", seconds(|run| run.usage.io_wq)),
        ("io_wq_workers", number(|run| run.usage.io_wq_workers.into())),
        ("context_switches", number(|run| run.usage.context_switches())),
        ("system_calls", number(|run| run.system_calls)),
        ("ops", number(Run::ops)),
        ("bytes", number(Run::bytes)),
        ("ops_per_second", text(run.map(Run::ops_per_second))),
        ("bytes_per_second", text(run.map(|run| run.per_second(run.bytes())))),
        ("cpu_us_per_op", text(ran.map(Run::cpu_us_per_op))),
    ]);
    fields.extend(direction("read", run.map(|run| &run.read)));
    fields.extend(direction("write", run.map(|run| &run.write)));
    fields.extend(direction("sync", run.map(|run| &run.sync)));
    let verified = run.and_then(|run| run.verified);
    fields.extend(named([
        ("failed_requests", number(Run::failed)),
        ("verified_blocks", text(verified.map(|(blocks, _)| blocks))),
        ("verified_wrong_blocks", text(verified.map(|(_, wrong)| wrong))),
    ]));
    fields
}

fn direction(name: &str, direction: Option<&Direction>) -> Vec<Field> {
    let latency =
        direction.map(|direction| &direction.latency).filter(|latency| !latency.is_empty());
    let percentile =
        |percent| text(latency.and_then(|samples| stats::percentile(samples, percent)));
    let values = [
        ("min", text(latency.map(Histogram::min))),
        ("mean", text(latency.map(Histogram::mean))),
        ("p50", percentile(50.0)),
        ("p99", percentile(99.0)),
        ("p99.9", percentile(99.9)),
        ("p99.99", percentile(99.99)),
        ("max", text(latency.map(Histogram::max))),
    ];
    let mut fields = vec![(format!("{name}_ops"), text(direction.map(|direction| direction.ops)))];
    if name != "sync" {
        fields.push((format!("{name}_bytes"), text(direction.map(|direction| direction.bytes))));
    }
    fields.extend(values.map(|(value, text)| (format!("{name}_latency_{value}_ns"), text)));
    fields
}

fn named<const N: usize>(fields: [(&str, String); N]) -> Vec<Field> {
    fields.map(|(name, text)| (name.to_owned(), text)).into()
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
