//! The report as one HTML file that loads nothing from elsewhere and follows the reader's light or
//! dark setting. The template is `page.html`, which is well-formed XML too.

use crate::table::Table;
use crate::text::clean;
use anyhow::Context;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

/// What the page shows, from top to bottom.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// The command that wrote the page: `ringway bench`.
    pub program: String,
    /// The page's heading.
    pub title: String,
    /// The machine, line by line.
    pub machine: Vec<String>,
    /// The contents.
    pub sections: Vec<Section>,
    /// The command line that made the report; may be empty.
    pub command: String,
    /// Version and date.
    pub footer: String,
}

/// A part of the page. Empty parts are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// `summary`, `warnings` or nothing: how it looks.
    pub class: &'static str,
    /// Paragraphs; the first is set in bold.
    pub paragraphs: Vec<String>,
    /// Charts.
    pub figures: Vec<Figure>,
    /// Figures by row.
    pub table: Option<Table>,
    /// A list below all that.
    pub items: Vec<String>,
}

/// A chart with its caption.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// `wide` for a chart that takes the whole width, or nothing.
    pub class: &'static str,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The chart, from [`plot`](crate::plot).
    pub svg: String,
}

impl Page {
    /// The page as HTML. Texts are escaped, so names from outside stay text.
    ///
    /// # Errors
    ///
    /// Those of the template engine.
    pub fn render(&self) -> anyhow::Result<String> {
        let mut environment = Environment::empty();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_filter("safe", minijinja::filters::safe);
        // HTML has no escape for control characters.
        environment.set_formatter(|out, state, value| match value.as_str() {
            Some(text) if !value.is_safe() => {
                minijinja::escape_formatter(out, state, &clean(text).into())
            }
            _ => minijinja::escape_formatter(out, state, value),
        });
        let page = environment.render_str(include_str!("page.html"), minijinja::value::Serde(self));
        page.context("the page's template")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_well_formed_and_hostile_names_stay_text() {
        let hostile = || "</title><script>alert(\"1\")</script>'&\u{0}".to_owned();
        let table =
            Table { text_columns: 1, headings: vec![hostile(); 2], rows: vec![vec![hostile(); 2]] };
        let figure =
            Figure { title: hostile(), svg: "<svg><g/></svg>".into(), ..Figure::default() };
        let section = Section {
            title: hostile(),
            paragraphs: vec![hostile()],
            items: vec![hostile()],
            figures: vec![figure],
            table: Some(table),
            class: "summary",
        };
        let page = Page {
            program: hostile(),
            title: hostile(),
            machine: vec![hostile()],
            sections: vec![section, Section::default()],
            command: hostile(),
            footer: hostile(),
        };
        let html = page.render().unwrap();
        assert!(html.contains("<svg><g/></svg>") && !html.contains("<script"), "{html}");
        assert!(html.contains("&lt;script&gt;alert(&quot;1&quot;)"), "{html}");
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(&html, options).unwrap();
    }
}
