//! `ringway-ballista-scheduler`: Ballista's scheduler, which lists the files of tables and reads
//! their metadata with ringway.

use anyhow::Context;
use ballista_scheduler::config::SchedulerConfig;
use clap::Parser;
use ringway_ballista::program::{Store, log_to_stderr, stdin_closed};
use ringway_ballista::scheduler;
use tokio::net::TcpListener;

/// Runs Ballista's scheduler.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The address to accept connections at; 0.0.0.0 for all
    #[arg(long, default_value = "127.0.0.1")]
    bind_host: String,
    /// The port
    #[arg(long, default_value_t = 50050)]
    port: u16,
    /// The name or address by which executors reach the scheduler, if that is not --bind-host
    #[arg(long)]
    external_host: Option<String>,
    /// What reads local files
    #[arg(long, value_enum, default_value_t = Store::Ringway)]
    store: Store,
    /// /readyz answers 200 when as many executors are registered
    #[arg(long, default_value_t = 1)]
    min_executors: usize,
    /// Seconds without a sign of life after which an executor is given up; they send one every 60
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(61..))]
    executor_timeout: u64,
    /// End when standard input ends
    #[arg(long)]
    until_stdin_closes: bool,
}

fn main() -> anyhow::Result<()> {
    // Planning recurses: Ballista's own scheduler has stacks of this size.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_stack_size(32 << 20).build()?.block_on(run(Options::parse()))
}

async fn run(options: Options) -> anyhow::Result<()> {
    log_to_stderr()?;
    let mut config = SchedulerConfig {
        external_host: options.external_host.unwrap_or_else(|| options.bind_host.clone()),
        bind_host: options.bind_host.clone(),
        min_ready_executors: options.min_executors,
        executor_timeout_seconds: options.executor_timeout,
        no_executors_grace_period_seconds: options.executor_timeout,
        ..Default::default()
    };
    if let Some(engine) = options.store.engine()? {
        config = scheduler::use_ringway(config, engine);
    }
    let address = format!("{}:{}", options.bind_host, options.port);
    let listener = TcpListener::bind(&address).await;
    let listener = listener.with_context(|| format!("listen at {address}"))?;
    tokio::select! {
        ended = scheduler::serve(listener, config) => Ok(ended?),
        () = stdin_closed(), if options.until_stdin_closes => Ok(()),
    }
}
