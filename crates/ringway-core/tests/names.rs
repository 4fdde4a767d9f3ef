//! Two things never share a name: no two files of the core and the engine define a type, a trait
//! or a constant of the same name at their top level.
//!
//! Twins are no such pair: what one file defines twice under different conditions, and what a file
//! has in place of another one, on another system or without a feature. Its name says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that two files define, and why.
const ALLOWED: [(&str, &str); 2] = [
    ("File", "the engine's file is the core's with an engine"),
    ("OpenOptions", "those of the engine's file, and those of the core's operation"),
];

/// Whether a file stands in for another one.
fn is_twin(file: &Path) -> bool {
    let stem = file.file_stem().unwrap().to_str().unwrap();
    ["elsewhere", "linux", "pipe", "unix", "windows"].contains(&stem) || stem.starts_with("no_")
}

/// Every source file below a directory, without twins and files of tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| !is_twin(path) && !path.ends_with("faults.rs"))
        .filter(|path| !path.file_stem().unwrap().to_str().unwrap().ends_with("tests"))
        .collect()
}

/// What a line defines, if it is at the top level.
fn defined(line: &str) -> Option<&str> {
    const ITEMS: [&str; 7] = ["const", "static", "struct", "enum", "trait", "type", "union"];
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').peekable();
    while words.next_if(|word| ["", "pub", "crate", "super", "unsafe"].contains(word)).is_some() {}
    let is_item = line.starts_with(char::is_alphabetic) && ITEMS.contains(&words.next()?);
    words.next().filter(|name| is_item && !["fn", "_", ""].contains(name))
}

#[test]
fn no_two_files_define_one_name() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for file in ["ringway-core/src", "ringway/src"].map(|src| sources(&crates.join(src))).concat() {
        let text = fs::read_to_string(&file).unwrap();
        // (The tests of a file come last.)
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
        let code = code.split("\n#[cfg(all(test").next().unwrap();
        for name in code.lines().filter_map(defined) {
            names.entry(name.to_owned()).or_default().insert(file.clone());
        }
    }
    assert!(names.len() > 300, "only {} names were found: the search is wrong", names.len());
    names.retain(|_, files| files.len() > 1);
    for (name, reason) in ALLOWED {
        assert!(names.remove(name).is_some(), "{name} ({reason}) is defined once");
    }
    assert!(names.is_empty(), "names with two meanings: {names:#?}");
}

#[test]
fn definitions_are_found() {
    let found = |line| defined(line).unwrap_or("none");
    assert_eq!(found("pub(crate) struct A<T> {"), "A");
    assert_eq!(
        ["pub trait B: C {", "const D: u8 = 1;", "static G: u8 = 0;"].map(found),
        ["B", "D", "G"]
    );
    assert_eq!(
        ["unsafe impl X", "const fn e()", "    struct F;", "const _: () = ();"].map(found),
        ["none"; 4]
    );
}
