//! The set-up of a case: the backend and the executor that it runs on, an engine for them, and a
//! directory for its files.

use super::executor::{Executor, Spawned};
use super::{counts, pipe, reap_until_idle, scratch, until, write_synced, yield_once};
use futures::future::poll_immediate;
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Counts, Engine, EngineBuilder};
use std::path::PathBuf;
use std::sync::Arc;

/// The environment of one case. Clones share it.
#[derive(Clone)]
pub struct Setup {
    pub kind: BackendKind,
    pub executor: Executor,
    pub engine: Engine,
    pub spawned: Spawned,
    pub dir: Arc<tempfile::TempDir>,
}

impl Setup {
    /// Makes a directory and an engine. `change` changes the engine's usual options.
    pub fn new(
        kind: BackendKind,
        executor: Executor,
        change: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        // More than one shard, so that threads reap each other's operations.
        let builder = Engine::builder().shards(2).backend(kind).reaping(executor.reaping());
        let engine = change(builder).build().unwrap();
        Self { kind, executor, engine, spawned: Spawned::default(), dir: Arc::new(scratch()) }
    }

    /// Runs a case to its end.
    pub fn run<W: Future<Output = ()> + Send + 'static>(&self, case: impl FnOnce(Self) -> W) {
        self.executor.run(&self.engine, &self.spawned, case(self.clone()));
        reap_until_idle(&self.engine);
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        self.executor.spawn(&self.spawned, work)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file on disk with this content, open for reading and writing.
    pub async fn file(&self, name: &str, content: &[u8], direct: bool) -> File {
        let path = self.path(name);
        write_synced(&path, content);
        let mut options = OpenOptions::new();
        options.read(true).write(true).direct(direct).engine(&self.engine);
        options.open(&path).await.expect("the temporary directory supports direct I/O")
    }

    /// A pipe whose reading end is a file of the engine.
    pub fn pipe(&self) -> (File, std::io::PipeWriter) {
        pipe(&self.engine)
    }

    pub fn counts(&self) -> Counts {
        counts(&self.engine)
    }

    /// Polls an operation until it is submitted. Its first poll may yield to other tasks instead.
    /// Returns how many were ready: 1 or 0.
    pub async fn submit<F: Future + Unpin>(&self, operation: &mut F) -> u64 {
        let before = self.counts().pushed;
        for _ in 0..2 {
            let is_ready = poll_immediate(&mut *operation).await.is_some();
            match self.counts().pushed - before {
                0 => assert!(!is_ready, "ready without an operation"),
                pushed => {
                    assert_eq!(pushed, 1);
                    return u64::from(is_ready);
                }
            }
            yield_once().await;
        }
        panic!("two polls submitted nothing");
    }

    /// Waits until nothing is in flight. Other tasks run meanwhile.
    pub async fn until_idle(&self) {
        until("in_flight to return to 0", || self.counts().in_flight == 0).await;
    }
}
