//! Tables of figures: as text for a terminal, as Markdown, or serialized for the page.

use comfy_table::{CellAlignment, TableStyle, presets};
use serde::Serialize;

/// The width of a large terminal.
const TERMINAL: usize = 160;

/// A table of columns with text, then columns with figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The number of columns with text, which are aligned left; figures are aligned right.
    pub text_columns: usize,
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
        let text = self.render(presets::ASCII_MARKDOWN, (1, 1));
        let line = |(number, line)| if number == 1 { self.aligned(line) } else { line };
        text.lines().map(str::to_owned).enumerate().map(line).map(|line| line + "\n").collect()
    }

    /// The line below the headings, with marks that align figures right.
    fn aligned(&self, line: String) -> String {
        let columns = line.trim_matches('|').split('|').enumerate().map(|(number, dashes)| {
            match dashes.strip_suffix('-') {
                Some(dashes) if number >= self.text_columns => format!("|{dashes}:"),
                _ => format!("|{dashes}"),
            }
        });
        columns.collect::<String>() + "|"
    }

    fn render(&self, style: TableStyle, padding: (u16, u16)) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(style).set_header(&self.headings).add_rows(&self.rows);
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding(padding);
            if number >= self.text_columns {
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
            text_columns: 1,
            headings: row(["who", "µs"]),
            rows: vec![row(["ringway", "1"]), row(["b", "10.5"])],
        };
        assert_eq!(table.text(), "who        µs\nringway     1\nb        10.5\n");
        assert_eq!(
            table.markdown(),
            "| who     |   µs |\n|---------|-----:|\n| ringway |    1 |\n| b       | 10.5 |\n"
        );
    }
}
