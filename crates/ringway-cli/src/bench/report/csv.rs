//! The report for spreadsheets and data frames: one row for each run, in raw units that the
//! headings name. Statistics are left to the reader.

use super::model::Model;
use crate::bench::result::{Direction, Measurement, Run};
use crate::bench::workload::{Rate, Stop, Sync, Target, Workload};
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
fn row(of: &Measurement, run: Option<(usize, &Run, bool)>) -> Vec<Field> {
    let workload = &of.workload;
    let (after, requests, bytes) = match workload.stop {
        Stop::After(time) => (Some(time), None, None),
        Stop::Requests(requests) => (None, Some(requests), None),
        Stop::Bytes(bytes, time) => (time, None, Some(bytes)),
        Stop::Whole(time) => (time, None, None),
    };
    let (fsync, fdatasync) = match workload.sync {
        Some(Sync::Fsync(every)) => (Some(every), None),
        Some(Sync::Fdatasync(every)) => (None, Some(every)),
        None => (None, None),
    };
    let (rate, rate_bytes) = match workload.rate {
        Some(Rate::Requests(rate)) => (Some(rate), None),
        Some(Rate::Bytes(rate)) => (None, Some(rate)),
        None => (None, None),
    };
    let target = match &workload.target {
        Target::Scratch { .. } => String::new(),
        Target::Files(paths) | Target::SizedFiles { paths, .. } => {
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
        ("stop_after_seconds", text(after.map(|time| time.as_secs_f64()))),
        ("stop_after_requests_per_job", text(requests)),
        ("stop_after_bytes_per_job", text(bytes)),
        ("ramp_seconds", workload.ramp.as_secs_f64().to_string()),
        ("rate_per_job_per_second", text(rate)),
        ("fsync_every_writes", text(fsync)),
        ("fdatasync_every_writes", text(fdatasync)),
        ("verify", workload.verify.to_string()),
        ("target", target),
        ("run", text(run.map(|(number, ..)| number))),
        ("runs", text(run.map(|_| of.runs.len()))),
        ("is_median", text(run.map(|(.., is_median)| is_median))),
    ]);
    fields.extend(figures(run_only));
    fields.extend(named([
        ("notes", of.notes.join("; ")),
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
    let number = |of: fn(&Run) -> u64| text(run.map(of));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use crate::bench::result::Report;

    /// The headings are an interface: existing ones keep their name and place.
    const HEADINGS: &str = "\
        name backend rw read_percent block_size_bytes depth jobs direct sqpoll iopoll \
        passthrough fixed_buffers fixed_files batch complete_min stop_after_seconds \
        stop_after_requests_per_job stop_after_bytes_per_job ramp_seconds \
        rate_per_job_per_second fsync_every_writes fdatasync_every_writes verify target run runs \
        is_median real_seconds user_seconds system_seconds sqpoll_seconds io_wq_seconds \
        io_wq_workers context_switches system_calls ops bytes ops_per_second bytes_per_second \
        cpu_us_per_op read_ops read_bytes read_latency_min_ns read_latency_mean_ns \
        read_latency_p50_ns read_latency_p99_ns read_latency_p99.9_ns read_latency_p99.99_ns \
        read_latency_max_ns write_ops write_bytes write_latency_min_ns write_latency_mean_ns \
        write_latency_p50_ns write_latency_p99_ns write_latency_p99.9_ns write_latency_p99.99_ns \
        write_latency_max_ns sync_ops sync_latency_min_ns sync_latency_mean_ns \
        sync_latency_p50_ns sync_latency_p99_ns sync_latency_p99.9_ns sync_latency_p99.99_ns \
        sync_latency_max_ns failed_requests verified_blocks verified_wrong_blocks notes \
        largest_request_bytes rate_bytes_per_job_per_second not_started_requests \
        other_processors";

    fn render(report: &Report) -> String {
        super::render(&Model::new(report))
    }

    fn column(name: &str) -> usize {
        HEADINGS.split(' ').position(|heading| heading == name).unwrap()
    }

    fn read(text: &str) -> Vec<Vec<String>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_run_has_a_row_with_its_figures() {
        let report = samples::mixed();
        let rows = read(&render(&report));
        assert_eq!(rows[0].join(" "), HEADINGS);
        assert_eq!(rows.len(), 1 + 8 * 3);
        let run = &report.measurements[0].runs[1];
        assert_eq!(rows[2][column("run")], "2");
        assert_eq!(rows[2][column("ops")], run.ops().to_string());
        assert_eq!(rows[2][column("read_bytes")], run.read.bytes.to_string());
        assert_eq!(rows[2][column("fsync_every_writes")], "16");
        assert_eq!(rows[2][column("sync_latency_max_ns")], run.sync.latency.max().to_string());
        assert_eq!(rows[2][column("ops_per_second")].parse::<f64>().unwrap(), run.ops_per_second());
        assert_eq!(rows[2][column("failed_requests")], "0");
        let medians = rows.iter().filter(|row| row[column("is_median")] == "true").count();
        assert_eq!(medians, 8, "one of each measurement");
    }

    #[test]
    fn hostile_names_are_quoted() {
        let mut report = samples::one_measurement();
        let name = "a,\"b\"\r\nc";
        report.measurements[0].workload.target = Target::Files(vec![name.into()]);
        report.measurements[0].runs.clear();
        report.measurements[0].notes = vec!["refused, \"why\"".into()];
        let rows = read(&render(&report));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1][column("target")], name);
        assert_eq!(rows[1][column("notes")], "refused, \"why\"");
        assert_eq!(rows[1][column("ops")], "");
    }
}
