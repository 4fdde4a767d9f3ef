//! The table of one row, and notes below it on what limits its figures.

use crate::comparison::{Entry, Row};
use crate::contestants::{BARE, FLOOR, SPAWN_BLOCKING};
use crate::figures::{Figures, Metric, Polls};
use crate::options::Options;
use crate::workload::{Operation, SUM_BLOCK};
use ringway_core::refusal::bytes_text;
use ringway_measure::stats::Spread;
use ringway_measure::table::Table;
use ringway_measure::text::{self, ABSENT, count, significant};
use ringway_measure::usage;
use std::fmt::Write;

/// A reader with less than this share of the mean starves.
const STARVING: f64 = 0.1;
/// With more than this share in one half of a turn, the figure depends on when a burst or a stall
/// happened.
const UNEVEN: f64 = 0.65;
/// With fewer operations for each reader, chance alone makes some slow.
const ENOUGH: f64 = 20.0;
/// The others are compared with these contestants if they take part.
const BASELINES: [&str; 3] = [SPAWN_BLOCKING, BARE, FLOOR];

pub fn table(row: &Row, options: &Options) -> String {
    let baselines: Vec<&str> =
        BASELINES.into_iter().filter(|name| row.entry(name).is_some()).collect();
    let headings = ["contestant", "ops/s", "±", "CPU µs/op", "±", "p50 µs", "p99 µs", "ctx/op"];
    let ratios =
        baselines.iter().flat_map(|name| [format!("ops/s vs {name}"), format!("CPU vs {name}")]);
    let table = Table {
        text_columns: 1,
        headings: headings.map(String::from).into_iter().chain(ratios).collect(),
        rows: row.entries.iter().map(|entry| line(row, entry, &baselines)).collect(),
    };
    let mut text = format!("### {}\n\n{}", row.workload, table.markdown());
    let notes = notes(row, options);
    if !notes.is_empty() {
        text.push('\n');
        notes.iter().for_each(|note| _ = writeln!(text, "- {note}"));
    }
    text
}

fn line(row: &Row, entry: &Entry, baselines: &[&str]) -> Vec<String> {
    let (ops, cpu) = (entry.spread(Metric::OpsPerSecond), entry.spread(Metric::CpuPerOp));
    let mut line = vec![
        entry.contestant.into(),
        figure(ops),
        percent(ops),
        figure(cpu),
        percent(cpu),
        figure(entry.spread(Metric::P50)),
        figure(entry.spread(Metric::P99)),
        formatted(entry.spread(Metric::SwitchesPerOp), switches),
    ];
    for to in baselines {
        let ratio = |metric| formatted(row.ratio(entry.contestant, to, metric), ratio);
        line.extend([ratio(Metric::OpsPerSecond), ratio(Metric::CpuPerOp)]);
    }
    line
}

fn notes(row: &Row, options: &Options) -> Vec<String> {
    let mut notes: Vec<String> =
        row.entries.iter().flat_map(|entry| notes_on(row, entry, options)).collect();
    let others = row.entries.iter().flat_map(|entry| &entry.turns).map(|turn| turn.others);
    notes.extend(busy(others));
    if row.entries.iter().any(|entry| entry.spread(Metric::P50).is_none()) {
        notes.push(
            "no latencies: nothing was timed, or readers completed too few operations".into(),
        );
    }
    notes.extend(row.left_out.iter().map(|(name, why)| format!("{name}: left out; {why}")));
    notes
}

/// A note on a busy machine, from the processors that other programs used in each turn.
pub fn busy(others: impl Iterator<Item = f64>) -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let others = usage::busy(others, cpus)?;
    Some(format!("the machine is busy: other programs used {others:.1} processors"))
}

fn notes_on(row: &Row, entry: &Entry, options: &Options) -> Vec<String> {
    let (name, turns, operation) = (entry.contestant, &entry.turns, row.workload.operation);
    let mut notes = Vec::new();
    let readers = turns.iter().map(|turn| turn.readers).max().unwrap_or(0);
    if readers < row.workload.readers && !operation.is_null() {
        notes.push(format!("{name}: {readers} readers"));
    }
    if operation == Operation::Sum {
        notes.push(format!("{name}: {}", whole_file(entry, options.sum_size)));
    }
    if let Some(longest) = longest_polls(turns) {
        notes.push(format!("{name}: {longest}"));
    }
    let least =
        Spread::of(turns.iter().filter(|turn| is_enough(turn)).map(|turn| turn.least_share));
    if let Some(least) = least.filter(|least| least.median < STARVING) {
        let percent = 100.0 * least.median;
        notes.push(format!("{name}: starves readers; one had {percent:.1} % of the mean"));
    }
    let is_uneven = |turn: &&Figures| turn.first_half > UNEVEN || turn.first_half < 1.0 - UNEVEN;
    if 2 * turns.iter().filter(is_uneven).count() > turns.len() {
        notes.push(format!("{name}: uneven; most operations were in one half of the time"));
    }
    notes
}

fn is_enough(turn: &Figures) -> bool {
    turn.operations as f64 >= ENOUGH * turn.readers as f64
}

/// Medians of the turns, if polls were timed.
fn longest_polls(turns: &[Figures]) -> Option<String> {
    let polls: Vec<Polls> = turns.iter().filter_map(|turn| turn.polls).collect();
    let median = |index: usize, of: fn(&Polls) -> [f64; 3]| {
        figure(Spread::of(polls.iter().map(|polls| of(polls)[index])))
    };
    let three = |of| format!("{}, {} and {} µs", median(0, of), median(1, of), median(2, of));
    let text = || {
        let (cpu, wall) = (three(|polls| polls.cpu), three(|polls| polls.wall));
        format!("polls of {cpu} CPU time, of {wall} wall time (p99.9, p99.99, longest)")
    };
    (!polls.is_empty()).then(text)
}

/// The figures of a pass through the whole file.
fn whole_file(entry: &Entry, bytes: u64) -> String {
    let blocks = bytes as f64 / SUM_BLOCK as f64;
    let pass = |ops| format!("{:.1} ms", 1000.0 * blocks / ops);
    let time = formatted(entry.spread(Metric::OpsPerSecond), pass);
    let switches = formatted(entry.spread(Metric::VoluntarySwitchesPerOp), |each| {
        count((blocks * each) as u64)
    });
    format!("{} in {time}, with {switches} voluntary context switches", bytes_text(bytes))
}

/// The median as text.
pub fn formatted(spread: Option<Spread>, text: impl Fn(f64) -> String) -> String {
    spread.map_or(ABSENT.into(), |spread| text(spread.median))
}

/// The median with three significant digits.
pub fn figure(spread: Option<Spread>) -> String {
    formatted(spread, significant)
}

/// Half the range of the rounds in percent, without the sign that the heading has.
pub fn percent(spread: Option<Spread>) -> String {
    spread.and_then(|spread| spread.unsigned_percent()).unwrap_or(ABSENT.into())
}

pub fn switches(each: f64) -> String {
    format!("{each:.3}")
}

pub fn ratio(ratio: f64) -> String {
    text::ratio(ratio, 1.0)
}
