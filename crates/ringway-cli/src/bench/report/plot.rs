//! Plots as SVG, as far as the page needs them: lines over ticks, and bars. They carry no colours
//! of their own; the page's style sheet gives each series its colour for light and dark.

use super::words;

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Style {
    /// One of the colours, each with a mark of its own; after the last they begin again, with a
    /// dashed line.
    Colour(usize),
    /// What is shown for reference.
    Grey,
}

/// Colours of the style sheet.
const COLOURS: usize = 8;

/// One value, with its place on the horizontal axis.
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    /// The least and the greatest of all runs, where there is more than one.
    pub range: Option<(f64, f64)>,
    /// Shown while the pointer rests on it.
    pub title: String,
}

/// Values of one contender.
pub(super) struct Series {
    pub label: String,
    /// Which colour and mark.
    pub style: Style,
    pub points: Vec<Point>,
}

/// Lines over ticks.
pub(super) struct Lines {
    /// For those who cannot see it.
    pub description: String,
    pub series: Vec<Series>,
    /// Places on the horizontal axis and what is written there.
    pub ticks: Vec<(f64, String)>,
    pub x_label: &'static str,
    /// The least and greatest value where several plots are to share an axis.
    pub y_range: Option<(f64, f64)>,
    pub logarithmic: bool,
    /// How the values of the vertical axis are written.
    pub unit: fn(f64) -> String,
    /// Whether each line has its name at its end.
    pub name_lines: bool,
    /// Smaller, for many beside each other.
    pub small: bool,
}

/// One bar.
pub(super) struct Bar {
    pub label: String,
    pub style: Style,
    pub value: f64,
    pub range: Option<(f64, f64)>,
    /// Written at its end.
    pub text: String,
    pub title: String,
}

/// Width and height of a plot, and of a small one.
const SIZE: (f64, f64) = (480.0, 290.0);
const SMALL: (f64, f64) = (350.0, 250.0);
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Width of a letter, on average, and of a bold one.
const LETTER: f64 = 6.9;
const BOLD: f64 = 7.8;

/// A text that can stand in HTML and in SVG.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Neither HTML nor XML allows these, not even escaped.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The class names by which the style sheet colours a series.
pub(super) fn class(style: Style) -> String {
    match style {
        Style::Grey => "null".to_owned(),
        Style::Colour(n) if n >= COLOURS => format!("s{} again", n % COLOURS),
        Style::Colour(n) => format!("s{n}"),
    }
}

/// The mark of a series around a place: shapes differ as well as colours, for those who see few.
pub(super) fn mark(style: Style, x: f64, y: f64) -> String {
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon class=\"mark\" points=\"{}\"/>", points.join(" "))
    };
    let shape = match style {
        Style::Grey => 0,
        Style::Colour(n) => n % 4,
    };
    match shape {
        0 => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => polygon(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
        2 => polygon(&[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)]),
        _ => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
    }
}

/// Steps of 1, 2 or 5 from zero to above the greatest value.
fn linear_ticks(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let steps = (most / step * 0.999).ceil() as usize;
    (0..=steps).map(|n| n as f64 * step).collect()
}

/// Powers of ten between the values, with 2 and 5 times as much where they are few.
fn logarithmic_ticks(least: f64, most: f64) -> Vec<f64> {
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let ticks = |steps: &[f64]| -> Vec<f64> {
        let all = powers.clone().flat_map(|power| steps.iter().map(move |n| n * 10f64.powi(power)));
        all.filter(|tick| (least * 0.999..=most * 1.001).contains(tick)).collect()
    };
    let decades = ticks(&[1.0]);
    if decades.len() > 2 { decades } else { ticks(&[1.0, 2.0, 5.0]) }
}

/// The least and greatest value of series, ranges included.
pub(super) fn extent<'a>(series: impl Iterator<Item = &'a Series>) -> Option<(f64, f64)> {
    let mut all = None;
    for point in series.flat_map(|series| &series.points) {
        let (low, high) = point.range.unwrap_or((point.y, point.y));
        let (least, most) = all.unwrap_or((low, high));
        all = Some((f64::min(least, low), f64::max(most, high)));
    }
    all
}

/// Draw lines.
pub(super) fn lines(plot: &Lines) -> String {
    let Some((least, most)) = plot.y_range.or_else(|| extent(plot.series.iter())) else {
        return String::new();
    };
    let (width, height) = if plot.small { SMALL } else { SIZE };
    // Linear axes begin at zero and end at a tick; logarithmic ones hold the values with a margin
    // in which there is always a tick.
    let (bottom_value, top_value, y_ticks) = if plot.logarithmic {
        let (bottom, top) = (least.max(1e-9) / 1.7, most.max(1e-9) * 1.7);
        (bottom, top, logarithmic_ticks(bottom, top))
    } else {
        let ticks = linear_ticks(most);
        (0.0, ticks[ticks.len() - 1], ticks)
    };

    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64;
    let left =
        LETTER * longest(&mut y_ticks.iter().map(|&tick| (plot.unit)(tick).chars().count())) + 14.0;
    let names = BOLD * longest(&mut plot.series.iter().map(|series| series.label.chars().count()));
    let right = if plot.name_lines { names + 16.0 } else { 20.0 };
    let (from, to) = (left + 14.0, width - right);
    let (x_least, x_most) = (plot.ticks[0].0, plot.ticks[plot.ticks.len() - 1].0);
    let x_span = x_most - x_least;
    let place_x = |x: f64| {
        if x_span > 0.0 { from + (x - x_least) / x_span * (to - from) } else { (from + to) / 2.0 }
    };
    let place_y = |y: f64| {
        let share = if plot.logarithmic {
            (y.max(bottom_value) / bottom_value).ln() / (top_value / bottom_value).ln()
        } else {
            y / top_value
        };
        height - BOTTOM - share.clamp(0.0, 1.0) * (height - BOTTOM - TOP)
    };

    let mut out = open((width, height), &plot.description);
    for &tick in &y_ticks {
        let y = place_y(tick);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            to + 8.0,
            left - 6.0,
            y + 4.0,
            escape(&(plot.unit)(tick))
        ));
    }
    // Where ticks lie close together only some have room for their text.
    let mut free_from = f64::MIN;
    for (x, text) in &plot.ticks {
        let (x, half) = (place_x(*x), text.chars().count() as f64 * LETTER / 2.0);
        let base = height - BOTTOM;
        out.push_str(&format!(
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{base}\" y2=\"{}\"/>",
            base + 4.0
        ));
        if x - half >= free_from {
            out.push_str(&format!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                base + 18.0,
                escape(text)
            ));
            free_from = x + half + 6.0;
        }
    }
    out.push_str(&format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        (from + to) / 2.0,
        height - 8.0,
        escape(plot.x_label)
    ));

    for series in &plot.series {
        let path: Vec<String> = series
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", place_x(point.x), place_y(point.y)))
            .collect();
        out.push_str(&format!(
            "<g class=\"{}\"><polyline points=\"{}\"/>",
            class(series.style),
            path.join(" ")
        ));
        for point in &series.points {
            let (x, y) = (place_x(point.x), place_y(point.y));
            if let Some((low, high)) = point.range {
                out.push_str(&format!(
                    "<line class=\"range\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    place_y(low),
                    place_y(high)
                ));
            }
            out.push_str(&format!(
                "<g class=\"point\">{}<circle class=\"hit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"11\"/><title>{}</title></g>",
                mark(series.style, x, y),
                escape(&point.title)
            ));
        }
        out.push_str("</g>");
    }
    if plot.name_lines {
        let ends = plot
            .series
            .iter()
            .filter_map(|series| Some((series, place_y(series.points.last()?.y))));
        for (series, y) in apart(ends.collect(), height) {
            out.push_str(&format!(
                "<text class=\"name {}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                class(series.style),
                to + 14.0,
                y + 4.0,
                escape(&series.label)
            ));
        }
    }
    out.push_str("</svg>");
    out
}

/// Names of lines that end close together, moved apart and kept within the plot.
fn apart(mut ends: Vec<(&Series, f64)>, height: f64) -> Vec<(&Series, f64)> {
    const LINE: f64 = 15.0;
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    // Downwards from the top, then upwards from the bottom where that went too far.
    let mut free = TOP;
    for (_, y) in &mut ends {
        *y = y.max(free);
        free = *y + LINE;
    }
    let mut free = height - BOTTOM;
    for (_, y) in ends.iter_mut().rev() {
        *y = y.min(free);
        free = *y - LINE;
    }
    ends
}

/// Draw bars, one below the other.
pub(super) fn bars(description: &str, bars: &[Bar]) -> String {
    const LINE: f64 = 30.0;
    let height = bars.len() as f64 * LINE + 8.0;
    let width = SIZE.0;
    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64;
    let left = BOLD * longest(&mut bars.iter().map(|bar| bar.label.chars().count())) + 12.0;
    let right = LETTER * longest(&mut bars.iter().map(|bar| bar.text.chars().count())) + 14.0;
    let most =
        bars.iter().map(|bar| bar.range.map_or(bar.value, |(_, high)| high)).fold(0.0, f64::max);
    let place = |value: f64| {
        left + if most > 0.0 { value / most } else { 0.0 } * (width - left - right).max(20.0)
    };

    let mut out = open((width, height), description);
    for (at, bar) in bars.iter().enumerate() {
        let middle = at as f64 * LINE + LINE / 2.0 + 4.0;
        let end = place(bar.value);
        out.push_str(&format!(
            "<g class=\"{}\"><g class=\"point\"><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>",
            class(bar.style),
            left - 8.0,
            middle + 4.0,
            escape(&bar.label),
            middle - 9.0,
            (end - left).max(1.0),
        ));
        let mut text_at = end;
        if let Some((low, high)) = bar.range {
            text_at = place(high);
            out.push_str(&format!(
                "<line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
                place(low),
                place(high)
            ));
        }
        out.push_str(&format!(
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text><title>{}</title></g></g>",
            text_at + 7.0,
            middle + 4.0,
            escape(&bar.text),
            escape(&bar.title)
        ));
    }
    out.push_str("</svg>");
    out
}

fn open((width, height): (f64, f64), description: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(description)
    )
}

/// The unit of an axis of rates.
pub(super) fn rate_unit(value: f64) -> String {
    trimmed(value, &[(1e6, " M"), (1e3, " k"), (1.0, "")])
}

/// The unit of an axis of nanoseconds.
pub(super) fn time_unit(value: f64) -> String {
    trimmed(value, &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")])
}

/// The unit of an axis of microseconds.
pub(super) fn microsecond_unit(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { time_unit(value * 1e3) }
}

/// A tick without digits that say nothing.
fn trimmed(value: f64, scales: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Ticks are products of powers of ten, which may lie a hair below.
    let (scale, unit) = scales
        .iter()
        .find(|(scale, _)| value >= scale * 0.999)
        .unwrap_or(&scales[scales.len() - 1]);
    let text = words::digits(value / scale);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_the_values() {
        assert_eq!(linear_ticks(370_000.0), [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0]);
        assert_eq!(linear_ticks(0.0).last(), Some(&1.0));
        for most in [1e-9, 0.3, 7.0, 99.0, 1e12] {
            let ticks = linear_ticks(most);
            assert!(*ticks.last().unwrap() >= most * 0.999 && ticks.len() < 9, "{most}: {ticks:?}");
        }
        assert_eq!(logarithmic_ticks(48_000.0, 2_100_000.0), [5e4, 1e5, 2e5, 5e5, 1e6, 2e6]);
        assert_eq!(logarithmic_ticks(3.0, 4e6).len(), 6);
        for value in [1e-9, 1.0, 3.3, 8.8, 1e11] {
            assert!(!logarithmic_ticks(value / 1.7, value * 1.7).is_empty(), "{value}");
        }
    }

    #[test]
    fn ticks_are_written_without_idle_digits() {
        assert_eq!(rate_unit(400_000.0), "400 k");
        assert_eq!(rate_unit(1_500_000.0), "1.5 M");
        assert_eq!(rate_unit(0.0), "0");
        assert_eq!(time_unit(1e5), "100 µs");
        assert_eq!(time_unit(10f64.powi(6)), "1 ms");
        assert_eq!(microsecond_unit(20.0), "20 µs");
        assert_eq!(microsecond_unit(0.5), "500 ns");
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let series: Vec<Series> = (0..8)
            .map(|style| Series {
                label: style.to_string(),
                style: Style::Colour(style),
                points: Vec::new(),
            })
            .collect();
        let ends = apart(series.iter().map(|series| (series, 100.0)).collect(), SIZE.1);
        for pair in ends.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= 14.9, "{} {}", pair[0].1, pair[1].1);
        }
        assert!(ends.iter().all(|(_, y)| (0.0..=SIZE.1).contains(y)));
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escape("<a href='x'>&\"\u{0}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}");
    }
}
