//! The table of one row.

use super::run::{Cache, Entry, Row};
use super::turn::Figures;
use crate::report::busy;
use ringway_measure::table::Table;

const MIB: f64 = 1024.0 * 1024.0;

pub fn row(row: &Row, bytes: u64) {
    let cache = match row.cache {
        Cache::Cold => "cold",
        Cache::Cached => "cached",
    };
    println!("### {cache}, {} in flight\n", row.concurrency);
    let headings = [
        "contestant",
        "seconds",
        "range",
        "user s",
        "system s",
        "CPU s",
        "peak MiB",
        "device ×",
        "switches",
    ];
    let table = Table {
        text_columns: 1,
        headings: headings.map(String::from).into(),
        rows: row.entries.iter().map(|entry| line(entry, bytes)).collect(),
    };
    println!("{}", table.markdown());
    let others = row.entries.iter().flat_map(|entry| &entry.turns).map(|turn| turn.others);
    if let Some(note) = busy(others) {
        println!("- {note}");
    }
    row.left_out.iter().for_each(|(name, why)| println!("- {name}: left out; {why}"));
    println!();
}

fn line(entry: &Entry, bytes: u64) -> Vec<String> {
    let median =
        |figure: &dyn Fn(&Figures) -> f64| entry.spread(figure).map_or(0.0, |spread| spread.median);
    let wall = entry.spread(|turn| turn.usage.real.as_secs_f64());
    let device = median(&|turn| turn.device_bytes as f64) / bytes as f64;
    vec![
        entry.contestant.into(),
        wall.map_or_else(String::new, |wall| format!("{:.2}", wall.median)),
        wall.map_or_else(String::new, |wall| format!("{:.2}-{:.2}", wall.low, wall.high)),
        format!("{:.2}", median(&|turn| turn.usage.user.as_secs_f64())),
        format!("{:.2}", median(&|turn| turn.usage.system.as_secs_f64())),
        format!("{:.2}", median(&|turn| turn.usage.cpu().as_secs_f64())),
        format!("{:.0}", median(&|turn| turn.peak_memory as f64) / MIB),
        format!("{device:.2}"),
        format!("{:.0}", median(&|turn| turn.usage.context_switches() as f64)),
    ]
}
