//! Results as Markdown: a summary of each group and a row for each query.

use crate::comparison::{Measured, Results, State};
use crate::contestant::Contestant;
use crate::turn::{CPU, MACHINE, PEAK, READ, SWITCHES, SYSTEM, USER, WALL};
use ringway_measure::rounds::{self, Column, OTHERS, Row};
use ringway_measure::stats::Spread;
use ringway_measure::table::Table;
use ringway_measure::text::ABSENT;

/// The contestant that others are compared with.
const REFERENCE: &str = Contestant::Local.name();
/// More than this many processors kept busy by others is reported.
const MANY_OTHERS: f64 = 0.1;

/// The report of a run, in Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = summary(results).markdown();
    for state in [State::Cold, State::Cached] {
        let rows = results.rows.iter().filter(|measured| measured.state == state);
        let rows: Vec<Row> = rows.map(|measured| measured.row.clone()).collect();
        if !rows.is_empty() {
            text += &format!("\n{}\n", heading(state));
            text += &rounds::table(&rows, &["row", "store"], &columns()).markdown();
        }
    }
    let entries = results.rows.iter().flat_map(|measured| &measured.row.entries);
    let turns = entries.clone().flat_map(|entry| &entry.turns);
    let others = turns.filter_map(|turn| turn.get(OTHERS)).fold(0.0, f64::max);
    let rounds = entries.map(|entry| entry.turns.len());
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
            "machine",
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
        let among = |row: &&Measured| (row.group.as_str(), row.state) == (group, state);
        let rows: Vec<&Row> = results.rows.iter().filter(among).map(|row| &row.row).collect();
        for contestant in challengers(&rows) {
            let mean = |figure| {
                // Cached queries read next to nothing, so a ratio of that means nothing.
                if figure == READ && state == State::Cached {
                    return None;
                }
                let ratios = rows.iter().filter_map(|row| ratio(row, contestant, figure));
                geometric_mean(ratios.map(|ratio| ratio.median))
            };
            let figures = [WALL, CPU, MACHINE, PEAK, READ, SWITCHES];
            let mut cells = [group, state.name(), contestant].map(str::to_owned).to_vec();
            cells.extend(figures.map(|figure| mean(figure).map_or(ABSENT.into(), two_digits)));
            cells.push(slowest(&rows, contestant));
            table.rows.push(cells);
        }
    }
    table
}

/// The contestants but the reference.
fn challengers<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let entries = rows.first().map_or(&[][..], |row| &row.entries);
    entries.iter().map(|entry| &*entry.contestant).filter(|name| *name != REFERENCE).collect()
}

fn ratio(row: &Row, contestant: &str, figure: &str) -> Option<Spread> {
    row.ratio(contestant, REFERENCE, figure).filter(|ratio| ratio.median > 0.0)
}

/// The row with the greatest ratio of wall time.
fn slowest(rows: &[&Row], contestant: &str) -> String {
    let ratios =
        rows.iter().filter_map(|row| Some((row.title.as_str(), ratio(row, contestant, WALL)?)));
    ratios
        .max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
        .map_or(ABSENT.into(), |(name, ratio)| {
            format!("{name} {}", with_spread(two_digits(ratio.median), &ratio))
        })
}

/// The columns of a line for each contestant in each row.
fn columns() -> Vec<Column> {
    let mut columns = vec![Column::figure(WALL), Column::range(WALL)];
    columns.extend([USER, SYSTEM, MACHINE, PEAK, READ, SWITCHES].map(Column::figure));
    columns.push(Column::ratio("wall", WALL, REFERENCE));
    columns.push(Column::ratio_range(WALL, REFERENCE));
    columns.push(Column::ratio("CPU", CPU, REFERENCE));
    columns
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
    use crate::suite::Benchmark;
    use ringway_measure::rounds::{Entry, Turn};

    fn turn(seconds: u32) -> Turn {
        let mut turn = Turn::default();
        for figure in [WALL, CPU, USER] {
            turn.set(figure, f64::from(seconds));
        }
        for figure in [SYSTEM, MACHINE, PEAK, READ, SWITCHES] {
            turn.set(figure, 1.0);
        }
        turn
    }

    fn row(name: &str, local: [u32; 3], ringway: [u32; 3]) -> Measured {
        let entry = |contestant: &str, seconds: [u32; 3]| Entry {
            contestant: contestant.into(),
            turns: seconds.map(turn).to_vec(),
        };
        let entries = vec![entry(REFERENCE, local), entry("ringway", ringway)];
        let row = Row { title: name.into(), entries, left_out: Vec::new() };
        Measured { group: "tpch".into(), state: State::Cold, row }
    }

    #[test]
    fn ratios_are_of_rounds_and_means_geometric() {
        let rows = vec![row("q1", [1, 20, 4], [2, 40, 8]), row("q2", [8, 8, 8], [1, 1, 1])];
        let results = Results { benchmark: Benchmark::B, rows };
        let summary = summary(&results);
        assert_eq!(summary.rows.len(), 1);
        let means = ["0.50", "0.50", "1.00", "1.00", "1.00", "1.00"];
        assert_eq!(summary.rows[0][..3], ["tpch", "cold", "ringway"]);
        assert_eq!(summary.rows[0][3..9], means);
        assert_eq!(summary.rows[0][9], "q1 2.00 ±0.0 %");
        let text = markdown(&results);
        assert!(text.contains("| q1  | local   |   4.00 | 237.5 % |"), "{text}");
        assert!(text.ends_with("Medians of 3; ± is half the range.\n"), "{text}");
        assert!(!text.contains("Cached"));
    }

    #[test]
    fn a_mean_of_nothing_is_absent() {
        assert_eq!(geometric_mean([].into_iter()), None);
        assert!((geometric_mean([2.0, 8.0].into_iter()).unwrap() - 4.0).abs() < 1e-9);
    }
}
