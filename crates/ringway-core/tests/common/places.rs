//! File systems other than the local disk, for tests that must have the same results on each:
//! FUSE with a server that caches, shortens or delays, and overlayfs; and, if there is time, those
//! of docs/file-systems.md.

#[path = "../../../ringway-survey/tests/file_systems/mounts.rs"]
mod mounts;

#[allow(unused_imports, reason = "some tests use it")]
pub use mounts::{each_read_only, no_read_only, no_writable, on, on_zram};
use ringway_hostile::Hostile;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a place is made.
#[derive(Clone, Copy)]
enum Kind {
    /// Options of the connection, and rules (`crates/ringway-hostile/README.md`).
    Hostile(&'static [&'static str], &'static str),
    /// Over directories in one of these.
    Overlay(&'static str),
}

/// Transfers end anywhere. (Where the kernel caches the file, a short read is its end, for
/// everybody.)
const SHORT: &str = "* direct on\n* read short 1000\n* write short 1500";
const SLOW: &str = "* getattr delay 2\n* open delay 2\n* flush delay 2\n* release delay 2";

const DISK: &str = env!("CARGO_TARGET_TMPDIR");
const MEMORY: &str = "/dev/shm";

/// The places, and whether transfers there are shorter than elsewhere.
const PLACES: &[(&str, Kind, bool)] = &[
    ("FUSE", Kind::Hostile(&[], ""), false),
    ("FUSE with direct I/O", Kind::Hostile(&[], "* direct on"), false),
    ("FUSE with short transfers", Kind::Hostile(&[], SHORT), true),
    ("FUSE with names and attributes cached", Kind::Hostile(&["ttl=60000"], ""), false),
    ("FUSE with a write-back cache", Kind::Hostile(&["writeback-cache"], ""), false),
    (
        "FUSE without asynchronous reads",
        Kind::Hostile(&["no-async-read", "no-async-dio"], ""),
        false,
    ),
    ("FUSE, slow", Kind::Hostile(&["max-background=2"], SLOW), false),
    ("overlayfs on disk", Kind::Overlay(DISK), false),
    ("overlayfs in memory", Kind::Overlay(MEMORY), false),
];

/// A mounted file system.
pub struct Place {
    pub name: &'static str,
    /// Transfers are shorter than elsewhere.
    pub is_short: bool,
    mounted: Mounted,
}

enum Mounted {
    Hostile(Hostile),
    Overlay(Overlay),
    /// Somebody else unmounts it.
    Elsewhere(PathBuf),
}

impl Place {
    /// The directory to work in, which everybody may change.
    pub fn path(&self) -> PathBuf {
        match &self.mounted {
            Mounted::Hostile(hostile) => hostile.path(),
            Mounted::Overlay(overlay) => overlay.path(),
            Mounted::Elsewhere(path) => path.clone(),
        }
    }

    fn new(name: &'static str, kind: Kind, is_short: bool) -> io::Result<Self> {
        let mounted = match kind {
            Kind::Hostile(options, rules) => {
                let hostile = Hostile::mount(options)?;
                hostile.set(rules)?;
                Mounted::Hostile(hostile)
            }
            Kind::Overlay(parent) => Mounted::Overlay(Overlay::mount(None, Path::new(parent), "")?),
        };
        Self::open_to_all(name, is_short, mounted)
    }

    /// Cases that run as an ordinary user walk down to it.
    fn open_to_all(name: &'static str, is_short: bool, mounted: Mounted) -> io::Result<Self> {
        let place = Self { name, is_short, mounted };
        let path = place.path();
        let above = path.parent().into_iter().chain([path.as_path()]);
        for dir in above {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
        }
        Ok(place)
    }
}

/// Whether tests take their time: `make test-file-systems` sets it.
pub fn is_thorough() -> bool {
    std::env::var_os("RINGWAY_FILE_SYSTEMS").is_some_and(|value| value == "all")
}

/// Runs `test` on each file system, one mounted at a time; on those with these names only, unless
/// it [`is_thorough`], and with `RINGWAY_PLACE` in their names. `skip` gets the reasons why one is
/// missing.
pub fn each(few: &[&str], skip: impl Fn(&str), mut test: impl FnMut(&Place)) {
    for &(name, kind, is_short) in PLACES {
        if !is_thorough() && !few.contains(&name) || !mounts::is_wanted(name) {
            continue;
        }
        match Place::new(name, kind, is_short) {
            Ok(place) => test(&place),
            Err(error) => skip(&format!("{name}: {error}")),
        }
    }
    if is_thorough() {
        mounts::each_writable(&skip, |name, dir| {
            match Place::open_to_all(name, false, Mounted::Elsewhere(dir.to_owned())) {
                Ok(place) => test(&place),
                Err(error) => skip(&format!("{name}: {error}")),
            }
        });
    }
}

/// An overlay, unmounted when it is dropped.
pub struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    /// Of directories in `parent`, above `lower` if there is one. Options end with a comma.
    pub fn mount(lower: Option<&Path>, parent: &Path, options: &str) -> io::Result<Self> {
        let dir = tempfile::tempdir_in(parent)?;
        let at = |name: &str| dir.path().join(name);
        for name in ["lower", "upper", "work", "mount"] {
            fs::create_dir(at(name))?;
        }
        let options = format!(
            "{options}lowerdir={},upperdir={},workdir={}",
            lower.unwrap_or(&at("lower")).display(),
            at("upper").display(),
            at("work").display()
        );
        let mut command = Command::new("mount");
        command.args(["-t", "overlay", "-o", &options, "overlay"]).arg(at("mount"));
        let output = command.output()?;
        if output.status.success() {
            return Ok(Self { dir });
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()))
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // Lazily: a test that failed may still use it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
