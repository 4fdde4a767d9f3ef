//! Vortex's file system over a directory.

use crate::support::{bytes, engines, host, io_error};
use futures::TryStreamExt;
use ringway_vortex::{RingwayFileSystem, RingwayReadAt};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use vortex::buffer::Alignment;
use vortex::io::VortexReadAt;
use vortex::io::filesystem::{FileListing, FileSystem, FileSystemRef};

/// A directory with files and with what is none.
fn tree(root: &Path) {
    std::fs::create_dir_all(root.join("2026/11/empty")).unwrap();
    for (path, len) in [("a.vortex", 1), ("2026/b.vortex", 20), ("2026/11/c ~%20#.vortex", 300)] {
        std::fs::write(root.join(path), bytes(len)).unwrap();
    }
    symlink(root.join("2026/b.vortex"), root.join("link.vortex")).unwrap();
    symlink(root, root.join("2026/circle")).unwrap();
    symlink("nothing", root.join("2026/dangling.vortex")).unwrap();
    symlink("loop.vortex", root.join("loop.vortex")).unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"\xff.vortex")), "").unwrap();
    let pipe = root.join("pipe.vortex");
    rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
}

fn systems(root: &Path) -> impl Iterator<Item = RingwayFileSystem> {
    engines().into_iter().map(move |engine| RingwayFileSystem::new(root, &engine))
}

async fn list(fs: &RingwayFileSystem, prefix: &str) -> Vec<(String, u64)> {
    let mut all: Vec<FileListing> = fs.list(prefix).try_collect().await.unwrap();
    all.sort();
    all.into_iter().map(|found| (found.path, found.size.unwrap())).collect()
}

fn sizes(start: &str, expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(path, size)| (format!("{start}{path}"), *size)).collect()
}

#[tokio::test]
async fn a_listing_has_the_files_below_the_prefix() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let below = [("2026/11/c ~%20#.vortex", 300), ("2026/b.vortex", 20)];
    let all = [&below[..], &[("a.vortex", 1), ("link.vortex", 20)]].concat();
    for fs in systems(dir.path()) {
        for (prefix, start) in [("", ""), ("/", "/"), ("//", "//")] {
            assert_eq!(list(&fs, prefix).await, sizes(start, &all));
        }
        let prefixes = [("2026", ""), ("/2026", "/"), ("2026/", ""), ("//2026/", "//")];
        for (prefix, start) in prefixes {
            assert_eq!(list(&fs, prefix).await, sizes(start, &below));
        }
        for prefix in ["2026/11/empty", "202", "missing", "a.vortex"] {
            assert_eq!(list(&fs, prefix).await, []);
        }
    }
}

/// A file whose path is longer than system calls take: its directory can be listed, but it cannot
/// be looked up.
fn too_long(root: &Path) {
    let mut dir = root.to_owned();
    while dir.as_os_str().len() < 3900 {
        dir.push("d".repeat(50));
    }
    std::fs::create_dir_all(&dir).unwrap();
    let dir = std::fs::File::open(dir).unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(dir, "f".repeat(255), flags, Mode::RUSR).unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_looked_up_fails_the_listing() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    too_long(&dir.path().join("2026"));
    for fs in systems(dir.path()) {
        let error = fs.list("").try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(io_error(&error).raw_os_error(), Some(36), "{error}");
        let text = error.to_string();
        assert!(text.contains("ringway: stat /") && text.contains("fff"), "{text}");
    }
}

#[tokio::test]
async fn a_path_of_a_listing_can_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for fs in systems(dir.path()) {
        for (path, size) in [list(&fs, "").await, list(&fs, "/2026").await].concat() {
            let listing = FileListing { path: path.clone(), size: Some(size) };
            assert_eq!(fs.head(&path).await.unwrap(), Some(listing));
            let reader = fs.open_read(&path).await.unwrap();
            let full = dir.path().join(path.trim_start_matches('/'));
            assert_eq!(reader.uri().unwrap().as_ref(), full.to_str().unwrap());
            assert_eq!(reader.size().await.unwrap(), size);
            let found = reader.read_at(0, size as usize, Alignment::none()).await.unwrap();
            assert_eq!(&host(found).await[..], bytes(size as usize));
        }
    }
}

/// Vortex keeps footers by these names.
#[tokio::test]
async fn files_have_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let roots: [&[u8]; 5] = [b"a", b"\xfe", b"\xff", b"\\xff", "\u{fffd}".as_bytes()];
    let mut names = HashSet::new();
    for root in roots.map(|root| dir.path().join(OsStr::from_bytes(root))) {
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.vortex"), b"content").unwrap();
        let reader = RingwayReadAt::open(root.join("a.vortex")).await.unwrap();
        for fs in systems(&root) {
            let found = fs.open_read("a.vortex").await.unwrap();
            assert_eq!(found.uri(), reader.uri());
        }
        assert!(names.insert(reader.uri().unwrap().to_string()), "{reader:?}");
    }
}

#[tokio::test]
async fn what_is_no_file_has_no_head() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for fs in systems(dir.path()) {
        for path in ["", "2026", "missing", "a.vortex/b", "2026/dangling.vortex", "pipe.vortex"] {
            assert_eq!(fs.head(path).await.unwrap(), None, "{path}");
        }
        let error = fs.open_read("missing").await.err().unwrap();
        assert_eq!(io_error(&error).raw_os_error(), Some(2));
        let error = fs.delete("2026").await.unwrap_err();
        assert_eq!(io_error(&error).raw_os_error(), Some(21), "{error}");
        assert!(error.to_string().contains("ringway: remove /"), "{error}");
    }
}

#[tokio::test]
async fn files_are_deleted() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let fs = RingwayFileSystem::new(dir.path(), &engine);
        fs.delete("link.vortex").await.unwrap();
        fs.delete("2026/11/c ~%20#.vortex").await.unwrap();
        assert_eq!(list(&fs, "").await, sizes("", &[("2026/b.vortex", 20), ("a.vortex", 1)]));
    }
}

#[tokio::test]
async fn globs_find_files() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for fs in systems(dir.path()) {
        let fs: FileSystemRef = std::sync::Arc::new(fs);
        let below = [("2026/*", 2), ("/2026/*", 2), ("/2026/b.vor*", 1), ("/2026/b.vortex", 1)];
        let all = [("a.vortex", 1), ("*.vortex", 4), ("202?/*", 2), ("no/*", 0)];
        for (glob, expected) in [below, all].concat() {
            let found: Vec<FileListing> = fs.glob(glob).unwrap().try_collect().await.unwrap();
            assert_eq!(found.len(), expected, "{glob}: {found:?}");
        }
    }
}
