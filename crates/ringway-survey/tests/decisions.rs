//! What ringway decides by the type of a file system (`file_systems.txt` of the core) agrees with
//! what was observed.

#![cfg(target_os = "linux")]

use ringway_survey::Row;
use serde::Deserialize;

const DECISIONS: &str = include_str!("../../ringway-core/src/device/file_systems.txt");
const RECORDED: &str = include_str!("../../ringway-cli/src/probe/file_systems.json");

#[derive(Deserialize)]
struct Kernel {
    kernel: String,
    rows: Vec<Row>,
}

/// The columns of the list, by the name of the type.
fn decision(file_system: &str) -> Option<Vec<&'static str>> {
    let lines = DECISIONS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_whitespace().collect())
        .find(|columns: &Vec<_>| columns.first() == Some(&file_system))
}

/// Calls `check` with each row, with a text that names it, and the columns of its type: `ring`,
/// `dsync` and `alignment`.
fn each_row(mut check: impl FnMut(&str, &Row, [&str; 3])) {
    let kernels: Vec<Kernel> = serde_json::from_str(RECORDED).unwrap();
    assert!(!kernels.is_empty());
    for (kernel, row) in kernels.iter().flat_map(|one| one.rows.iter().map(move |row| (one, row))) {
        let columns = decision(&row.file_system)
            .unwrap_or_else(|| panic!("{} is not in the list", row.file_system));
        let name = format!("{}, Linux {}", row.name, kernel.kernel);
        check(&name, row, [columns[3], columns[5], columns[6]]);
    }
}

/// Where io_uring makes all transfers, the submitter waits for no device.
#[test]
fn a_ring_is_used_where_it_does_not_block() {
    let mut used = 0;
    each_row(|name, row, [ring, ..]| {
        // What is in memory is there at once; and a file that was just written is cached, which is
        // where `data=journal` looks for it.
        let in_memory = row.file_system == "tmpfs" || name.contains("zram");
        if ring == "all" && !in_memory {
            used += 1;
            assert!(!row.answers("cold read").contains(&"in place"), "{name}");
            assert!(
                name.contains("data=journal") || !row.answers("direct read").contains(&"in place"),
                "{name}"
            );
        }
    });
    assert!(used > 0);
}

/// One flag instead of two calls, where it costs no more flushes.
#[test]
fn dsync_is_used_where_it_costs_no_more() {
    let mut counted = 0;
    each_row(|name, row, [_, dsync, _]| {
        let flushes = |cell: &str| row.cells.get(cell)?.parse::<u32>().ok();
        if let (Some(flag), Some(calls)) =
            (flushes("flushes, RWF_DSYNC"), flushes("flushes, fdatasync"))
        {
            counted += 1;
            assert!(dsync != "yes" || flag <= calls, "{name}: {flag} flushes instead of {calls}");
        }
    });
    assert!(counted > 0);
}

/// Only where the list says so does the alignment differ between files of one file system, on the
/// kernels that report it.
#[test]
fn an_alignment_that_grows_is_known() {
    let kernels: Vec<Kernel> = serde_json::from_str(RECORDED).unwrap();
    let mut grew = false;
    for kernel in &kernels {
        let alignment = |name: &str| {
            let row = kernel.rows.iter().find(|row| row.name == name)?;
            Some((row.file_system.clone(), row.cells.get("alignment")?.clone()))
        };
        let ((file_system, alone), (_, shared)) =
            alignment("XFS").zip(alignment("XFS, blocks shared with a copy")).unwrap();
        grew |= alone != shared;
        let grows = decision(&file_system).unwrap()[6] == "grows";
        assert!(grows || alone == shared, "Linux {}", kernel.kernel);
    }
    assert!(grew, "no kernel reports it");
}
