//! The report for spreadsheets and data frames: one row a run, so that the reader does the
//! statistics, in raw units that the headings name. Quoting is that of RFC 4180.

use super::words;
use crate::bench::result::{Cell, Direction, Report, Run};
use crate::bench::workload::{Rate, Stop, Sync, Target};

/// Every heading, always in this order; new ones are added at the end.
const HEADINGS: &[&str] = &[
    "name",
    "backend",
    "rw",
    "read_percent",
    "block_size_bytes",
    "depth",
    "jobs",
    "direct",
    "sqpoll",
    "iopoll",
    "fixed_buffers",
    "fixed_files",
    "batch",
    "complete_min",
    "stop_after_seconds",
    "stop_after_requests_per_job",
    "stop_after_bytes_per_job",
    "ramp_seconds",
    "rate_per_job_per_second",
    "fsync_every_writes",
    "fdatasync_every_writes",
    "verify",
    "target",
    "run",
    "runs",
    "is_median",
    "real_seconds",
    "user_seconds",
    "system_seconds",
    "sqpoll_seconds",
    "io_wq_seconds",
    "io_wq_workers",
    "context_switches",
    "system_calls",
    "ops",
    "bytes",
    "ops_per_second",
    "bytes_per_second",
    "cpu_us_per_op",
    "read_ops",
    "read_bytes",
    "read_latency_min_ns",
    "read_latency_mean_ns",
    "read_latency_p50_ns",
    "read_latency_p99_ns",
    "read_latency_p99.9_ns",
    "read_latency_p99.99_ns",
    "read_latency_max_ns",
    "write_ops",
    "write_bytes",
    "write_latency_min_ns",
    "write_latency_mean_ns",
    "write_latency_p50_ns",
    "write_latency_p99_ns",
    "write_latency_p99.9_ns",
    "write_latency_p99.99_ns",
    "write_latency_max_ns",
    "sync_ops",
    "sync_latency_min_ns",
    "sync_latency_mean_ns",
    "sync_latency_p50_ns",
    "sync_latency_p99_ns",
    "sync_latency_p99.9_ns",
    "sync_latency_p99.99_ns",
    "sync_latency_max_ns",
    "failed_requests",
    "verified_blocks",
    "verified_wrong_blocks",
    "notes",
    "largest_request_bytes",
    "rate_bytes_per_job_per_second",
    "not_started_requests",
];

/// One row a run; a cell that did not run has one row without figures, which says why.
pub fn render(report: &Report) -> String {
    let mut out = line(HEADINGS.iter().map(|&heading| heading.to_owned()));
    for cell in &report.cells {
        let median = cell.median();
        for (at, run) in cell.runs.iter().enumerate() {
            let is_median = median.is_some_and(|median| std::ptr::eq(median, run));
            out.push_str(&row(cell, Some((at + 1, run, is_median))));
        }
        if cell.runs.is_empty() {
            out.push_str(&row(cell, None));
        }
    }
    out
}

fn row(cell: &Cell, run: Option<(usize, &Run, bool)>) -> String {
    let of = &cell.workload;
    let optional = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let (after, requests, bytes) = match of.stop {
        Stop::After(time) => (Some(time), None, None),
        Stop::Requests(requests) => (None, Some(requests), None),
        Stop::Bytes(bytes, time) => (time, None, Some(bytes)),
        // The size of the files is all there is to say.
        Stop::Whole(time) => (time, None, None),
    };
    let (fsync, fdatasync) = match of.sync {
        Some(Sync::Fsync(every)) => (Some(u64::from(every)), None),
        Some(Sync::Fdatasync(every)) => (None, Some(u64::from(every))),
        None => (None, None),
    };
    let (rate, rate_bytes) = match of.rate {
        Some(Rate::Requests(rate)) => (Some(rate), None),
        Some(Rate::Bytes(rate)) => (None, Some(rate)),
        None => (None, None),
    };
    let target = match &of.target {
        Target::Scratch { .. } => String::new(),
        Target::Files(paths) | Target::SizedFiles { paths, .. } => words::names(paths, ":"),
        Target::Directory { path, .. } => path.to_string_lossy().into_owned(),
    };
    let mut fields = vec![
        of.name.clone(),
        words::backend(of.backend).to_owned(),
        of.access.name().to_owned(),
        if words::is_mixed(of.access) { of.read_percent.to_string() } else { String::new() },
        of.block_size.to_string(),
        of.depth.to_string(),
        of.jobs.to_string(),
        of.direct.to_string(),
        of.sqpoll.to_string(),
        of.iopoll.to_string(),
        of.fixed_buffers.to_string(),
        of.fixed_files.to_string(),
        of.group().to_string(),
        of.complete_min.to_string(),
        after.map(|time| time.as_secs_f64().to_string()).unwrap_or_default(),
        optional(requests),
        optional(bytes),
        of.ramp.as_secs_f64().to_string(),
        optional(rate),
        optional(fsync),
        optional(fdatasync),
        of.verify.to_string(),
        target,
    ];
    match run {
        Some((number, run, is_median)) => {
            fields.extend([number.to_string(), cell.runs.len().to_string(), is_median.to_string()]);
            figures(&mut fields, run);
        }
        None => {
            // The rest but for the notes and what follows them.
            fields.resize(HEADINGS.len() - 4, String::new());
        }
    }
    fields.push(cell.notes.join("; "));
    fields.extend([of.largest_request().to_string(), optional(rate_bytes)]);
    fields.push(run.map(|(_, run, _)| run.not_started.to_string()).unwrap_or_default());
    line(fields.into_iter())
}

fn figures(fields: &mut Vec<String>, run: &Run) {
    let usage = &run.usage;
    let ops = run.ops();
    fields.extend([
        usage.real.as_secs_f64().to_string(),
        usage.user.as_secs_f64().to_string(),
        usage.system.as_secs_f64().to_string(),
        usage.sqpoll.as_secs_f64().to_string(),
        usage.io_wq.as_secs_f64().to_string(),
        usage.io_wq_workers.to_string(),
        usage.context_switches.to_string(),
        usage.system_calls.map(|calls| calls.to_string()).unwrap_or_default(),
        ops.to_string(),
        run.bytes().to_string(),
        run.ops_per_second().to_string(),
        (run.bytes() as f64 / usage.real.as_secs_f64().max(1e-9)).to_string(),
        if ops > 0 { run.cpu_us_per_op().to_string() } else { String::new() },
    ]);
    for (direction, moves_bytes) in [(&run.read, true), (&run.write, true), (&run.sync, false)] {
        fields.push(direction.ops.to_string());
        if moves_bytes {
            fields.push(direction.bytes.to_string());
        }
        fields.extend(latency(direction));
    }
    let failed: u128 = run.errors.iter().map(|&(_, times)| u128::from(times)).sum();
    fields.push(failed.to_string());
    fields.extend(match run.verified {
        Some((blocks, wrong)) => [blocks.to_string(), wrong.to_string()],
        None => [String::new(), String::new()],
    });
}

fn latency(of: &Direction) -> [String; 7] {
    let latency = &of.latency;
    if latency.is_empty() {
        return Default::default();
    }
    [
        latency.min().to_string(),
        latency.mean().to_string(),
        latency.value_at_percentile(50.0).to_string(),
        latency.value_at_percentile(99.0).to_string(),
        latency.value_at_percentile(99.9).to_string(),
        latency.value_at_percentile(99.99).to_string(),
        latency.max().to_string(),
    ]
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = fields.map(quote).collect();
    quoted.join(",") + "\n"
}

fn quote(field: String) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use proptest::prelude::*;

    /// The rows, read by a reader that is not ours.
    fn read(text: &str) -> Vec<Vec<String>> {
        let mut reader =
            ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_run_has_a_row_with_its_figures() {
        let report = samples::mixed();
        let rows = read(&render(&report));
        assert_eq!(rows[0], HEADINGS);
        assert_eq!(rows.len(), 1 + 8 * 3);
        let column = |name: &str| HEADINGS.iter().position(|&heading| heading == name).unwrap();
        let run = &report.cells[0].runs[1];
        assert_eq!(rows[2][column("run")], "2");
        assert_eq!(rows[2][column("ops")], run.ops().to_string());
        assert_eq!(rows[2][column("read_bytes")], run.read.bytes.to_string());
        assert_eq!(rows[2][column("fsync_every_writes")], "16");
        assert_eq!(rows[2][column("sync_latency_max_ns")], run.sync.latency.max().to_string());
        assert_eq!(rows[2][column("ops_per_second")].parse::<f64>().unwrap(), run.ops_per_second());
        assert_eq!(rows[2][column("failed_requests")], "0");
        let medians = rows.iter().filter(|row| row[column("is_median")] == "true").count();
        assert_eq!(medians, 8, "one of each cell");
    }

    #[test]
    fn hostile_names_are_quoted() {
        let mut report = samples::one_cell();
        let name = "a,\"b\"\r\nc";
        report.cells[0].workload.target = Target::Files(vec![name.into()]);
        report.cells[0].runs.clear();
        report.cells[0].notes = vec!["refused, \"why\"".into()];
        let rows = read(&render(&report));
        assert_eq!(rows.len(), 2);
        let column = |name: &str| HEADINGS.iter().position(|&heading| heading == name).unwrap();
        assert_eq!(rows[1][column("target")], name);
        assert_eq!(rows[1][column("notes")], "refused, \"why\"");
        assert_eq!(rows[1][column("ops")], "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_report_makes_rows_of_one_length(report in samples::anything()) {
            let text = render(&report);
            prop_assert!(!samples::has_no_number(&text));
            let rows = read(&text);
            let expected: usize = report.cells.iter().map(|cell| cell.runs.len().max(1)).sum();
            prop_assert_eq!(rows.len(), expected + 1);
        }
    }
}
