//! Results as Markdown: a summary of each group and a row for each query.

use crate::comparison::{Measured, Metric, Results, State};
use crate::contestant::Contestant;
use ringway_measure::stats::Spread;
use ringway_measure::table::Table;
use ringway_measure::text::{ABSENT, significant};

/// The contestant that others are compared with.
const REFERENCE: Contestant = Contestant::Local;
const MIB: f64 = 1024.0 * 1024.0;
/// More than this many processors kept busy by others is reported.
const MANY_OTHERS: f64 = 0.1;

/// The report of a run, in Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = summary(results).markdown();
    for state in [State::Cold, State::Cached] {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.state == state).collect();
        if !rows.is_empty() {
            text += &format!("\n{}\n", heading(state));
            text += &details(&rows).markdown();
        }
    }
    let turns = results.rows.iter().flat_map(|row| &row.entries).flat_map(|entry| &entry.turns);
    let others = turns.clone().map(|turn| turn.others).fold(0.0, f64::max);
    let rounds = results.rows.iter().flat_map(|row| &row.entries).map(|entry| entry.turns.len());
    text += &format!("\nMedians of {}; ± is half the range.", rounds.max().unwrap_or(0));
    if others > MANY_OTHERS {
        text += &format!(" Other programs used up to {others:.1} processors meanwhile.");
    }
    text + "\n"
}

fn heading(state: State) -> &'static str {
    match state {
        State::Cold => "Cold, row by row:\n",
        State::Cached => "Cached, row by row:\n",
    }
}

/// Geometric means of the ratios in each group and state, and the worst row.
fn summary(results: &Results) -> Table {
    let mut table = Table {
        text_columns: 3,
        headings: [
            "",
            "state",
            "store",
            "wall",
            "CPU",
            "peak RSS",
            "bytes",
            "switches",
            "slowest row",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    };
    let mut groups: Vec<(&str, State)> = Vec::new();
    for row in &results.rows {
        if !groups.contains(&(&row.group, row.state)) {
            groups.push((&row.group, row.state));
        }
    }
    for (group, state) in groups {
        let rows: Vec<_> = results
            .rows
            .iter()
            .filter(|row| (row.group.as_str(), row.state) == (group, state))
            .collect();
        for contestant in challengers(&rows) {
            let mean = |metric| {
                // Cached queries read next to nothing, so a ratio of that means nothing.
                if metric == Metric::DeviceBytes && state == State::Cached {
                    return None;
                }
                let ratios = rows.iter().filter_map(|row| ratio(row, contestant, metric));
                geometric_mean(ratios.map(|ratio| ratio.median))
            };
            let metrics =
                [Metric::Wall, Metric::Cpu, Metric::PeakRss, Metric::DeviceBytes, Metric::Switches];
            let mut cells =
                vec![group.to_owned(), state.name().to_owned(), contestant.name().into()];
            cells.extend(metrics.map(|metric| mean(metric).map_or(ABSENT.into(), two_digits)));
            cells.push(slowest(&rows, contestant));
            table.rows.push(cells);
        }
    }
    table
}

/// The contestants but the reference.
fn challengers(rows: &[&Measured]) -> Vec<Contestant> {
    let entries = rows.first().map_or(&[][..], |row| &row.entries);
    entries.iter().map(|entry| entry.contestant).filter(|name| *name != REFERENCE).collect()
}

fn ratio(row: &Measured, contestant: Contestant, metric: Metric) -> Option<Spread> {
    row.ratio(contestant, REFERENCE, metric)
        .filter(|ratio| ratio.median.is_finite() && ratio.median > 0.0)
}

/// The row with the greatest ratio of wall time.
fn slowest(rows: &[&Measured], contestant: Contestant) -> String {
    let ratios = rows
        .iter()
        .filter_map(|row| Some((row.name.as_str(), ratio(row, contestant, Metric::Wall)?)));
    ratios
        .max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
        .map_or(ABSENT.into(), |(name, ratio)| {
            format!("{name} {}", with_spread(two_digits(ratio.median), &ratio))
        })
}

/// One line for each contestant in each row.
fn details(rows: &[&Measured]) -> Table {
    let headings = [
        "row", "store", "wall s", "±", "user s", "system s", "RSS MiB", "read MiB", "switches",
        "wall", "±", "CPU",
    ];
    let mut table =
        Table { text_columns: 2, headings: headings.map(str::to_owned).to_vec(), rows: Vec::new() };
    for row in rows {
        for entry in &row.entries {
            let figure = |metric, unit: f64| {
                entry
                    .spread(metric)
                    .map_or(ABSENT.into(), |spread| significant(spread.median / unit))
            };
            let wall = entry.spread(Metric::Wall);
            let compared = |metric| {
                ratio(row, entry.contestant, metric).filter(|_| entry.contestant != REFERENCE)
            };
            let wall_ratio = compared(Metric::Wall);
            table.rows.push(vec![
                row.name.clone(),
                entry.contestant.name().into(),
                figure(Metric::Wall, 1.0),
                wall.and_then(|wall| wall.percent()).unwrap_or_default(),
                figure(Metric::User, 1.0),
                figure(Metric::System, 1.0),
                figure(Metric::PeakRss, MIB),
                figure(Metric::DeviceBytes, MIB),
                figure(Metric::Switches, 1.0),
                wall_ratio.map_or(String::new(), |ratio| two_digits(ratio.median)),
                wall_ratio.and_then(|ratio| ratio.percent()).unwrap_or_default(),
                compared(Metric::Cpu).map_or(String::new(), |ratio| two_digits(ratio.median)),
            ]);
        }
    }
    table
}

fn with_spread(figure: String, spread: &Spread) -> String {
    match spread.percent() {
        Some(percent) => format!("{figure} {percent}"),
        None => figure,
    }
}

fn two_digits(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// The geometric mean; `None` without a value.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Entry;
    use crate::suite::Benchmark;
    use crate::turn::Figures;
    use crate::work::Answer;
    use ringway_measure::usage::Usage;
    use std::time::Duration;

    fn figures(seconds: u64) -> Figures {
        let real = Duration::from_secs(seconds);
        Figures {
            usage: Usage { real, user: real, ..Usage::default() },
            device_bytes: 1 << 20,
            peak_rss: 1 << 24,
            repetitions: 1,
            others: 0.0,
            answer: Answer { count: 1, digest: 1 },
            engine: None,
        }
    }

    fn row(name: &str, local: [u64; 3], ringway: [u64; 3]) -> Measured {
        let entry = |contestant, seconds: [u64; 3]| Entry {
            contestant,
            turns: seconds.map(figures).to_vec(),
        };
        let entries = vec![entry(Contestant::Local, local), entry(Contestant::Ringway, ringway)];
        Measured { group: "tpch".into(), name: name.into(), state: State::Cold, entries }
    }

    #[test]
    fn ratios_are_of_rounds_and_means_geometric() {
        let rows = vec![row("q1", [1, 20, 4], [2, 40, 8]), row("q2", [8, 8, 8], [1, 1, 1])];
        let results = Results { benchmark: Benchmark::B, rows };
        let summary = summary(&results);
        assert_eq!(summary.rows.len(), 1);
        assert_eq!(
            summary.rows[0],
            ["tpch", "cold", "ringway", "0.50", "0.50", "1.00", "1.00", ABSENT, "q1 2.00 ±0.0 %"]
        );
        let details = details(&results.rows.iter().collect::<Vec<_>>());
        assert_eq!(details.rows[0][..4], ["q1", "local", "4.00", "±237.5 %"]);
        assert_eq!(details.rows[3][9..], ["0.12", "±0.0 %", "0.12"]);
        let text = markdown(&results);
        assert!(text.ends_with("Medians of 3; ± is half the range.\n"), "{text}");
        assert!(!text.contains("Cached"));
    }

    #[test]
    fn a_mean_of_nothing_is_absent() {
        assert_eq!(geometric_mean([].into_iter()), None);
        assert!((geometric_mean([2.0, 8.0].into_iter()).unwrap() - 4.0).abs() < 1e-9);
    }
}
