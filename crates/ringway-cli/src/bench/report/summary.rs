//! The conclusions and warnings on a terminal.

use super::model::Model;
use ringway_measure::text::{section, wrap};

/// The summary as text.
pub fn render(model: &Model) -> String {
    let summary = &model.summary;
    let mut out = wrap("", &summary.headline);
    for group in &summary.groups {
        out.push('\n');
        out += &wrap("", &group.title);
        if group.choice != summary.headline {
            out += &wrap("  ", &group.choice);
        }
        out.extend(group.reasons.iter().map(|reason| wrap("  - ", reason)));
    }
    out + &section("Warnings", &summary.warnings) + &section("How to read this", &summary.reading)
}
