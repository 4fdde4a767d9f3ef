//! The report as a page to read and to pass on: one file that loads nothing from elsewhere, with
//! the summary first, then charts, then every figure.

use super::configuration::{self, Setting};
use super::model::{Figures, Group, Model, gather};
use anyhow::Context;
use jiff::Zoned;
use ringway_measure::page::{Figure, Page, Section};
use ringway_measure::plot::{self, Bar, Bars, Line, Lines};
use ringway_measure::text::{nanoseconds, rate, significant};

/// Percentiles on the horizontal axis of the latency charts.
const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// The maximum number of latency charts for one workload.
const LATENCY_CHARTS: usize = 6;

/// The page, dated now.
pub fn render(model: &Model) -> anyhow::Result<String> {
    let (report, summary) = (model.report, &model.summary);
    let mut sections = vec![Section {
        title: "Summary".into(),
        class: "summary",
        paragraphs: vec![summary.headline.clone()],
        ..Section::default()
    }];
    sections.extend(summary.groups.iter().map(|group| Section {
        title: group.title.clone(),
        class: "summary",
        paragraphs: vec![group.choice.clone()],
        items: group.reasons.clone(),
        ..Section::default()
    }));
    for (title, class, items) in
        [("Warnings", "warnings", &summary.warnings), ("How to read this", "", &summary.reading)]
    {
        if !items.is_empty() {
            let items = items.clone();
            sections.push(Section { title: title.into(), class, items, ..Section::default() });
        }
    }
    // The horizontal axis is the first setting that varies.
    let axes = [Setting::Depth, Setting::BlockSize, Setting::Jobs];
    let axis = axes.into_iter().find(|axis| axis.varies(report)).unwrap_or(Setting::Depth);
    let groups = model.groups(axis);
    // A configuration has the same colour on the whole page.
    let mut names: Vec<&str> = Vec::new();
    for (name, entry) in groups.iter().flat_map(|group| &group.entries) {
        if !entry.measurement.workload.is_null() && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for group in &groups {
        sections.extend(charts(group, axis, &names).context("the charts")?);
    }
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
        machine: configuration::machine(&report.machine),
        sections,
        command: report.command.clone(),
        footer: format!("ringway {version}, {}", now.strftime("%Y-%m-%d %H:%M")),
    };
    page.render()
}

/// The place of a measurement on the horizontal axis, where each step doubles the setting.
fn place(axis: Setting, figures: &Figures) -> f64 {
    let workload = &figures.measurement.workload;
    let value = match axis {
        Setting::BlockSize => workload.block_size,
        Setting::Jobs => workload.jobs.into(),
        _ => workload.depth.into(),
    };
    (value.max(1) as f64).log2()
}

/// A configuration with its figures in the order of the axis.
struct Series<'a> {
    name: &'a str,
    /// `None` for the harness.
    colour: Option<usize>,
    figures: Vec<&'a Figures<'a>>,
}

/// The charts of one group; `None` where only the harness has figures.
fn charts(group: &Group, axis: Setting, names: &[&str]) -> anyhow::Result<Option<Section>> {
    let measured = group
        .entries
        .iter()
        .filter_map(|(name, entry)| Some((name.as_str(), entry.figures.as_ref()?)));
    let series = |(name, figures)| {
        let colour = names.iter().position(|known| *known == name);
        Series { name, colour, figures }
    };
    let mut all: Vec<Series> = gather(measured).into_iter().map(series).collect();
    let mut places: Vec<(f64, String)> = Vec::new();
    for figures in all.iter().filter(|s| s.colour.is_some()).flat_map(|s| &s.figures) {
        places.push((place(axis, figures), axis.value(&figures.measurement.workload)));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup();
    let Some((_, only)) = places.first() else { return Ok(None) };
    for series in &mut all {
        // The harness may have been measured at more places than the backends.
        let is_known = |figures: &&Figures| places.iter().any(|(x, _)| *x == place(axis, figures));
        series.figures.retain(is_known);
        series.figures.sort_by(|a, b| place(axis, a).total_cmp(&place(axis, b)));
    }
    all.retain(|series| !series.figures.is_empty());
    let all: Vec<&Series> = all.iter().collect();
    let measured: Vec<&Series> =
        all.iter().copied().filter(|series| series.colour.is_some()).collect();

    let axis_name = match axis {
        Setting::BlockSize => "block size",
        Setting::Jobs => "jobs",
        _ => "depth",
    };
    // Larger blocks mean fewer operations, but more bytes.
    let (speed_name, speed): (&str, fn(&Figures) -> f64) = match axis {
        Setting::BlockSize => ("bytes a second", |f| f.run.per_second(f.run.bytes())),
        _ => ("operations a second", |f| f.ops.median),
    };
    let cost = |figures: &Figures| figures.cpu_us.median;
    let cost_text = |us: f64| format!("{} µs", significant(us));
    let mut section = Section { title: group.title.clone(), ..Section::default() };
    if places.len() == 1 {
        section.title += &format!(", {axis_name} {only}");
        let bar = |series: &&Series| {
            let (speed, cost) = (speed(series.figures[0]), cost(series.figures[0]));
            // The harness does no I/O: its speed would hide the differences.
            let speed = series.colour.map(|_| (speed, rate(speed)));
            let values = vec![speed, Some((cost, cost_text(cost)))];
            Bar { label: series.name.to_owned(), colour: series.colour, values }
        };
        let columns = vec![speed_name.to_owned(), "CPU time an operation".to_owned()];
        let bars = Bars { title: String::new(), columns, bars: all.iter().map(bar).collect() };
        let svg = plot::bars(&[bars])?;
        section.figures.push(Figure { class: "wide", svg, ..Figure::default() });
    } else {
        let mut add = |title: &str, note: &str, svg: String| {
            let (title, note) = (title.to_owned(), note.to_owned());
            section.figures.push(Figure { title, note, svg, ..Figure::default() });
        };
        let points = |series: &Series, value: &dyn Fn(&Figures) -> f64| {
            series.figures.iter().map(|figures| (place(axis, figures), value(figures))).collect()
        };
        let svg = lines(&measured, axis_name, &places, false, rate, |s| points(s, &speed))?;
        add(speed_name, "more is better", svg.unwrap_or_default());
        let svg = lines(&all, axis_name, &places, false, cost_text, |s| points(s, &cost))?;
        let note = "less is better; kernel helpers included";
        add("CPU time an operation", note, svg.unwrap_or_default());
    }
    let percentiles =
        PERCENTILES.map(|percent| (rareness(percent), format!("p{percent}"))).to_vec();
    for (x, text) in spread_out(&places) {
        let points = |series: &Series| {
            let figures = series.figures.iter().find(|figures| place(axis, figures) == x);
            figures.map_or(Vec::new(), |figures| latency_points(figures))
        };
        if let Some(svg) = lines(&measured, "percentile", &percentiles, true, nanoseconds, points)?
        {
            section.figures.push(Figure {
                title: format!("Latency at {axis_name} {text}"),
                note: "by percentile; less is better".into(),
                svg,
                ..Figure::default()
            });
        }
    }
    Ok(Some(section))
}

/// A chart with a line for each series that has points; `None` if none has.
fn lines(
    all: &[&Series],
    x_label: &str,
    ticks: &[(f64, String)],
    logarithmic: bool,
    unit: fn(f64) -> String,
    points: impl Fn(&Series) -> Vec<(f64, f64)>,
) -> anyhow::Result<Option<String>> {
    let line = |series: &&Series| Line {
        label: series.name.to_owned(),
        colour: series.colour,
        points: points(series),
    };
    let mut lines: Vec<Line> = all.iter().map(line).collect();
    lines.retain(|line| !line.points.is_empty());
    if lines.is_empty() {
        return Ok(None);
    }
    let (x_label, ticks) = (x_label.to_owned(), ticks.to_vec());
    plot::lines(&Lines { x_label, ticks, logarithmic, unit, lines }).map(Some)
}

/// The percentiles for which there are enough samples.
fn latency_points(figures: &Figures) -> Vec<(f64, f64)> {
    let point = |percent: f64| Some((rareness(percent), figures.percentile(percent)?));
    PERCENTILES.into_iter().filter_map(point).collect()
}

/// The place of a percentile: each step is ten times as rare.
fn rareness(percent: f64) -> f64 {
    -((100.0 - percent) / 100.0).log10()
}

/// Some of the places, the first and the last among them.
fn spread_out(places: &[(f64, String)]) -> Vec<(f64, String)> {
    let most = places.len().min(LATENCY_CHARTS);
    let at = |number: usize| number * (places.len() - 1) / most.saturating_sub(1).max(1);
    (0..most).map(|number| places[at(number)].clone()).collect()
}
