#!/usr/bin/env bash
# Expected: with OpenDAL's option if_not_exists, which the file-system service says it supports, of
# two writers of one path at most one succeeds. The service's atomic_write_dir, which makes writes
# appear as a whole by a rename, can only make this stronger.
#
# Found (opendal 0.59.5, services-fs): without atomic_write_dir the second writer gets
# ConditionNotMatch. With it both writers write and close without an error, and the file has what
# was closed last: the first writer's content is lost after its close has succeeded.
#
# Why: without the directory the file is opened with O_EXCL. With it the target is looked for once,
# when the writer is made; the rename at the end replaces whatever is there by then. (Source: the
# crate opendal-service-fs 0.59.5.)
#
# Needs Rust. Building takes one to three minutes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir src
cat >Cargo.toml <<'CARGO'
[package]
name = "writers"
version = "0.0.0"
edition = "2021"
[dependencies]
opendal = { version = "=0.59.5", default-features = false, features = ["services-fs"] }
tokio = { version = "1", features = ["fs", "macros", "rt"] }
[profile.dev]
debug = false
CARGO
cat >src/main.rs <<'WRITERS'
use opendal::{ErrorKind, Operator, Result, services::Fs};

/// Whether each of two writers succeeds, and what the file has afterwards.
async fn race(files: &Operator) -> Result<([Option<ErrorKind>; 2], Vec<u8>)> {
    let mut first = files.writer_with("lock").if_not_exists(true).await?;
    let mut second = files.writer_with("lock").if_not_exists(true).await?;
    let mut errors = [None, None];
    for (at, writer) in [&mut first, &mut second].into_iter().enumerate() {
        let content = ["first", "second"][at];
        errors[at] = writer.write(content).await.err().map(|error| error.kind());
    }
    for (at, writer) in [&mut first, &mut second].into_iter().enumerate() {
        if errors[at].is_none() {
            errors[at] = writer.close().await.err().map(|error| error.kind());
        }
    }
    Ok((errors, files.read("lock").await?.to_vec()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let here = std::env::current_dir().unwrap().display().to_string();
    let plain = Operator::new(Fs::default().root(&format!("{here}/plain")))?;
    let atomic = Fs::default().root(&format!("{here}/atomic"));
    let atomic = Operator::new(atomic.atomic_write_dir(&format!("{here}/temporary")))?;
    let (plain, atomic) = (race(&plain).await?, race(&atomic).await?);
    for (name, found) in [("plain", &plain), ("atomic_write_dir", &atomic)] {
        let content = String::from_utf8_lossy(&found.1);
        println!("  {name}: errors of the two: {:?}; content: {content}", found.0);
    }
    let refused = [None, Some(ErrorKind::ConditionNotMatch)];
    assert!(plain == (refused, b"first".to_vec()), "plain");
    assert!(atomic == ([None, None], b"second".to_vec()), "atomic");
    Ok(())
}
WRITERS
CARGO_TARGET_DIR=target cargo build --quiet
echo "opendal 0.59.5, two writers with if_not_exists:"
target/debug/writers || { echo "not as found" >&2; exit 1; }
