//! The table before it is drawn: which columns there are, what is said once above them, and the
//! text of every field. The terminal and the page draw the same one.

use super::figures::Figures;
use super::words::{self, ABSENT, Setting};
use crate::bench::result::{Cell, Direction, Report};
use crate::bench::workload::Workload;

/// A column with its texts; every column has one for each row.
pub(super) struct Column {
    /// Heading above neighbouring columns, such as `latency`.
    pub band: &'static str,
    pub heading: String,
    /// Whether this says what was asked for; the other columns say what came out.
    pub setting: bool,
    pub texts: Vec<String>,
}

/// What a row is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    /// A cell's median run.
    Cell,
    /// Of the cell above: one direction alone.
    Part,
    /// A cell without figures, and why; only its settings have texts.
    Absent(String),
}

/// The table.
pub(super) struct Grid {
    /// What all rows have in common, and how to read the columns.
    pub captions: Vec<String>,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// What is to be said about single cells.
    pub notes: Vec<String>,
}

/// A row before it is cut into columns.
struct Source<'a> {
    row: Row,
    cell: &'a Cell,
    figures: Option<&'a Figures<'a>>,
    part: Option<(&'static str, &'a Direction)>,
}

impl Grid {
    pub(super) fn new(report: &Report) -> Self {
        let figures: Vec<Option<Figures>> = report.cells.iter().map(Figures::new).collect();
        let mut sources = Vec::new();
        for (cell, figures) in report.cells.iter().zip(&figures) {
            let row = if figures.is_some() { Row::Cell } else { Row::Absent(reason(cell)) };
            sources.push(Source { row, cell, figures: figures.as_ref(), part: None });
            if let Some(figures) = figures {
                sources.extend(parts(figures).into_iter().map(|part| Source {
                    row: Row::Part,
                    cell,
                    figures: Some(figures),
                    part: Some(part),
                }));
            }
        }

        let (shown, shared): (Vec<Setting>, Vec<Setting>) =
            Setting::ALL.into_iter().partition(|setting| setting.varies(report));
        let mut caption: Vec<String> = Vec::new();
        if let Some(first) = report.cells.first() {
            // The target is among the machine's remarks.
            let shared: Vec<Setting> =
                shared.into_iter().filter(|&s| s != Setting::Target).collect();
            caption.push(words::phrase(&first.workload, &shared));
        }

        let mut columns = setting_columns(&sources, &shown);
        for mut column in figure_columns(&sources) {
            let figures =
                column.texts.iter().zip(&sources).filter(|(_, source)| source.row == Row::Cell);
            let mut texts = figures.map(|(text, _)| text);
            let first = texts.next().cloned().unwrap_or_default();
            let same = texts.all(|text| *text == first);
            match column.heading.as_str() {
                "requests" if same && !first.is_empty() => {
                    caption.push(format!("{first} requests"))
                }
                "real" if same && !first.is_empty() => caption.push(first),
                _ if same && (first.is_empty() || first == ABSENT) => {}
                _ => {
                    column.texts.resize(sources.len(), String::new());
                    columns.push(column);
                }
            }
        }
        caption.retain(|part| !part.is_empty());

        Self {
            captions: [caption.join(", ")]
                .into_iter()
                .chain(explanations(report, &columns))
                .collect(),
            columns,
            rows: sources.into_iter().map(|source| source.row).collect(),
            notes: notes(report),
        }
    }
}

/// Why a cell has no figures.
fn reason(cell: &Cell) -> String {
    let notes = cell.notes.iter().map(|note| words::clean(note));
    let said: Vec<String> = notes.chain(words::failures(cell)).collect();
    let what = if cell.runs.is_empty() { "did not run" } else { "completed nothing" };
    if said.is_empty() { what.to_owned() } else { format!("{what}: {}", said.join("; ")) }
}

/// Directions worth a row of their own: where there is more than one.
fn parts<'a>(figures: &Figures<'a>) -> Vec<(&'static str, &'a Direction)> {
    let run = figures.run;
    let all = [("reads", &run.read), ("writes", &run.write), ("syncs", &run.sync)];
    let some: Vec<_> = all.into_iter().filter(|(_, direction)| direction.ops > 0).collect();
    if some.len() > 1 { some } else { Vec::new() }
}

fn setting_columns(sources: &[Source], shown: &[Setting]) -> Vec<Column> {
    let column = |heading: &str, text: &dyn Fn(&Workload) -> String| Column {
        band: "",
        heading: heading.to_owned(),
        setting: true,
        texts: sources
            .iter()
            .map(|source| {
                if source.part.is_some() {
                    String::new()
                } else {
                    words::clean(&text(&source.cell.workload))
                }
            })
            .collect(),
    };
    let mut backends = column("backend", &words::contender);
    for (text, source) in backends.texts.iter_mut().zip(sources) {
        if let Some((name, _)) = source.part {
            *text = format!("  {name}");
        }
    }
    let mut columns = vec![backends];
    columns.extend(shown.iter().map(|&setting| column(setting.heading(), &|of| setting.short(of))));

    // Rows that all this leaves alike are told apart by their names.
    let alike = (0..sources.len()).any(|a| {
        (0..a).any(|b| {
            sources[a].part.is_none()
                && sources[b].part.is_none()
                && columns.iter().all(|column| column.texts[a] == column.texts[b])
        })
    });
    if alike {
        columns.insert(0, column("name", &|of| of.name.clone()));
    }
    columns
}

fn figure_columns(sources: &[Source]) -> Vec<Column> {
    let mut columns = Vec::new();
    // A figure of the whole cell and, where it can be split, of one direction.
    let mut add = |band,
                   heading: &str,
                   of: &dyn Fn(&Figures) -> String,
                   part: &dyn Fn(&Figures, &Direction) -> String| {
        let texts = sources
            .iter()
            .map(|source| match (source.figures, source.part) {
                (None, _) => String::new(),
                (Some(figures), None) => of(figures),
                (Some(figures), Some((_, direction))) => part(figures, direction),
            })
            .collect();
        columns.push(Column { band, heading: heading.to_owned(), setting: false, texts });
    };
    let whole = |_: &Figures, _: &Direction| String::new();

    add("", "requests", &|f| words::rate(f.run.ops() as f64), &|_, d| words::rate(d.ops as f64));
    add("time", "real", &|f| words::duration(f.run.usage.real), &whole);
    add("time", "user", &|f| words::duration(f.run.usage.user), &whole);
    add("time", "system", &|f| words::duration(f.run.usage.system), &whole);
    add("time", "cpu", &|f| words::duration(f.run.usage.user + f.run.usage.system), &whole);
    add("cpu", "µs/op", &|f| words::digits(f.cpu_us.value), &whole);
    let seconds = |f: &Figures| f.run.usage.real.as_secs_f64().max(1e-9);
    add("", "ops/s", &|f| words::count(f.ops.value.round() as u64), &|f, d| {
        words::count((d.ops as f64 / seconds(f)).round() as u64)
    });
    add("", "spread", &|f| f.ops.percent().unwrap_or_default(), &whole);
    let megabytes = |bytes_per_second: f64| words::digits(bytes_per_second / 1e6);
    add("", "MB/s", &|f| megabytes(f.bytes_per_second()), &|f, d| {
        if d.bytes > 0 { megabytes(d.bytes as f64 / seconds(f)) } else { String::new() }
    });
    for (heading, percent) in
        [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)]
    {
        let of = |histogram: &hdrhistogram::Histogram<u64>| {
            if histogram.is_empty() {
                return ABSENT.to_owned();
            }
            words::nanoseconds(histogram.value_at_percentile(percent) as f64)
        };
        add("latency", heading, &|f| of(&f.latency), &|_, d| of(&d.latency));
    }
    let per_op = |value: Option<f64>| value.map_or(ABSENT.to_owned(), words::digits);
    add("per op", "calls", &|f| per_op(f.system_calls()), &whole);
    add("per op", "ctx sw", &|f| per_op(Some(f.context_switches())), &whole);

    let helper = |shown: bool, text: String| if shown { text } else { String::new() };
    add(
        "helpers",
        "sqpoll",
        &|f| helper(!f.run.usage.sqpoll.is_zero(), words::duration(f.run.usage.sqpoll)),
        &whole,
    );
    add(
        "helpers",
        "io-wq",
        &|f| helper(!f.run.usage.io_wq.is_zero(), words::duration(f.run.usage.io_wq)),
        &whole,
    );
    let workers =
        |f: &Figures| helper(f.run.usage.io_wq_workers > 0, f.run.usage.io_wq_workers.to_string());
    add("helpers", "workers", &workers, &whole);
    columns
}

/// How the columns are to be read, as far as they are there.
fn explanations(report: &Report, columns: &[Column]) -> Vec<String> {
    let mut said = Vec::new();
    let runs = || report.cells.iter().map(|cell| cell.runs.len()).filter(|&runs| runs > 0);
    let (least, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
    if most > 1 {
        let of =
            if least == most { format!("{most} runs") } else { format!("{least} to {most} runs") };
        said.push(format!(
            "Each row is the median of {of}; spread is half the way from the slowest to the fastest, in percent of ops/s."
        ));
    }
    let has = |heading: &str| columns.iter().any(|column| column.heading == heading);
    if has("cpu") {
        said.push(
            "CPU time is user and system time of all threads, kernel helpers included.".to_owned(),
        );
    }
    if report.cells.iter().any(|cell| words::is_mixed(cell.workload.access)) {
        said.push(
            "The latency of a mixed workload is that of reads and writes together; each alone follows below."
                .to_owned(),
        );
    }
    if report.cells.iter().any(|cell| cell.workload.rate.is_some()) {
        said.push(
            "At a fixed rate the latency counts from the scheduled start of a request.".to_owned(),
        );
    }
    said
}

/// Notes of the cells that ran; the others show theirs in their row.
fn notes(report: &Report) -> Vec<String> {
    let ran = report.cells.iter().filter(|cell| Figures::new(cell).is_some());
    words::notes(ran)
        .into_iter()
        .map(|(note, cells)| format!("{}: {note}", words::cells(report, &cells)))
        .collect()
}
