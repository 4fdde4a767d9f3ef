//! Compares a ringway function with that of the standard library: both run with the same path on
//! the same directory tree, one after the other. It holds the tree, the paths and the comparison.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Called before each step. Without a further call for too long the watchdog aborts the process.
pub fn alive() {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    static WATCHDOG: std::sync::Once = std::sync::Once::new();
    STEPS.fetch_add(1, Ordering::Relaxed);
    WATCHDOG.call_once(|| {
        std::thread::spawn(|| {
            let mut before = 0;
            loop {
                std::thread::sleep(PATIENCE);
                let steps = STEPS.load(Ordering::Relaxed);
                if steps == before {
                    // Unlike the output of the macros, this is not captured.
                    let _ = writeln!(io::stderr(), "hung: {}", lock(&STEP));
                    std::process::abort();
                }
                before = steps;
            }
        });
    });
}

static STEP: Mutex<String> = Mutex::new(String::new());

fn lock(step: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    step.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The result of a function, in a form that is comparable between the two libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(Result<String, (io::ErrorKind, Option<i32>)>);

impl Answer {
    pub fn kind(&self) -> Option<io::ErrorKind> {
        self.0.as_ref().err().map(|(kind, _)| *kind)
    }
}

impl<T: Debug> From<io::Result<T>> for Answer {
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
pub fn answer(found: fs::Metadata) -> (u32, bool) {
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
        "twin",
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
pub fn beside(path: &Path, shape: &Shape) -> PathBuf {
    let twin = path
        .ancestors()
        .find(|above| above.file_name().is_some_and(|name| name.as_bytes().starts_with(b"twin-")));
    twin.map_or_else(|| PathBuf::from(OsStr::from_bytes(shape)), |twin| join(twin, shape))
}

pub fn one_file(one: &Path, other: &Path) -> bool {
    matches!((fs::metadata(one), fs::metadata(other)), (Ok(one), Ok(other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Joins the path as text, so that nothing in it is normalised.
fn join(twin: &Path, shape: &Shape) -> PathBuf {
    if shape.is_empty() {
        return PathBuf::new();
    }
    let mut path = twin.as_os_str().as_bytes().to_vec();
    path.push(b'/');
    path.extend(shape);
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

pub struct Twins {
    dir: tempfile::TempDir,
    /// The tree before any call.
    fresh: Vec<String>,
}

impl Twins {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("twin-0"));
        let fresh = tree(&dir.path().join("twin-0"));
        Self { dir, fresh }
    }

    /// Describes the tree, and restores it if it has changed.
    fn look(&self, twin: &Path) -> Vec<String> {
        let found = tree(twin);
        if found != self.fresh {
            fill(twin);
        }
        found
    }

    pub fn compare(
        &self,
        name: &str,
        shape: &Shape,
        ours: impl Fn(&Path) -> Answer,
        std: impl Fn(&Path) -> Answer,
    ) {
        self.compare_unless(name, shape, ours, std, |_, _| false);
    }

    /// `allowed` decides whether ringway may differ here, from the path and ringway's result. It is
    /// called before the standard library's function.
    pub fn compare_unless(
        &self,
        name: &str,
        shape: &Shape,
        ours: impl Fn(&Path) -> Answer,
        std: impl Fn(&Path) -> Answer,
        allowed: impl Fn(&Path, &Answer) -> bool,
    ) {
        if shape == b"/" {
            return; // Joined it is the twin itself, which "." is too.
        }
        let text = String::from_utf8_lossy(shape);
        *lock(&STEP) = format!("{name}({:.80})", text);
        // Both functions run on the same directory, so that error texts and lengths are equal.
        let twin = self.dir.path().join("twin-0");
        let path = join(&twin, shape);
        let ours = ours(&path);
        let our_tree = self.look(&twin);
        if allowed(&path, &ours) {
            assert_eq!(
                our_tree, self.fresh,
                "{name}({text:.200?}) was refused, and changed something"
            );
            return;
        }
        let std = std(&path);
        assert_eq!(ours, std, "{name}({text:.200?}): ours, std's");
        assert_eq!(
            our_tree,
            self.look(&twin),
            "{name}({text:.200?}): what is left by ours, by std's"
        );
    }
}

/// Creates the content of the tree, instead of what was there.
fn fill(twin: &Path) {
    if twin.exists() {
        fs::remove_dir_all(twin).unwrap();
    }
    fs::create_dir(twin).unwrap();
    let at = |name: &str| twin.join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/inside"), b"inside").unwrap();
    fs::write(at("file"), b"content").unwrap();
    fs::set_permissions(at("file"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("other"), b"other content").unwrap();
    fs::hard_link(at("file"), at("twin")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("file", at("to_file")).unwrap();
    symlink("dir", at("to_dir")).unwrap();
    symlink(".", at("self")).unwrap();
}

/// Everything below a directory, in a comparable form.
fn tree(dir: &Path) -> Vec<String> {
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
