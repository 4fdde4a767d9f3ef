//! Operators for the tests.

use opendal_core::{Error, ErrorKind, Operator};
use ringway::{BackendKind, Engine};
use ringway_opendal::{Durability, RingwayFs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// An operator, and the directory that is its root.
pub struct Files {
    pub op: Operator,
    root: TempDir,
}

impl Files {
    pub fn with(build: impl FnOnce(RingwayFs) -> RingwayFs) -> Self {
        let root = tempfile::tempdir().unwrap();
        let builder = RingwayFs::default().root(root.path().to_str().unwrap());
        Self { op: Operator::new(build(builder)).unwrap(), root }
    }

    pub fn path(&self, key: &str) -> PathBuf {
        self.root.path().join(key)
    }

    /// Everything that is in the root, sorted, hidden names too.
    pub fn on_disk(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.root.path(), "", &mut found);
        found.sort();
        found
    }

    /// Waits until what is in the root is this: what a dropped future held is removed by another
    /// thread.
    pub async fn settles_to(&self, expected: &[&str]) {
        self.settles_to_either(expected, expected).await;
    }

    pub async fn settles_to_either(&self, one: &[&str], other: &[&str]) {
        let mut found = self.on_disk();
        for _ in 0..1000 {
            if found == one || found == other {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            found = self.on_disk();
        }
        panic!("{found:?} is neither {one:?} nor {other:?}");
    }
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{name}/"), found);
            found.push(name + "/");
        } else {
            found.push(name);
        }
    }
}

/// The services that each case runs on: each engine, and each durability.
pub fn each() -> Vec<Files> {
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    vec![
        Files::with(|builder| builder),
        Files::with(|builder| builder.engine(&threads)),
        Files::with(|builder| builder.durability(Durability::None)),
        Files::with(|builder| builder.durability(Durability::Full)),
    ]
}

/// The kind of an error.
pub fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Bytes that differ from each other.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}
