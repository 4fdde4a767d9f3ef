//! The report on a terminal: one row for each measurement, and above the table what all rows have
//! in common.

use super::configuration::{self, Setting, configuration, describe};
use super::model::{Entry, Figures, Model};
use crate::bench::result::{Direction, Measurement, Report};
use hdrhistogram::Histogram;
use ringway_measure::stats::percentile;
use ringway_measure::table::Table;
use ringway_measure::text::{ABSENT, clean, count, nanoseconds, plural, significant, wrap};
use std::time::Duration;

/// The machine and the table. Notes on single rows are in the summary.
pub fn render(model: &Model) -> String {
    let machine = configuration::machine(&model.report.machine);
    let machine: String = machine.iter().map(|line| wrap("", line)).collect();
    if model.entries.is_empty() {
        return machine + "Nothing was measured.\n";
    }
    let Rows { captions, names, table } = rows(model);
    let captions: String = captions.iter().map(|line| wrap("", line)).collect();
    format!("{machine}\n{captions}\n{}", table.text(names))
}

/// The rows of all measurements.
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

impl Row<'_> {
    /// A text from the figures of a whole measurement.
    fn whole(&self, text: impl FnOnce(&Figures) -> String) -> String {
        self.figures.filter(|_| self.direction.is_none()).map_or(String::new(), text)
    }

    /// A text from the operations, bytes and latency of the measurement or its direction.
    fn any(&self, text: impl FnOnce(&Figures, u64, u64, &Histogram<u64>) -> String) -> String {
        match (self.figures, self.direction) {
            (Some(figures), Some((_, part))) => text(figures, part.ops, part.bytes, &part.latency),
            (Some(figures), None) => {
                text(figures, figures.run.ops(), figures.run.bytes(), &figures.latency)
            }
            (None, _) => String::new(),
        }
    }
}

/// A row for each measurement, and for each direction of a mixed one.
pub(super) fn rows(model: &Model) -> Rows {
    let report = model.report;
    let mut rows = Vec::new();
    for Entry { measurement, figures } in &model.entries {
        let figures = figures.as_ref();
        rows.push(Row { measurement, figures, direction: None });
        let directions = figures.map_or(Vec::new(), |figures| directions(figures));
        let row = |direction| Row { measurement, figures, direction: Some(direction) };
        rows.extend(directions.into_iter().map(row));
    }
    let (varying, shared): (Vec<Setting>, Vec<Setting>) =
        Setting::ALL.into_iter().partition(|setting| setting.varies(report));
    // The target is among the machine's remarks.
    let shared: Vec<Setting> = shared.into_iter().filter(|s| *s != Setting::Target).collect();
    let mut caption = vec![describe(&report.measurements[0].workload, &shared)];
    let mut columns = setting_columns(&rows, &varying);
    let names = columns.len();
    for (heading, texts) in figure_columns(&rows) {
        let ran = |row: &Row| row.figures.is_some() && row.direction.is_none();
        let mut whole = texts.iter().zip(&rows).filter(|(_, row)| ran(row)).map(|(text, _)| text);
        let first = whole.next().map_or("", String::as_str);
        match whole.all(|text| text == first) && heading != "ops/s" {
            true if heading == "real" => caption.push(first.to_owned()),
            true if first.is_empty() || first == ABSENT => {}
            _ => columns.push((heading, texts)),
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
    Rows { captions, names, table }
}

/// The directions that have rows of their own: those of a measurement with more than one.
fn directions<'a>(figures: &'a Figures) -> Vec<(&'static str, &'a Direction)> {
    let run = figures.run;
    let mut all = vec![("reads", &run.read), ("writes", &run.write), ("syncs", &run.sync)];
    all.retain(|(_, direction)| direction.ops > 0);
    if all.len() > 1 { all } else { Vec::new() }
}

type Column = (&'static str, Vec<String>);

fn setting_columns(rows: &[Row], varying: &[Setting]) -> Vec<Column> {
    let column =
        |heading, text: &dyn Fn(&Row) -> String| (heading, rows.iter().map(text).collect());
    let mut columns: Vec<Column> = vec![column("backend", &|row| match row.direction {
        Some((name, _)) => format!("  {name}"),
        None => configuration(&row.measurement.workload),
    })];
    columns.extend(varying.iter().map(|setting| {
        column(setting.heading(), &|row| match row.direction {
            Some(_) => String::new(),
            None => setting.value(&row.measurement.workload),
        })
    }));
    // Rows that are alike in all these columns are distinguished by their names.
    let settings = |at: usize| columns.iter().map(|(_, texts)| &texts[at]).collect::<Vec<_>>();
    let whole = || (0..rows.len()).filter(|at| rows[*at].direction.is_none());
    if whole().any(|a| whole().any(|b| a < b && settings(a) == settings(b))) {
        columns.push(column("name", &|row| match row.direction {
            Some(_) => String::new(),
            None => clean(&row.measurement.workload.name),
        }));
    }
    columns
}

fn figure_columns(rows: &[Row]) -> Vec<Column> {
    let time = |time: Duration| nanoseconds(time.as_nanos() as f64);
    let some =
        |time_used: Duration| if time_used.is_zero() { String::new() } else { time(time_used) };
    let per_op = |f: &Figures, n: u64| significant(n as f64 / f.run.ops() as f64);
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |heading, text: &dyn Fn(&Row) -> String| {
        columns.push((heading, rows.iter().map(text).collect()));
    };
    add("real", &|row| row.whole(|f| time(f.run.usage.real)));
    add("ops/s", &|row| match row.figures {
        Some(_) => row.any(|f, ops, _, _| count(f.run.per_second(ops).round() as u64)),
        None if row.measurement.runs.is_empty() => "did not run".to_owned(),
        None => "completed nothing".to_owned(),
    });
    add("±", &|row| row.whole(|f| f.ops.unsigned_percent().unwrap_or_default()));
    add("MB/s", &|row| {
        row.any(|f, _, bytes, _| match bytes {
            0 => String::new(),
            bytes => significant(f.run.per_second(bytes) / 1e6),
        })
    });
    add("CPU µs/op", &|row| row.whole(|f| significant(f.cpu_us.median)));
    let latency = |ns: Option<u64>| ns.map_or(ABSENT.to_owned(), |ns| nanoseconds(ns as f64));
    for (heading, percent) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)] {
        add(heading, &|row| row.any(|_, _, _, samples| latency(percentile(samples, percent))));
    }
    add("max", &|row| {
        row.any(|_, _, _, samples| latency((!samples.is_empty()).then(|| samples.max())))
    });
    add("user", &|row| row.whole(|f| time(f.run.usage.user)));
    add("system", &|row| row.whole(|f| time(f.run.usage.system)));
    add("calls/op", &|row| row.whole(|f| per_op(f, f.run.system_calls)));
    add("ctx/op", &|row| row.whole(|f| per_op(f, f.run.usage.context_switches())));
    add("SQPOLL", &|row| row.whole(|f| some(f.run.usage.sqpoll)));
    add("io-wq", &|row| row.whole(|f| some(f.run.usage.io_wq)));
    add("workers", &|row| {
        row.whole(|f| match f.run.usage.io_wq_workers {
            0 => String::new(),
            workers => workers.to_string(),
        })
    });
    columns
}

/// How to read the columns.
fn explanations(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let most =
        report.measurements.iter().map(|measurement| measurement.runs.len()).max().unwrap_or(0);
    if most > 1 {
        lines.push(format!(
            "Each row is the median of {}; ± is half the range of ops/s.",
            plural(most as u64, "run")
        ));
    }
    lines.push("CPU time is that of all threads, kernel helpers included.".to_owned());
    let any = |is: fn(&Measurement) -> bool| report.measurements.iter().any(is);
    if any(|measurement| measurement.workload.access.is_mixed()) {
        lines.push("The latency of a mixed workload is that of reads and writes together.".into());
    }
    if any(|measurement| measurement.workload.rate.is_some()) {
        lines.push("At a fixed rate, latency counts from the scheduled start of a request.".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use crate::bench::workload::Backend;
    use ringway_measure::text::COLUMNS;

    #[test]
    fn shared_settings_are_above_the_table_and_columns_are_aligned() {
        let text = render(&samples::depths());
        assert!(text.contains("\nrandread, 4 KiB, direct, 1 job, 5.00 s\n"), "{text}");
        assert!(text.contains("median of 3 runs"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" % ")).collect();
        assert_eq!(rows.len(), 12, "{text}");
        let width = |row: &&str| row.chars().count();
        assert!(rows.iter().all(|row| width(row) == width(&rows[0])), "{text}");
        assert!(!text.contains("SQPOLL"), "no configuration had any\n{text}");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("backend")).collect();
        for gone in [" rw", "block", "jobs", "I/O", "real"] {
            assert!(!headings.concat().contains(gone), "{gone} is the same everywhere\n{text}");
        }
        for kept in ["ops/s", "±", "MB/s", "CPU µs/op", "p99.99", "max", "user", "system"] {
            assert_eq!(headings.concat().matches(kept).count(), 1, "{kept}\n{text}");
        }
    }

    #[test]
    fn a_report_fits_a_terminal() {
        for report in
            [samples::depths(), samples::mixed(), samples::block_sizes(), samples::everything()]
        {
            let text = all_lines(&report);
            let wide = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(wide <= COLUMNS, "{wide} columns\n{text}");
        }
    }

    fn render(report: &Report) -> String {
        super::render(&Model::new(report))
    }

    fn all_lines(report: &Report) -> String {
        let model = Model::new(report);
        super::render(&model) + &crate::bench::report::summary::render(&model)
    }

    /// All that the terminal shows, on one line.
    fn all(report: &Report) -> String {
        all_lines(report).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_measurement_that_did_not_run_has_its_reason_once() {
        let mut report = samples::depths();
        report.measurements[4].runs.clear();
        report.measurements[4].notes.push("io_setup: EAGAIN; fix: raise fs.aio-max-nr".into());
        let text = render(&report);
        let row =
            text.lines().find(|line| line.starts_with("kaio") && line.contains("32")).unwrap();
        assert!(row.contains("did not run"), "{text}");
        let reason = "kaio at depth 32: io_setup: EAGAIN; fix: raise fs.aio-max-nr";
        assert_eq!(all(&report).matches(reason).count(), 1, "{}", all(&report));
    }

    #[test]
    fn mixed_workloads_show_each_direction() {
        let text = render(&samples::mixed());
        let parts = text.matches("\nbackend ").count();
        for part in ["\n  reads ", "\n  writes ", "\n  syncs "] {
            assert_eq!(text.matches(part).count(), parts * 8, "{part}\n{text}");
        }
        let caption = "randrw 70/30, 4 KiB, direct, 1 job, fsync after 16 writes";
        assert!(text.contains(caption), "{text}");
    }

    #[test]
    fn helpers_failures_and_notes_are_shown() {
        let mut report = samples::everything();
        report.measurements[0].notes.push("fixed files refused".into());
        report.measurements[0].runs[1].errors = vec![(5, 4)];
        report.measurements[0].runs[2].verified = Some((1000, 2));
        let text = all(&report);
        assert!(text.contains("SQPOLL") && text.contains("4.85 s"), "{text}");
        assert!(text.contains("7 requests failed: Input/output error"), "{text}");
        assert!(text.contains("2 of 1,000 checked blocks had wrong bytes"), "{text}");
        assert!(text.contains("fixed files refused"), "{text}");
    }

    #[test]
    fn equal_rows_have_names() {
        let mut report = samples::depths();
        report
            .measurements
            .retain(|row| row.workload.backend == Backend::Uring && row.workload.depth == 1);
        let mut other = report.measurements[0].clone();
        other.workload.name = "second\x1b[2J".into();
        report.measurements.push(other);
        let text = render(&report);
        assert!(text.contains("name"), "{text}");
        assert!(text.contains("second\u{fffd}[2J") && !text.contains('\x1b'), "{text}");
    }
}
