//! The report on a terminal: one row a cell, and above it, once, what all rows have in common.

use super::grid::{Grid, Row};
use super::words;
use crate::bench::result::Report;

/// Between two columns, as long as the table is no wider than `ROOMY`.
const GAP: &str = "  ";

/// The same in a wider table.
const NARROW_GAP: &str = " ";

/// Columns of a terminal that most people can give.
const ROOMY: usize = 160;

/// The machine, the table and the notes on it.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    for text in words::machine(&report.machine) {
        line(&text);
    }
    if report.cells.is_empty() {
        line("Nothing was measured.");
        return out;
    }
    line("");
    let grid = Grid::new(report);
    for caption in grid.captions.iter().filter(|caption| !caption.is_empty()) {
        line(caption);
    }
    line("");

    let mut widths: Vec<usize> = grid
        .columns
        .iter()
        .map(|column| {
            column
                .texts
                .iter()
                .map(|text| width(text))
                .max()
                .unwrap_or(0)
                .max(width(&column.heading))
        })
        .collect();
    let total = widths.iter().sum::<usize>() + (widths.len() - 1) * GAP.len();
    let gap = if total > ROOMY { NARROW_GAP } else { GAP };
    let bands = bands(&grid, &mut widths, gap);
    line(&bands);
    let headings: Vec<&str> = grid.columns.iter().map(|column| column.heading.as_str()).collect();
    line(&fields(&headings, &widths, gap));
    for (at, row) in grid.rows.iter().enumerate() {
        let texts = grid.columns.iter().map(|column| column.texts[at].as_str());
        match row {
            Row::Cell | Row::Part => line(&fields(&texts.collect::<Vec<_>>(), &widths, gap)),
            Row::Absent(reason) => {
                let settings = grid.columns.iter().take_while(|column| column.setting).count();
                let texts: Vec<&str> = texts.take(settings).collect();
                line(&format!("{}{gap}{reason}", fields(&texts, &widths, gap)));
            }
        }
    }
    if !grid.notes.is_empty() {
        line("");
        for note in &grid.notes {
            line(note);
        }
    }
    out
}

/// Headings above neighbouring columns. A column alone under a longer heading is made as wide.
fn bands(grid: &Grid, widths: &mut [usize], gap: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < grid.columns.len() {
        let band = grid.columns[at].band;
        let many = grid.columns[at..].iter().take_while(|column| column.band == band).count();
        let wide =
            |widths: &[usize]| widths[at..at + many].iter().sum::<usize>() + (many - 1) * gap.len();
        widths[at] += width(band).saturating_sub(wide(widths));
        let wide = wide(widths);
        let rule = wide.saturating_sub(width(band) + 1);
        let rule = if band.is_empty() || rule == 0 {
            String::new()
        } else {
            format!(" {}", "─".repeat(rule))
        };
        out.push_str(&pad(&format!("{band}{rule}"), wide, false));
        out.push_str(gap);
        at += many;
    }
    out
}

/// One line: the first column begins at the left, the others are figures and end at the right.
fn fields(texts: &[&str], widths: &[usize], gap: &str) -> String {
    let padded: Vec<String> = texts
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(at, (text, &wide))| pad(text, wide, at > 0))
        .collect();
    padded.join(gap)
}

fn pad(text: &str, wide: usize, right: bool) -> String {
    let space = " ".repeat(wide.saturating_sub(width(text)));
    if right { format!("{space}{text}") } else { format!("{text}{space}") }
}

/// Columns of the terminal, close enough for the letters that occur here.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use crate::bench::workload::Backend;
    use proptest::prelude::*;

    #[test]
    fn what_all_rows_share_is_said_once_and_the_columns_line_up() {
        let text = render(&samples::depths());
        assert!(text.contains("\n4 KiB random reads, direct, 1 job, 5.00 s\n"), "{text}");
        assert!(text.contains("median of 3 runs"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" ±")).collect();
        assert_eq!(rows.len(), 12, "{text}");
        let spread = rows[0].chars().position(|c| c == '±');
        assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "{text}");
        assert!(spread.is_some());
        assert!(!text.contains("sqpoll"), "no cell had any\n{text}");
        let heading = text.lines().find(|line| line.contains("p99.99")).unwrap();
        for gone in [" rw", "block", "jobs", "I/O", "real"] {
            assert!(!heading.contains(gone), "{gone} is the same everywhere\n{text}");
        }
    }

    #[test]
    fn a_usual_report_fits_a_terminal() {
        let limits = [
            (samples::depths(), 150),
            (samples::mixed(), 150),
            (samples::block_sizes(), 150),
            (samples::everything(), 160),
        ];
        for (report, limit) in limits {
            let text = render(&report);
            let wide = text.lines().map(width).max().unwrap();
            assert!(wide <= limit, "{wide} columns\n{text}");
        }
    }

    #[test]
    fn a_cell_that_did_not_run_says_why() {
        let mut report = samples::depths();
        report.cells[4].runs.clear();
        report.cells[4].notes.push("io_setup: EAGAIN; fix: raise fs.aio-max-nr".into());
        let text = render(&report);
        let row =
            text.lines().find(|line| line.starts_with("kaio") && line.contains("32")).unwrap();
        assert!(row.contains("did not run: io_setup: EAGAIN; fix: raise fs.aio-max-nr"), "{text}");
        assert_eq!(text.matches("EAGAIN").count(), 1, "once is enough\n{text}");
    }

    #[test]
    fn mixed_workloads_show_each_direction() {
        let text = render(&samples::mixed());
        for part in ["\n  reads ", "\n  writes ", "\n  syncs "] {
            assert_eq!(text.matches(part).count(), 8, "{part}\n{text}");
        }
        assert!(text.contains(
            "4 KiB random reads and writes, 70 % reads, direct, 1 job, fsync after every 16 writes"
        ));
    }

    #[test]
    fn helpers_failures_and_notes_are_shown() {
        let mut report = samples::everything();
        report.cells[0].notes.push("fixed files refused".into());
        report.cells[0].runs[1].errors = vec![(5, 4)];
        report.cells[0].runs[2].verified = Some((1000, 2));
        let text = render(&report);
        assert!(text.contains("sqpoll") && text.contains("4.85 s"), "{text}");
        assert!(text.contains("7 requests failed: Input/output error"), "{text}");
        assert!(text.contains("2 of 1,000 blocks checked held wrong bytes"), "{text}");
        assert!(text.contains("fixed files refused"), "{text}");
    }

    #[test]
    fn alike_rows_have_names() {
        let mut report = samples::depths();
        report
            .cells
            .retain(|cell| cell.workload.backend == Backend::Uring && cell.workload.depth == 1);
        let mut other = report.cells[0].clone();
        other.workload.name = "second\x1b[2J".into();
        report.cells.push(other);
        let text = render(&report);
        assert!(text.contains("name"), "{text}");
        assert!(text.contains("second\u{fffd}[2J") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn odd_reports_make_a_table() {
        for report in samples::odd() {
            let text = render(&report);
            assert!(!samples::has_no_number(&text), "{text}");
            if report.cells.is_empty() {
                assert!(text.contains("Nothing was measured"));
            }
        }
        assert!(render(&samples::one_cell()).contains("depth 32, 1 job, 1.09 M requests, 5.00 s"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_report_makes_a_table(report in samples::anything()) {
            let text = render(&report);
            prop_assert!(!samples::has_no_number(&text));
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
}
