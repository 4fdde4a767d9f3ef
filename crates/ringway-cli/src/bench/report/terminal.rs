//! The report on a terminal: the machine, one row for each measurement, and the conclusions.

use super::configuration;
use super::model::Model;
use ringway_measure::text::{section, wrap};

/// The report as text.
pub fn render(model: &Model) -> String {
    let lines = |all: &[String]| all.iter().map(|line| wrap("", line)).collect::<String>();
    let mut out = lines(&configuration::machine(&model.report.machine));
    match &model.rows {
        Some(rows) => {
            out += &format!("\n{}\n{}", lines(&rows.captions), rows.table.text(rows.names))
        }
        None => out += "Nothing was measured.\n",
    }
    let summary = &model.summary;
    out += &format!("\n{}", wrap("", &summary.headline));
    for group in &summary.groups {
        out += &format!("\n{}", wrap("", &group.title));
        if group.choice != summary.headline {
            out += &wrap("  ", &group.choice);
        }
        out.extend(group.reasons.iter().map(|reason| wrap("  - ", reason)));
    }
    out + &section("Warnings", &summary.warnings) + &section("How to read this", &summary.reading)
}
