//! Functions on paths return what those of `std::fs` return: both run with paths of every shape on
//! equal directory trees, and the results, the errors and the trees afterwards are compared.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod comparison;
mod files;
mod hostile;
mod names;
mod trees;
mod working_dir;

use crate::common::watchdog::Watchdog;
use crate::common::{available, places, skip};
use comparison::{Comparison, Outcome, compared_metadata, shapes};
use ringway::{Engine, fs};
use ringway_torture::is_long;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Calls ringway's function and std's with each shape.
macro_rules! compare {
    ($comparison:expr, $name:literal, $ours:expr, $std:expr) => {
        for shape in shapes() {
            $comparison.compare(
                $name,
                &shape,
                |path| Outcome::from(wait($ours(path))),
                |path| Outcome::from($std(path)),
            );
        }
    };
}

/// Runs a future to its end. The watchdog fails a future that spins or hangs.
fn wait<T>(work: impl Future<Output = T>) -> T {
    let _watch = Watchdog::new("a future");
    futures::executor::block_on(work)
}

/// Runs all tests on each backend, with temporary files in `dir`, and returns which failed. The
/// default backend has run them in the temporary directory before, unless tests take their time.
fn run_again(dir: &Path) -> Vec<String> {
    let mut failed = Vec::new();
    for kind in available() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        // (`hostile` mounts a file system of its own, and runs a share on each backend.)
        let again = ["on_each_backend", "on_other_file_systems", "hostile::"];
        let is_usual = dir == std::env::temp_dir();
        if is_usual && !is_long() && kind == Engine::global().unwrap().backend() {
            continue;
        }
        let skipped = if is_usual { &again[..2] } else { &again };
        command.args(skipped.iter().flat_map(|name| ["--skip", name]));
        command.env("RINGWAY_BACKEND", kind.to_string()).env("TMPDIR", dir);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{kind}, {}: {text}", dir.display());
        if !output.status.success() {
            failed.push(format!("{kind}: {}: {text}", output.status));
        }
    }
    failed
}

/// All tests here use the global engine. This runs them again on each backend.
#[test]
fn on_each_backend() {
    if std::env::var_os("RINGWAY_BACKEND").is_some() {
        println!("skipped: RINGWAY_BACKEND is set");
        return;
    }
    assert_eq!(run_again(&std::env::temp_dir()), [""; 0]);
}

#[test]
fn on_other_file_systems() {
    if std::env::var_os("RINGWAY_BACKEND").is_some() {
        println!("skipped: RINGWAY_BACKEND is set");
        return;
    }
    // It takes minutes.
    if std::env::var_os("RINGWAY_FILE_SYSTEMS").is_none() {
        println!("skipped: RINGWAY_FILE_SYSTEMS is not set");
        return;
    }
    let mut failed = Vec::new();
    places::each(&[], skip, |place| {
        let begin = std::time::Instant::now();
        failed.extend(run_again(&place.path()).iter().map(|why| format!("{}: {why}", place.name)));
        println!("{}: {:.1?}", place.name, begin.elapsed());
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn functions_of_one_path() {
    let comparison = Comparison::new();
    compare!(comparison, "read", fs::read, std::fs::read::<&Path>);
    compare!(comparison, "read_to_string", fs::read_to_string, std::fs::read_to_string::<&Path>);
    compare!(comparison, "write", |path| fs::write(path, b"new".to_vec()), |path: &Path| {
        std::fs::write(path, b"new")
    });
    compare!(comparison, "remove_file", fs::remove_file, std::fs::remove_file::<&Path>);
    compare!(comparison, "remove_dir", fs::remove_dir, std::fs::remove_dir::<&Path>);
    compare!(comparison, "create_dir", fs::create_dir, std::fs::create_dir::<&Path>);
    compare!(comparison, "create_dir_all", fs::create_dir_all, std::fs::create_dir_all::<&Path>);
    compare!(
        comparison,
        "metadata",
        async |path: &Path| fs::metadata(path).await.map(|found| (found.mode(), found.is_dir())),
        |path: &Path| std::fs::metadata(path).map(compared_metadata)
    );
    compare!(
        comparison,
        "symlink_metadata",
        async |path: &Path| fs::symlink_metadata(path)
            .await
            .map(|found| (found.mode(), found.is_dir())),
        |path: &Path| std::fs::symlink_metadata(path).map(compared_metadata)
    );
    compare!(comparison, "exists", fs::exists, std::fs::exists::<&Path>);
    compare!(comparison, "try_exists", fs::try_exists, std::fs::exists::<&Path>);
    compare!(comparison, "read_link", fs::read_link, std::fs::read_link::<&Path>);
    compare!(comparison, "canonicalize", fs::canonicalize, std::fs::canonicalize::<&Path>);
    compare!(comparison, "remove_dir_all", fs::remove_dir_all, std::fs::remove_dir_all::<&Path>);
    compare!(
        comparison,
        "set_permissions",
        |path| fs::set_permissions(path, PermissionsExt::from_mode(0o711)),
        |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o711))
    );
    compare!(
        comparison,
        "DirBuilder",
        async |path: &Path| fs::DirBuilder::new().mode(0o705).create(path).await,
        |path: &Path| std::fs::DirBuilder::new().mode(0o705).create(path)
    );
    compare!(
        comparison,
        "DirBuilder, recursive",
        async |path: &Path| fs::DirBuilder::new().mode(0o750).recursive(true).create(path).await,
        |path: &Path| std::fs::DirBuilder::new().mode(0o750).recursive(true).create(path)
    );
    compare!(comparison, "read_dir", list, list_std);
    compare!(
        comparison,
        "File::open",
        async |path: &Path| fs::File::open(path).await.map(drop),
        |path: &Path| { std::fs::File::open(path).map(drop) }
    );
    compare!(
        comparison,
        "File::create",
        async |path: &Path| fs::File::create(path).await.map(drop),
        |path: &Path| { std::fs::File::create(path).map(drop) }
    );
    compare!(
        comparison,
        "File::create_new",
        async |path: &Path| fs::File::create_new(path).await.map(drop),
        |path: &Path| std::fs::File::create_new(path).map(drop)
    );
}

/// Every combination of open options, on an existing file, a missing one and a dangling link.
#[test]
fn open_options() {
    let comparison = Comparison::new();
    let flags = [0, libc::O_NOFOLLOW, libc::O_DIRECTORY, libc::O_TRUNC, libc::O_RDWR, libc::O_EXCL];
    for way in 0..64 {
        let yes = |bit: u32| way >> bit & 1 == 1;
        for mode in [None, Some(0o100_604)] {
            for flags in flags.into_iter().filter(|flags| mode.is_none() || *flags == 0) {
                for shape in ["file", "new", "dangling"] {
                    macro_rules! set {
                        ($options:expr) => {{
                            let mut options = $options;
                            options.read(yes(0)).write(yes(1)).append(yes(2));
                            options
                                .truncate(yes(3))
                                .create(yes(4))
                                .create_new(yes(5))
                                .custom_flags(flags);
                            if let Some(mode) = mode {
                                options.mode(mode);
                            }
                            options
                        }};
                    }
                    comparison.compare(
                        &format!("open {way:b} {mode:?} {flags:o}"),
                        &shape.into(),
                        |path| {
                            Outcome::from(wait(set!(fs::OpenOptions::new()).open(path)).map(drop))
                        },
                        |path| {
                            Outcome::from(set!(std::fs::OpenOptions::new()).open(path).map(drop))
                        },
                    );
                }
            }
        }
    }
}

/// The entries of a directory, sorted.
async fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(path).await?;
    while let Some(entry) = entries.next_entry().await? {
        let (kind, data) = (entry.file_type().await?, entry.metadata().await?);
        let kinds = (kind.is_file(), kind.is_dir(), kind.is_symlink(), data.mode());
        assert_eq!(data.ino(), entry.ino());
        found.push(format!("{:?} {:?} {kinds:?}", entry.path(), entry.file_name()));
    }
    found.sort();
    Ok(found)
}

fn list_std(path: &Path) -> io::Result<Vec<String>> {
    let describe = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let kind = entry.file_type()?;
        let kinds = (kind.is_file(), kind.is_dir(), kind.is_symlink(), entry.metadata()?.mode());
        Ok(format!("{:?} {:?} {kinds:?}", entry.path(), entry.file_name()))
    };
    let mut found = std::fs::read_dir(path)?.map(describe).collect::<io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

#[test]
fn functions_of_two_paths() {
    let comparison = Comparison::new();
    // Also with paths that are empty or too long, which io_uring reads before it resolves either.
    for other in shapes().into_iter().step_by(3).chain(["".into(), "x".repeat(5000).into()]) {
        let other = &other;
        let at = |path: &Path| comparison::second_path(path, other);
        compare!(
            comparison,
            "rename",
            async |path: &Path| fs::rename(path, at(path)).await,
            |path: &Path| std::fs::rename(path, at(path))
        );
        compare!(
            comparison,
            "hard_link",
            async |path: &Path| fs::hard_link(path, at(path)).await,
            |path: &Path| { std::fs::hard_link(path, at(path)) }
        );
        compare!(
            comparison,
            "symlink",
            async |path: &Path| fs::symlink(path, at(path)).await,
            |path: &Path| { std::os::unix::fs::symlink(path, at(path)) }
        );
    }
}

/// Like std's, except when source and target are the same file: std truncates it, and ringway
/// refuses.
#[test]
fn copies() {
    let comparison = Comparison::new();
    for other in shapes() {
        let other = &other;
        for shape in shapes() {
            let refused = |ours: &Outcome| ours.kind() == Some(io::ErrorKind::InvalidInput);
            comparison.compare_unless(
                "copy",
                &shape,
                |path| Outcome::from(wait(fs::copy(path, comparison::second_path(path, other)))),
                |path| Outcome::from(std::fs::copy(path, comparison::second_path(path, other))),
                |path, ours| {
                    refused(ours)
                        && comparison::is_same_file(path, &comparison::second_path(path, other))
                },
            );
        }
    }
}
