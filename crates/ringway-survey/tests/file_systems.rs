//! Observes each file system of this machine's kernel, as root, and compares it with what is
//! recorded for the kernel's version: a cell that changes fails. With `RINGWAY_RECORD=1` what is
//! seen is recorded instead, and docs/file-systems.md written. `RINGWAY_PLACE=part-of-a-name`
//! selects file systems.

#![cfg(target_os = "linux")]

#[path = "file_systems/mounts.rs"]
mod mounts;
#[path = "file_systems/page.rs"]
mod page;

use ringway_survey::{Row, observe};
use serde::{Deserialize, Serialize};
use std::{env, fs};

/// What was recorded, by the version of the kernel, as in "6.18".
const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../ringway-cli/src/probe/file_systems.json");

/// Rounds of a recording.
const ROUNDS: usize = 5;

/// The rows of a kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kernel {
    kernel: String,
    rows: Vec<Row>,
}

#[test]
fn they_do_what_is_recorded() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root mounts file systems");
    }
    let kernel = kernel_version();
    let mut all: Vec<Kernel> =
        serde_json::from_str(&fs::read_to_string(RECORDED).unwrap_or_else(|_| "[]".to_owned()))
            .unwrap();
    let recorded = all.iter().find(|one| one.kernel == kernel).cloned().unwrap_or_default();
    let is_recording = env::var_os("RINGWAY_RECORD").is_some();
    if recorded.rows.is_empty() && !is_recording {
        skip(&format!("nothing is recorded for Linux {kernel}"));
    }
    let observe = |place: &_| observe(place).unwrap_or_else(|error| panic!("{place:?}: {error}"));
    if is_recording {
        let mut rows: Vec<Row> = Vec::new();
        // What depends on the moment is seen in one of several rounds.
        for _ in 0..ROUNDS {
            mounts::each(skip, |place| {
                let row = observe(place);
                match rows.iter_mut().find(|one| one.name == row.name) {
                    Some(known) => known.add(&row),
                    None => rows.push(row),
                }
            });
        }
        all.retain(|one| one.kernel != kernel);
        all.push(Kernel { kernel, rows });
        all.sort_by_key(|one| version(&one.kernel));
        fs::write(RECORDED, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
        fs::write(page::PATH, page::render(&all)).unwrap();
        return;
    }
    let mut changed = Vec::new();
    let mut count = 0;
    mounts::each(skip, |place| {
        count += 1;
        let row = observe(place);
        println!("{}: {:#?}", row.name, row.cells);
        let Some(before) = recorded.rows.iter().find(|one| one.name == row.name) else {
            return assert!(recorded.rows.is_empty(), "{} is not recorded", row.name);
        };
        let mut found = changes(before, &row);
        // A busy machine changes a moment, and not the file system.
        for _ in 1..ROUNDS {
            if !found.is_empty() {
                let again = changes(before, &observe(place));
                found.retain(|one| again.contains(one));
            }
        }
        changed.extend(found);
    });
    assert!(count > 0, "no file system was observed");
    assert!(changed.is_empty(), "Linux {kernel}:\n{}", changed.join("\n"));
}

/// The page shows what is recorded.
#[test]
fn the_page_is_up_to_date() {
    let all: Vec<Kernel> = serde_json::from_str(&fs::read_to_string(RECORDED).unwrap()).unwrap();
    let page = fs::read_to_string(page::PATH).unwrap();
    assert!(page == page::render(&all), "run this with RINGWAY_RECORD=1");
}

fn changes(before: &Row, now: &Row) -> Vec<String> {
    let mut names: Vec<&String> = before.cells.keys().chain(now.cells.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| {
            let (before, now) = (before.answers(name), now.answers(name));
            before.is_empty() != now.is_empty() || now.iter().any(|one| !before.contains(one))
        })
        .map(|name| {
            let text = |row: &Row| row.cells.get(name).map_or("missing", String::as_str).to_owned();
            format!("{}, {name}: {:?} is recorded, {:?} seen", now.name, text(before), text(now))
        })
        .collect()
}

/// The running kernel's, as in "6.18".
fn kernel_version() -> String {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".")
}

fn version(text: &str) -> Vec<u32> {
    text.split('.').filter_map(|number| number.parse().ok()).collect()
}

fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(env::var_os("CI").is_none(), "skipped with CI set: {why}");
}
