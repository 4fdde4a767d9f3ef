//! What the tests of streams have in common: files, engines, and what is to be in them.

use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine, FaultPlan};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Content that is different at every offset that a mistake is likely to confuse.
pub fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// An engine for each backend that is granted here.
pub fn engines() -> &'static [Engine] {
    static ENGINES: OnceLock<Vec<Engine>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let kinds = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
        let build = |kind| match Engine::builder().backend(kind).build() {
            Ok(engine) => Some(engine),
            Err(error) => {
                println!("skipped: {kind}: {error}");
                None
            }
        };
        kinds.into_iter().filter_map(build).collect()
    })
}

/// An engine of which the operations go wrong as planned, and none is answered out of the page cache.
pub fn faulty(plan: FaultPlan) -> Engine {
    Engine::builder().faults(plan).try_cached(false).build().unwrap()
}

/// A folder with a file of this content, known to the device, so that it may be read directly.
pub fn sample(content: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, content).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    (dir, path)
}

/// Opens it with the kernel asked through this engine.
pub async fn open(engine: &Engine, path: &Path, options: &mut OpenOptions) -> File {
    options.engine(engine).open(path).await.unwrap()
}
