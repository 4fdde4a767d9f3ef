#!/usr/bin/env bash
# Expected: `abort` of an OpenDAL writer discards what it has written, and the object is as before.
#
# Found (opendal 0.59.5, services-fs): without atomic_write_dir `abort` fails with Unsupported, and
# the object has what was written until then instead of its content.
#
# Why: without the directory the object itself is opened and truncated by the first write. (Source:
# the crate opendal-service-fs 0.59.5.)
#
# Needs Rust. Building takes one to three minutes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir src objects
cat >Cargo.toml <<'CARGO'
[package]
name = "aborts"
version = "0.0.0"
edition = "2021"
[dependencies]
opendal = { version = "=0.59.5", default-features = false, features = ["services-fs"] }
tokio = { version = "1", features = ["fs", "macros", "rt"] }
[profile.dev]
debug = false
CARGO
cat >src/main.rs <<'WRITER'
use opendal::{Operator, Result, services::Fs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let root = std::env::args().nth(1).unwrap();
    let files = Operator::new(Fs::default().root(&root))?;

    files.write("object", "the content that was there").await?;
    let mut writer = files.writer("object").await?;
    writer.write("half").await?;
    writer.write("a new object").await?;
    let aborted = writer.abort().await.map_err(|error| error.kind());
    drop(writer);
    let left = String::from_utf8_lossy(&files.read("object").await?.to_vec()).into_owned();
    println!("  abort: {aborted:?}; the object is now: {left:?}");

    assert!(aborted.is_err() && left != "the content that was there");
    Ok(())
}
WRITER
CARGO_TARGET_DIR=target cargo build --quiet
echo "opendal 0.59.5, services-fs:"
if ! target/debug/aborts "$dir/objects" 2>panic; then
    cat panic >&2
    echo "not as found" >&2
    exit 1
fi
