//! The charts of a report: speed and cost along the first setting that varies, and the latency at
//! some of its values.

use super::configuration::Setting;
use super::model::{Figures, Group, Model, gather};
use anyhow::Context;
use ringway_measure::page::{Figure, Section};
use ringway_measure::plot::{self, Bar, Bars, Line, Lines};
use ringway_measure::text::{nanoseconds, rate, significant};

/// Percentiles on the horizontal axis of the latency charts.
const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// The name of that axis.
const PERCENTILE: &str = "percentile";

/// The maximum number of latency charts for one workload.
const LATENCY_CHARTS: usize = 6;

/// The charts of each group of measurements.
///
/// # Errors
///
/// Those of drawing.
pub(super) fn charts(model: &Model) -> anyhow::Result<Vec<Section>> {
    let axes = [Setting::Depth, Setting::BlockSize, Setting::Jobs];
    let axis = axes.into_iter().find(|axis| axis.varies(model.report)).unwrap_or(Setting::Depth);
    let groups = model.groups(axis);
    // A configuration has the same colour on the whole page.
    let mut names: Vec<&str> = Vec::new();
    for (name, entry) in groups.iter().flat_map(|group| &group.entries) {
        if !entry.measurement.workload.is_null() && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let charts = groups.iter().filter_map(|group| Charts::new(group, axis, &names));
    charts.map(|charts| charts.draw().context("the charts")).collect()
}

/// A configuration with its figures in the order of the axis.
struct Series<'a> {
    name: &'a str,
    /// `None` for the harness.
    colour: Option<usize>,
    figures: Vec<&'a Figures<'a>>,
}

/// What the charts of one group are made from.
struct Charts<'a> {
    title: &'a str,
    axis: Setting,
    axis_name: &'static str,
    /// Places on the horizontal axis, with their texts.
    places: Vec<(f64, String)>,
    series: Vec<Series<'a>>,
}

impl<'a> Charts<'a> {
    /// `None` where only the harness has figures.
    fn new(group: &'a Group, axis: Setting, names: &[&str]) -> Option<Self> {
        let entries = group.entries.iter();
        let measured =
            entries.filter_map(|(name, entry)| Some((name.as_str(), entry.figures.as_ref()?)));
        let series = |(name, mut figures): (_, Vec<&'a Figures>)| {
            figures.sort_by(|a, b| place(axis, a).total_cmp(&place(axis, b)));
            Series { name, colour: names.iter().position(|known| *known == name), figures }
        };
        let mut all: Vec<Series> = gather(measured).into_iter().map(series).collect();
        let measured = all.iter().filter(|series| series.colour.is_some());
        let mut places: Vec<(f64, String)> = measured
            .flat_map(|series| &series.figures)
            .map(|figures| (place(axis, figures), axis.value(&figures.measurement.workload)))
            .collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        places.dedup();
        places.first()?;
        // The harness may have been measured at more places than the backends.
        for series in &mut all {
            series.figures.retain(|figures| places.iter().any(|(x, _)| *x == place(axis, figures)));
        }
        all.retain(|series| !series.figures.is_empty());
        let axis_name = match axis {
            Setting::BlockSize => "block size",
            Setting::Jobs => "jobs",
            _ => "depth",
        };
        Some(Self { title: &group.title, axis, axis_name, places, series: all })
    }

    fn draw(&self) -> anyhow::Result<Section> {
        let (title, mut figures) = match &self.places[..] {
            [(_, only)] => {
                (format!("{}, {} {only}", self.title, self.axis_name), vec![self.bars()?])
            }
            _ => (self.title.to_owned(), self.lines()?),
        };
        figures.extend(self.latencies()?);
        Ok(Section { title, figures, ..Section::default() })
    }

    /// The speed and its name. Larger blocks mean fewer operations, but more bytes.
    fn speed(&self) -> (&'static str, fn(&Figures) -> f64) {
        match self.axis {
            Setting::BlockSize => ("bytes a second", |f| f.run.per_second(f.run.bytes())),
            _ => ("operations a second", |f| f.ops.median),
        }
    }

    fn bars(&self) -> anyhow::Result<Figure> {
        let (speed_name, speed) = self.speed();
        let bar = |series: &Series| {
            let (speed, cost) = (speed(series.figures[0]), series.figures[0].cpu_us.median);
            // The harness does no I/O: its speed would hide the differences.
            let speed = series.colour.map(|_| (speed, rate(speed)));
            let values = vec![speed, Some((cost, microseconds(cost)))];
            Bar { label: series.name.to_owned(), colour: series.colour, values }
        };
        let columns = vec![speed_name.to_owned(), "CPU time an operation".to_owned()];
        let bars = self.series.iter().map(bar).collect();
        let svg = plot::bars(&[Bars { title: String::new(), columns, bars }])?;
        Ok(Figure { class: "wide", svg, ..Figure::default() })
    }

    /// Speed and cost along the axis.
    fn lines(&self) -> anyhow::Result<Vec<Figure>> {
        let points = |series: &Series, value: fn(&Figures) -> f64| {
            let point = |figures: &&Figures| (place(self.axis, figures), value(figures));
            series.figures.iter().map(point).collect()
        };
        let (speed_name, speed) = self.speed();
        let cost = |figures: &Figures| figures.cpu_us.median;
        let axis = (self.axis_name, &self.places[..]);
        let speed = self.chart(speed_name, "more is better", axis, rate, |series| {
            if series.colour.is_some() { points(series, speed) } else { Vec::new() }
        });
        let note = "less is better; kernel helpers included";
        let cost = self.chart("CPU time an operation", note, axis, microseconds, |series| {
            points(series, cost)
        });
        speed.into_iter().chain(cost).collect()
    }

    /// Latency by percentile at some places, the first and the last among them.
    fn latencies(&self) -> anyhow::Result<Vec<Figure>> {
        let last = self.places.len() - 1;
        let most = self.places.len().min(LATENCY_CHARTS);
        let ticks = PERCENTILES.map(|percent| (rareness(percent), format!("p{percent}")));
        let figure = |number: usize| {
            let (x, text) = &self.places[number * last / most.saturating_sub(1).max(1)];
            let title = format!("Latency at {} {text}", self.axis_name);
            let note = "by percentile; less is better";
            self.chart(&title, note, (PERCENTILE, &ticks), nanoseconds, |series| {
                let is_there = |figures: &&&Figures| place(self.axis, figures) == *x;
                let figures = series.figures.iter().find(is_there).filter(|f| !f.is_null());
                figures.map_or(Vec::new(), |figures| latency_points(figures))
            })
        };
        (0..most).filter_map(figure).collect()
    }

    /// A line for each series that has points; `None` if none has. The vertical axis is
    /// logarithmic if the horizontal one has percentiles.
    fn chart(
        &self,
        title: &str,
        note: &str,
        (x_label, ticks): (&str, &[(f64, String)]),
        unit: fn(f64) -> String,
        points: impl Fn(&Series) -> Vec<(f64, f64)>,
    ) -> Option<anyhow::Result<Figure>> {
        let line = |series: &Series| Line {
            label: series.name.to_owned(),
            colour: series.colour,
            points: points(series),
        };
        let mut lines: Vec<Line> = self.series.iter().map(line).collect();
        lines.retain(|line| !line.points.is_empty());
        if lines.is_empty() {
            return None;
        }
        let logarithmic = x_label == PERCENTILE;
        let (x_label, ticks) = (x_label.to_owned(), ticks.to_vec());
        let svg = plot::lines(&Lines { x_label, ticks, logarithmic, unit, lines });
        Some(svg.map(|svg| Figure { class: "", title: title.into(), note: note.into(), svg }))
    }
}

fn microseconds(us: f64) -> String {
    format!("{} µs", significant(us))
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

/// The percentiles for which there are enough samples.
fn latency_points(figures: &Figures) -> Vec<(f64, f64)> {
    let point = |percent: f64| Some((rareness(percent), figures.percentile(percent)?));
    PERCENTILES.into_iter().filter_map(point).collect()
}

/// The place of a percentile: each step is ten times as rare.
fn rareness(percent: f64) -> f64 {
    -((100.0 - percent) / 100.0).log10()
}
