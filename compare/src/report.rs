//! The report: a table for each row with notes on what limits its figures, and the files that the
//! options name.

use crate::contestants::{self, BARE, FLOOR, RINGWAY, SPAWN_BLOCKING};
use crate::figures::{
    CPU_SECONDS, DEVICE, FIRST_HALF, LEAST_SHARE, LONGEST, MACHINE_SECONDS, OPERATIONS, P50, P99,
    PEAK, POLLS, POLLS_CPU, POLLS_READY, POLLS_WAITED, POLLS_WALL, READERS, SECONDS, SWITCHES,
    SYSTEM, USER, VOLUNTARY,
};
use crate::options::Options;
use crate::suite;
use crate::workload::{Operation, SUM_BLOCK, Workload};
use anyhow::Context;
use resvg::{tiny_skia, usvg};
use ringway_core::refusal::bytes_text;
use ringway_measure::rounds::{self, CPU, Column, Entry, MACHINE, OPS, Row, Turn};
use ringway_measure::stats::Spread;
use ringway_measure::text::{count, plural, significant};
use std::fs;
use std::path::Path;
use std::thread;

/// A reader with less than this share of the mean starves.
const STARVING: f64 = 0.1;
/// With more than this share in one half of a turn, the figure depends on when a burst or a stall
/// happened.
const UNEVEN: f64 = 0.65;
/// With fewer operations for each reader, chance alone makes some slow.
const ENOUGH: f64 = 20.0;
/// The others are compared with these contestants if they take part.
const BASELINES: [&str; 3] = [SPAWN_BLOCKING, BARE, FLOOR];

/// The list of the contestants of such rows.
pub fn list(operation: Operation, has_tokio_io_uring: bool) -> String {
    let line = |contestant: &&contestants::Contestant| {
        let is_missing = contestant.needs_tokio_io_uring && !has_tokio_io_uring;
        let note = if is_missing { " (needs --tokio-io-uring)" } else { "" };
        format!("{:<22} {}{note}\n", contestant.name, contestant.about)
    };
    contestants::of(operation).iter().map(line).collect()
}

/// What applies to all rows.
pub fn opening(options: &Options) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    let processors = plural(processors, "processor");
    format!(
        "Linux {}, {processors}; {} with the contestants in turn;\n\
         {:?} measured of each turn. Rows with many readers have longer turns, so that most\n\
         readers complete operations, and fewer rounds.\n\
         Figures are medians of the rounds; ratios are those of the turns of one round. ± is half\n\
         the range of the rounds. CPU is the user and system time of all threads, including the\n\
         kernel's io_uring workers. machine is the CPU time of all processors: it counts\n\
         everything that runs, interrupts and other programs included.\n",
        kernel.trim(),
        plural(options.rounds.into(), "round"),
        options.time
    )
}

/// A row.
pub fn row(row: &Row, workload: Workload, options: &Options) -> String {
    let (columns, mut notes) = match workload.operation {
        Operation::Scan { .. } => (scan_columns(), Vec::new()),
        _ => (columns(row), notes(row, workload, options)),
    };
    notes.extend(row.notes());
    row.markdown(&columns, &notes)
}

fn columns(row: &Row) -> Vec<Column> {
    let mut columns = vec![
        Column::figure(OPS),
        Column::range(OPS),
        Column::figure(CPU),
        Column::range(CPU),
        Column::figure(MACHINE),
        Column::figure(P50),
        Column::figure(P99),
        Column::median(rounds::SWITCHES, rounds::SWITCHES, three_decimals),
    ];
    for to in BASELINES.into_iter().filter(|name| row.entry(name).is_some()) {
        columns.push(Column::ratio(&format!("ops/s vs {to}"), OPS, to));
        columns.push(Column::ratio(&format!("CPU vs {to}"), CPU, to));
    }
    columns
}

fn scan_columns() -> Vec<Column> {
    let two = |name| Column::median(name, name, |value| format!("{value:.2}"));
    let whole = |name| Column::median(name, name, |value| format!("{value:.0}"));
    let range = Column::new("range", |_, entry| {
        let seconds = entry.spread(SECONDS);
        seconds.map_or_else(String::new, |all| format!("{:.2}-{:.2}", all.low, all.high))
    });
    vec![
        two(SECONDS),
        range,
        two(USER),
        two(SYSTEM),
        two(CPU_SECONDS),
        two(MACHINE_SECONDS),
        whole(PEAK),
        two(DEVICE),
        whole(SWITCHES),
    ]
}

/// The table of all rows of `compare stalls`.
pub fn stalls(rows: &[Row]) -> String {
    let milliseconds = |micros: f64| format!("{:.2} ms", micros / 1e3);
    let number = |name| Column::median(name, name, |number| number.to_string());
    let time = |heading, figure| Column::median(heading, figure, milliseconds);
    let [_, waited_long, waited] = POLLS_WAITED;
    let columns = [
        number(OPERATIONS),
        number(POLLS),
        time("p99.99", POLLS_WALL[1]),
        time("longest", POLLS_WALL[2]),
        Column::new("waited", move |_, entry| {
            [waited_long, waited].map(|name| entry.median(name, milliseconds)).join(" / ")
        }),
        time("preempted", POLLS_READY[2]),
        time("late", LONGEST),
    ];
    let table = rounds::table(rows, &["operation", "contestant"], &columns).markdown();
    let note = |row: &Row, note: String| format!("- {}, {note}\n", row.title);
    let notes =
        rows.iter().flat_map(|row| row.notes().into_iter().map(move |text| note(row, text)));
    table + &notes.collect::<String>()
}

fn notes(row: &Row, workload: Workload, options: &Options) -> Vec<String> {
    let notes = row.entries.iter().flat_map(|entry| notes_on(workload, entry, options));
    let mut notes: Vec<String> = notes.collect();
    if row.entries.iter().any(|entry| entry.spread(P50).is_none()) {
        notes.push(
            "no latencies: nothing was timed, or readers completed too few operations".into(),
        );
    }
    notes
}

fn notes_on(workload: Workload, entry: &Entry, options: &Options) -> Vec<String> {
    let (name, turns, operation) = (&entry.contestant, &entry.turns, workload.operation);
    let mut notes = Vec::new();
    let readers = entry.spread(READERS).map_or(0.0, |readers| readers.high);
    if readers < workload.readers as f64 && !operation.is_null() {
        notes.push(format!("{name}: {readers} readers"));
    }
    if operation == Operation::Sum {
        notes.push(format!("{name}: {}", whole_file(entry, options.sum_size)));
    }
    if entry.spread(POLLS_CPU[0]).is_some() {
        let three = |names: [&str; 3]| {
            let [a, b, c] = names.map(|name| entry.median(name, significant));
            format!("{a}, {b} and {c} µs")
        };
        let (cpu, wall) = (three(POLLS_CPU), three(POLLS_WALL));
        notes.push(format!(
            "{name}: polls of {cpu} CPU time, of {wall} wall time (p99.9, p99.99, longest)"
        ));
    }
    let enough = turns.iter().filter(|turn| is_enough(turn));
    let least = Spread::of(enough.filter_map(|turn| turn.get(LEAST_SHARE)));
    if let Some(least) = least.filter(|least| least.median < STARVING) {
        let percent = 100.0 * least.median;
        notes.push(format!("{name}: starves readers; one had {percent:.1} % of the mean"));
    }
    let halves = turns.iter().filter_map(|turn| turn.get(FIRST_HALF));
    let uneven = halves.filter(|half| *half > UNEVEN || *half < 1.0 - UNEVEN).count();
    if 2 * uneven > turns.len() {
        notes.push(format!("{name}: uneven; most operations were in one half of the time"));
    }
    notes
}

fn is_enough(turn: &Turn) -> bool {
    turn.get(OPERATIONS) >= turn.get(READERS).map(|readers| ENOUGH * readers)
}

/// The figures of a pass through the whole file.
fn whole_file(entry: &Entry, bytes: u64) -> String {
    let blocks = bytes as f64 / SUM_BLOCK as f64;
    let time = entry.median(OPS, |ops| format!("{:.1} ms", 1000.0 * blocks / ops));
    let switches = entry.median(VOLUNTARY, |each| count((blocks * each) as u64));
    format!("{} in {time}, with {switches} voluntary context switches", bytes_text(bytes))
}

/// Writes the files that the options name: the figures of every turn, and the chart.
pub fn write_files(rows: &[Row], options: &Options) -> anyhow::Result<()> {
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(rows)?)
            .with_context(|| path.display().to_string())?;
    }
    if options.svg.is_none() && options.png.is_none() {
        return Ok(());
    }
    let svg = chart(&in_chart(rows))?;
    if let Some(path) = &options.svg {
        fs::write(path, &svg).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.png {
        write_png(&svg, path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The main rows, since all would be too many for one chart; all rows if there is no main row.
fn in_chart(rows: &[Row]) -> Vec<&Row> {
    let main: Vec<String> = suite::main_rows().iter().map(Workload::to_string).collect();
    let (among, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| main.contains(&row.title));
    if among.is_empty() { others } else { among }
}

fn chart(rows: &[&Row]) -> anyhow::Result<String> {
    let figures = [("operations per second", OPS), ("CPU µs per operation", CPU)];
    rounds::bars(rows, &figures, |contestant| contestant.starts_with(RINGWAY).then_some(0))
}

/// Draws the chart as PNG. The font is part of this program, so the result is the same everywhere.
fn write_png(svg: &str, path: &Path) -> anyhow::Result<()> {
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().context("the font")?.families[0].0.clone();
    fonts.set_sans_serif_family(family);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut image =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("an empty chart")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut image.as_mut());
    Ok(image.save_png(path)?)
}

/// Context switches of an operation.
pub fn three_decimals(each: f64) -> String {
    format!("{each:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_names_the_row_and_its_letters_are_drawn() {
        let row = Row { title: Workload::puts().to_string(), ..Row::default() };
        let svg = chart(&[&row]).unwrap();
        assert!(svg.contains(&row.title), "{svg}");
        let file = std::env::temp_dir().join(format!("compare-chart-{}.png", std::process::id()));
        write_png(&svg, &file).unwrap();
        let image = tiny_skia::Pixmap::load_png(&file);
        std::fs::remove_file(&file).unwrap();
        let dark = |pixel: &tiny_skia::PremultipliedColorU8| pixel.red() < 128;
        assert!(image.unwrap().pixels().iter().any(dark), "the title is missing");
    }
}
