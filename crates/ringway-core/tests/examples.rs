//! The examples work for empty files, files shorter than a block, whole blocks, and many blocks.

use ringway_core::OpenOptions;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SIZES: [usize; 5] = [0, 1, 4095, 4096, (10 << 20) + 1];

const BACKENDS: &[&str] =
    if cfg!(ringway_linux) { &["uring", "kaio", "threads"] } else { &["threads"] };

/// The path of an example: Cargo builds examples with the tests, next to them.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap();
    let path = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is missing: run all of `cargo test`, or `cargo build --examples`",
        path.display()
    );
    path
}

/// A directory on a real file system with a file of `size` bytes, in which all blocks differ.
fn file(size: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("from");
    let content: Vec<u8> = (0..size).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    fs::write(&path, &content).unwrap();
    (directory, path, content)
}

fn run(name: &str, backend: &str, paths: &[&Path]) -> Output {
    Command::new(example(name)).env("RINGWAY_BACKEND", backend).args(paths).output().unwrap()
}

/// Runs `check` on each available backend, of which there is at least one.
fn on_each_backend(name: &str, path: &Path, check: impl Fn(&str, &Output)) {
    let mut available = 0;
    for backend in BACKENDS {
        let to = path.with_file_name(backend);
        let paths = if name == "cp" { vec![path, to.as_path()] } else { vec![path] };
        let output = run(name, backend, &paths);
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("refused") {
            println!("skipped: {backend} is refused here: {errors}");
            continue;
        }
        assert!(output.status.success(), "{name} on {backend}: {errors}");
        assert_eq!(errors, "", "{name} on {backend}");
        check(backend, &output);
        available += 1;
    }
    assert!(available > 0, "threads are available on every system");
}

#[test]
fn cp_copies_every_byte() {
    for size in SIZES {
        let (_directory, from, content) = file(size);
        on_each_backend("cp", &from, |backend, output| {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "");
            assert!(
                fs::read(from.with_file_name(backend)).unwrap() == content,
                "{size} bytes on {backend}"
            );
        });
    }
}

#[test]
fn cp_does_not_overwrite() {
    let (_directory, from, content) = file(4096);
    let output = run("cp", "threads", &[&from, &from]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("AlreadyExists"), "{output:?}");
    assert_eq!(fs::read(&from).unwrap(), content);
}

#[test]
fn read_file_counts_every_byte() {
    for size in SIZES {
        let (_directory, path, _) = file(size);
        if let Err(error) = OpenOptions::new().read(true).direct(true).open(&path) {
            println!("skipped: {} has no direct I/O: {error}", path.display());
            continue;
        }
        let blocks = size.div_ceil(4096);
        on_each_backend("read_file", &path, |backend, output| {
            let expected = format!("submitted={blocks}, completed={blocks}, bytes={size}\n");
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{backend}");
        });
    }
}
