//! Bars of each contestant's operations a second and CPU time, for each row.

use super::table::{significant, value};
use crate::contest::{Entry, Row};
use crate::contestants::RINGWAY;
use crate::figures::Metric;
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const WIDTH: i32 = 1280;
const MARGIN: i32 = 24;
const TITLE: i32 = 34;
const BAR: i32 = 20;
const GAP: i32 = 22;
/// Where the bars of the two figures begin, behind the names, and how long they can be.
const BEGIN: [i32; 2] = [190, 740];
const LENGTH: f64 = 400.0;
const FONT: &str = "sans-serif";

const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const OTHERS: RGBColor = RGBColor(0xa8, 0xb4, 0xc0);
const INK: RGBColor = RGBColor(0x20, 0x26, 0x2c);

type Area<'a, B> = DrawingArea<B, Shift>;

pub fn svg(path: &Path, rows: &[&Row]) -> Result<()> {
    draw(&SVGBackend::new(path, size(rows)).into_drawing_area(), rows)
}

pub fn png(path: &Path, rows: &[&Row]) -> Result<()> {
    // A picture has its letters drawn here, so they come along with the program.
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    plotters::style::register_font(FONT, FontStyle::Normal, font)
        .map_err(|_| anyhow!("the font cannot be read"))?;
    draw(&BitMapBackend::new(path, size(rows)).into_drawing_area(), rows)
}

fn size(rows: &[&Row]) -> (u32, u32) {
    (WIDTH as u32, (2 * MARGIN + rows.iter().copied().map(height).sum::<i32>()) as u32)
}

fn height(row: &Row) -> i32 {
    TITLE + BAR * row.entries.len() as i32 + GAP
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, rows: &[&Row]) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let mut top = MARGIN;
    for row in rows {
        panel(area, row, top)?;
        top += height(row);
    }
    area.present()?;
    Ok(())
}

/// One row: a line for each contestant, with both figures.
fn panel<B: DrawingBackend>(area: &Area<B>, row: &Row, top: i32) -> Result<()>
where
    B::ErrorType: 'static,
{
    let title = (FONT, 17).into_font().color(&INK);
    area.draw_text(&row.workload.to_string(), &title, (MARGIN, top))?;
    let metrics =
        [(Metric::OpsPerSecond, "operations a second"), (Metric::CpuPerOp, "CPU µs an operation")];
    for ((metric, name), begin) in metrics.into_iter().zip(BEGIN) {
        area.draw_text(name, &text(HPos::Right), (begin + LENGTH as i32, top + 4))?;
        let figure = |entry: &Entry| entry.median(metric).map_or(0.0, |median| median.value);
        let most = row.entries.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max);
        for (entry, y) in row.entries.iter().zip((top + TITLE..).step_by(BAR as usize)) {
            let end = begin + (LENGTH * figure(entry) / most) as i32;
            let colour = if entry.contestant == RINGWAY { OURS } else { OTHERS };
            area.draw(&Rectangle::new([(begin, y), (end, y + BAR - 4)], colour.filled()))?;
            area.draw_text(
                &value(entry.median(metric), significant),
                &text(HPos::Left),
                (end + 6, y + BAR / 2 - 2),
            )?;
        }
    }
    for (entry, y) in row.entries.iter().zip((top + TITLE..).step_by(BAR as usize)) {
        area.draw_text(entry.contestant, &text(HPos::Right), (BEGIN[0] - 8, y + BAR / 2 - 2))?;
    }
    Ok(())
}

fn text(side: HPos) -> TextStyle<'static> {
    (FONT, 14).into_font().color(&INK).pos(Pos::new(side, VPos::Center))
}
