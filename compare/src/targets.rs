//! The targets of ringway, and whether a run reaches them.

use crate::contestants::{self, RINGWAY};
use crate::figures::{LONG_POLLS, P50, P99};
use crate::report::three_decimals;
use crate::suite;
use crate::workload::Operation;
use anyhow::{Context, bail, ensure};
use ringway_measure::rounds::Bound::{Least, Most};
use ringway_measure::rounds::{self, Bound, CPU, MACHINE, Measure, OPS, Row, SWITCHES, Target};
use ringway_measure::text::significant;

/// The tables of targets.
const TARGETS: &str = include_str!("../targets.md");

/// ringway reaches at least this share of the operations per second of the fastest runtime that
/// owns its threads.
const LEAST_OF_FASTEST: f64 = 1.0 / 1.2;

/// The figures, as the tables name them.
const FIGURES: [(&str, &str); 7] = [
    ("operations", OPS),
    ("CPU", CPU),
    ("machine", MACHINE),
    ("switches", SWITCHES),
    ("p50", P50),
    ("p99", P99),
    ("longest polls", LONG_POLLS),
];

/// Whether a line is one of a table of targets. Other tables have other columns.
fn is_target(line: &str) -> bool {
    line.starts_with("| `") && line.matches('|').count() == 5
}

/// The targets in the tables of a Markdown page.
fn parse(page: &str) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for line in page.lines().filter(|line| is_target(line)) {
        add(line, &mut targets).with_context(|| format!("not a target: {line}"))?;
    }
    Ok(targets)
}

/// Adds the targets of a line.
fn add(line: &str, targets: &mut Vec<Target>) -> anyhow::Result<()> {
    let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
    let [_, words, contestants, figures, target, _] = &cells[..] else { bail!("no four cells") };
    let (measure, bound) = bound(target).context("no bound")?;
    let rows = suite::rows(words);
    ensure!(!rows.is_empty(), "no row has these words");
    for row in rows {
        for contestant in contestants.split(", ") {
            for name in figures.split(", ") {
                let figure = FIGURES.iter().find(|(known, _)| *known == name);
                targets.push(Target {
                    row: row.to_string(),
                    contestant: contestant.into(),
                    figure: figure.context("no such figure")?.1.into(),
                    measure: measure.clone(),
                    bound,
                });
            }
        }
    }
    Ok(())
}

/// `at most 1.1x other` or `at least 45`, perhaps with a unit.
fn bound(text: &str) -> Option<(Measure, Bound)> {
    let (bound, rest): (fn(f64) -> Bound, _) = match text.strip_prefix("at least ") {
        Some(rest) => (Least, rest),
        None => (Most, text.strip_prefix("at most ")?),
    };
    let (number, unit) = rest.split_once(' ').unwrap_or((rest, ""));
    let (number, measure) = match number.strip_suffix('x') {
        Some(number) => (number, Measure::Ratio(unit.into())),
        None if ["µs", "per operation"].contains(&unit) => (number, Measure::Value),
        None => return None,
    };
    Some((measure, bound(number.parse().ok()?)))
}

/// All targets of the rows that were measured.
///
/// # Errors
///
/// A line of the table that is no target.
pub fn table(rows: &[Row]) -> anyhow::Result<String> {
    let fastest = rows.iter().filter_map(|row| {
        Some(Target {
            row: row.title.clone(),
            contestant: RINGWAY.into(),
            figure: OPS.into(),
            measure: Measure::Ratio(fastest_runtime(row)?.into()),
            bound: Least(LEAST_OF_FASTEST),
        })
    });
    let targets: Vec<Target> = parse(TARGETS)?.into_iter().chain(fastest).collect();
    let table = rounds::targets(rows, &targets, |figure, value| match figure {
        SWITCHES => three_decimals(value),
        OPS => significant(value),
        _ => format!("{} µs", significant(value)),
    });
    Ok(format!("### Targets of ringway\n\n{}", table.markdown()))
}

/// The runtime with the most operations per second compared with ringway.
fn fastest_runtime(row: &Row) -> Option<&'static str> {
    let runtimes =
        contestants::of(Operation::Read).iter().filter(|contestant| contestant.is_runtime);
    let ratio = |name| Some((row.ratio(RINGWAY, name, OPS)?.median, name));
    let ratios = runtimes.filter_map(|runtime| ratio(runtime.name));
    ratios.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_contestants_of_a_target_take_part_in_a_main_row() {
        let rows = suite::main_rows();
        for Target { row, contestant, measure, .. } in parse(TARGETS).unwrap() {
            let workload = rows.iter().find(|workload| workload.to_string() == row);
            let workload = workload.unwrap_or_else(|| panic!("{row}: only with options"));
            let other = match measure {
                Measure::Value => None,
                Measure::Ratio(to) | Measure::Above(to) => Some(to),
            };
            for name in [contestant].into_iter().chain(other) {
                let contestant = contestants::by_name(workload.operation, &name).unwrap();
                let takes_part =
                    contestant.concerns(workload) && (contestant.leaves_out)(workload).is_none();
                assert!(takes_part, "{name} takes no part in: {row}");
            }
        }
    }

    #[test]
    fn the_targets_of_contributing_are_these() {
        let (all, stated) = (parse(TARGETS).unwrap(), parse(include_str!("../../CONTRIBUTING.md")));
        let stated = stated.unwrap();
        assert!(!stated.is_empty(), "CONTRIBUTING.md has no targets");
        for target in stated {
            assert!(all.contains(&target), "not in targets.md: {target:?}");
        }
    }

    /// A line with another form would be no target, without a word.
    #[test]
    fn every_line_of_the_table_is_a_target() {
        let lines: Vec<_> =
            TARGETS.lines().filter(|line| line.trim_start().starts_with('|')).collect();
        assert_eq!(lines[..2], ["| row | entry | figure | target |", "|---|---|---|---|"]);
        for line in &lines[2..] {
            assert!(is_target(line), "{line}");
        }
    }

    #[test]
    fn what_is_no_target_is_an_error() {
        for wrong in [
            "| `nothing` | `ringway` | CPU | at most 1 µs |",
            "| `polls` | `ringway` | speed | at most 1 µs |",
            "| `polls` | `ringway` | CPU | about 1 µs |",
            "| `polls` | `ringway` | CPU | at most x µs |",
            "| `polls` | `ringway` | CPU | at most 1 ms |",
            "| `polls` | `ringway` | CPU | at most 0.5 x `floor` |",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
