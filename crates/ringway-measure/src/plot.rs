//! Charts as SVG: horizontal bars for one setting, lines for several. The page's style sheet
//! inverts them for dark backgrounds.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Colours that remain distinct for colour-blind readers (Okabe and Ito, darkened for white).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xc8, 0x50, 0x0a),
    RGBColor(0x00, 0x80, 0x5d),
    RGBColor(0xb1, 0x49, 0x8c),
    RGBColor(0x2a, 0x9f, 0xd8),
    RGBColor(0xb5, 0x7b, 0x00),
    RGBColor(0x5c, 0x53, 0xc4),
    RGBColor(0x6e, 0x6a, 0x00),
];
const GREY: RGBColor = RGBColor(0x7a, 0x82, 0x8c);
const INK: RGBColor = RGBColor(0x20, 0x26, 0x2c);
const GRID: RGBColor = RGBColor(0xe6, 0xe9, 0xed);
const FONT: &str = "sans-serif";

/// The colour of the configuration with this number; reference rows without a number are grey.
fn colour(number: Option<usize>) -> RGBColor {
    number.map_or(GREY, |number| COLOURS[number % COLOURS.len()])
}

/// Bars that belong together, one below the other; each has a value in every column.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title above them; may be empty.
    pub title: String,
    /// What each column shows.
    pub columns: Vec<String>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

/// One row of a bar chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name at its left.
    pub label: String,
    /// The number of its colour; `None` for a reference.
    pub colour: Option<usize>,
    /// For each column the value and the text at the end of the bar; `None` leaves the place empty.
    pub values: Vec<Option<(f64, String)>>,
}

/// Lines over places on the horizontal axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What the horizontal axis shows.
    pub x_label: String,
    /// Places on the horizontal axis in ascending order, with their texts.
    pub ticks: Vec<(f64, String)>,
    /// Whether the vertical axis is logarithmic; a linear one begins at 0.
    pub logarithmic: bool,
    /// How values of the vertical axis are written.
    pub unit: fn(f64) -> String,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line with a mark at each of its points.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// The number of its colour; `None` for a reference.
    pub colour: Option<usize>,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: i32 = 1200;
const MARGIN: i32 = 16;
const BAR: i32 = 24;
/// Space for a panel's title.
const TITLE: i32 = 26;
/// Space for the headings of its columns.
const HEADING: i32 = 28;
/// Pixels for a letter, on average.
const LETTER: i32 = 8;
/// The width of a chart with lines.
const CHART: i32 = 560;
const LEGEND_ROW: i32 = 24;

/// Draws panels of bars below each other. The longest bar of each column and panel fills its
/// column.
///
/// # Errors
///
/// Those of the plotting library.
pub fn bars(panels: &[Bars]) -> anyhow::Result<String> {
    let head = |panel: &Bars| HEADING + if panel.title.is_empty() { 0 } else { TITLE };
    let height = |panel: &Bars| head(panel) + BAR * panel.bars.len() as i32 + MARGIN;
    let all = 2 * MARGIN + panels.iter().map(height).sum::<i32>();
    draw((WIDTH as u32, all as u32), |area| {
        let names =
            panels.iter().flat_map(|panel| &panel.bars).map(|bar| bar.label.chars().count());
        let begin = MARGIN + LETTER * (names.max().unwrap_or(0) as i32 + 2);
        let mut top = MARGIN;
        for panel in panels {
            area.draw_text(&panel.title, &text(21, HPos::Left, VPos::Top), (MARGIN, top))?;
            let width = (WIDTH - begin) / panel.columns.len().max(1) as i32;
            let first = top + head(panel);
            let rows = || panel.bars.iter().zip((first..).step_by(BAR as usize));
            for (column, heading) in panel.columns.iter().enumerate() {
                let left = begin + width * column as i32;
                let values = || rows().map(move |(bar, y)| (bar, bar.values.get(column), y));
                let value =
                    |(value, _): &(f64, String)| if value.is_finite() { *value } else { 0.0 };
                let figures = values().filter_map(|(_, figure, _)| figure?.as_ref());
                let most = figures.map(value).fold(f64::MIN_POSITIVE, f64::max);
                let texts = values().filter_map(|(_, figure, _)| figure?.as_ref());
                let longest = texts.map(|(_, text)| text.chars().count()).max().unwrap_or(0) as i32;
                let full = f64::from((width - LETTER * (longest + 3)).max(BAR));
                let at = (left, first - HEADING + 4);
                area.draw_text(heading, &text(17, HPos::Left, VPos::Top), at)?;
                for (bar, figure, y) in values() {
                    let Some(Some(figure)) = figure else { continue };
                    let end = left + (full * value(figure) / most) as i32;
                    let corners = [(left, y), (end.max(left + 1), y + BAR - 6)];
                    area.draw(&Rectangle::new(corners, colour(bar.colour).filled()))?;
                    let at = (end + 6, y + BAR / 2 - 3);
                    area.draw_text(&figure.1, &text(17, HPos::Left, VPos::Center), at)?;
                }
            }
            for (bar, y) in rows() {
                let at = (begin - LETTER, y + BAR / 2 - 3);
                area.draw_text(&bar.label, &text(17, HPos::Right, VPos::Center), at)?;
            }
            top += height(panel);
        }
        Ok(())
    })
}

/// Draws lines, with a legend below them.
///
/// # Errors
///
/// No point to draw, and those of the plotting library.
pub fn lines(plot: &Lines) -> anyhow::Result<String> {
    let values = || plot.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
    let (low, high) =
        values().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(y), high.max(y)));
    anyhow::ensure!(low <= high && high.is_finite(), "no point to draw");
    let place = |y: f64| if plot.logarithmic { y.max(1e-9).log10() } else { y };
    let x = Axis::new(plot.ticks.iter().map(|(x, _)| *x).collect());
    let y = Axis::new(if plot.logarithmic {
        logarithmic_ticks(low, high).into_iter().map(place).collect()
    } else {
        linear_ticks(high)
    });
    let legend = legend(&plot.lines);
    let rows = legend.last().map_or(0, |(_, row)| *row);
    draw((CHART as u32, (360 + LEGEND_ROW * rows) as u32), |area| {
        let (upper, below) = area.split_vertically(310);
        let mut builder = ChartBuilder::on(&upper);
        builder.margin(12).x_label_area_size(42).y_label_area_size(70);
        let mut chart = builder.build_cartesian_2d(x, y)?;
        let tick = |x: &f64| plot.ticks.iter().find(|(at, _)| at == x);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .axis_style(GREY)
            .label_style(text(16, HPos::Center, VPos::Top))
            .x_desc(&plot.x_label)
            .x_label_formatter(&|x| tick(x).map_or(String::new(), |(_, text)| text.clone()))
            .y_label_formatter(&|y| (plot.unit)(if plot.logarithmic { 10f64.powf(*y) } else { *y }))
            .draw()?;
        for (line, (left, row)) in plot.lines.iter().zip(legend) {
            let top = 22 + LEGEND_ROW * row;
            let colour = colour(line.colour);
            let points = || line.points.iter().map(|(x, y)| (*x, place(*y)));
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|at| Circle::new(at, 4, colour.filled())))?;
            below.draw(&Circle::new((left, top), 5, colour.filled()))?;
            let at = (left + 9, top);
            below.draw_text(&line.label, &text(16, HPos::Left, VPos::Center), at)?;
        }
        Ok(())
    })
}

/// The left edge and the row of each line's name: as many in a row as fit.
fn legend(lines: &[Line]) -> Vec<(i32, i32)> {
    const LEFT: i32 = 70;
    let (mut left, mut row) = (LEFT, 0);
    let place = |line: &Line| {
        let width = LETTER * (line.label.chars().count() as i32 + 4);
        if left > LEFT && left + width > CHART {
            (left, row) = (LEFT, row + 1);
        }
        left += width;
        (left - width, row)
    };
    lines.iter().map(place).collect()
}

/// Steps of 1, 2 or 5 from zero to above the greatest value.
fn linear_ticks(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(power * 10.0);
    (0..=(most / step * 0.999).ceil() as usize).map(|n| n as f64 * step).collect()
}

/// Powers of ten around the values, with 2 and 5 times as much where there are few.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let (low, high) = (low.max(1e-9).log10().floor(), high.max(1e-9).log10().ceil());
    let powers = (low as i32..=(high as i32).max(low as i32 + 1)).map(|power| 10f64.powi(power));
    let few = high - low < 3.0;
    let ticks = powers.flat_map(|power| {
        [power, 2.0 * power, 5.0 * power].into_iter().take(if few { 3 } else { 1 })
    });
    ticks.filter(|tick| *tick <= 10f64.powf(high.max(low + 1.0)) * 1.001).collect()
}

/// An axis with chosen ticks, which it begins and ends with.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Axis {
    /// Of ascending ticks. A single one is in the middle.
    fn new(ticks: Vec<f64>) -> Self {
        let (first, last) = (ticks.first().unwrap_or(&0.0), ticks.last().unwrap_or(&0.0));
        let room = if first == last { 1.0 } else { 0.0 };
        Self { range: first - room..last + room, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        from + (share.clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.clone(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The SVG of what `content` draws, which scales with the page.
fn draw(
    (width, height): (u32, u32),
    content: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
    area.fill(&WHITE)?;
    content(&area)?;
    area.present()?;
    drop(area);
    Ok(svg)
}

fn text(size: u32, side: HPos, height: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(side, height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(linear_ticks(370_000.0), [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0]);
        assert_eq!(linear_ticks(0.0).last(), Some(&1.0));
        for most in [1e-9, 0.3, 7.0, 99.0, 1e12] {
            let ticks = linear_ticks(most);
            assert!(*ticks.last().unwrap() >= most * 0.999 && ticks.len() < 9, "{most}: {ticks:?}");
        }
        assert_eq!(logarithmic_ticks(48_000.0, 210_000.0), [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]);
        assert_eq!(logarithmic_ticks(3.0, 4e6).len(), 8);
        for value in [1e-9, 1.0, 3.3, 8.8, 1e11] {
            let ticks = logarithmic_ticks(value, value);
            assert!(
                ticks[0] <= value * 1.001 && *ticks.last().unwrap() >= value * 0.999,
                "{value}"
            );
        }
    }

    fn parse(svg: &str) -> roxmltree::Document<'_> {
        roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}\n{svg}"))
    }

    /// The place of each text that `is` chooses.
    fn places(svg: &str, is: impl Fn(&str) -> bool) -> Vec<(i32, i32)> {
        let document = parse(svg);
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        let texts = texts.filter(|node| node.text().is_some_and(|text| is(text.trim())));
        let pixels = |node: roxmltree::Node, name| node.attribute(name).unwrap().parse().unwrap();
        texts.map(|node| (pixels(node, "x"), pixels(node, "y"))).collect()
    }

    fn chart(logarithmic: bool, ticks: &[f64], lines: Vec<Line>) -> anyhow::Result<String> {
        let ticks = ticks.iter().map(|tick| (*tick, tick.to_string())).collect();
        let x_label = "queue depth".to_owned();
        super::lines(&Lines { x_label, ticks, logarithmic, unit: text::rate, lines })
    }

    #[test]
    fn hostile_names_stay_text() {
        let name = "</text><script>&\"'";
        let values = vec![Some((1.0, name.to_owned())), None];
        let bar = Bar { label: name.into(), colour: Some(9), values };
        let panel = Bars { title: name.into(), columns: vec![name.into(); 2], bars: vec![bar] };
        let svg = bars(&[panel]).unwrap();
        assert!(!svg.contains("<script"), "{svg}");
        parse(&svg);
    }

    #[test]
    fn the_title_of_a_panel_stands_above_its_headings() {
        let panel = |title: &str| Bars {
            title: title.into(),
            columns: vec!["heading".into()],
            bars: vec![Bar { label: "bar".into(), colour: None, values: vec![None] }],
        };
        let svg = bars(&[panel("title"), panel("")]).unwrap();
        let [title, headings, labels] =
            ["title", "heading", "bar"].map(|wanted| places(&svg, |text| text == wanted));
        assert!(title[0].1 + 21 <= headings[0].1 && headings[0].1 + 17 <= labels[0].1, "{svg}");
        assert!(headings[1].1 - labels[0].1 < 60, "no space for an empty title\n{svg}");
    }

    #[test]
    fn lines_have_a_mark_at_each_point_and_any_axis_works() {
        for (logarithmic, values) in
            [(false, [0.0, 0.0]), (true, [0.0, 1e12]), (true, [5.0, 5.0]), (false, [1e-9, 1e300])]
        {
            let points = vec![(0.0, values[0]), (5.0, values[1])];
            let line = Line { label: "uring".into(), colour: Some(0), points };
            let svg = chart(logarithmic, &[0.0, 5.0], vec![line]).unwrap();
            assert_eq!(svg.matches("<circle").count(), 3, "two points and the legend\n{svg}");
            parse(&svg);
        }
        assert!(chart(false, &[], Vec::new()).is_err(), "no point");
    }

    #[test]
    fn the_legend_has_as_many_rows_as_it_needs() {
        let label = |number: usize| format!("uring +sqpoll +fixed {number}");
        let line = |number: usize| Line {
            label: label(number),
            colour: Some(number),
            points: vec![(0.0, 1.0)],
        };
        let svg = chart(false, &[0.0], (0..8).map(line).collect()).unwrap();
        let mut places = places(&svg, |text| text.starts_with("uring"));
        let height = parse(&svg).root_element().attribute("height").unwrap().parse().unwrap();
        let right = |x: i32| x + LETTER * label(0).len() as i32;
        assert!(places.iter().all(|(x, y)| right(*x) <= CHART && *y < height), "{svg}");
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8, "{svg}");
    }
}
