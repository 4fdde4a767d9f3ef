//! `ringway-ballista-cluster`: starts a scheduler and executors on this machine, runs queries
//! across them with either store, and compares times and answers with those of one process.

mod processes;
mod queries;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use datafusion::prelude::{SessionConfig, SessionContext};
use processes::{Cluster, Setup};
use queries::{Answer, Query};
use ringway_ballista::client;
use ringway_ballista::program::{Store, log_to_stderr, memory_size, note, register_tables};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Runs queries on a cluster of this machine, and compares the answers with those of one process.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// A folder whose folders and *.parquet files are tables
    #[arg(long)]
    tables: PathBuf,
    /// A folder of *.sql files, one query each
    #[arg(long)]
    queries: PathBuf,
    /// What the cluster reads and writes local files with: each of them in turn
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Store::Local,
    Store::Ringway])]
    store: Vec<Store>,
    /// The scheduler's port; each executor has the next two
    #[arg(long, default_value_t = 50050)]
    port: u16,
    /// The address of all processes
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The number of executors
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    executors: u16,
    /// Partitions that each executor computes at the same time; 0 for its share of the processors
    #[arg(long, default_value_t = 0)]
    vcores: usize,
    /// Partitions of each stage; 0 for as many as all executors compute at the same time
    #[arg(long, default_value_t = 0)]
    partitions: usize,
    /// What each executor's operators may use before they spill
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = memory_size)]
    memory: u64,
    /// How often each query runs; the shortest time counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The folder for shuffle files and logs, which are removed at the end
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    work_dir: PathBuf,
}

/// The answers and times of all queries in one configuration.
type Results = Vec<(Answer, Duration)>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    log_to_stderr()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // What is dropped here ends its processes and removes its files.
    tokio::select! {
        compared = compare(&options) => compared,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hang_up.recv() => bail!("the terminal is gone"),
    }
}

async fn compare(options: &Options) -> anyhow::Result<()> {
    let queries = queries::load(&options.queries)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let executors = usize::from(options.executors);
    let vcores = match options.vcores {
        0 => processors.div_ceil(executors),
        vcores => vcores,
    };
    let partitions = match options.partitions {
        0 => vcores * executors,
        partitions => partitions,
    };
    let config = SessionConfig::new().with_target_partitions(processors);
    let session = SessionContext::new_with_config(config);
    let expected = run(&queries, &session, &options.tables, options.runs).await;
    let mut columns = vec![("one process".to_owned(), expected.context("in one process")?)];

    for &store in &options.store {
        let setup = Setup {
            host: options.host.clone(),
            port: options.port,
            executors: options.executors,
            vcores,
            memory: options.memory,
            store,
        };
        let mut cluster = Cluster::start(&setup, &options.work_dir).await?;
        let engine = store.engine()?;
        let config = client::config().with_target_partitions(partitions);
        let scheduler = format!("{}:{}", options.host, options.port);
        let session = client::session(&scheduler, config, engine)?;
        let results = tokio::select! {
            results = run(&queries, &session, &options.tables, options.runs) => {
                if results.is_err() {
                    // This may be why.
                    cluster.check()?;
                }
                results.with_context(|| format!("on the cluster, {store:?}{}", cluster.logs()))?
            }
            // Its queries would wait until the scheduler gives it up.
            error = cluster.ended() => return Err(error),
        };
        let printed = cluster.stop().await?;
        if !printed.is_empty() {
            note(printed.trim_start());
        }
        columns.push((format!("cluster, {store:?}").to_lowercase(), results));
    }
    print(&queries, &columns)
}

async fn run(
    queries: &[Query],
    session: &SessionContext,
    tables: &Path,
    runs: u32,
) -> anyhow::Result<Results> {
    register_tables(session, tables).await?;
    let mut results = Results::new();
    for query in queries {
        let mut best = None;
        for _ in 0..runs {
            let (answer, time) = query.run(session).await.with_context(|| query.name.clone())?;
            match &mut best {
                None => best = Some((answer, time)),
                Some((first, shortest)) => {
                    ensure!(*first == answer, "{}: answers of two runs differ", query.name);
                    *shortest = time.min(*shortest);
                }
            }
        }
        results.extend(best);
    }
    Ok(results)
}

/// Prints a table of times. Fails if an answer is not that of the first column.
fn print(queries: &[Query], columns: &[(String, Results)]) -> anyhow::Result<()> {
    let names: Vec<_> = columns.iter().map(|(name, _)| name.as_str()).collect();
    println!("| query | rows | {} | equal |", names.join(" | "));
    println!("|---|{}---|", "--:|".repeat(columns.len() + 1));
    let mut different = Vec::new();
    for (number, query) in queries.iter().enumerate() {
        let rows: Vec<_> = columns.iter().map(|(_, results)| &results[number]).collect();
        let (expected, _) = rows[0];
        let times: Vec<_> =
            rows.iter().map(|(_, time)| format!("{:.3}", time.as_secs_f64())).collect();
        let is_equal = rows.iter().all(|(answer, _)| answer == expected);
        if !is_equal {
            different.push(query.name.as_str());
        }
        let equal = if is_equal { "yes" } else { "NO" };
        println!("| {} | {} | {} | {equal} |", query.name, expected.rows(), times.join(" | "));
    }
    let sums = columns.iter().map(|(_, results)| {
        let sum: Duration = results.iter().map(|(_, time)| *time).sum();
        format!("{:.3}", sum.as_secs_f64())
    });
    println!("| all, seconds | | {} | |", sums.collect::<Vec<_>>().join(" | "));
    ensure!(different.is_empty(), "answers differ: {}", different.join(", "));
    Ok(())
}
