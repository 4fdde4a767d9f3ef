//! The report as a page to read and to pass on: one file that loads nothing from elsewhere, with
//! the summary first, then charts, then every figure.

use super::charts::charts;
use super::configuration;
use super::model::Model;
use jiff::Zoned;
use ringway_measure::page::{Page, Section};

/// The page, dated now.
pub fn render(model: &Model) -> anyhow::Result<String> {
    let summary = &model.summary;
    let words = |title: &str, class, paragraphs: &[String], items: &[String]| Section {
        title: title.to_owned(),
        class,
        paragraphs: paragraphs.to_vec(),
        items: items.to_vec(),
        ..Section::default()
    };
    let mut sections =
        vec![words("Summary", "summary", std::slice::from_ref(&summary.headline), &[])];
    for group in &summary.groups {
        let choice = std::slice::from_ref(&group.choice);
        sections.push(words(&group.title, "summary", choice, &group.reasons));
    }
    sections.push(words("Warnings", "warnings", &[], &summary.warnings));
    sections.push(words("How to read this", "", &[], &summary.reading));
    sections.retain(|section| !(section.paragraphs.is_empty() && section.items.is_empty()));
    sections.extend(charts(model)?);
    sections.extend(model.rows.iter().map(|rows| Section {
        title: "Every figure".into(),
        paragraphs: rows.captions.clone(),
        table: Some(rows.table.clone()),
        ..Section::default()
    }));
    let now = Zoned::now();
    let version = env!("CARGO_PKG_VERSION");
    let page = Page {
        program: "ringway bench".into(),
        title: "Which backend suits this machine, and what does each cost?".into(),
        machine: configuration::machine(&model.report.machine),
        sections,
        command: model.report.command.clone(),
        footer: format!("ringway {version}, {}", now.strftime("%Y-%m-%d %H:%M")),
    };
    page.render()
}
