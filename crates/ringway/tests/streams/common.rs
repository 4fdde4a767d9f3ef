//! Engines and sample files for the tests of streams.

use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine, FaultPlan};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Content that differs at all offsets that a mistake is likely to confuse.
pub fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// For each available backend: a default engine; one that never tries the page cache first, so that
/// there is something to read ahead; and one that delays, shortens and retries operations at
/// random.
pub fn engines() -> &'static [Engine] {
    static ENGINES: OnceLock<Vec<Engine>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let trouble = FaultPlan::new(3).short(200).retryable(100).delay(300, 4).reorder(500);
        let mut engines = Vec::new();
        for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
            let builder = Engine::builder().backend(kind).shards(1);
            let builders = [
                builder.clone(),
                builder.clone().try_cached(false),
                builder.faults(trouble.clone()).try_cached(false),
            ];
            for builder in builders {
                match builder.build() {
                    Ok(engine) => engines.push(engine),
                    Err(error) => println!("skipped: {kind}: {error}"),
                }
            }
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
    std::fs::write(&path, content).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    (dir, path)
}

/// Opens the file for reading and writing on this engine. The standard library opens it, so no
/// injected fault can fail the open.
pub fn open(engine: &Engine, path: &Path, direct: bool) -> File {
    let mut options = std::fs::OpenOptions::new();
    if direct {
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_DIRECT);
    }
    File::from_fd(options.read(true).write(true).open(path).unwrap().into(), engine)
}

/// Opens the file through the engine.
pub async fn open_with(options: &mut OpenOptions, path: &Path) -> File {
    options.engine(&common_engine()).open(path).await.unwrap()
}

fn common_engine() -> Engine {
    engines()[0].clone()
}

/// Waits until nothing is in flight on the engine, and checks that every submitted operation was
/// answered once.
pub fn settles(engine: &Engine) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let counts = engine.stats().counts;
        assert_eq!(
            counts.pushed,
            counts.delivered + counts.orphaned + counts.in_flight,
            "{counts:?}"
        );
        if counts.in_flight == 0 {
            return;
        }
        assert!(Instant::now() < end, "operations are left: {counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
