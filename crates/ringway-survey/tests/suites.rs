//! The suites of the core and of the engine on each file system that can be written to: there they
//! make their files. What they have on the disk they must have everywhere, except for what
//! [`DIFFERENT`] lists. As root; `RINGWAY_PLACE=part-of-a-name` selects file systems (several parts
//! have a `|` between them) and `RINGWAY_SUITE=part-of-a-name` suites.

#![cfg(target_os = "linux")]

#[path = "file_systems/mounts.rs"]
mod mounts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use std::{env, str};

/// A test program, and the arguments that select those of its tests that depend on the files.
struct Suite {
    package: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Most tests inject faults, which do not reach transfers that threads make ([`BY_THREADS`]).
    injects: bool,
}

const fn suite(
    package: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Suite {
    Suite { package, program, arguments, injects: false }
}

/// All cases but those on the process and the machine. (Those that are data run on each file system
/// in `other_file_systems`.)
const CASES: &[&str] = &[
    "::",
    "--skip=leg::",
    "--skip=options::",
    "--skip=process::",
    "--skip=waiting::",
    "--skip=hung::",
];

const SUITES: &[Suite] = &[
    suite("ringway-core", "conformance", CASES),
    suite("ringway-core", "model", &["--skip=with_faults"]),
    Suite { injects: true, ..suite("ringway-core", "model", &["with_faults"]) },
    Suite { injects: true, ..suite("ringway", "streams", &[]) },
    suite("ringway", "guarantees", &["contracts::"]),
    Suite {
        injects: true,
        ..suite("ringway", "guarantees", &["durable::", "shared_syncs::", "log::"])
    },
];

/// It has no direct I/O, with which most tests begin.
const NOT_DIRECT: &str = "ramfs";

/// Where threads make the transfers of some files.
const BY_THREADS: &[&str] = &[
    "overlay on ext4",
    "overlay on XFS",
    "overlay on tmpfs",
    "FUSE",
    "FUSE, direct I/O",
    "FUSE, write-back cache",
    "FUSE, passthrough",
    "NFS 4.2",
    "9p",
    "9p, cached",
    "virtiofs",
];

/// Tests that fail on file systems, and why.
struct Difference {
    places: &'static [&'static str],
    program: &'static str,
    tests: &'static [&'static str],
    /// They pass there too: it depends on the moment.
    at_times: bool,
    why: &'static str,
}

const FUSE: &[&str] = &["FUSE", "FUSE, direct I/O", "FUSE, write-back cache", "FUSE, passthrough"];

const CACHED_DIRECT_READS: Difference = Difference {
    places: &[],
    program: "guarantees",
    tests: &["contracts::one_a_dropped_pooled_read_touches_no_other_memory"],
    at_times: true,
    why: "direct reads are served from the page cache, and may end before another look",
};

const DIFFERENT: &[Difference] = &[
    Difference {
        places: &["ext4, data=journal"],
        program: "conformance",
        tests: &["dont_cache::writes_leave_no_pages"],
        at_times: false,
        why: "RWF_DONTCACHE is accepted, and what is written stays cached",
    },
    Difference {
        places: &["ext4, data=journal"],
        program: "streams",
        tests: &["dont_cache::writes_leave_no_pages"],
        at_times: false,
        why: "RWF_DONTCACHE is accepted, and what is written stays cached",
    },
    Difference {
        places: &["tmpfs"],
        program: "streams",
        tests: &[
            "yields::a_read_that_yields_has_no_buffer",
            "yields::loops_yield",
            "yields::single_calls_yield",
        ],
        at_times: true,
        why: "the ring's workers copy cached data, not the task, which need not yield",
    },
    Difference {
        places: BY_THREADS,
        program: "conformance",
        tests: &["transfers::exact_under_faults"],
        at_times: false,
        why: "threads make the transfers, and what was injected looks like the kernel's answer",
    },
    Difference {
        places: BY_THREADS,
        program: "guarantees",
        tests: &["contracts::six_short_transfers_are_continued"],
        at_times: false,
        why: "threads make the transfers, and what was injected looks like the kernel's answer",
    },
    Difference {
        places: &["btrfs", "btrfs, compressed"],
        program: "guarantees",
        tests: &["contracts::six_short_transfers_are_continued"],
        at_times: false,
        why: "kaio leaves these files to threads, into which nothing is injected",
    },
    Difference {
        places: &["ext4, data=journal", "btrfs, compressed", "tmpfs"],
        ..CACHED_DIRECT_READS
    },
    Difference { places: BY_THREADS, ..CACHED_DIRECT_READS },
    Difference {
        places: FUSE,
        program: "conformance",
        tests: &[
            "dont_cache::other_errors_are_not_refusals",
            "large::over_four_gibibytes_direct",
            "untorn::never_a_plain_write",
            "untorn::refused_before_submission",
        ],
        at_times: false,
        why: "the server opens no file again that has no name, not by /proc/self/fd",
    },
    Difference {
        places: FUSE,
        program: "guarantees",
        tests: &[
            "contracts::cases::an_open_of_a_fifo_waits_for_its_other_end",
            "contracts::three_a_dropped_open_leaves_nothing_open",
        ],
        at_times: false,
        why: "the server makes no FIFOs",
    },
    Difference {
        places: FUSE,
        program: "conformance",
        tests: &["closing::drop_waits_no_longer_than_close_wait", "paths::write_file"],
        at_times: false,
        why: "the server makes no FIFOs",
    },
    Difference {
        places: FUSE,
        program: "conformance",
        tests: &["paths::link_of_an_unnamed_file"],
        at_times: false,
        why: "the server makes no unnamed files",
    },
    Difference {
        places: &["9p"],
        program: "conformance",
        tests: &[
            "dont_cache::other_errors_are_not_refusals",
            "untorn::never_a_plain_write",
            "untorn::refused_before_submission",
        ],
        at_times: false,
        why: "the server opens no file again that has no name, not by /proc/self/fd",
    },
    Difference {
        places: &["9p"],
        program: "conformance",
        tests: &["closing::drop_waits_no_longer_than_close_wait", "paths::write_file"],
        at_times: false,
        why: "the server makes no FIFOs",
    },
    Difference {
        places: &["9p"],
        program: "conformance",
        tests: &["paths::link_of_an_unnamed_file"],
        at_times: false,
        why: "9p has no O_TMPFILE",
    },
    Difference {
        places: &["9p"],
        program: "conformance",
        tests: &["fixed::files"],
        at_times: false,
        why: "9p has no fallocate(2)",
    },
];

/// The directory in which the suites make their files, besides `TMPDIR`. A file system is mounted
/// over it for the suite alone.
const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
#[ignore = "takes long: make test-file-systems"]
fn each_passes_on_each_file_system() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root mounts file systems");
    }
    if let Some(why) = mounts::no_writable() {
        return println!("skipped: {why}");
    }
    let wanted = env::var("RINGWAY_SUITE").unwrap_or_default();
    let suites: Vec<&Suite> =
        SUITES.iter().filter(|suite| suite.program.contains(&wanted)).collect();
    assert!(!suites.is_empty(), "no suite is named {wanted}");
    for name in DIFFERENT.iter().flat_map(|entry| entry.places).chain(BY_THREADS) {
        assert!(mounts::position(name).is_some(), "no file system is named {name}");
    }
    let programs =
        env::var("RINGWAY_PROGRAMS").map_or_else(|_| build(&suites), |list| given(&list));
    let mut wrong = Vec::new();
    let mut count = 0;
    mounts::each_writable(skip, |name, dir| {
        if name == NOT_DIRECT {
            return println!("{name}: left out: it has no direct I/O");
        }
        fs::set_permissions(dir, Permissions::from_mode(0o1777)).unwrap();
        for suite in &suites {
            if suite.injects && BY_THREADS.contains(&name) {
                println!("{name}: {}: left out: faults reach no threads", suite.program);
                continue;
            }
            let began = Instant::now();
            let output = run(suite, &programs[suite.program], dir);
            count += 1;
            let found = differences(name, suite, &output);
            println!("{name}: {}: {} in {:.1?}", suite.program, summary(&output), began.elapsed());
            for skipped in skips(&String::from_utf8_lossy(&output.stdout)) {
                println!("skipped: {name}: {}: {skipped}", suite.program);
            }
            if !found.is_empty() {
                println!("{}", String::from_utf8_lossy(&output.stdout));
                println!("{}", String::from_utf8_lossy(&output.stderr));
            }
            wrong.extend(found);
        }
    });
    assert!(count > 0, "no suite ran");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The paths of programs by name, from `NAME=PATH` for each: those of a guest, which has no Cargo.
fn given(list: &str) -> BTreeMap<String, PathBuf> {
    let pairs = list.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, path)| (name.to_owned(), path.into())).collect()
}

/// Builds the programs of the suites, and returns their paths by name.
fn build(suites: &[&Suite]) -> BTreeMap<String, PathBuf> {
    let mut paths = BTreeMap::new();
    let mut packages: Vec<&str> = suites.iter().map(|suite| suite.package).collect();
    packages.dedup();
    for package in packages {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--no-run", "--message-format=json", "-p", package]);
        for suite in suites.iter().filter(|suite| suite.package == package) {
            cargo.args(["--test", suite.program]);
        }
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in str::from_utf8(&output.stdout).unwrap().lines() {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
            if message["target"]["kind"][0] == "test"
                && let (Some(name), Some(path)) =
                    (text(&message["target"]["name"]), text(&message["executable"]))
            {
                paths.insert(name, path.into());
            }
        }
    }
    paths
}

/// Runs a suite where `dir` is its scratch directory.
fn run(suite: &Suite, program: &Path, dir: &Path) -> Output {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // (Mounts of the new namespace are private, and end with it.)
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", "mount --bind \"$1\" \"$2\"; shift 2; exec \"$@\"", "sh"])
        .args([dir, Path::new(SCRATCH), program])
        .args(suite.arguments)
        .arg("--show-output")
        .current_dir(crates.join(suite.package))
        .env("TMPDIR", SCRATCH)
        .output()
        .unwrap()
}

/// The last line of a test program that ended, or how it ended.
fn summary(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    last.map_or_else(|| output.status.to_string(), str::to_owned)
}

/// What tests left out, as they said it: "test: why". Each once.
fn skips(output: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut test = "?";
    for line in output.lines() {
        let named = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        let ignored = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored"));
        if let Some(name) = named {
            test = name;
        } else if let Some(why) = line.strip_prefix("skipped: ") {
            found.insert(format!("{test}: {why}"));
        } else if let Some((name, why)) = ignored {
            found.insert(format!("{name}: ignored: {}", why.trim_start_matches(", ")));
        }
    }
    found
}

#[test]
fn skips_of_nested_programs_are_found() {
    let output = "\
running 3 tests
test a::b ... ok
test c ... ok
test d ... ignored, takes an hour
test e ... ignored

successes:

---- a::b stdout ----
skipped: no O_TMPFILE
skipped: no O_TMPFILE
note: skipped: not at the beginning

---- c stdout ----
skipped: kaio: io_setup: EAGAIN

successes:
    a::b
    c

test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s
";
    let found: Vec<String> = skips(output).into_iter().collect();
    let expected = [
        "a::b: no O_TMPFILE",
        "c: kaio: io_setup: EAGAIN",
        "d: ignored: takes an hour",
        "e: ignored: ",
    ];
    assert_eq!(found, expected);
}

/// What differs from the disk without being listed, and what is listed and does not differ.
fn differences(place: &str, suite: &Suite, output: &Output) -> Vec<String> {
    let failed = failed(output);
    let listed: Vec<_> = DIFFERENT
        .iter()
        .filter(|entry| entry.places.contains(&place) && entry.program == suite.program)
        .collect();
    let is_listed =
        |test: &&String| listed.iter().any(|entry| entry.tests.contains(&test.as_str()));
    let unlisted = failed
        .iter()
        .filter(|test| !is_listed(test))
        .map(|test| format!("{place}: {}: {test} failed", suite.program));
    let passed = passed(output);
    let always = listed.iter().filter(|entry| !entry.at_times);
    let stale = always.flat_map(|entry| {
        let tests = entry.tests.iter().filter(|test| passed.iter().any(|name| name == *test));
        tests.map(|test| format!("{place}: {}: {test} passes: {}", suite.program, entry.why))
    });
    unlisted.chain(stale).collect()
}

/// The names of the tests that passed.
fn passed(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix("... ok")?;
        Some(name.trim_end().to_owned())
    };
    text.lines().filter_map(line).collect()
}

/// The names of the tests that failed, or how the program ended without telling.
fn failed(output: &Output) -> Vec<String> {
    if output.status.success() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let list = text.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.is_empty() { vec![format!("the program: {}", output.status)] } else { names }
}

fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(env::var_os("CI").is_none(), "skipped with CI set: {why}");
}
