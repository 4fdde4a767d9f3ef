//! Observes each file system of this machine's kernel, as root, and compares it with what is
//! recorded for the kernel's version: a cell that changes fails. `RINGWAY_PLACE=part-of-a-name`
//! selects file systems, or several parts with a `|` between them.
//!
//! With `RINGWAY_RECORD=1` what is seen is recorded instead, and docs/file-systems.md written; with
//! `RINGWAY_RECORD=print` it is only printed, in a guest whose disk is lost, and
//! `RINGWAY_RECORD_FROM=FILE` records the JSON that a guest printed. `RINGWAY_ROUNDS` is how often
//! a recording observes each.

#![cfg(target_os = "linux")]

#[path = "file_systems/mounts.rs"]
mod mounts;
#[path = "file_systems/page.rs"]
mod page;

use ringway_survey::{Place, Row, observe};
use serde::{Deserialize, Serialize};
use std::{env, fs};

/// What was recorded, by the version of the kernel, as in "6.18".
const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../ringway-cli/src/probe/file_systems.json");

/// Rounds of a recording, and of observing a cell that seems to have changed.
const ROUNDS: usize = 5;

/// The rows of a kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kernel {
    kernel: String,
    rows: Vec<Row>,
}

#[test]
fn they_do_what_is_recorded() {
    if let Some(file) = env::var_os("RINGWAY_RECORD_FROM") {
        return record(serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap());
    }
    if !rustix::process::geteuid().is_root() {
        return skip("only root mounts file systems");
    }
    if let Err(error) = ringway_survey::supported() {
        return skip(&format!("no io_uring that tells who served a request: {error}"));
    }
    match env::var("RINGWAY_RECORD").as_deref() {
        Ok("print") => observed(|kernel| {
            println!("observed: {}", serde_json::to_string(kernel).unwrap());
        }),
        Ok(_) => observed(|kernel| record(kernel.clone())),
        Err(_) => compare(),
    }
}

/// Programs that run side by side see each other's devices.
#[test]
fn two_of_each_device_exist_side_by_side() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root mounts file systems");
    }
    for target in ["dm-linear", "dm-crypt", "dm-integrity", "RAID 1"] {
        let place = format!("ext4 on {target}");
        mounts::on(&[&place], skip, |_, one| {
            fs::write(one.join("file"), "one").unwrap();
            let mut found = None;
            mounts::on(&[&place], skip, |_, other| {
                fs::write(other.join("file"), "other").unwrap();
                found = Some(fs::read_to_string(one.join("file")).unwrap());
            });
            assert_eq!(found.as_deref(), Some("one"), "{place}");
        });
    }
}

/// Observes in several rounds, as some answers depend on the moment, and hands what is known to
/// `keep` after each.
fn observed(keep: impl Fn(&Kernel)) {
    let rounds = env::var("RINGWAY_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut known = Kernel { kernel: kernel_version(), rows: Vec::new() };
    for _ in 0..rounds {
        mounts::each(skip, |place| {
            let row = observe_or_panic(place);
            match known.rows.iter_mut().find(|one| one.name == row.name) {
                Some(before) => before.add(&row),
                None => known.rows.push(row),
            }
        });
        keep(&known);
    }
}

/// Records the rows of a kernel instead of those that were recorded for it, and writes the page.
/// Rows that were not observed now stay.
fn record(mut kernel: Kernel) {
    let mut all = recorded();
    if let Some(before) = all.iter().find(|one| one.kernel == kernel.kernel) {
        let stays = |row: &&Row| {
            mounts::position(&row.name).is_some()
                && kernel.rows.iter().all(|one| one.name != row.name)
        };
        let kept: Vec<Row> = before.rows.iter().filter(stays).cloned().collect();
        kernel.rows.extend(kept);
    }
    kernel.rows.sort_by_key(|row| mounts::position(&row.name));
    all.retain(|one| one.kernel != kernel.kernel);
    all.push(kernel);
    all.sort_by_key(|one| version(&one.kernel));
    fs::write(RECORDED, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    fs::write(page::PATH, page::render(&all)).unwrap();
}

fn compare() {
    let kernel = kernel_version();
    let recorded = recorded().into_iter().find(|one| one.kernel == kernel).unwrap_or_default();
    if recorded.rows.is_empty() {
        skip(&format!("nothing is recorded for Linux {kernel}"));
    }
    let mut changed = Vec::new();
    let mut count = 0;
    mounts::each(skip, |place| {
        count += 1;
        let row = observe_or_panic(place);
        println!("{}: {:#?}", row.name, row.cells);
        let Some(before) = recorded.rows.iter().find(|one| one.name == row.name) else {
            return assert!(recorded.rows.is_empty(), "{} is not recorded", row.name);
        };
        let mut found = changes(before, &row);
        // A busy machine changes a moment, and not the file system: a cell has changed if it never
        // is as recorded.
        for _ in 1..ROUNDS {
            if !found.is_empty() {
                let again = changes(before, &observe_or_panic(place));
                found.retain(|(cell, _)| again.iter().any(|(other, _)| other == cell));
            }
        }
        changed.extend(found.into_iter().map(|(_, text)| text));
    });
    assert!(count > 0, "no file system was observed");
    assert!(changed.is_empty(), "Linux {kernel}:\n{}", changed.join("\n"));
}

fn observe_or_panic(place: &Place) -> Row {
    observe(place).unwrap_or_else(|error| panic!("{place:?}: {error}"))
}

fn recorded() -> Vec<Kernel> {
    let text = fs::read_to_string(RECORDED).unwrap_or_else(|_| "[]".to_owned());
    serde_json::from_str(&text).unwrap()
}

/// The page shows what is recorded.
#[test]
fn the_page_is_up_to_date() {
    if env::var_os("RINGWAY_RECORD").is_some() {
        return println!("skipped: it is being written");
    }
    let (all, page) = (recorded(), fs::read_to_string(page::PATH).unwrap());
    assert!(page == page::render(&all), "RINGWAY_RECORD=1 writes it");
}

/// The cells that have changed, and how.
fn changes(before: &Row, now: &Row) -> Vec<(String, String)> {
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
            let (was, is) = (text(before), text(now));
            (name.clone(), format!("{}, {name}: {was:?} is recorded, {is:?} seen", now.name))
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

/// Reasons for skips that are allowed if `CI` is set.
const EXPECTED_SKIPS: &[&str] =
    &["only root mounts", "nothing is recorded for Linux", "FUSE_PASSTHROUGH"];

fn skip(why: &str) {
    println!("skipped: {why}");
    let expected = EXPECTED_SKIPS.iter().any(|expected| why.contains(expected));
    assert!(expected || env::var_os("CI").is_none(), "skipped with CI set: {why}");
}
