//! Working directories that cannot be searched or no longer exist. Each test runs in a process of
//! its own.

use crate::common::process::{become_ordinary, in_child};
use crate::comparison::{Outcome, shapes};
use crate::{functions_of_one_path, list, list_std, wait};
use ringway::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Absolute paths do not depend on the working directory, and others fail like std's.
fn compare_here() {
    functions_of_one_path();
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there");
    wait(fs::write(&there, b"x".to_vec())).unwrap();
    assert!(wait(fs::symlink_metadata(&there)).unwrap().is_file());
    wait(fs::write_atomic(&there, b"new".to_vec())).unwrap();
    assert_eq!(wait(fs::copy(&there, dir.path().join("copy"))).unwrap(), 3);
    for shape in shapes() {
        use std::os::unix::ffi::OsStrExt;
        // The result of a path that leads upwards is unspecified here.
        if shape.windows(2).any(|pair| pair == b"..") || shape == b"/" {
            continue;
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(&shape));
        macro_rules! same {
            ($($name:ident),*) => {
                $(
                    let ours = Outcome::from(wait(fs::$name(path)).map(drop));
                    let std = Outcome::from(std::fs::$name(path).map(drop));
                    assert_eq!(ours, std, "{}({path:?}): ringway, std", stringify!($name));
                )*
            };
        }
        same!(
            metadata,
            symlink_metadata,
            read,
            exists,
            read_link,
            canonicalize,
            create_dir,
            create_dir_all
        );
        same!(remove_file, remove_dir, remove_dir_all);
        let ours = Outcome::from(wait(list(path)));
        assert_eq!(ours, Outcome::from(list_std(path)), "read_dir({path:?})");
        let ours = Outcome::from(wait(fs::copy(path, &there)));
        assert_eq!(ours, Outcome::from(std::fs::copy(path, &there)), "copy({path:?})");
        let ours = Outcome::from(wait(fs::copy(&there, path)));
        assert_eq!(ours, Outcome::from(std::fs::copy(&there, path)), "copy(.., {path:?})");
        assert!(wait(fs::write_atomic(path, b"".to_vec())).is_err(), "write_atomic({path:?})");
    }
}

#[test]
fn an_unsearchable_working_directory() {
    in_child(
        "working_dir::an_unsearchable_working_directory",
        |_| {},
        || {
            become_ordinary();
            let dir = tempfile::tempdir().unwrap();
            std::env::set_current_dir(dir.path()).unwrap();
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o000)).unwrap();
            compare_here();
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        },
    );
}

#[test]
fn a_removed_working_directory() {
    in_child(
        "working_dir::a_removed_working_directory",
        |_| {},
        || {
            let dir = tempfile::tempdir().unwrap();
            std::env::set_current_dir(dir.path()).unwrap();
            drop(dir);
            compare_here();
        },
    );
}
