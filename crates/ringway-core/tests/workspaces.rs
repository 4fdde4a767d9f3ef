//! The workspace's manifest excludes the workspaces below it. Otherwise cargo takes one of their
//! crates for a member of this one, if a program names it and a crate of this one by their paths.

use std::fs;
use std::path::Path;

#[test]
fn workspaces_below_this_one_are_excluded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let excluded = manifest.lines().find(|line| line.starts_with("exclude")).unwrap();
    let mut found = 0;
    for entry in fs::read_dir(&root).unwrap() {
        let entry = entry.unwrap();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        if manifest.lines().any(|line| line == "[workspace]") {
            let name = format!("{:?}", entry.file_name());
            assert!(excluded.contains(&name), "{name} is missing in {excluded}");
            found += 1;
        }
    }
    assert!(found >= 5, "{found} workspaces");
}
