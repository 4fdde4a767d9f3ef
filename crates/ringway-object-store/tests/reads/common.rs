//! Engines, files and runtimes for the tests.

use ringway::{BackendKind, Engine, EngineBuilder};
use std::path::Path;
use tokio::runtime::{Builder, Runtime};

/// Prints why something is not tested. Where `CI` is set, that is a failure.
fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("CI").is_none(), "skipped with CI set: {why}");
}

/// An engine on each backend that this machine supports.
pub fn engines(change: impl Fn(EngineBuilder) -> EngineBuilder) -> Vec<Engine> {
    let kinds = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
    let build = |kind| {
        let built = change(Engine::builder()).backend(kind).build();
        built.inspect_err(|error| skip(&format!("{kind}: {error}"))).ok()
    };
    kinds.into_iter().filter_map(build).collect()
}

/// A temporary directory on a disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Content that differs at all offsets that a mistake is likely to confuse.
pub fn pattern(len: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..len as u64).map(byte).collect()
}

/// Writes a file and syncs it, so that it can be read directly.
pub fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

/// Makes a FIFO.
pub fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
