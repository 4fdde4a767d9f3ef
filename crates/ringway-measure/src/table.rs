//! Tables of figures: as text for a terminal, as Markdown, or serialized for the page.

use comfy_table::{CellAlignment, TableStyle, presets};
use serde::Serialize;

/// The width of a large terminal.
const TERMINAL: usize = 160;

/// A table whose first column is text and whose other columns are figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// One heading for each column.
    pub headings: Vec<String>,
    /// One text for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Aligned columns, without lines between them and without blanks at the end of lines. A wide
    /// table has narrower gaps.
    pub fn text(&self) -> String {
        let wide = self.render(presets::NOTHING, (0, 2));
        let text = match wide.lines().map(|line| line.chars().count()).max() {
            Some(width) if width > TERMINAL => self.render(presets::NOTHING, (0, 1)),
            _ => wide,
        };
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Markdown that is aligned in its source too.
    pub fn markdown(&self) -> String {
        self.render(presets::ASCII_MARKDOWN, (1, 1)) + "\n"
    }

    fn render(&self, style: TableStyle, padding: (u16, u16)) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(style).set_header(&self.headings).add_rows(&self.rows);
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding(padding);
            if number > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
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
