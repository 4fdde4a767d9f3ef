//! The modules of the crate have one order: no module uses one of a higher layer.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up. Modules on one line do not use each other.
const LAYERS: &[&[&str]] = &[
    &["sys", "thread", "slots", "fork", "lookup", "cache_hint"],
    &["extents"],
    &["refusal", "errno", "wait", "split", "background", "submit_waits"],
    &["device"],
    &["buffer", "file"],
    &["op"],
    &["error", "backend"],
    &["probe"],
    &["queue"],
];

/// What the tests of a file begin with.
const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test"];

/// The lines of a file without comments and tests. (The tests of a file come last, and may use
/// anything.)
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().take_while(|line| !TESTS.iter().any(|tests| line.starts_with(tests)));
    lines.map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect()
}

/// Every source file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The first names of the paths in `{one::Two, three}` or `one::Two`, which follow `crate::`.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| {
        path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 1;
    let inside = list.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    });
    let list = &list[..inside.map_or(list.len(), |(end, _)| end)];
    let members = list.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    members.map(name).filter(|name| !name.is_empty()).collect()
}

/// The names that the root of the crate exports, with their module: `pub use file::{File,
/// WeakFile}`.
fn exports(root: &str) -> HashMap<String, String> {
    let uses = root.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    uses.flat_map(|path| {
        let (module, names) = path.split_once("::").unwrap();
        let last = names.rsplit("::").next().unwrap();
        let names = if names.contains('{') { names.split('{').nth(1).unwrap() } else { last };
        names
            .trim_end_matches('}')
            .split(',')
            .map(|name| (name.trim().to_owned(), module.to_owned()))
            .filter(|(name, _)| !name.is_empty())
            .collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn no_module_uses_a_higher_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let exported = exports(&code(&src.join("lib.rs")).join(" "));
    assert_eq!(exported.get("File").map(String::as_str), Some("file"));
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut found = 0;
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let place = path.strip_prefix(&src).unwrap();
        let module = place
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs");
        if module == "lib" || path.file_name().unwrap() == "tests.rs" {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("{module} is in no layer"));
        let code = code(&path).join(" ");
        for used in code.split("crate::").skip(1).flat_map(first_names) {
            let used = exported.get(&used).unwrap_or(&used);
            let below = layer(used)
                .unwrap_or_else(|| panic!("{}: crate::{used} is unknown", place.display()));
            found += 1;
            if used != module && below >= own {
                wrong.push(format!("{} uses {used}", place.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found > 100, "only {found} uses were found: the search is wrong");
}

#[test]
fn names_are_found_in_lists() {
    assert_eq!(
        first_names("{op::{self, Raw}, File, slots::Key}; more, words"),
        ["op", "File", "slots"]
    );
    assert_eq!(first_names("op::Raw;"), ["op"]);
}
