//! Helpers: engines of each backend, temporary directories and their content, and waiting.

use ringway::{BackendKind, Engine, EngineBuilder};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub const BACKENDS: [BackendKind; 3] =
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

/// Longer than any condition takes to come true.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Prints why something is not tested. Where `CI` is set, that is a failure.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("CI").is_none(), "skipped with CI set: {why}");
}

/// The engine, or `None` if this machine does not support its backend.
pub fn build_or_skip(kind: BackendKind, builder: EngineBuilder) -> Option<Engine> {
    let built = builder.backend(kind).build();
    built.inspect_err(|error| skip(&format!("{kind}: {error}"))).ok()
}

/// Engines of the backends that this machine supports.
pub fn engines() -> Vec<Engine> {
    BACKENDS.into_iter().filter_map(|kind| build_or_skip(kind, Engine::builder())).collect()
}

/// A temporary directory in memory, where syncs cost nothing, or on the disk if there is no tmpfs.
pub fn scratch() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(error) => {
            println!("on the disk: no directory in /dev/shm: {error}");
            scratch_on_disk()
        }
    }
}

/// A temporary directory on a real disk, for direct I/O and syncs.
pub fn scratch_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The files and directories below a directory: mode, and content of files, by name.
pub fn tree(dir: &Path) -> BTreeMap<String, (u32, Option<Vec<u8>>)> {
    let found = |name: String| {
        let path = dir.join(&name);
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let content = metadata.is_file().then(|| std::fs::read(&path).unwrap());
        (name, (metadata.mode(), content))
    };
    names(dir).into_iter().map(found).collect()
}

/// The names of files and directories below a directory, sorted. Files may be removed meanwhile.
pub fn names(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether a name is that of a staged file. The object's name may have a `#` itself.
pub fn is_staged(name: &str) -> bool {
    let suffix = name.rsplit('/').next().and_then(|name| name.rsplit_once('#'));
    suffix.is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Waits until no staged file is left.
pub async fn until_unstaged(dir: &Path) {
    let staged = || names(dir).iter().any(|name| is_staged(name) && dir.join(name).is_file());
    until("staged files to be removed", || !staged()).await;
}

/// Waits until `ready` returns true. Other tasks run meanwhile.
pub async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the engine has nothing in flight.
pub async fn until_idle(engine: &Engine) {
    until("in_flight to return to 0", || engine.stats().counts.in_flight == 0).await;
}

/// Mounts a file system in memory that this process alone sees, with these options.
pub fn mount_tmpfs(dir: &Path, options: Option<&std::ffi::CStr>) -> std::io::Result<()> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).unwrap();
    let (none, root, tmpfs) = (c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr());
    let null = std::ptr::null();
    let options = options.map_or(std::ptr::null(), |options| options.as_ptr().cast());
    // SAFETY: the strings live through the calls, and the other pointers may be null.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, null, libc::MS_REC | libc::MS_PRIVATE, null.cast()) == 0
            && libc::mount(tmpfs, path.as_ptr(), tmpfs, 0, options) == 0
    };
    if mounted { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
