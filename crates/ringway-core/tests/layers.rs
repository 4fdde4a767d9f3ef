//! The modules of the core and of the engine have one order: none uses one of a higher layer.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules that have an order: those directly below one module.
struct Room {
    /// The crate's directory beside this one.
    krate: &'static str,
    /// The module that holds them; the root of the crate if empty.
    parent: &'static [&'static str],
    /// From the bottom up. Modules on one line do not use each other. `self` is what the parent
    /// defines itself.
    layers: &'static [&'static [&'static str]],
    /// Pairs that use each other.
    pairs: &'static [[&'static str; 2]],
}

const ROOMS: [Room; 4] = [
    Room {
        krate: "ringway-core",
        parent: &[],
        layers: &[
            &["sys", "thread", "slots", "fork", "lookup", "cache_hint", "page_scan"],
            &["extents", "rw_flags"],
            &["refusal", "errno", "wait", "split", "background", "submit_waits"],
            &["device"],
            &["buffer", "memory_cgroup", "resident_pages"],
            &["file"],
            &["op"],
            &["error", "backend"],
            &["probe"],
            &["queue"],
        ],
        pairs: &[],
    },
    Room {
        krate: "ringway-core",
        parent: &["queue"],
        layers: &[
            &["id", "stats", "fixed", "options"],
            &["completion", "passthrough", "trait_lookup"],
            &["in_flight", "backends"],
            &["table"],
            &["check", "close", "events", "ordering", "submit"],
            &["self"],
            &["build", "register"],
        ],
        pairs: &[],
    },
    Room {
        krate: "ringway",
        parent: &[],
        layers: &[
            &["thread", "align", "buffer"],
            &["pool", "block"],
            &["engine"],
            &["ranges"],
            &["fs", "stream"],
            &["log"],
        ],
        // Blocks return to the pool. A file has streams, and a stream is on a file.
        pairs: &[["pool", "block"], ["fs", "stream"]],
    },
    Room {
        krate: "ringway",
        parent: &["engine"],
        layers: &[
            &[
                "sync",
                "timer",
                "no_timer",
                "trace",
                "wake",
                "coop",
                "executor",
                "limiter",
                "stats",
                "torn_write",
            ],
            &["background", "combiner", "notifier", "registry", "pacing", "sync_ledger"],
            &["submission"],
            &["devices"],
            &["shard"],
            &["rounds", "reactor"],
            &["op_result"],
            &["self", "op_future"],
            &["builder", "call"],
        ],
        // The engine makes the futures, which keep it.
        pairs: &[["self", "op_future"]],
    },
];

/// Modules of tests.
const TEST_MODULES: [&str; 1] = ["faults"];

/// What the tests of a file begin with.
const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test"];

/// A file without comments and tests. (The tests of a file come last, and may use anything.)
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let starts_tests = |at: &usize| {
        TESTS.iter().any(|tests| lines[*at].starts_with(tests))
            && lines.get(at + 1).is_some_and(|next| next.ends_with('{'))
    };
    let end = (0..lines.len()).find(starts_tests).unwrap_or(lines.len());
    let code = lines[..end].iter().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Every source file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths in `a::{b, c::d}`, from the start of `text` on: `a::b` and `a::c::d`.
fn expand(text: &str) -> Vec<Vec<String>> {
    fn tree(text: &mut &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
        let mut path = prefix.to_vec();
        loop {
            *text = text.trim_start();
            if let Some(rest) = text.strip_prefix('{') {
                *text = rest;
                loop {
                    tree(text, &path, found);
                    *text = text.trim_start();
                    match text.strip_prefix(',') {
                        Some(rest) => *text = rest,
                        None => break,
                    }
                }
                *text = text.strip_prefix('}').unwrap_or(text);
                return;
            }
            let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
            if end > 0 {
                path.push(text[..end].to_owned());
            }
            *text = &text[end..];
            match text.strip_prefix("::") {
                Some(rest) => *text = rest,
                None => break,
            }
        }
        if path.len() > prefix.len() {
            found.push(path);
        }
    }
    let mut found = Vec::new();
    tree(&mut { text }, &[], &mut found);
    found
}

/// The paths of `code` that begin with `crate` or `super`, from the root of the crate.
/// `module` is where the code is.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let starts = ["crate::", "super::"]
        .into_iter()
        .flat_map(|word| code.match_indices(word).map(|(at, _)| at))
        // Not the second one of `super::super::`.
        .filter(|at| !code[..*at].ends_with(|c| is_word(c) || c == ':' || c == '$'));
    // Within a module of the same file, `super` is that file.
    let has_inline = code.lines().any(|line| line.starts_with("mod ") && line.ends_with('{'));
    let mut found = Vec::new();
    for at in starts {
        let line = &code[code[..at].rfind('\n').map_or(0, |end| end + 1)..];
        let depth = usize::from(has_inline && line.starts_with(' '));
        for path in expand(&code[at..]) {
            let supers = path.iter().take_while(|part| *part == "super").count();
            let rest = path[supers.max(1)..].iter().cloned();
            let above = match supers {
                0 => &[],
                _ => &module[..module.len().saturating_sub(supers - depth.min(supers))],
            };
            found.push(above.iter().cloned().chain(rest).collect());
        }
    }
    found
}

/// The names that a module exports from its submodules, with these: `pub use file::{File, Weak}`.
fn exports(code: &str) -> HashMap<String, String> {
    let mut exports = HashMap::new();
    for text in code.split("use ").skip(1) {
        for path in expand(text) {
            if let [module, .., name] = &path[..] {
                exports.insert(name.clone(), module.clone());
            }
        }
    }
    exports
}

/// The path of the module in a file below `src`.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The uses of a higher layer, and the number of uses that were found.
fn check(room: &Room) -> (Vec<String>, usize) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(room.krate).join("src");
    let root = match room.parent {
        [] => src.join("lib.rs"),
        [name] => src.join(name).with_extension("rs"),
        _ => panic!("a room is at most one level deep"),
    };
    let parent: Vec<String> = room.parent.iter().map(|name| (*name).to_owned()).collect();
    let exported = exports(&code(&root));
    let layer = |module: &str| room.layers.iter().position(|layer| layer.contains(&module));
    let (mut wrong, mut found) = (Vec::new(), 0);
    let mut seen = HashSet::new();
    for file in sources(&src.join(room.parent.join("/"))) {
        let place = file.strip_prefix(&src).unwrap();
        let module = module_of(place);
        let Some(own) = module.get(room.parent.len()) else { continue };
        let is_test = place.file_stem().unwrap().to_str().unwrap().ends_with("tests");
        if is_test || TEST_MODULES.contains(&own.as_str()) {
            continue;
        }
        let own_layer = layer(own).unwrap_or_else(|| panic!("{own} is in no layer"));
        seen.insert(own.clone());
        for path in paths(&code(&file), &module) {
            let Some(name) = path.strip_prefix(&parent[..]).and_then(|path| path.first()) else {
                continue;
            };
            if TEST_MODULES.contains(&name.as_str()) {
                continue;
            }
            let used = match exported.get(name) {
                Some(module) if layer(module).is_some() => module,
                // Of another crate.
                Some(_) if room.parent.is_empty() => continue,
                _ if layer(name).is_some() => name,
                _ if room.parent.is_empty() => {
                    panic!("{}: crate::{name} is unknown", place.display())
                }
                _ => "self",
            };
            found += 1;
            let used_layer = layer(used).unwrap_or_else(|| panic!("{used} is in no layer"));
            let is_pair =
                room.pairs.iter().any(|pair| pair.contains(&used) && pair.contains(&own.as_str()));
            if used != own && !is_pair && used_layer >= own_layer {
                wrong.push(format!("{} uses {used}", place.display()));
            }
        }
    }
    for module in room.layers.iter().copied().flatten() {
        assert!(*module == "self" || seen.contains(*module), "there is no module {module}");
    }
    (wrong, found)
}

#[test]
fn no_module_uses_a_higher_layer() {
    for room in ROOMS {
        let (wrong, found) = check(&room);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", room.krate);
        let place = (room.krate, room.parent);
        assert!(found > 20, "{place:?}: only {found} uses were found: the search is wrong");
    }
}

#[test]
fn paths_are_found() {
    let module = ["queue", "submit"].map(str::to_owned);
    let found = |code: &str| {
        let all: Vec<_> = paths(code, &module).iter().map(|path| path.join("::")).collect();
        all.join(" ")
    };
    assert_eq!(
        found("use crate::{op::{self, Raw}, File, slots::Key}; more, words"),
        "op::self op::Raw File slots::Key"
    );
    assert_eq!(
        found("use super::in_flight::{InFlight, Orphan};"),
        "queue::in_flight::InFlight queue::in_flight::Orphan"
    );
    assert_eq!(found("super::super::op::Raw"), "op::Raw");
    assert_eq!(found("supersuper::x, $crate::y"), "");
    assert_eq!(exports("pub use file::{File, Weak};")["Weak"], "file");
}
