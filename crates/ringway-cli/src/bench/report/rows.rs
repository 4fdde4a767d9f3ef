//! The rows of a report, as texts: one for each measurement and for each direction of a mixed one.
//! What all rows have in common is a caption instead of a column.

use super::configuration::{Setting, configuration, describe};
use super::model::{Entry, Figures};
use crate::bench::result::{Direction, Measurement, Report};
use ringway_measure::stats::percentile;
use ringway_measure::table::Table;
use ringway_measure::text::{ABSENT, clean, count, nanoseconds, plural, significant};
use std::time::Duration;

/// The rows of all measurements.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Lines to stand above the table.
    pub captions: Vec<String>,
    /// The number of columns that name a row.
    pub names: usize,
    /// The table.
    pub table: Table,
}

/// One measurement, or one direction of it.
struct Row<'a> {
    measurement: &'a Measurement,
    figures: Option<&'a Figures<'a>>,
    direction: Option<(&'static str, &'a Direction)>,
}

/// A heading and the text of each row.
type Column = (&'static str, Vec<String>);

impl Rows {
    /// `None` without measurements.
    pub(super) fn new(report: &Report, entries: &[Entry]) -> Option<Self> {
        let (varying, shared): (Vec<Setting>, Vec<Setting>) =
            Setting::ALL.into_iter().partition(|setting| setting.varies(report));
        // The target is among the machine's remarks.
        let shared: Vec<Setting> = shared.into_iter().filter(|s| *s != Setting::Target).collect();
        let mut caption = vec![describe(&report.measurements.first()?.workload, &shared)];
        let rows: Vec<Row> = entries.iter().flat_map(rows).collect();
        let mut columns = setting_columns(&rows, &varying);
        let names = columns.len();
        for (heading, texts) in figure_columns(&rows) {
            let ran = |row: &Row| row.figures.is_some() && row.direction.is_none();
            let mut whole = texts.iter().zip(&rows).filter(|(_, row)| ran(row));
            let first = whole.next().map_or("", |(text, _)| text);
            if heading == "ops/s" || !whole.all(|(text, _)| text == first) {
                columns.push((heading, texts));
            } else if heading == "real" {
                caption.push(first.to_owned());
            } else if !first.is_empty() && first != ABSENT {
                columns.push((heading, texts));
            }
        }
        caption.retain(|part| !part.is_empty());
        let row = |at: usize| columns.iter().map(|(_, texts)| texts[at].clone()).collect();
        let table = Table {
            text_columns: 1,
            rows: (0..rows.len()).map(row).collect(),
            headings: columns.iter().map(|(heading, _)| (*heading).to_owned()).collect(),
        };
        let captions = std::iter::once(caption.join(", ")).chain(explanations(report)).collect();
        Some(Self { captions, names, table })
    }
}

/// The row of a measurement, and those of its directions if it has more than one.
fn rows<'a>(Entry { measurement, figures }: &'a Entry<'a>) -> Vec<Row<'a>> {
    let figures = figures.as_ref();
    let row = |direction| Row { measurement, figures, direction };
    let mut all = vec![row(None)];
    if let Some(run) = figures.map(|figures| figures.run) {
        let directions = [("reads", &run.read), ("writes", &run.write), ("syncs", &run.sync)];
        let used = directions.into_iter().filter(|(_, direction)| direction.ops > 0);
        all.extend(used.map(|direction| row(Some(direction))));
    }
    if all.len() == 2 {
        all.pop();
    }
    all
}

fn setting_columns(rows: &[Row], varying: &[Setting]) -> Vec<Column> {
    let whole = |row: &Row, text: &dyn Fn(&Measurement) -> String| match row.direction {
        Some(_) => String::new(),
        None => text(row.measurement),
    };
    let name = |row: &Row| match row.direction {
        Some((name, _)) => format!("  {name}"),
        None => configuration(&row.measurement.workload),
    };
    let mut columns: Vec<Column> = vec![("backend", rows.iter().map(name).collect())];
    columns.extend(varying.iter().map(|setting| {
        let value = |measurement: &Measurement| setting.value(&measurement.workload);
        (setting.heading(), rows.iter().map(|row| whole(row, &value)).collect())
    }));
    // Rows that are alike in all these columns are distinguished by their names.
    let settings = |at: usize| columns.iter().map(|(_, texts)| &texts[at]).collect::<Vec<_>>();
    let measured = || (0..rows.len()).filter(|at| rows[*at].direction.is_none());
    if measured().any(|a| measured().any(|b| a < b && settings(a) == settings(b))) {
        let name = |measurement: &Measurement| clean(&measurement.workload.name);
        columns.push(("name", rows.iter().map(|row| whole(row, &name)).collect()));
    }
    columns
}

fn figure_columns(rows: &[Row]) -> Vec<Column> {
    let time = |time: Duration| nanoseconds(time.as_nanos() as f64);
    let some = |used: Duration| if used.is_zero() { String::new() } else { time(used) };
    let mut columns: Vec<Column> = Vec::new();
    // Of every row: its direction has operations, bytes and latency.
    let mut add = |heading, text: &dyn Fn(&Row, &Figures) -> String| {
        let text = |row: &Row| row.figures.map_or(String::new(), |figures| text(row, figures));
        columns.push((heading, rows.iter().map(text).collect()));
    };
    add("real", &whole(|f| time(f.run.usage.real)));
    add("ops/s", &|row, f| {
        let ops = row.direction.map_or(f.run.ops(), |(_, part)| part.ops);
        count(f.run.per_second(ops).round() as u64)
    });
    add("±", &whole(|f| f.ops.unsigned_percent().unwrap_or_default()));
    add("MB/s", &|row, f| match row.direction.map_or(f.run.bytes(), |(_, part)| part.bytes) {
        0 => String::new(),
        bytes => significant(f.run.per_second(bytes) / 1e6),
    });
    add("CPU µs/op", &whole(|f| significant(f.cpu_us.median)));
    for (heading, percent) in
        [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)]
    {
        add(heading, &|row, f| {
            let samples = row.direction.map_or(&f.latency, |(_, part)| &part.latency);
            let latency = match heading {
                "max" => (!samples.is_empty()).then(|| samples.max()),
                _ => percentile(samples, percent),
            };
            latency.map_or(ABSENT.to_owned(), |ns| nanoseconds(ns as f64))
        });
    }
    let per_op = |f: &Figures, n: u64| significant(n as f64 / f.run.ops() as f64);
    add("user", &whole(|f| time(f.run.usage.user)));
    add("system", &whole(|f| time(f.run.usage.system)));
    add("calls/op", &whole(|f| per_op(f, f.run.system_calls)));
    add("ctx/op", &whole(|f| per_op(f, f.run.usage.context_switches())));
    add("SQPOLL", &whole(|f| some(f.run.usage.sqpoll)));
    add("io-wq", &whole(|f| some(f.run.usage.io_wq)));
    add(
        "workers",
        &whole(|f| match f.run.usage.io_wq_workers {
            0 => String::new(),
            workers => workers.to_string(),
        }),
    );
    for (row, text) in rows.iter().zip(&mut columns[1].1).filter(|(row, _)| row.figures.is_none()) {
        let has_run = !row.measurement.runs.is_empty();
        *text = if has_run { "completed nothing" } else { "did not run" }.to_owned();
    }
    columns
}

/// A text of whole measurements only.
fn whole(text: impl Fn(&Figures) -> String) -> impl Fn(&Row, &Figures) -> String {
    move |row, figures| if row.direction.is_none() { text(figures) } else { String::new() }
}

/// How to read the columns.
fn explanations(report: &Report) -> Vec<String> {
    let runs = report.measurements.iter().map(|measurement| measurement.runs.len()).max();
    let any = |is: fn(&Measurement) -> bool| report.measurements.iter().any(is);
    let median = runs.filter(|runs| *runs > 1).map(|runs| {
        let runs = plural(runs as u64, "run");
        format!("Each row is the median of {runs}; ± is half the range of ops/s.")
    });
    let mixed = "The latency of a mixed workload is that of reads and writes together.";
    let scheduled = "At a fixed rate, latency counts from the scheduled start of a request.";
    let lines = [
        (true, "CPU time is that of all threads, kernel helpers included."),
        (any(|measurement| measurement.workload.access.is_mixed()), mixed),
        (any(|measurement| measurement.workload.rate.is_some()), scheduled),
    ];
    let lines = lines.into_iter().filter(|(is, _)| *is).map(|(_, line)| line.to_owned());
    median.into_iter().chain(lines).collect()
}
