//! The processes of a cluster on this machine: started, awaited, and ended in every case.

use anyhow::{Context, bail};
use ringway_ballista::program::{Store, check_address};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// How long processes may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The last bytes of a log that an error shows.
const SHOWN: usize = 4000;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The address of all processes.
    pub host: String,
    /// The scheduler's port. Each executor has the next two.
    pub port: u16,
    /// How many executors there are.
    pub executors: u16,
    /// Partitions that each executor computes at the same time.
    pub vcores: usize,
    /// Bytes that each executor's operators may use before they spill.
    pub memory: u64,
    /// What reads and writes local files.
    pub store: Store,
}

/// A scheduler and its executors. Dropping it kills them and removes their files; it blocks until
/// they have ended. If this process is killed, they end too: they watch a pipe that it holds.
pub struct Cluster {
    processes: Vec<Process>,
    /// Work directories and logs; removed after the processes have ended.
    folder: TempDir,
}

struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Cluster {
    /// Starts the processes, and waits until all executors are registered. Their files are in a new
    /// folder in `folder`.
    pub async fn start(setup: &Setup, folder: &Path) -> anyhow::Result<Self> {
        let ports = 2 * setup.executors;
        let last = setup.port.checked_add(ports).context("the port is too high")?;
        // Another cluster at these ports would answer in the place of this one.
        for port in setup.port..=last {
            check_address(&setup.host, port)?;
        }
        let about = || format!("create a folder in {}", folder.display());
        let folder = tempfile::Builder::new().prefix("ringway-cluster-").tempdir_in(folder);
        let folder = folder.with_context(about)?;
        let mut cluster = Self { processes: Vec::new(), folder };
        let store = match setup.store {
            Store::Local => "local",
            Store::Ringway => "ringway",
        };
        let mut scheduler = command("ringway-ballista-scheduler", &setup.host, store)?;
        scheduler.args(["--port", &setup.port.to_string()]);
        scheduler.args(["--min-executors", &setup.executors.to_string()]);
        cluster.spawn("scheduler".to_owned(), scheduler)?;
        for number in 1..=setup.executors {
            let name = format!("executor-{number}");
            let grpc_port = setup.port + 2 * number;
            let port = grpc_port - 1;
            let mut executor = command("ringway-ballista-executor", &setup.host, store)?;
            executor.args(["--scheduler", &format!("{}:{}", setup.host, setup.port)]);
            executor.args(["--port", &port.to_string(), "--grpc-port", &grpc_port.to_string()]);
            executor.args(["--vcores", &setup.vcores.to_string()]);
            executor.args(["--memory", &setup.memory.to_string()]);
            executor.arg("--work-dir").arg(cluster.folder.path().join(&name));
            cluster.spawn(name, executor)?;
        }
        match timeout(PATIENCE, cluster.ready(&setup.host, setup.port)).await {
            Ok(ready) => ready?,
            Err(_) => bail!("the cluster is not ready after {PATIENCE:?}{}", cluster.logs()),
        }
        Ok(cluster)
    }

    fn spawn(&mut self, name: String, mut command: Command) -> anyhow::Result<()> {
        let log = self.folder.path().join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("start the {name}"))?;
        self.processes.push(Process { name, child, log });
        Ok(())
    }

    /// Waits until the scheduler answers that all executors are registered.
    async fn ready(&mut self, host: &str, port: u16) -> anyhow::Result<()> {
        while !is_ready(host, port).await.unwrap_or(false) {
            self.check()?;
            sleep(Duration::from_millis(20)).await;
        }
        // Another scheduler at this port would have answered too.
        self.check()
    }

    /// Waits until a process has ended, and returns an error about it.
    pub async fn ended(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Fails if a process has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                let name = process.name.clone();
                bail!("{name} has ended: {status}{}", self.logs());
            }
        }
        Ok(())
    }

    /// The ends of the logs that are not empty.
    pub fn logs(&self) -> String {
        let log = |process: &Process| {
            let text = std::fs::read(&process.log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN)..]);
            let text = text.trim();
            (!text.is_empty()).then(|| format!("\n{}:\n{text}", process.name))
        };
        self.processes.iter().filter_map(log).collect()
    }

    /// Ends the processes, waits for them, and returns what they have printed.
    pub async fn stop(mut self) -> anyhow::Result<String> {
        // Executors first: they would complain about a scheduler that is gone.
        for process in self.processes.iter_mut().rev() {
            drop(process.child.stdin.take());
            let ended: ExitStatus = match timeout(PATIENCE, process.child.wait()).await {
                Ok(ended) => ended?,
                Err(_) => bail!("{} does not end within {PATIENCE:?}", process.name),
            };
            if !ended.success() {
                let name = process.name.clone();
                bail!("{name} has ended: {ended}{}", self.logs());
            }
        }
        Ok(self.logs())
    }
}

impl Drop for Cluster {
    /// Kills what is left, and waits for it, so that nothing writes into the folder any more when
    /// it is removed.
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It has ended already if this fails.
            let _ = process.child.start_kill();
        }
        for process in &mut self.processes {
            while matches!(process.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A program that is next to this one.
fn command(program: &str, host: &str, store: &str) -> anyhow::Result<Command> {
    let path = std::env::current_exe()?.with_file_name(program);
    let mut command = Command::new(path);
    command.args(["--bind-host", host, "--store", store, "--until-stdin-closes"]);
    Ok(command)
}

/// Asks the scheduler whether enough executors are registered.
async fn is_ready(host: &str, port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((host, port)).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}
