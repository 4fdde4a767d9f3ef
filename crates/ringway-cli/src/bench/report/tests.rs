//! What holds for all writers: any report is written, every figure is a number, and percentiles
//! have enough samples.

use super::{Model, csv, html, json, samples, summary, table};
use crate::bench::result::Report;
use crate::bench::workload::Backend;
use proptest::prelude::*;
use ringway_measure::text::ABSENT;
use serde_json::Value;
use std::collections::BTreeSet;

/// serde_json writes null for a figure that is not a number.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.iter().any(has_null),
        Value::Object(all) => all.values().any(has_null),
        _ => false,
    }
}

/// Writes a report in all formats and reads each with a strict parser.
fn check(report: &Report) {
    let model = Model::new(report);
    let texts = [table::render(&model), summary::render(&model), csv::render(&model)];
    let page = html::render(&model).unwrap();
    for text in texts.iter().chain([&page]) {
        assert!(!text.is_empty() && !samples::has_no_number(text), "{text}");
    }
    for text in &texts[..2] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    }
    let rows =
        ::csv::Reader::from_reader(texts[2].as_bytes()).records().map(Result::unwrap).count();
    let runs = report.measurements.iter().map(|measurement| measurement.runs.len().max(1));
    assert_eq!(rows, runs.sum::<usize>());
    let whole: Value = serde_json::from_str(&json::render(&model)).unwrap();
    assert!(!has_null(&whole), "{whole:#}");
    let jobs = whole["jobs"].as_array().unwrap();
    let groups: BTreeSet<_> = jobs.iter().map(|job| job["groupid"].as_u64()).collect();
    let not_run = whole["ringway"]["not_run"].as_array().unwrap();
    assert_eq!(groups.len() + not_run.len(), report.measurements.len());
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(&page, options).unwrap();
}

#[test]
fn odd_reports_are_written() {
    for mut report in samples::odd() {
        check(&report);
        report.measurements.retain(|measurement| measurement.workload.backend != Backend::Threads);
        check(&report);
        let text = table::render(&Model::new(&report));
        assert_eq!(text.contains("Nothing was measured"), report.measurements.is_empty());
    }
    let text = table::render(&Model::new(&samples::one_measurement()));
    assert!(text.contains("depth 32, 1 job, 5.00 s"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_is_written(report in samples::anything()) {
        check(&report);
    }
}

#[test]
fn percentiles_need_enough_samples() {
    let with_samples = |samples| {
        let mut report = samples::along_depths(&[32], |_| {});
        for run in report.measurements.iter_mut().flat_map(|measurement| &mut measurement.runs) {
            run.read.latency.reset();
            run.read.latency.record_n(1000, samples).unwrap();
        }
        report
    };
    let report = with_samples(999);
    let model = Model::new(&report);
    let text = table::render(&model);
    let headings = text.lines().filter(|line| line.contains("p99")).collect::<String>();
    assert!(headings.contains("p99 ") && !headings.contains("p99.9"), "{text}");
    let csv = csv::render(&model);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let value = |name: &str| rows[1][rows[0].iter().position(|heading| *heading == name).unwrap()];
    assert_eq!(value("read_latency_p99_ns"), value("read_latency_p50_ns"));
    assert_eq!([value("read_latency_p99.9_ns"), value("read_latency_p99.99_ns")], ["", ""]);
    let whole: Value = serde_json::from_str(&json::render(&model)).unwrap();
    let percentiles = whole["jobs"][0]["read"]["clat_ns"]["percentile"].as_object().unwrap();
    assert_eq!(percentiles.keys().next_back().unwrap(), "99.500000");
    assert_eq!(percentiles.len(), 14);
    // In the latency chart: 50, 75, 90, 95 and 99, and one in the legend; three backends.
    let page = html::render(&model).unwrap();
    let chart = &page[page.find("Latency at depth 32").unwrap()..];
    assert_eq!(chart.matches("<circle").count(), 3 * (5 + 1));

    let mut report = with_samples(999);
    let latency = &mut report.measurements[0].runs[0].read.latency;
    latency.reset();
    latency.record_n(1000, 99).unwrap();
    let text = table::render(&Model::new(&report));
    assert_eq!(text.matches(ABSENT).count(), 1, "no p99 of uring\n{text}");
}
