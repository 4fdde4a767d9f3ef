//! Checks that the matrix is complete: every public function that the sources declare is in a row
//! or in the list of exceptions here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Functions that do no I/O and lead to none except through a row, by type: data, and options of a
/// later call.
const NO_IO: &[(&str, &str)] = &[
    ("AtomicFile", "chunk dont_cache file position write_behind"),
    ("Batches", "mean"),
    ("Block", "compact retained slice"),
    ("Coalesce", "max_amplification max_gap max_read never"),
    ("DirBuilder", "engine mode new recursive"),
    ("DirEntry", "file_name ino path"),
    ("Engine", "backend builder explain readable reap stats"),
    (
        "EngineBuilder",
        "backend close_wait entries faults fixed_buffers in_flight in_flight_pipes \
         io_wq_workers pool_bytes reaping shards sqpoll strict sync_threads threads \
         try_cached",
    ),
    (
        "File",
        "alignment caching engine is_direct max_buf_size options read_ranges_stream reader \
         set_max_buf_size with_dont_cache writer",
    ),
    ("FileTimes", "new set_accessed set_modified"),
    ("Latency", "count max mean quantile"),
    ("LogWriter", "file max_group"),
    (
        "OpenOptions",
        "append create create_new custom_flags direct dont_cache engine in_dir mode new nofollow \
         read resolve truncate write",
    ),
    ("RangeStream", "coalesce depth max_bytes"),
    ("Reader", "chunk dont_cache file position range read_ahead seek_to"),
    ("Writer", "abandon at chunk dont_cache file position write_behind written"),
];

#[test]
fn every_public_function_is_in_a_row() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let exported = exported(&src);
    let mut declared = BTreeSet::new();
    declarations(&src, &exported, &mut declared);
    assert!(declared.len() > 100, "only {} functions were found", declared.len());
    let rows: BTreeSet<String> =
        crate::all().map(|row| row.name.split(',').next().unwrap_or_default().to_owned()).collect();
    // A function of `fs` is the method of `Fs` on the global engine.
    let of_global = |name: &str| {
        name.strip_prefix("Fs::").is_some_and(|name| rows.contains(&format!("fs::{name}")))
    };
    let no_io: BTreeSet<String> = NO_IO
        .iter()
        .flat_map(|(of, names)| names.split(' ').map(move |name| format!("{of}::{name}")))
        .collect();
    let known = |name: &String| rows.contains(name) || no_io.contains(name) || of_global(name);
    let missing: Vec<_> = declared.iter().filter(|name| !known(name)).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let removed: Vec<_> = rows.union(&no_io).filter(|name| !declared.contains(*name)).collect();
    assert!(removed.is_empty(), "no longer public: {removed:?}");
}

/// The names that `pub use` exports.
fn exported(src: &Path) -> BTreeSet<String> {
    let text = [src.join("lib.rs"), src.join("fs.rs")]
        .map(|path| fs::read_to_string(path).unwrap())
        .concat();
    let uses =
        text.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    let words =
        uses.flat_map(|list| list.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    words.map(str::to_owned).collect()
}

/// The functions and methods in a source directory that a program can name, as `Type::method` and
/// `fs::function`.
fn declarations(dir: &Path, exported: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declarations(&path, exported, found);
            continue;
        }
        let mut of = None;
        for line in fs::read_to_string(&path).unwrap().lines() {
            if line.starts_with("impl") {
                of = type_of(line);
            } else if line.starts_with('}') {
                of = None;
            }
            let Some(function) = function_of(line) else { continue };
            let owner = of.as_deref().unwrap_or("fs");
            let is_public = exported.contains(of.as_deref().unwrap_or(function));
            if is_public {
                found.insert(format!("{owner}::{function}"));
            }
        }
    }
}

/// The type of an inherent `impl`.
fn type_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?.trim_end_matches(" {");
    let rest = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest };
    (!rest.contains(" for ")).then(|| rest.trim().split('<').next().unwrap_or_default().to_owned())
}

/// The name of the public function that a line declares.
fn function_of(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}
