//! Tables of figures: as text for a terminal, as Markdown, or serialized for the page.

use crate::text::{COLUMNS, wrap};
use comfy_table::{CellAlignment, TableStyle, presets};
use serde::Serialize;

/// The blanks between columns.
const GAP: usize = 2;

/// Names of rows that are wider than this leave too little space for figures.
const WIDEST_NAME: usize = 48;

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
    /// Aligned columns, without lines between them and without blanks at the end of lines. Figures
    /// that do not fit a terminal continue in another table below, with the first `names` columns
    /// again. Where even these are too wide, rows have numbers, with a list of their names.
    pub fn text(&self, names: usize) -> String {
        let width = |column: usize| {
            let rows = self.rows.iter().map(|row| &row[column]);
            let texts = rows.chain([&self.headings[column]]);
            GAP + texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let names_width: usize = (0..names).map(width).sum();
        if names_width > WIDEST_NAME + GAP && names > 0 {
            return self.numbered(names);
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut used = COLUMNS + GAP;
        for column in names..self.headings.len() {
            if used + width(column) > COLUMNS + GAP {
                parts.push((0..names).collect());
                used = names_width;
            }
            used += width(column);
            parts.last_mut().expect("the first column does not fit nothing").push(column);
        }
        if parts.is_empty() {
            parts.push((0..names).collect());
        }
        parts.iter().map(|columns| self.part(columns)).collect::<Vec<_>>().join("\n")
    }

    /// Some of the columns.
    fn part(&self, columns: &[usize]) -> String {
        let chosen = |texts: &Vec<String>| columns.iter().map(|at| texts[*at].clone()).collect();
        let part = Self {
            text_columns: columns.iter().filter(|at| **at < self.text_columns).count(),
            headings: chosen(&self.headings),
            rows: self.rows.iter().map(chosen).collect(),
        };
        let text = part.render(presets::NOTHING, (0, GAP as u16));
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The list of the rows' names, and the figures of the rows by number.
    fn numbered(&self, names: usize) -> String {
        let digits = self.rows.len().to_string().len();
        let mut out = String::new();
        let mut figures = Self { text_columns: 0, ..self.clone() };
        figures.headings.splice(..names, ["row".to_owned()]);
        for (number, row) in (1..).zip(&mut figures.rows) {
            let texts = row.splice(..names, [number.to_string()]).enumerate();
            let name = texts.filter(|(_, text)| !text.is_empty()).map(|(column, text)| {
                if column < self.text_columns {
                    text
                } else {
                    format!("{} {text}", self.headings[column])
                }
            });
            let name: Vec<String> = name.collect();
            out += &wrap(&format!("{number:digits$}  "), &name.join(", "));
        }
        out + "\n" + &figures.text(1)
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
        assert_eq!(table.text(1), "who        µs\nringway     1\nb        10.5\n");
        assert_eq!(
            table.markdown(),
            "| who     |   µs |\n|---------|-----:|\n| ringway |    1 |\n| b       | 10.5 |\n"
        );
    }

    /// Rows with this name and twelve figures.
    fn wide(name: &str) -> Table {
        let figures = (0..12).map(|figure| format!("{figure} figures"));
        Table {
            text_columns: 1,
            headings: std::iter::once("name".to_owned()).chain(figures.clone()).collect(),
            rows: vec![std::iter::once(name.to_owned()).chain(figures).collect(); 3],
        }
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn figures_that_do_not_fit_continue_below() {
        let text = wide("ringway").text(1);
        assert!(widest(&text) <= COLUMNS, "{text}");
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 2, "{text}");
        assert!(parts.iter().all(|part| part.matches("ringway").count() == 3), "{text}");
        for figure in 0..12 {
            assert_eq!(text.matches(&format!(" {figure} figures")).count(), 4, "{figure}\n{text}");
        }
    }

    #[test]
    fn rows_with_long_names_have_numbers() {
        let name = ["long name"; 12].join(" ");
        let text = wide(&name).text(1);
        assert!(widest(&text) <= COLUMNS, "{text}");
        assert!(text.starts_with("1  long name") && text.contains("\n\nrow  "), "{text}");
        assert_eq!(text.matches(" 11 figures").count(), 4, "{text}");
    }

    #[test]
    fn tables_without_figures_or_rows_are_shown() {
        let nothing = Table { text_columns: 1, headings: vec!["a".into()], rows: Vec::new() };
        assert_eq!(nothing.text(1), "a\n");
    }
}
