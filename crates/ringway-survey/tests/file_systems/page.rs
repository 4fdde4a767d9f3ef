//! docs/file-systems.md, from what is recorded.

use super::Kernel;
use ringway_survey::SUBJECTS;
use std::fmt::Write;

pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/file-systems.md");

/// What the tables do not say by themselves.
const TEXT: &str = include_str!("page.md");

pub fn render(kernels: &[Kernel]) -> String {
    let mut page = TEXT.to_owned();
    for kernel in kernels {
        let _ = writeln!(page, "\n## Linux {}", kernel.kernel);
        for (subject, cells) in SUBJECTS {
            let _ = writeln!(page, "\n### {subject}, Linux {}\n", kernel.kernel);
            for (cell, meaning) in *cells {
                let _ = writeln!(page, "- **{cell}**: {meaning}");
            }
            let names: Vec<&str> = cells.iter().map(|(cell, _)| *cell).collect();
            let _ = writeln!(page, "\n| | {} |", names.join(" | "));
            let _ = writeln!(page, "|---|{}", "---|".repeat(names.len()));
            for row in &kernel.rows {
                let text = |cell: &&str| row.cells.get(*cell).map_or("-", String::as_str);
                let texts: Vec<&str> = names.iter().map(text).collect();
                // A file system to which none of it applies has no line.
                if texts.iter().any(|text| *text != "-") {
                    let _ = writeln!(page, "| {} | {} |", row.name, texts.join(" | "));
                }
            }
        }
    }
    page
}
