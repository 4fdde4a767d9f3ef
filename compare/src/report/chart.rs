//! The chart: a bar for each contestant's operations per second and CPU time, row by row.

use super::table::figure;
use crate::comparison::{Entry, Row};
use crate::contestants::RINGWAY;
use crate::figures::Metric;
use anyhow::Context;
use resvg::{tiny_skia, usvg};
use ringway_measure::plot::{self, Bar, Bars};
use std::path::Path;

/// The chart of these rows.
pub fn svg(rows: &[&Row]) -> anyhow::Result<String> {
    plot::bars(&rows.iter().map(|row| panel(row)).collect::<Vec<_>>())
}

fn panel(row: &Row) -> Bars {
    Bars {
        title: row.workload.to_string(),
        columns: ["operations per second", "CPU µs per operation"].map(String::from).into(),
        bars: row.entries.iter().map(bar).collect(),
    }
}

fn bar(entry: &Entry) -> Bar {
    let value = |metric| Some((entry.spread(metric)?.median, figure(entry.spread(metric))));
    Bar {
        label: entry.contestant.into(),
        colour: entry.contestant.starts_with(RINGWAY).then_some(0),
        values: [Metric::OpsPerSecond, Metric::CpuPerOp].map(value).into(),
    }
}

/// Draws the chart as PNG. The font is part of this program, so the result is the same everywhere.
pub fn write_png(svg: &str, path: &Path) -> anyhow::Result<()> {
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().context("the font")?.families[0].0.clone();
    fonts.set_sans_serif_family(family);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut image =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("an empty chart")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut image.as_mut());
    Ok(image.save_png(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn the_chart_names_the_row_and_its_letters_are_drawn() {
        let row = Row { workload: Workload::puts(), entries: Vec::new(), left_out: Vec::new() };
        let svg = svg(&[&row]).unwrap();
        assert!(svg.contains(&row.workload.to_string()), "{svg}");
        let file = std::env::temp_dir().join(format!("compare-chart-{}.png", std::process::id()));
        write_png(&svg, &file).unwrap();
        let image = tiny_skia::Pixmap::load_png(&file);
        std::fs::remove_file(&file).unwrap();
        let dark = |pixel: &tiny_skia::PremultipliedColorU8| pixel.red() < 128;
        assert!(image.unwrap().pixels().iter().any(dark), "the title is missing");
    }
}
