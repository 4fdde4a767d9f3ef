//! Two directories with the same content, and the paths that are tried in them.

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

/// Nothing here takes a fraction of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Called before each step: without a further call for too long the process is ended.
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
                    // (Not captured, as what the macros print is.)
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

/// What a function answered, as far as both can be compared.
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
            // What never reached the kernel has no errno with one of them, and EINVAL with the
            // other.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err((error.kind(), None)),
            Err(error) => Err((error.kind(), error.raw_os_error())),
        })
    }
}

/// What is compared of metadata.
pub fn answer(found: fs::Metadata) -> (u32, bool) {
    (found.mode(), found.is_dir())
}

/// A path to be tried, relative to a twin.
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

/// The other path of a function with two, in the same twin and with the same kind of beginning.
pub fn beside(path: &Path, shape: &Shape) -> PathBuf {
    let twin = path
        .ancestors()
        .find(|above| above.file_name().is_some_and(|name| name.as_bytes().starts_with(b"twin-")));
    twin.map_or_else(|| PathBuf::from(OsStr::from_bytes(shape)), |twin| join(twin, shape))
}

pub fn one_file(one: &Path, other: &Path) -> bool {
    matches!((fs::metadata(one), fs::metadata(other)), (Ok(one), Ok(other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Joined as text: nothing of the shape is tidied up.
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
    /// What a twin is like before anything is done.
    fresh: Vec<String>,
}

impl Twins {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("twin-0"));
        let fresh = tree(&dir.path().join("twin-0"));
        Self { dir, fresh }
    }

    /// The tree, made anew if it is not as it was.
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

    /// `allowed` is asked about a difference, before anything has been done, with std's path and
    /// our answer.
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
        // In one place, one after the other, so that error texts and lengths are the same.
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

/// Makes the content of a twin anew.
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

/// Everything below a directory, in a form to compare.
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
