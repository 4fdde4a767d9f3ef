//! The table of one row.

use super::markdown;
use crate::contest::{Entry, Row};
use crate::contestants::{BARE, FLOOR, SPAWN_BLOCKING};
use crate::figures::{Figures, Median, Metric, Polls};
use crate::options::Options;
use crate::workload::{SUM_BLOCK, Operation, grouped, size};
use std::fmt::Write;

/// A reader that has less than this of what the others have on average starves.
const STARVING: f64 = 0.1;
/// With more than this in one half of a turn, it depends on chance how much of a burst, or of a
/// stall, the turn has seen.
const UNEVEN: f64 = 0.65;
/// With more of this machine's processors busy with something else, little can be told.
const BUSY: f64 = 0.15;
/// With fewer operations a reader than this, chance alone leaves some behind.
const ENOUGH: f64 = 20.0;
/// Whom all others of a row are held against, where they take part.
const BASELINES: [&str; 3] = [SPAWN_BLOCKING, BARE, FLOOR];

pub fn table(row: &Row, options: &Options) -> String {
    let baselines: Vec<&str> =
        BASELINES.into_iter().filter(|name| row.entry(name).is_some()).collect();
    let mut heading: Vec<String> =
        ["contestant", "ops/s", "±", "CPU µs/op", "±", "p50 µs", "p99 µs", "ctx/op"]
            .map(String::from)
            .into();
    heading.extend(
        baselines.iter().flat_map(|name| [format!("ops/s vs {name}"), format!("CPU vs {name}")]),
    );
    let lines: Vec<_> = row.entries.iter().map(|entry| line(row, entry, &baselines)).collect();
    let mut text = format!("### {}\n\n{}", row.workload, markdown::table(&heading, 1, &lines));
    let notes = notes(row, options);
    if !notes.is_empty() {
        text.push('\n');
        notes.iter().for_each(|note| _ = writeln!(text, "- {note}"));
    }
    text
}

fn line(row: &Row, entry: &Entry, baselines: &[&str]) -> Vec<String> {
    let median = |metric| entry.median(metric);
    let mut cells = vec![
        entry.contestant.into(),
        value(median(Metric::OpsPerSecond), |ops| grouped(ops as u64)),
        value_spread(median(Metric::OpsPerSecond)),
        value(median(Metric::CpuPerOp), significant),
        value_spread(median(Metric::CpuPerOp)),
        value(median(Metric::P50), significant),
        value(median(Metric::P99), significant),
        value(median(Metric::SwitchesPerOp), switches),
    ];
    for to in baselines {
        let ratio = |metric| value(row.ratio(entry.contestant, to, metric), factor);
        cells.extend([ratio(Metric::OpsPerSecond), ratio(Metric::CpuPerOp)]);
    }
    cells
}

fn notes(row: &Row, options: &Options) -> Vec<String> {
    let mut notes: Vec<String> =
        row.entries.iter().flat_map(|entry| notes_on(row, entry, options)).collect();
    let others = row.entries.iter().flat_map(|entry| &entry.turns).map(|turn| turn.others);
    if let Some(others) = Median::of(others).filter(|others| others.value > BUSY) {
        notes.push(format!(
            "the machine is busy: other programs took {:.1} processors meanwhile",
            others.value
        ));
    }
    if row.entries.iter().any(|entry| entry.median(Metric::P50).is_none()) {
        notes
            .push("no latencies: nothing was timed, or not every reader had its turn twice".into());
    }
    notes.extend(row.left_out.iter().map(|(name, why)| format!("{name}: left out; {why}")));
    notes
}

fn notes_on(row: &Row, entry: &Entry, options: &Options) -> Vec<String> {
    let (name, turns) = (entry.contestant, &entry.turns);
    let mut notes = Vec::new();
    let readers = turns.iter().map(|turn| turn.readers).max().unwrap_or(0);
    if readers < row.workload.readers && !row.workload.operation.is_null() {
        notes.push(format!("{name}: {readers} readers"));
    }
    if row.workload.operation == Operation::Sum {
        notes.push(format!("{name}: {}", whole_file(entry, options.sum_size)));
    }
    if let Some(longest) = longest_polls(turns) {
        notes.push(format!("{name}: {longest}"));
    }
    let least =
        Median::of(turns.iter().filter(|turn| is_enough(turn)).map(|turn| turn.least_share));
    if let Some(least) = least.filter(|least| least.value < STARVING) {
        notes.push(format!(
            "{name}: starves readers; one had {:.1} % of the mean",
            100.0 * least.value
        ));
    }
    let is_uneven = |turn: &&Figures| turn.first_half > UNEVEN || turn.first_half < 1.0 - UNEVEN;
    if 2 * turns.iter().filter(is_uneven).count() > turns.len() {
        notes.push(format!("{name}: uneven; most operations fell into one half of the time"));
    }
    notes
}

fn is_enough(turn: &Figures) -> bool {
    turn.operations as f64 >= ENOUGH * turn.readers as f64
}

/// Medians of the turns, where polls were timed.
fn longest_polls(turns: &[Figures]) -> Option<String> {
    let polls: Vec<Polls> = turns.iter().filter_map(|turn| turn.polls).collect();
    let median = |index: usize, of: fn(&Polls) -> [f64; 3]| {
        value(Median::of(polls.iter().map(|polls| of(polls)[index])), significant)
    };
    let three = |of| format!("{}, {} and {} µs", median(0, of), median(1, of), median(2, of));
    let text = || {
        format!(
            "polls of {} CPU time, of {} wall time (p99.9, p99.99, longest)",
            three(|p| p.cpu),
            three(|p| p.wall)
        )
    };
    (!polls.is_empty()).then(text)
}

/// What a reader of a whole file wants to know.
fn whole_file(entry: &Entry, bytes: u64) -> String {
    let blocks = bytes as f64 / SUM_BLOCK as f64;
    let time =
        value(entry.median(Metric::OpsPerSecond), |ops| format!("{:.1} ms", 1000.0 * blocks / ops));
    let switches =
        value(entry.median(Metric::VoluntarySwitchesPerOp), |each| grouped((blocks * each) as u64));
    format!("{} in {time}, with {switches} voluntary context switches", size(bytes))
}

/// A figure, or that there is none.
pub fn value(median: Option<Median>, text: impl Fn(f64) -> String) -> String {
    median.map_or("-".into(), |median| text(median.value))
}

pub fn value_spread(median: Option<Median>) -> String {
    median.map_or("-".into(), |median| format!("{:.0}%", 100.0 * median.spread))
}

/// Three digits that matter.
pub fn significant(number: f64) -> String {
    match number {
        _ if number >= 1000.0 => grouped(number.round() as u64),
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ if number >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

pub fn switches(each: f64) -> String {
    format!("{each:.3}")
}

pub fn factor(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.1}x") } else { format!("{ratio:.2}x") }
}
