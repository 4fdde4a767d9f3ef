#!/usr/bin/env bash
# Expected: Vortex's file system for local files, StdFileSystem, lists a symbolic link to a file so
# that the file can be opened, and a source of many files takes the paths that a program would pass
# to `open`.
#
# Found (vortex 0.90.0):
# - A listing gives a symbolic link the size of the link itself, the length of the path in it, and
#   `head` that of the file. A source of many files believes the listing, looks for the end of the
#   file there, and fails with "Malformed file", though the file opens by its path.
# - `with_glob` takes the slash away from an absolute path when a file system is passed: it looks
#   below the working directory, and finds nothing or fails with ENOENT.
# - `*.vortex`, relative to the working directory, fails with ENOENT: the directory that is listed
#   has no name.
#
# Why: `walk` in vortex-io's src/std_file/filesystem.rs takes the metadata of the directory's entry,
# which follows no link; `with_glob` in vortex-file's src/multi/mod.rs trims slashes since the paths
# of an object store have none in front; StdFileSystem opens the prefix of a listing as it is, and
# that of `*.vortex` is empty.
#
# Needs Rust 1.95, a C++ compiler and libclang. Building takes ten minutes or more.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir src
cat >Cargo.toml <<'CARGO'
[package]
name = "sources"
version = "0.0.0"
edition = "2024"
[dependencies]
futures = "0.3"
tokio = { version = "1", features = ["fs", "io-util", "macros", "rt-multi-thread"] }
[dependencies.vortex]
version = "=0.90.0"
default-features = false
features = ["files", "tokio"]
[profile.dev]
debug = false
CARGO
cat >src/main.rs <<'SOURCES'
use futures::TryStreamExt;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use vortex::VortexSessionDefault;
use vortex::array::IntoArray;
use vortex::array::arrays::PrimitiveArray;
use vortex::error::VortexResult;
use vortex::file::multi::MultiFileDataSource;
use vortex::file::{OpenOptionsSessionExt, WriteOptionsSessionExt};
use vortex::io::filesystem::{FileListing, FileSystemRef};
use vortex::io::runtime::tokio::TokioRuntime;
use vortex::io::std_file::StdFileSystem;
use vortex::session::VortexSession;

/// The first line of the error of a source of the files that the glob finds; empty without one.
async fn error(fs: &FileSystemRef, glob: String) -> String {
    let source = MultiFileDataSource::new(VortexSession::default());
    let built = source.with_glob(&glob, Some(fs.clone())).build().await;
    let error = built.err().map_or_else(String::new, |error| error.to_string());
    let line = error.lines().next().unwrap_or_default().to_owned();
    println!("  {glob}: {}", if line.is_empty() { "found" } else { &line });
    line
}

#[tokio::main]
async fn main() -> VortexResult<()> {
    let dir = std::env::current_dir()?;
    let session = VortexSession::default();
    std::fs::create_dir_all("files")?;
    std::fs::create_dir_all("links")?;
    let mut file = tokio::fs::File::create("files/a.vortex").await?;
    let numbers = PrimitiveArray::from_iter(0..1000u64).into_array();
    session.write_options().write(&mut file, numbers.to_array_stream()).await?;
    file.shutdown().await?;
    symlink("../files/a.vortex", "links/a.vortex")?;
    let size = std::fs::metadata("files/a.vortex")?.len();

    let fs: FileSystemRef = Arc::new(StdFileSystem::new(TokioRuntime::current()));
    let listed: Vec<FileListing> = fs.list("links").try_collect().await?;
    let head = fs.head("links/a.vortex").await?.and_then(|found| found.size);
    println!("  a link to {size} bytes: listed with {:?}, head {head:?}", listed[0].size);
    let rows = session.open_options().open_path("links/a.vortex").await?.row_count();
    let file = error(&fs, "files/*.vortex".into()).await;
    let link = error(&fs, "links/*.vortex".into()).await;
    let absolute = error(&fs, format!("{}/files/a.vortex", dir.display())).await;
    let here = error(&fs, "*.vortex".into()).await;

    assert_eq!((head, rows, file.as_str()), (Some(size), 1000, ""));
    assert_eq!(listed[0].size, Some("../files/a.vortex".len() as u64));
    assert!(link.contains("Malformed file"));
    assert!(absolute.contains("No files matched"));
    assert!(here.contains("No such file"));
    Ok(())
}
SOURCES
CARGO_TARGET_DIR=target cargo build --quiet
mkdir work
cd work
echo "vortex 0.90.0, StdFileSystem:"
if ! ../target/debug/sources 2>panic; then
    cat panic >&2
    echo "not as found" >&2
    exit 1
fi
