//! Compares a ringway function with that of the standard library: both run with the same path on
//! the same directory tree, one after the other. It holds the tree, the paths and the comparison.

use crate::common::watchdog::Watchdog;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The result of a function, in a form that is comparable between the two libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome(Result<String, (io::ErrorKind, Option<i32>)>);

impl Outcome {
    pub fn kind(&self) -> Option<io::ErrorKind> {
        self.0.as_ref().err().map(|(kind, _)| *kind)
    }
}

impl<T: Debug> From<io::Result<T>> for Outcome {
    fn from(result: io::Result<T>) -> Self {
        Self(match result {
            Ok(value) => Ok(format!("{value:?}")),
            // An error that never reached the kernel has no errno in one library and EINVAL in the
            // other.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err((error.kind(), None)),
            Err(error) => Err((error.kind(), error.raw_os_error())),
        })
    }
}

/// The parts of the metadata that are compared.
pub fn compared_metadata(found: fs::Metadata) -> (u32, bool) {
    (found.mode(), found.is_dir())
}

/// A path to be tried, relative to the tree.
pub type Shape = Vec<u8>;

/// Paths of every shape.
pub fn shapes() -> Vec<Shape> {
    let text = [
        "",
        ".",
        "..",
        "/",
        "a",
        "a/",
        "a/.",
        "a/b",
        "a/b/.",
        "a/b/./",
        "a//b",
        "./a",
        "./a/b/../c",
        "a/..",
        "a/../b",
        "a/b/c/d",
        "dir",
        "dir/",
        "dir/.",
        "dir/..",
        "dir/../a",
        "./dir",
        "dir//new",
        "dir/new/.",
        "dir/new/./deep",
        "full",
        "full/",
        "full/inside",
        "file",
        "file/",
        "file/.",
        "file/..",
        "file/below",
        "file/below/deep",
        "empty",
        "other",
        "hard_link",
        "dangling",
        "dangling/",
        "dangling/below",
        "loop",
        "loop/below",
        "to_file",
        "to_file/",
        "to_dir",
        "to_dir/",
        "to_dir/.",
        "to_dir/new",
        "to_dir/..",
        "self/",
        "a\0b",
        "nul\0",
        "\0",
    ];
    let mut shapes: Vec<Shape> = text.iter().map(|text| text.as_bytes().to_vec()).collect();
    shapes.push(b"\xff\xfe".to_vec());
    shapes.push(b"\xff\xfe/\xf0/.".to_vec());
    shapes.push(vec![b'n'; 255]);
    shapes.push(vec![b'n'; 256]);
    shapes.push([vec![b'n'; 256], b"/below".to_vec()].concat());
    shapes.push(b"./".repeat(2100));
    shapes.push([b"dir/../".repeat(300), b"deep".to_vec()].concat());
    shapes
}

/// The second path of a function that takes two. It starts at the same tree as the first.
pub fn second_path(path: &Path, shape: &Shape) -> PathBuf {
    let tree = path
        .ancestors()
        .find(|above| above.file_name().is_some_and(|name| name.as_bytes().starts_with(b"tree")));
    tree.map_or_else(|| PathBuf::from(OsStr::from_bytes(shape)), |tree| join(tree, shape))
}

pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Joins the path as text, so that nothing in it is normalised.
fn join(dir: &Path, shape: &Shape) -> PathBuf {
    if shape.is_empty() {
        return PathBuf::new();
    }
    let mut path = dir.as_os_str().as_bytes().to_vec();
    path.push(b'/');
    path.extend(shape);
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

pub struct Comparison {
    dir: tempfile::TempDir,
    /// The tree before any call.
    fresh: Vec<String>,
}

impl Comparison {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("tree"));
        let fresh = describe(&dir.path().join("tree"));
        Self { dir, fresh }
    }

    /// Describes the tree, and restores it if it has changed.
    fn describe_and_restore(&self, dir: &Path) -> Vec<String> {
        let found = describe(dir);
        if found != self.fresh {
            fill(dir);
        }
        found
    }

    pub fn compare(
        &self,
        name: &str,
        shape: &Shape,
        ours: impl Fn(&Path) -> Outcome,
        std: impl Fn(&Path) -> Outcome,
    ) {
        self.compare_unless(name, shape, ours, std, |_, _| false);
    }

    /// `allowed` decides whether ringway may differ here, from the path and ringway's result. It is
    /// called before the standard library's function.
    pub fn compare_unless(
        &self,
        name: &str,
        shape: &Shape,
        ours: impl Fn(&Path) -> Outcome,
        std: impl Fn(&Path) -> Outcome,
        allowed: impl Fn(&Path, &Outcome) -> bool,
    ) {
        if shape == b"/" {
            return; // Joined it is the tree itself, like ".".
        }
        let text = String::from_utf8_lossy(shape);
        let _watch = Watchdog::new(&format!("{name}({text:.80})"));
        // Both functions run on the same directory, so that error texts and lengths are equal.
        let tree = self.dir.path().join("tree");
        let path = join(&tree, shape);
        let ours = ours(&path);
        let our_tree = self.describe_and_restore(&tree);
        if allowed(&path, &ours) {
            assert_eq!(
                our_tree, self.fresh,
                "{name}({text:.200?}) was refused, but changed something"
            );
            return;
        }
        let std = std(&path);
        assert_eq!(ours, std, "{name}({text:.200?}): ringway, std");
        assert_eq!(
            our_tree,
            self.describe_and_restore(&tree),
            "{name}({text:.200?}): the tree after ringway, after std"
        );
    }
}

/// Creates the content of the tree, instead of what was there.
fn fill(dir: &Path) {
    if dir.exists() {
        fs::remove_dir_all(dir).unwrap();
    }
    fs::create_dir(dir).unwrap();
    let at = |name: &str| dir.join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/inside"), b"inside").unwrap();
    fs::write(at("file"), b"content").unwrap();
    fs::set_permissions(at("file"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("other"), b"other content").unwrap();
    fs::hard_link(at("file"), at("hard_link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("file", at("to_file")).unwrap();
    symlink("dir", at("to_dir")).unwrap();
    symlink(".", at("self")).unwrap();
}

/// Everything below a directory, in a comparable form.
fn describe(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        let Ok(found) = fs::symlink_metadata(&next) else {
            all.push(format!("{next:?} is missing"));
            continue;
        };
        let content = match found.file_type() {
            kind if kind.is_dir() => {
                left.extend(fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&next).unwrap()),
            _ => format!("{:?}", fs::read(&next).unwrap()),
        };
        all.push(format!("{next:?} {:o} {} {content}", found.mode(), found.nlink()));
    }
    all.sort();
    all
}
