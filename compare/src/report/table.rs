//! The table of one row.

use crate::contest::{Entry, Row};
use crate::contestants::{BARE, SPAWN_BLOCKING};
use crate::figures::{Figures, Median, Metric};
use crate::options::Options;
use crate::shape::{SUM_BLOCK, Work, grouped, size};
use std::fmt::Write;

/// A reader that has less than this of what the others have on average starves.
const STARVING: f64 = 0.1;
/// With more than this in one half of a turn, it depends on chance how much of a burst, or of a stall, the turn has seen.
const UNEVEN: f64 = 0.65;
/// With more of this machine's processors busy with something else, little can be told.
const BUSY: f64 = 0.15;
/// With fewer operations a reader than this, chance alone leaves some behind.
const ENOUGH: f64 = 20.0;

pub fn table(row: &Row, options: &Options) -> String {
    let mut text = format!("{}\n\n", row.shape);
    heading(&mut text);
    row.entries.iter().for_each(|entry| line(&mut text, row, entry));
    notes(&mut text, row, options);
    text
}

fn heading(text: &mut String) {
    *text += "                                                                               vs spawn_blocking    vs bare loop\n";
    *text += "contestant                 ops/s spread  CPU µs/op spread   p50 µs   p99 µs ctx/op    ops/s    CPU    ops/s    CPU\n";
}

fn line(text: &mut String, row: &Row, entry: &Entry) {
    let median = |metric| entry.median(metric);
    let ratio = |to, metric| row.ratio(entry.contestant, to, metric);
    let _ = writeln!(
        text,
        "{:<20} {:>11} {:>6}  {:>9} {:>6} {:>8} {:>8} {:>6}  {:>7} {:>6}  {:>7} {:>6}",
        entry.contestant,
        value(median(Metric::OpsPerSecond), |ops| grouped(ops as u64)),
        value_spread(median(Metric::OpsPerSecond)),
        value(median(Metric::CpuPerOp), significant),
        value_spread(median(Metric::CpuPerOp)),
        value(median(Metric::P50), significant),
        value(median(Metric::P99), significant),
        value(median(Metric::SwitchesPerOp), |switches| format!("{switches:.2}")),
        value(ratio(SPAWN_BLOCKING, Metric::OpsPerSecond), factor),
        value(ratio(SPAWN_BLOCKING, Metric::CpuPerOp), factor),
        value(ratio(BARE, Metric::OpsPerSecond), factor),
        value(ratio(BARE, Metric::CpuPerOp), factor),
    );
}

fn notes(text: &mut String, row: &Row, options: &Options) {
    row.entries.iter().for_each(|entry| notes_on(text, row, entry, options));
    let others = row.entries.iter().flat_map(|entry| &entry.turns).map(|turn| turn.others);
    if let Some(others) = Median::of(others).filter(|others| others.value > BUSY) {
        let _ = writeln!(text, "the machine is busy: other programs took {:.1} processors meanwhile", others.value);
    }
    if row.entries.iter().any(|entry| entry.median(Metric::P50).is_none()) {
        *text += "no latencies: not every reader had its turn twice\n";
    }
    for (name, why) in &row.left_out {
        let _ = writeln!(text, "{name}: left out; {why}");
    }
}

fn notes_on(text: &mut String, row: &Row, entry: &Entry, options: &Options) {
    let (name, turns) = (entry.contestant, &entry.turns);
    let readers = turns.iter().map(|turn| turn.readers).max().unwrap_or(0);
    if readers < row.shape.readers {
        let _ = writeln!(text, "{name}: {readers} readers");
    }
    if row.shape.work == Work::Sum {
        let _ = writeln!(text, "{name}: {}", whole_file(entry, options.sum_size));
    }
    let least = Median::of(turns.iter().filter(|turn| is_enough(turn)).map(|turn| turn.least_share));
    if let Some(least) = least.filter(|least| least.value < STARVING) {
        let _ = writeln!(text, "{name}: starves readers; one had {:.1} % of the mean", 100.0 * least.value);
    }
    let is_uneven = |turn: &&Figures| turn.first_half > UNEVEN || turn.first_half < 1.0 - UNEVEN;
    if 2 * turns.iter().filter(is_uneven).count() > turns.len() {
        let _ = writeln!(text, "{name}: uneven; most operations fell into one half of the time");
    }
}

fn is_enough(turn: &Figures) -> bool {
    turn.operations as f64 >= ENOUGH * turn.readers as f64
}

/// What a reader of a whole file wants to know.
fn whole_file(entry: &Entry, bytes: u64) -> String {
    let blocks = bytes as f64 / SUM_BLOCK as f64;
    let time = value(entry.median(Metric::OpsPerSecond), |ops| format!("{:.1} ms", 1000.0 * blocks / ops));
    let switches = value(entry.median(Metric::VoluntarySwitchesPerOp), |each| grouped((blocks * each) as u64));
    format!("{} in {time}, with {switches} voluntary context switches", size(bytes))
}

/// A figure, or that there is none.
pub fn value(median: Option<Median>, text: impl Fn(f64) -> String) -> String {
    median.map_or("-".into(), |median| text(median.value))
}

fn value_spread(median: Option<Median>) -> String {
    median.map_or("-".into(), |median| format!("±{:.0}%", 100.0 * median.spread))
}

/// Three digits that matter.
pub fn significant(number: f64) -> String {
    match number {
        _ if number >= 1000.0 => grouped(number.round() as u64),
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

pub fn factor(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.1}x") } else { format!("{ratio:.2}x") }
}
