//! A FUSE file system for tests: it is slow, lies, refuses or hangs as a test says.
//!
//! This is the side of the tests: [`Hostile`] starts the server (`hostile-fs`, a process of its
//! own), mounts it and sets its rules. README.md has the rules.
#![cfg(target_os = "linux")]
#![doc = include_str!("../README.md")]

mod disk;

pub use disk::HostileDisk;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The name of the file that takes rules.
pub const CONTROL: &str = ".hostile";

/// A mounted hostile file system. Dropping it thaws what is frozen and unmounts.
#[derive(Debug)]
pub struct Hostile {
    dir: TempDir,
    server: Child,
}

/// How often an operation was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests so far.
    pub requests: u64,
    /// Requests that are being answered.
    pub inside: u64,
    /// The most at one time.
    pub most: u64,
}

impl Hostile {
    /// Mounts one with `options` of the connection (README.md).
    ///
    /// # Errors
    ///
    /// The program cannot be built or found, or FUSE cannot be used here: the message says which.
    pub fn mount(options: &[&str]) -> io::Result<Self> {
        Self::mount_in(&std::env::temp_dir(), options)
    }

    /// The same with the directory behind it in `parent`.
    ///
    /// # Errors
    ///
    /// As for [`mount`](Self::mount).
    pub fn mount_in(parent: &Path, options: &[&str]) -> io::Result<Self> {
        let dir = TempDir::new_in(parent)?;
        for name in ["backing", "mount"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let mut server = Command::new(program()?)
            .args([dir.path().join("backing"), dir.path().join("mount")])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let answers = server.stdout.take().map(BufReader::new);
        answers.map_or(Ok(0), |mut answers| answers.read_line(&mut line))?;
        if line.trim_end() == "mounted" {
            return Ok(Self { dir, server });
        }
        let said = server.wait_with_output()?;
        let said = String::from_utf8_lossy(&said.stderr).trim_end().to_owned();
        Err(io::Error::other(format!("FUSE cannot be mounted here: {said}")))
    }

    /// Mounts one without options, or calls `skip` with the reason why not.
    pub fn mount_or_skip(skip: impl FnOnce(&str)) -> Option<Self> {
        Self::mount(&[]).inspect_err(|error| skip(&error.to_string())).ok()
    }

    /// The directory in which it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// The directory behind it, which obeys no rules.
    pub fn backing(&self) -> PathBuf {
        self.dir.path().join("backing")
    }

    /// Sets rules, one a line.
    ///
    /// # Errors
    ///
    /// InvalidInput for a line that is no rule.
    pub fn set(&self, rules: &str) -> io::Result<()> {
        fs::write(self.path().join(CONTROL), rules)
    }

    /// How often an operation was requested.
    ///
    /// # Errors
    ///
    /// Those of reading the counters.
    pub fn count(&self, operation: &str) -> io::Result<Count> {
        let counts = fs::read_to_string(self.path().join(CONTROL))?;
        let found = counts.lines().find_map(|line| {
            let numbers = line.strip_prefix(operation)?.strip_prefix(' ')?;
            let mut numbers = numbers.split(' ').map_while(|number| number.parse().ok());
            Some(Count {
                requests: numbers.next()?,
                inside: numbers.next()?,
                most: numbers.next()?,
            })
        });
        Ok(found.unwrap_or_default())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // The server unmounts at the end of its input.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// The path of the server. It is looked up once: for a thread with mounts of its own, the path of
/// this program may be out of reach.
fn program() -> io::Result<PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    match PROGRAM.get() {
        Some(known) => Ok(known.clone()),
        None => find_program().map(|found| PROGRAM.get_or_init(|| found).clone()),
    }
}

/// Cargo builds the server for `cargo test --workspace`; where only another crate's tests were
/// built, it is built here.
fn find_program() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("RINGWAY_HOSTILE_FS") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    // Tests and examples are in a directory below the profile's.
    let profile = test.parent().and_then(Path::parent);
    let is_profile = |dir: &&Path| dir.join(".fingerprint").is_dir();
    let Some(profile) = profile.filter(is_profile) else {
        return Err(io::Error::other("RINGWAY_HOSTILE_FS has to name hostile-fs: no Cargo test"));
    };
    let found = profile.join("hostile-fs");
    if is_current(&found) {
        return Ok(found);
    }
    match std::env::var_os("CARGO").map(|cargo| build(Path::new(&cargo), profile)) {
        Some(Err(error)) => Err(error),
        _ if found.exists() => Ok(found),
        Some(Ok(built)) => Ok(built),
        None => Err(io::Error::other("hostile-fs has not been built")),
    }
}

/// Whether the server is there and newer than its sources. (Cargo would look more closely, but
/// building one package alone compiles its dependencies with other features than a workspace.)
fn is_current(server: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let Ok(built) = changed(server) else { return false };
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(files) = fs::read_dir(source.join("src")) else { return false };
    let files = files.flatten().map(|file| file.path());
    files.chain([source.join("Cargo.toml")]).all(|file| changed(&file).is_ok_and(|at| at <= built))
}

/// Builds the server into the target directory that has `profile`.
fn build(cargo: &Path, profile: &Path) -> io::Result<PathBuf> {
    let target = profile.parent().unwrap_or(profile);
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--bin", "hostile-fs", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        // Those of the tests, such as a sanitizer's, are not for the server.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()?;
    if built.status.success() {
        return Ok(target.join("debug/hostile-fs"));
    }
    let said = String::from_utf8_lossy(&built.stderr);
    Err(io::Error::other(format!("hostile-fs cannot be built: {}", said.trim_end())))
}
