//! The table of docs/engine.md says after which times operations are hung: those of the code.

use std::fs;
use std::path::{Path, PathBuf};

/// All source files below a directory, one after the other.
fn text_of(directory: &Path) -> String {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| {
        if path.is_dir() { text_of(&path) } else { fs::read_to_string(&path).unwrap() }
    };
    paths.map(text).collect()
}

/// The times in the definition of a constant, as the table writes them.
fn times(code: &str, constant: &str) -> String {
    let start = code.find(&format!("const {constant}: ")).expect(constant);
    let definition = &code[start..start + code[start..].find(";\n").unwrap()];
    let times = definition.split("Duration::from_").skip(1).map(|call| {
        let (unit, rest) = call.split_once('(').unwrap();
        let number = rest.split(')').next().unwrap();
        format!("{number} {}", if unit == "secs" { "s" } else { "ms" })
    });
    times.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_documented_thresholds_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let code =
        ["crates/ringway-core/src", "crates/ringway/src"].map(|src| text_of(&root.join(src)));
    let page = fs::read_to_string(root.join("docs/engine.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (rest, constant) = line.strip_suffix("` |")?.rsplit_once(" | `")?;
        (constant.ends_with("_AFTER") || constant.ends_with("_INTERVAL"))
            .then(|| (rest.rsplit_once(" | ").unwrap().1, constant))
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 11);
    for (documented, constant) in rows {
        assert_eq!(documented, times(&code.concat(), constant), "{constant}");
    }
}
