//! A cluster in this process: a scheduler and executors that talk over sockets of the loopback
//! interface. Each has a runtime of its own, so dropping one is as if its process were killed.

use anyhow::{Context, Result, ensure};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::health::ExecutorHealth;
use ballista_scheduler::config::SchedulerConfig;
use datafusion::prelude::{SessionConfig, SessionContext};
use ringway::Engine;
use ringway_ballista::{client, executor, scheduler};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// How long anything may take. Executors compute at a low priority: on a machine that is busy with
/// other programs, they wait for those.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub struct Cluster {
    pub executors: Vec<Option<Executor>>,
    /// The scheduler's address.
    pub scheduler: String,
    _scheduler: Node<ballista_core::error::Result<()>>,
}

pub struct Executor {
    pub work_dir: TempDir,
    _node: Node<ballista_core::error::Result<()>>,
}

/// What runs in a runtime. Dropping it ends that at once, wherever it is.
struct Node<T> {
    runtime: Option<Runtime>,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Node<T> {
    fn run(future: impl Future<Output = T> + Send + 'static) -> Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        // As Ballista's scheduler has it: planning recurses, the more so without optimization.
        let runtime = runtime.worker_threads(2).thread_stack_size(32 << 20).enable_all().build()?;
        let task = runtime.spawn(future);
        Ok(Self { runtime: Some(runtime), task })
    }
}

impl<T> Drop for Node<T> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Starts a scheduler, and an executor for each of these engines: `None` is one of Ballista's
    /// own. Returns when all executors are registered.
    pub async fn start(engines: &[Option<Engine>]) -> Result<Self> {
        Self::start_with(engines, PATIENCE.as_secs()).await
    }

    /// As `start`; the scheduler gives up an executor that is silent for these seconds.
    pub async fn start_with(engines: &[Option<Engine>], executor_timeout: u64) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let mut config = SchedulerConfig {
            bind_host: "127.0.0.1".to_owned(),
            external_host: "127.0.0.1".to_owned(),
            executor_timeout_seconds: executor_timeout,
            expire_dead_executor_interval_seconds: 1,
            ..Default::default()
        };
        if let Some(engine) = engines.iter().flatten().next() {
            config = scheduler::use_ringway(config, engine);
        }
        let serve = async move {
            scheduler::serve(tokio::net::TcpListener::from_std(listener)?, config).await
        };
        let node = Node::run(serve)?;
        let mut executors = Vec::new();
        for engine in engines {
            executors.push(Some(Executor::start(port, engine.as_ref()).await?));
        }
        Ok(Self { executors, scheduler: format!("127.0.0.1:{port}"), _scheduler: node })
    }

    /// A session on the cluster, with four partitions in each stage.
    pub fn session(&self, change: impl FnOnce(SessionConfig) -> SessionConfig) -> SessionContext {
        let config = client::config()
            .with_target_partitions(4)
            // Otherwise fetching from an executor that is gone takes ten seconds.
            .set_usize("ballista.client.io_retries_times", 2)
            .set_usize("ballista.client.io_retry_wait_time_ms", 50);
        client::session(&self.scheduler, change(config), None).unwrap()
    }
}

impl Executor {
    async fn start(scheduler: u16, engine: Option<&Engine>) -> Result<Self> {
        // Somebody else may take a port before the executor does.
        let mut error = anyhow::anyhow!("not tried");
        for _ in 0..5 {
            match Self::try_start(scheduler, engine).await {
                Ok(executor) => return Ok(executor),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    async fn try_start(scheduler: u16, engine: Option<&Engine>) -> Result<Self> {
        let work_dir = tempfile::tempdir()?;
        let (first, second) =
            (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let health = ExecutorHealth::new();
        let mut config = ExecutorProcessConfig {
            bind_host: "127.0.0.1".to_owned(),
            external_host: Some("127.0.0.1".to_owned()),
            port: first.local_addr()?.port(),
            grpc_port: second.local_addr()?.port(),
            scheduler_host: "127.0.0.1".to_owned(),
            scheduler_port: scheduler,
            scheduler_connect_timeout_seconds: 10,
            vcores: 2,
            memory_pool_size: Some(1 << 30),
            executor_heartbeat_interval_seconds: 1,
            work_dir: work_dir.path().to_str().map(str::to_owned),
            health: health.clone(),
            ..Default::default()
        };
        if let Some(engine) = engine {
            executor::use_ringway(&mut config, engine);
        }
        drop((first, second));
        let node = Node::run(start_executor_process(Arc::new(config)))?;
        wait_for("an executor to be registered", || node.task.is_finished() || health.is_ready())
            .await?;
        ensure!(!node.task.is_finished(), "the executor has ended");
        Ok(Self { work_dir, _node: node })
    }
}

/// Waits until the condition holds.
pub async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        ensure!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Waits for a future.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.with_context(|| format!("waited in vain for {what}"))
}
