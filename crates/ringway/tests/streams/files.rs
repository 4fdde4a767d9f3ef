//! Engines and sample files for the tests of streams.

use crate::common::{available, write_synced};
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine, FaultPlan};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// For each available backend: a default engine; one that never tries the page cache first, so that
/// there is something to read ahead; and one that delays, shortens and retries operations at
/// random.
pub fn engines() -> &'static [Engine] {
    static ENGINES: OnceLock<Vec<Engine>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let faults = FaultPlan::new(3).short(200).retryable(100).delay(300, 4).reorder(500);
        let mut engines = Vec::new();
        for kind in available() {
            let builder = Engine::builder().backend(kind).shards(1);
            let always_submitted = builder.clone().try_cached(false);
            let unreliable = always_submitted.clone().faults(faults.clone());
            engines.extend([builder, always_submitted, unreliable].map(|it| it.build().unwrap()));
        }
        engines
    })
}

/// An engine that never tries the page cache first, and on which `per_thousand` of a thousand
/// operations fail. It uses the threads backend: on other backends faults do not reach operations
/// that fall back to threads, such as buffered I/O on kaio.
pub fn failing(per_thousand: u16) -> Engine {
    let plan = FaultPlan::new(5).errors(per_thousand);
    Engine::builder()
        .backend(BackendKind::Threads)
        .faults(plan)
        .try_cached(false)
        .shards(1)
        .build()
        .unwrap()
}

/// A directory with a file of this content, which is synced, so that it can be read directly.
pub fn sample(content: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write_synced(&path, content);
    (dir, path)
}

/// Keeps a file in the page cache while it exists: reclaim skips pages that are mapped and locked.
pub struct Cached {
    first: *mut libc::c_void,
    len: usize,
}

impl Cached {
    pub fn new(path: &Path) -> Self {
        let file = std::fs::File::open(path).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: the call takes a descriptor that is open and numbers.
        let first =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, file.as_raw_fd(), 0) };
        assert_ne!(first, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: these bytes were mapped above. An ordinary user may have too low a limit; reclaim
        // is then possible, though not likely.
        unsafe { libc::mlock(first, len) };
        Self { first, len }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // SAFETY: nothing else knows this mapping.
        unsafe { libc::munmap(self.first, self.len) };
    }
}

/// Opens the file through the engine.
pub async fn open_with(options: &mut OpenOptions, path: &Path) -> File {
    options.engine(&engines()[0]).open(path).await.unwrap()
}
