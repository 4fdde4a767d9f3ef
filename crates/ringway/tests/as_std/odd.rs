//! Working directories that cannot be searched or no longer exist. Each test runs in a process of
//! its own.

use crate::common::{become_ordinary, in_child};
use crate::twins::{Answer, shapes};
use crate::{entries, one_path, std_entries, wait};
use ringway::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Absolute paths do not depend on the working directory, and others fail like std's.
fn check() {
    one_path();
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
                    let ours = Answer::from(wait(fs::$name(path)).map(drop));
                    let std = Answer::from(std::fs::$name(path).map(drop));
                    assert_eq!(ours, std, "{}({path:?}): ours, std's", stringify!($name));
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
        let ours = Answer::from(wait(entries(path)));
        assert_eq!(ours, Answer::from(std_entries(path)), "read_dir({path:?})");
        let ours = Answer::from(wait(fs::copy(path, &there)));
        assert_eq!(ours, Answer::from(std::fs::copy(path, &there)), "copy({path:?})");
        let ours = Answer::from(wait(fs::copy(&there, path)));
        assert_eq!(ours, Answer::from(std::fs::copy(&there, path)), "copy(.., {path:?})");
        assert!(wait(fs::write_atomic(path, b"".to_vec())).is_err(), "write_atomic({path:?})");
    }
}

#[test]
fn a_working_directory_that_may_not_be_searched() {
    in_child(
        "odd::a_working_directory_that_may_not_be_searched",
        |_| {},
        || {
            become_ordinary();
            let dir = tempfile::tempdir().unwrap();
            std::env::set_current_dir(dir.path()).unwrap();
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o000)).unwrap();
            check();
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        },
    );
}

#[test]
fn a_working_directory_that_has_gone() {
    in_child(
        "odd::a_working_directory_that_has_gone",
        |_| {},
        || {
            let dir = tempfile::tempdir().unwrap();
            std::env::set_current_dir(dir.path()).unwrap();
            drop(dir);
            check();
        },
    );
}
