//! The report as a page to look at and to pass on: one file, without anything from elsewhere, with
//! the verdict first, then plots, then every figure. It follows the reader's light or dark setting.

use super::figures::{Figures, Group, groups};
use super::grid::{Grid, Row};
use super::plot::{self, Bar, Lines, Point, Series, Style, escape};
use super::verdict::Verdict;
use super::words::{self, Setting, digits, nanoseconds, rate};
use crate::bench::result::Report;
use jiff::Zoned;

/// The style sheet. Its colours can be told apart by those who see few, on either background.
const STYLE: &str = include_str!("html.css");

/// Percentiles along the horizontal axis of the latency plots, and which of them have a tick.
const PERCENTILES: [(f64, &str); 9] = [
    (50.0, "p50"),
    (75.0, ""),
    (90.0, "p90"),
    (95.0, ""),
    (99.0, "p99"),
    (99.5, ""),
    (99.9, "p99.9"),
    (99.95, ""),
    (99.99, "p99.99"),
];

/// Latency plots of one workload; with more depths than this only some have one.
const LATENCY_PLOTS: usize = 6;

/// With more workloads than this the reasons for each answer are folded away at first.
const OPEN_ANSWERS: usize = 2;

/// With more workloads than this the latency plots are folded away at first.
const FOLD_FROM: usize = 4;

/// With more lines than this, or longer names, a plot has no room for names at their ends.
const NAMED_LINES: usize = 6;
const NAME_LETTERS: usize = 14;

/// The page, dated now.
pub fn render(report: &Report) -> String {
    render_at(report, &Zoned::now())
}

/// The page with a date of its own.
pub fn render_at(report: &Report, at: &Zoned) -> String {
    let mut out = String::new();
    out.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    out.push_str(
        "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>ringway bench</title>\n",
    );
    out.push_str(&format!("<style>\n{STYLE}</style>\n</head>\n<body>\n"));
    let machine = words::machine(&report.machine);
    out.push_str(&format!(
        "<header>\n<p class=\"kicker\">ringway bench</p>\n<h1>Which way of doing I/O suits this machine, and what \
         does each cost?</h1>\n<p class=\"machine\">{}</p>\n</header>\n<main>\n",
        escape(&machine.iter().take(2).cloned().collect::<Vec<_>>().join(" · "))
    ));
    out.push_str(&verdict(report));
    out.push_str(&plots(report));
    out.push_str(&table(report));
    out.push_str("<section>\n<h2>Machine and command</h2>\n<ul class=\"plain\">\n");
    for line in &machine {
        out.push_str(&format!("<li>{}</li>\n", escape(line)));
    }
    out.push_str("</ul>\n");
    if !report.command.is_empty() {
        out.push_str(&format!(
            "<pre class=\"scroll\"><code>{}</code></pre>\n",
            escape(&report.command)
        ));
    }
    out.push_str(&format!(
        "</section>\n</main>\n<footer>Made by ringway {} on {}.</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        at.strftime("%Y-%m-%d %H:%M")
    ));
    out
}

fn verdict(report: &Report) -> String {
    let verdict = Verdict::new(report);
    let mut out = format!(
        "<section class=\"verdict\">\n<h2>Verdict</h2>\n<p class=\"summary\">{}</p>\n",
        escape(&verdict.summary)
    );
    let items = |lines: &[String]| -> String {
        lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect()
    };
    let fold = verdict.groups.len() > OPEN_ANSWERS;
    for answer in &verdict.groups {
        out.push_str(&format!("<h3>{}</h3>\n", escape(&capital(&answer.title))));
        let (choice, reasons) = (escape(&answer.choice), items(&answer.reasons));
        if fold {
            out.push_str(&format!(
                "<details>\n<summary>{choice}</summary>\n<ul>\n{reasons}</ul>\n</details>\n"
            ));
            continue;
        }
        if answer.choice != verdict.summary {
            out.push_str(&format!("<p class=\"choice\">{choice}</p>\n"));
        }
        out.push_str(&format!("<ul>\n{reasons}</ul>\n"));
    }
    if !verdict.warnings.is_empty() {
        out.push_str(&format!(
            "<div class=\"warnings\">\n<h3>Warnings</h3>\n<ul>\n{}</ul>\n</div>\n",
            items(&verdict.warnings)
        ));
    }
    if !verdict.reading.is_empty() {
        out.push_str(&format!(
            "<div class=\"reading\">\n<h3>How to read this</h3>\n<ul>\n{}</ul>\n</div>\n",
            items(&verdict.reading)
        ));
    }
    out.push_str("</section>\n");
    out
}

/// The setting along the horizontal axis of the plots: the first that differs between cells.
fn axis(report: &Report) -> Setting {
    let choices = [Setting::Depth, Setting::BlockSize, Setting::Jobs];
    choices.into_iter().find(|setting| setting.varies(report)).unwrap_or(Setting::Depth)
}

/// A cell's place along that axis; each step doubles the setting.
fn along(axis: Setting, figures: &Figures) -> (f64, String) {
    let of = &figures.cell.workload;
    let value = match axis {
        Setting::BlockSize => of.block_size,
        Setting::Jobs => u64::from(of.jobs),
        _ => u64::from(of.depth),
    };
    ((value.max(1) as f64).log2(), axis.short(of))
}

/// A contender with those of its cells that have figures, and its colour.
struct Line<'a> {
    label: &'a str,
    style: usize,
    null: bool,
    figures: Vec<Figures<'a>>,
}

fn plots(report: &Report) -> String {
    let axis = axis(report);
    let groups = groups(report, axis);
    // A contender has one colour on the whole page.
    let mut styles: Vec<&str> = Vec::new();
    for contender in
        groups.iter().flat_map(|group| &group.contenders).filter(|contender| !contender.is_null())
    {
        if !styles.contains(&contender.label.as_str()) {
            styles.push(&contender.label);
        }
    }
    let fold = groups.len() > FOLD_FROM;
    groups.iter().map(|group| group_plots(group, axis, &styles, fold)).collect()
}

fn group_plots(group: &Group, axis: Setting, styles: &[&str], fold: bool) -> String {
    let lines: Vec<Line> = group
        .contenders
        .iter()
        .map(|contender| {
            let mut figures: Vec<Figures> =
                contender.cells.iter().filter_map(|cell| Figures::new(cell)).collect();
            figures.sort_by(|a, b| along(axis, a).0.total_cmp(&along(axis, b).0));
            let style = styles.iter().position(|label| *label == contender.label).unwrap_or(0);
            Line { label: &contender.label, style, null: contender.is_null(), figures }
        })
        .filter(|line| !line.figures.is_empty())
        .collect();
    let real: Vec<&Line> = lines.iter().filter(|line| !line.null).collect();
    if real.is_empty() {
        return String::new();
    }
    let mut places: Vec<(f64, String)> =
        real.iter().flat_map(|line| &line.figures).map(|figures| along(axis, figures)).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup();

    let axis_name = match axis {
        Setting::BlockSize => "block size",
        Setting::Jobs => "jobs",
        _ => "queue depth",
    };
    let one_place = places.len() == 1;
    let title = if one_place {
        format!("{}, {axis_name} {}", group.title, places[0].1)
    } else {
        group.title.clone()
    };
    let mut out = format!("<section>\n<h2>{}</h2>\n", escape(&capital(&title)));
    // Bars have their names beside them.
    if lines.len() > 1 && !one_place {
        out.push_str(&legend(&lines));
    }
    out.push_str("<div class=\"plots\">\n");
    // Large requests are compared by what they move, small ones by how many there are.
    let by_bytes = axis == Setting::BlockSize;
    let (speed_title, speed): (&str, fn(&Figures) -> f64) = if by_bytes {
        ("Megabytes a second", |figures| figures.bytes_per_second() / 1e6)
    } else {
        ("Operations a second", |figures| figures.ops.value)
    };
    let speed_range = |figures: &Figures| {
        let scale = speed(figures) / figures.ops.value;
        (figures.ops.runs > 1).then_some((figures.ops.low * scale, figures.ops.high * scale))
    };
    let cost_range = |figures: &Figures| {
        (figures.cpu_us.runs > 1).then_some((figures.cpu_us.low, figures.cpu_us.high))
    };
    let cost = |figures: &Figures| figures.cpu_us.value;
    let speed_text = |figures: &Figures| {
        let spread = figures.ops.percent().map(|percent| format!(" {percent}")).unwrap_or_default();
        format!("{}{spread}", rate(speed(figures)))
    };
    let cost_text = |figures: &Figures| format!("{} µs", digits(figures.cpu_us.value));
    let hover = |label: &str, figures: &Figures| hover(label, axis_name, axis, figures);

    // The harness does nothing but cost: it is no match in speed, and a floor in cost.
    let panels: [(&str, Vec<&Line>, Measure); 2] = [
        (
            speed_title,
            real.clone(),
            Measure {
                value: &speed,
                range: &speed_range,
                text: &speed_text,
                unit: plot::rate_unit,
                better: "more is better",
            },
        ),
        (
            "CPU time an operation",
            lines.iter().collect(),
            Measure {
                value: &cost,
                range: &cost_range,
                text: &cost_text,
                unit: plot::microsecond_unit,
                better: "less is better; kernel helpers included",
            },
        ),
    ];
    for (heading, lines, measure) in panels {
        let description = format!("{heading} by {axis_name}: {title}");
        let drawing = if one_place {
            let bars: Vec<Bar> = lines
                .iter()
                .map(|line| {
                    let figures = &line.figures[0];
                    Bar {
                        label: name(line),
                        style: style(line),
                        value: (measure.value)(figures),
                        range: (measure.range)(figures),
                        text: (measure.text)(figures),
                        title: hover(line.label, figures),
                    }
                })
                .collect();
            plot::bars(&description, &bars)
        } else {
            let series: Vec<Series> = lines
                .iter()
                .map(|line| Series {
                    label: name(line),
                    style: style(line),
                    points: line
                        .figures
                        .iter()
                        .map(|figures| Point {
                            x: along(axis, figures).0,
                            y: (measure.value)(figures),
                            range: (measure.range)(figures),
                            title: hover(line.label, figures),
                        })
                        .collect(),
                })
                .collect();
            plot::lines(&Lines {
                description,
                name_lines: names_fit(&series),
                series,
                ticks: places.clone(),
                x_label: axis_name,
                y_range: None,
                logarithmic: false,
                unit: measure.unit,
                small: false,
            })
        };
        out.push_str(&figure(heading, measure.better, &drawing));
    }
    out.push_str("</div>\n");
    out.push_str(&latency(&title, &real, &places, axis, axis_name, fold));
    out.push_str("</section>\n");
    out
}

/// What a plot shows of a cell.
struct Measure<'a> {
    value: &'a dyn Fn(&Figures) -> f64,
    range: &'a dyn Fn(&Figures) -> Option<(f64, f64)>,
    text: &'a dyn Fn(&Figures) -> String,
    unit: fn(f64) -> String,
    better: &'static str,
}

/// Latency by percentile, a plot for each place on the axis, all with the same vertical axis.
fn latency(
    title: &str,
    real: &[&Line],
    places: &[(f64, String)],
    axis: Setting,
    axis_name: &str,
    fold: bool,
) -> String {
    let chosen = spread_out(places, LATENCY_PLOTS);
    let plots: Vec<(&str, Vec<Series>)> = chosen
        .iter()
        .map(|(x, place)| {
            let series = real
                .iter()
                .filter_map(|line| {
                    let figures =
                        line.figures.iter().find(|figures| along(axis, figures).0 == *x)?;
                    let points = latency_points(line.label, figures);
                    (!points.is_empty()).then(|| Series {
                        label: name(line),
                        style: style(line),
                        points,
                    })
                })
                .collect();
            (place.as_str(), series)
        })
        .collect();
    let Some(range) = plot::extent(plots.iter().flat_map(|(_, series)| series)) else {
        return String::new();
    };

    let small = plots.len() > 2;
    let open = if fold { "" } else { " open=\"open\"" };
    let some = if chosen.len() < places.len() {
        format!(", at {} of {} measured places", chosen.len(), places.len())
    } else {
        String::new()
    };
    let mut out = format!(
        "<details{open}>\n<summary>Latency by percentile, logarithmic{some}</summary>\n<div class=\"plots{}\">\n",
        if small { " small" } else { "" }
    );
    let ticks: Vec<(f64, String)> = PERCENTILES
        .iter()
        .filter(|(_, tick)| !tick.is_empty())
        .map(|(percent, tick)| (rareness(*percent), tick.to_string()))
        .collect();
    for (place, series) in plots {
        let heading = capital(&format!("{axis_name} {place}"));
        let drawing = plot::lines(&Lines {
            description: format!("Latency by percentile at {axis_name} {place}: {title}"),
            name_lines: !small && names_fit(&series),
            series,
            ticks: ticks.clone(),
            x_label: "percentile",
            y_range: Some(range),
            logarithmic: true,
            unit: plot::time_unit,
            small,
        });
        out.push_str(&figure(&heading, "less is better", &drawing));
    }
    out.push_str("</div>\n</details>\n");
    out
}

/// The percentiles that there are enough samples for.
fn latency_points(label: &str, figures: &Figures) -> Vec<Point> {
    let samples = figures.latency.len() as f64;
    PERCENTILES
        .iter()
        // A percentile beyond the last sample would only show the greatest again.
        .filter(|(percent, _)| {
            samples * (100.0 - percent) / 100.0 >= 1.0 || (*percent == 50.0 && samples > 0.0)
        })
        .map(|(percent, _)| {
            let ns = figures.latency.value_at_percentile(*percent) as f64;
            Point {
                x: rareness(*percent),
                y: ns.max(1.0),
                range: None,
                title: format!("{label}: p{percent} {}", nanoseconds(ns)),
            }
        })
        .collect()
}

/// The place of a percentile: each step is ten times as rare.
fn rareness(percent: f64) -> f64 {
    -((100.0 - percent) / 100.0).log10()
}

/// At most so many of the places, the first and the last among them.
fn spread_out(places: &[(f64, String)], most: usize) -> Vec<(f64, String)> {
    if places.len() <= most {
        return places.to_vec();
    }
    (0..most).map(|at| places[at * (places.len() - 1) / (most - 1)].clone()).collect()
}

fn hover(label: &str, axis_name: &str, axis: Setting, figures: &Figures) -> String {
    let ops = &figures.ops;
    let runs = if ops.runs > 1 {
        format!(" ({} to {} in {} runs)", rate(ops.low), rate(ops.high), ops.runs)
    } else {
        String::new()
    };
    let latency = match (figures.percentile(50.0), figures.percentile(99.0)) {
        (Some(p50), Some(p99)) => {
            format!("\np50 {}, p99 {}", nanoseconds(p50 as f64), nanoseconds(p99 as f64))
        }
        _ => String::new(),
    };
    format!(
        "{label}, {axis_name} {}: {} ops/s{runs}\n{} MB/s\n{} CPU µs an operation{latency}",
        along(axis, figures).1,
        rate(ops.value),
        digits(figures.bytes_per_second() / 1e6),
        digits(figures.cpu_us.value)
    )
}

fn name(line: &Line) -> String {
    if line.null { "harness".to_owned() } else { line.label.to_owned() }
}

/// The harness is grey.
fn style(line: &Line) -> Style {
    if line.null { Style::Grey } else { Style::Colour(line.style) }
}

fn names_fit(series: &[Series]) -> bool {
    series.len() > 1
        && series.len() <= NAMED_LINES
        && series.iter().all(|series| series.label.chars().count() <= NAME_LETTERS)
}

fn legend(lines: &[Line]) -> String {
    let items: String = lines
        .iter()
        .map(|line| {
            format!(
                "<li class=\"{}\"><svg viewBox=\"0 0 28 12\" aria-hidden=\"true\"><polyline points=\"1,6 27,6\"/>{}</svg>{}</li>\n",
                plot::class(style(line)),
                plot::mark(style(line), 14.0, 6.0),
                escape(&name(line))
            )
        })
        .collect();
    format!("<ul class=\"legend\">\n{items}</ul>\n")
}

fn figure(heading: &str, note: &str, drawing: &str) -> String {
    format!(
        "<figure>\n<figcaption><b>{}</b> <span>{}</span></figcaption>\n{drawing}\n</figure>\n",
        escape(heading),
        escape(note)
    )
}

fn table(report: &Report) -> String {
    if report.cells.is_empty() {
        return String::new();
    }
    let grid = Grid::new(report);
    let mut out = "<section>\n<h2>Every figure</h2>\n".to_owned();
    for caption in grid.captions.iter().filter(|caption| !caption.is_empty()) {
        out.push_str(&format!("<p class=\"caption\">{}</p>\n", escape(&capital(caption))));
    }
    out.push_str("<div class=\"scroll\">\n<table>\n<thead>\n<tr>");
    let mut at = 0;
    while at < grid.columns.len() {
        let band = grid.columns[at].band;
        let many = grid.columns[at..].iter().take_while(|column| column.band == band).count();
        let class = if band.is_empty() { "" } else { " class=\"band\"" };
        out.push_str(&format!("<th colspan=\"{many}\"{class}>{}</th>", escape(band)));
        at += many;
    }
    out.push_str("</tr>\n<tr>");
    for column in &grid.columns {
        out.push_str(&format!("<th scope=\"col\">{}</th>", escape(&column.heading)));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    let settings = grid.columns.iter().filter(|column| column.setting).count();
    for (at, row) in grid.rows.iter().enumerate() {
        let (class, shown) = match row {
            Row::Cell => ("cell", grid.columns.len()),
            Row::Part => ("part", grid.columns.len()),
            Row::Absent(_) => ("absent", settings),
        };
        out.push_str(&format!("<tr class=\"{class}\">"));
        for (number, column) in grid.columns.iter().take(shown).enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            out.push_str(&format!("<{tag}>{}</{tag}>", escape(column.texts[at].trim())));
        }
        if let Row::Absent(reason) = row
            && settings < grid.columns.len()
        {
            out.push_str(&format!(
                "<td class=\"reason\" colspan=\"{}\">{}</td>",
                grid.columns.len() - settings,
                escape(reason)
            ));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if !grid.notes.is_empty() {
        let notes: String =
            grid.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
        out.push_str(&format!("<ul class=\"notes\">\n{notes}</ul>\n"));
    }
    out.push_str("</section>\n");
    out
}

/// With a capital, for a heading.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;
    use crate::bench::workload::{Backend, Target};
    use proptest::prelude::*;
    use roxmltree::{Document, ParsingOptions};

    /// The page as a tree: it is written so that an XML parser, which forgives nothing, reads it.
    fn parse(page: &str) -> Document<'_> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(page, options)
            .unwrap_or_else(|error| panic!("{error}\n{page}"))
    }

    fn count(page: &Document, tag: &str, class: &str) -> usize {
        let has = |node: &roxmltree::Node| {
            node.attribute("class").unwrap_or("").split(' ').any(|one| one == class)
        };
        page.descendants().filter(|node| node.has_tag_name(tag) && has(node)).count()
    }

    #[test]
    fn a_page_has_its_plots_its_table_and_its_verdict() {
        let page = render(&samples::depths());
        let tree = parse(&page);
        // Speed: 3 backends by 3 depths; cost: the harness too; latency: 9 percentiles at 3 depths.
        assert_eq!(count(&tree, "g", "point"), 9 + 12 + 3 * 3 * 9);
        assert_eq!(count(&tree, "tr", "cell"), 12);
        for said in [
            "Fastest and least CPU time an operation: uring at every depth measured.",
            "Linux 6.12.9, 8 processors",
            "ringway bench --rw randread --bs 4k --depth 1,32,128 --runs 3",
            "uring, queue depth 32: 219 k ops/s (217 k to 222 k in 3 runs)",
        ] {
            assert!(page.contains(said), "{said}");
        }
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = render(&samples::everything());
        for foreign in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = "</title><script>alert(\"1\")</script>'&\u{0}";
        let mut report = samples::everything();
        report.command = hostile.into();
        report.machine.kernel = hostile.into();
        report.machine.device = hostile.into();
        report.machine.remarks = vec![hostile.into()];
        report.machine.refused = vec![hostile.into()];
        for (at, cell) in report.cells.iter_mut().enumerate() {
            cell.workload.name = hostile.into();
            cell.workload.target = Target::Files(vec![format!("{hostile}{}", at % 2).into()]);
            cell.notes = vec![hostile.into()];
        }
        let page = render(&report);
        assert!(!page.contains("<script"));
        assert!(
            page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#39;&amp;\u{fffd}")
        );
        parse(&page);
    }

    #[test]
    fn one_depth_makes_bars_and_block_sizes_an_axis() {
        let one = render(&samples::along_depths(&[32], |_| {}));
        let tree = parse(&one);
        assert_eq!(count(&tree, "rect", "bar"), 3 + 4, "speed, and cost with the harness");
        let sizes = render(&samples::block_sizes());
        assert!(sizes.contains("Megabytes a second") && sizes.contains(">64 KiB</text>"));
        assert_eq!(count(&parse(&sizes), "rect", "bar"), 0);
    }

    #[test]
    fn rare_percentiles_need_samples() {
        let mut report = samples::one_cell();
        let latency = &mut report.cells[0].runs[0].read.latency;
        latency.reset();
        latency.record_n(1000, 500).unwrap();
        let figures = Figures::new(&report.cells[0]).unwrap();
        let points = latency_points("uring", &figures);
        assert_eq!(points.last().unwrap().title, "uring: p99.5 1.00 µs");
    }

    #[test]
    fn what_did_not_run_has_a_row_and_no_line() {
        let page = render(&samples::odd()[3]);
        let tree = parse(&page);
        assert_eq!(count(&tree, "tr", "absent"), 3);
        assert!(page.contains("did not run: io_setup: EAGAIN; fix: raise fs.aio-max-nr"));
        assert_eq!(count(&tree, "g", "point"), 6 + 9 + 3 * 2 * 9);
    }

    #[test]
    fn odd_reports_make_a_page() {
        for mut report in samples::odd() {
            report.cells.retain(|cell| cell.workload.backend != Backend::Threads);
            let page = render(&report);
            parse(&page);
            assert!(!samples::has_no_number(&page), "{page}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_report_makes_a_page(report in samples::anything()) {
            let page = render(&report);
            parse(&page);
            prop_assert!(!samples::has_no_number(&page));
        }
    }
}
