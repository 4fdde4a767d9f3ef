//! A run of small benchmarks as a user makes it.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn data_bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_data-bench")).args(args).output().unwrap()
}

fn run(folder: &Path, json: &Path) -> Output {
    data_bench(&[
        "run",
        "c",
        "--small",
        folder.to_str().unwrap(),
        "--only=small-parquet-get,small-csv-get",
        "--states=cached",
        "--rounds=1",
        "--json",
        json.to_str().unwrap(),
    ])
}

/// The names of the rows that were measured, and how many files each contestant found.
fn measured(json: &Path) -> Vec<(String, Vec<u64>)> {
    let results: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let row = |row: &Value| {
        let found = |entry: &Value| entry["turns"][0]["figures"]["found"].as_f64().unwrap() as u64;
        let entries = row["entries"].as_array().unwrap();
        (row["title"].as_str().unwrap().to_owned(), entries.iter().map(found).collect())
    };
    results["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn all_contestants_do_the_work_and_figures_survive_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, json) = (scratch.path().join("small"), scratch.path().join("json"));
    let out = folder.to_str().unwrap();
    let made = data_bench(&["generate", "small", "--files=3", "--out", out]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let done = run(&folder, &json);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("small-csv-get"));
    let both = |name: &str| (name.to_owned(), vec![3, 3]);
    assert_eq!(measured(&json), [both("small-parquet-get"), both("small-csv-get")]);

    // A contestant that finds nothing is no fast one.
    for file in fs::read_dir(folder.join("csv")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let failed = run(&folder, &json);
    assert_eq!(failed.status.code(), Some(1));
    let error = String::from_utf8_lossy(&failed.stderr);
    assert!(error.contains("small-csv-get cached: local: found nothing"), "{error}");
    assert_eq!(measured(&json), [both("small-parquet-get")]);
}
