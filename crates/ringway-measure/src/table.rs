//! Tables of figures: as text for a terminal, as Markdown, or serialized for the page.

use comfy_table::{CellAlignment, TableStyle, presets};
use serde::Serialize;

/// A table whose first column is text and whose other columns are figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// One heading for each column.
    pub headings: Vec<String>,
    /// One text for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Aligned columns without lines between them. No line ends in blanks.
    pub fn text(&self) -> String {
        self.render(presets::NOTHING)
            .lines()
            .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line).trim_end()))
            .collect()
    }

    /// Markdown that is aligned in its source too.
    pub fn markdown(&self) -> String {
        self.render(presets::ASCII_MARKDOWN) + "\n"
    }

    fn render(&self, style: TableStyle) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(style).set_header(&self.headings).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_and_figures_are_right() {
        let row = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
        let table = Table {
            headings: row(["who", "µs"]),
            rows: vec![row(["ringway", "1"]), row(["b", "10.5"])],
        };
        assert_eq!(table.text(), "who        µs\nringway     1\nb        10.5\n");
        assert_eq!(
            table.markdown(),
            "| who     |   µs |\n|---------|------|\n| ringway |    1 |\n| b       | 10.5 |\n"
        );
    }
}
