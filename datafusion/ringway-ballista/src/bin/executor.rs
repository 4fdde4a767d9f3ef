//! `ringway-ballista-executor`: Ballista's executor, which reads tables and shuffle files with
//! ringway.

use anyhow::Context;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use clap::Parser;
use ringway_ballista::executor;
use ringway_ballista::program::{
    Store, check_address, host_and_port, log_to_stderr, memory_size, note, stdin_closed,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Runs Ballista's executor.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The scheduler, as HOST:PORT
    #[arg(long, default_value = "127.0.0.1:50050", value_parser = host_and_port)]
    scheduler: (String, u16),
    /// The folder for shuffle files and for what queries spill; this executor's alone
    #[arg(long)]
    work_dir: PathBuf,
    /// The address to accept connections at; 0.0.0.0 for all
    #[arg(long, default_value = "127.0.0.1")]
    bind_host: String,
    /// The name or address by which others reach this executor; otherwise where it connects from
    #[arg(long)]
    external_host: Option<String>,
    /// The port from which others fetch shuffle files and results
    #[arg(long, default_value_t = 50051)]
    port: u16,
    /// The port at which the scheduler submits tasks
    #[arg(long, default_value_t = 50052)]
    grpc_port: u16,
    /// How many partitions are computed at the same time; 0 for one per processor
    #[arg(long, default_value_t = 0)]
    vcores: usize,
    /// What operators may use together before they spill, such as 4g; otherwise 70 % of the memory
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// What reads and writes local files
    #[arg(long, value_enum, default_value_t = Store::Ringway)]
    store: Store,
    /// End when standard input ends
    #[arg(long)]
    until_stdin_closes: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    log_to_stderr()?;
    let (scheduler_host, scheduler_port) = options.scheduler;
    for port in [options.port, options.grpc_port] {
        check_address(&options.bind_host, port)?;
    }
    std::fs::create_dir_all(&options.work_dir)
        .with_context(|| format!("create {}", options.work_dir.display()))?;
    let work_dir = options.work_dir.to_str().context("--work-dir is not UTF-8")?;
    let mut config = ExecutorProcessConfig {
        scheduler_host,
        scheduler_port,
        scheduler_connect_timeout_seconds: 30,
        bind_host: options.bind_host,
        external_host: options.external_host,
        port: options.port,
        grpc_port: options.grpc_port,
        vcores: options.vcores,
        memory_pool_size: options.memory,
        work_dir: Some(work_dir.to_owned()),
        ..Default::default()
    };
    let engine = options.store.engine()?;
    if let Some(engine) = engine {
        executor::use_ringway(&mut config, engine);
    }
    tokio::select! {
        ended = start_executor_process(Arc::new(config)) => ended?,
        () = stdin_closed(), if options.until_stdin_closes => {}
    }
    if let Some(engine) = engine {
        let stats = engine.stats();
        let (reads, operations) = (stats.cached, stats.counts.pushed);
        note(format_args!(
            "ringway ({:?}): {reads} reads from the page cache, {operations} operations",
            engine.backend()
        ));
    }
    Ok(())
}
