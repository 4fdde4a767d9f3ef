//! What the unit tests share: futures that are dropped, and a process without descriptors.

use crate::config::Durability;
use crate::disk::Disk;
use ringway::{BackendKind, Engine, EngineBuilder, FaultPlan};
use ringway_core::FaultStep;
use ringway_core::op::Opcode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Objects in this directory. The engine's threads do all the work, so that most futures wait.
pub(crate) fn disk(root: &Path, durability: Durability) -> Arc<Disk> {
    disk_with(root, durability, Engine::builder())
}

/// As [`disk`], but the sync with this number, from 0, fails with this error.
pub(crate) fn faulty_disk(
    root: &Path,
    durability: Durability,
    sync: u64,
    errno: Errno,
) -> Arc<Disk> {
    let step = FaultStep::Opcode(Opcode::Fsync, sync);
    let plan = FaultPlan::new(0).fail(step, errno.raw_os_error());
    disk_with(root, durability, Engine::builder().faults(plan))
}

fn disk_with(root: &Path, durability: Durability, builder: EngineBuilder) -> Arc<Disk> {
    let engine = builder.backend(BackendKind::Threads).build().unwrap();
    Arc::new(Disk::new(engine, root.to_owned(), None, durability))
}

/// Polls a future that often at most, with pauses in which others go on. Returns its result, unless
/// it was dropped before it had one.
pub(crate) async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for poll in 0..polls {
        if poll > 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(result) = polled {
            return Some(result);
        }
    }
    None
}

const ALONE: &str = "RINGWAY_OPENDAL_TEST_ALONE";

/// Runs this test in a process of its own: `name` is its path in the crate.
pub(crate) fn alone(name: &str, test: impl Future<Output = ()>) {
    if std::env::var_os(ALONE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        return runtime.enable_all().build().unwrap().block_on(test);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let has_run = stdout.contains("1 passed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && has_run, "{stdout}{stderr}");
}

/// All descriptors that the process may have. Dropping it makes them free.
pub(crate) struct Descriptors {
    limit: Rlimit,
    _files: Vec<File>,
}

impl Descriptors {
    /// For tests that run [`alone`].
    pub(crate) fn exhaust() -> Self {
        assert!(std::env::var_os(ALONE).is_some());
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit { current: Some(256), maximum: limit.maximum };
        setrlimit(Resource::Nofile, low).unwrap();
        let files = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        Self { limit, _files: files }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.limit).unwrap();
    }
}
