//! Sessions on either store, on each backend.

use anyhow::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use ringway_datafusion::RingwayFileSystem;
use ringway_datafusion::ringway::{BackendKind, Engine, EngineBuilder, Stats};
use std::time::{Duration, Instant};

/// The backends that every test of equal answers runs on.
pub const BACKENDS: [BackendKind; 3] =
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

/// Prints why something is not tested. Where `CI` is set, that is a failure.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("CI").is_none(), "skipped with CI set: {why}");
}

/// An engine on this backend; `None`, with a message, where the kernel refuses it.
pub fn engine(backend: BackendKind) -> Option<Engine> {
    build(backend, Engine::builder())
}

/// As [`engine`], with other options.
pub fn build(backend: BackendKind, builder: EngineBuilder) -> Option<Engine> {
    let built = builder.backend(backend).build();
    built.inspect_err(|error| skip(&format!("{backend:?}: {error}"))).ok()
}

/// A session with DataFusion's own store.
pub fn local(partitions: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions))
}

/// A session with this store.
pub fn ringway(store: RingwayFileSystem, partitions: usize) -> SessionContext {
    let session = local(partitions);
    ringway_datafusion::register_store(&session, store);
    session
}

/// A session on an engine of its own, with that engine; `None`, with a message, where the kernel
/// refuses the backend.
pub fn on(
    backend: BackendKind,
    direct: bool,
    partitions: usize,
) -> Option<(SessionContext, Engine)> {
    let engine = engine(backend)?;
    let store = RingwayFileSystem::new().with_engine(&engine).with_direct(direct);
    Some((ringway(store, partitions), engine))
}

/// Waits until the engine has nothing in flight and no pooled buffer is in use, and returns its
/// statistics at that moment.
pub async fn idle(engine: &Engine) -> Result<Stats> {
    let start = Instant::now();
    loop {
        let stats = engine.stats();
        if stats.counts.in_flight == 0 && stats.pool.in_use == 0 {
            return Ok(stats);
        }
        anyhow::ensure!(start.elapsed() < Duration::from_secs(30), "still in use: {stats:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
