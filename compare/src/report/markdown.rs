//! Tables in Markdown that can be read as they stand, too.

use std::fmt::Write;

/// A table: the first column is text, and those after `text_columns` are numbers.
pub fn table(heading: &[String], text_columns: usize, lines: &[Vec<String>]) -> String {
    let widths: Vec<usize> =
        (0..heading.len()).map(|column| width(heading, lines, column)).collect();
    let mut text = line(heading, &widths, text_columns);
    for (column, width) in widths.iter().enumerate() {
        let (dashes, end) = if column < text_columns { (*width, '-') } else { (*width, ':') };
        let _ = write!(text, "|-{}{end}", "-".repeat(dashes));
    }
    text += "|\n";
    lines.iter().for_each(|cells| text += &line(cells, &widths, text_columns));
    text
}

fn width(heading: &[String], lines: &[Vec<String>], column: usize) -> usize {
    let cells = lines.iter().filter_map(|line| line.get(column)).chain(&heading[column..=column]);
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
}

fn line(cells: &[String], widths: &[usize], text_columns: usize) -> String {
    let mut text = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = if column < text_columns {
            write!(text, "| {cell:<width$} ")
        } else {
            write!(text, "| {cell:>width$} ")
        };
    }
    text + "|\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let cells =
            |cells: &[&str]| cells.iter().map(|cell| (*cell).to_string()).collect::<Vec<_>>();
        let text =
            table(&cells(&["who", "µs"]), 1, &[cells(&["ringway", "1"]), cells(&["b", "10.5"])]);
        assert_eq!(
            text,
            "| who     |   µs |\n|---------|-----:|\n| ringway |    1 |\n| b       | 10.5 |\n"
        );
    }
}
