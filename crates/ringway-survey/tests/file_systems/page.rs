//! docs/file-systems.md, from what is recorded.

use super::Kernel;
use ringway_survey::{Row, SUBJECTS};
use std::fmt::Write;

pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/file-systems.md");

/// What the tables do not say by themselves.
const TEXT: &str = include_str!("page.md");

pub fn render(kernels: &[Kernel]) -> String {
    let mut page = TEXT.to_owned();
    for kernel in kernels {
        let _ = writeln!(page, "\n## Linux {}", kernel.kernel);
        for (subject, cells) in SUBJECTS {
            let names: Vec<&str> = cells.iter().map(|(cell, _)| *cell).collect();
            let lines: Vec<String> =
                kernel.rows.iter().filter_map(|row| line(row, &names)).collect();
            if lines.is_empty() {
                continue;
            }
            let _ = writeln!(page, "\n### {subject}, Linux {}\n", kernel.kernel);
            for (cell, meaning) in *cells {
                let _ = writeln!(page, "- **{cell}**: {meaning}");
            }
            let _ = writeln!(page, "\n| | {} |", names.join(" | "));
            let _ = writeln!(page, "|---|{}", "---|".repeat(names.len()));
            page.push_str(&lines.concat());
        }
    }
    page
}

/// A row's line in a table; none if nothing in it applies.
fn line(row: &Row, names: &[&str]) -> Option<String> {
    let text = |cell: &&str| row.cells.get(*cell).map_or("-", String::as_str);
    let texts: Vec<&str> = names.iter().map(text).collect();
    let applies = texts.iter().any(|text| *text != "-");
    applies.then(|| format!("| {} | {} |\n", row.name, texts.join(" | ")))
}
