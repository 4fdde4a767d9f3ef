//! `ringway-ballista-sql`: runs SQL on a cluster and prints the answers. Ctrl-C cancels.

use anyhow::Context;
use clap::Parser;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::sql::parser::DFParser;
use ringway_ballista::client;
use ringway_ballista::program::{Store, host_and_port, log_to_stderr, note, register_tables};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Runs SQL on a cluster and prints the answers.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The scheduler, as HOST:PORT
    #[arg(long, default_value = "127.0.0.1:50050", value_parser = host_and_port)]
    scheduler: (String, u16),
    /// A folder whose folders and *.parquet files are tables; all machines must have it
    #[arg(long)]
    tables: Option<PathBuf>,
    /// Partitions of each stage; more than the executors' processors together is of no use
    #[arg(long, default_value_t = 16)]
    partitions: usize,
    /// What reads local files, in this program only
    #[arg(long, value_enum, default_value_t = Store::Ringway)]
    store: Store,
    /// SQL to run, instead of files
    #[arg(short, long)]
    command: Vec<String>,
    /// Files of SQL; statements end with a semicolon
    #[arg(required_unless_present = "command")]
    files: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    log_to_stderr()?;
    let config = client::config().with_target_partitions(options.partitions);
    let (host, port) = options.scheduler;
    let scheduler = format!("{host}:{port}");
    let session = client::session(&scheduler, config, options.store.engine()?)?;
    if let Some(folder) = &options.tables {
        register_tables(&session, folder).await?;
    }
    let mut texts = options.command;
    for file in &options.files {
        let text = std::fs::read_to_string(file);
        texts.push(text.with_context(|| format!("read {}", file.display()))?);
    }
    let running = Arc::new(Mutex::new(None));
    tokio::spawn(interrupted(scheduler, running.clone()));
    for text in &texts {
        for statement in DFParser::parse_sql(text)? {
            let start = Instant::now();
            let plan = session.state().statement_to_plan(statement).await?;
            let frame = session.execute_logical_plan(plan).await?;
            let plan = frame.create_physical_plan().await?;
            *lock(&running) = Some(plan.clone());
            let batches = collect(plan, session.task_ctx()).await?;
            *lock(&running) = None;
            let table = pretty_format_batches(&batches)?;
            let seconds = start.elapsed().as_secs_f64();
            match writeln!(io::stdout(), "{table}\n{seconds:.3} s") {
                // Whoever reads the answers has enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written.context("print the answer")?,
            }
        }
    }
    Ok(())
}

/// The query that is running.
type Running = Mutex<Option<Arc<dyn ExecutionPlan>>>;

fn lock(running: &Running) -> MutexGuard<'_, Option<Arc<dyn ExecutionPlan>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for Ctrl-C; then cancels what is running, and ends the process, whatever it does.
async fn interrupted(scheduler: String, running: Arc<Running>) {
    if let Err(error) = tokio::signal::ctrl_c().await {
        return log::error!("Ctrl-C will not cancel: {error}");
    }
    let plan = lock(&running).take();
    for job in plan.iter().flat_map(|plan| client::jobs(plan.as_ref())) {
        if let Err(error) = client::cancel(&scheduler, &job).await {
            note(error);
        }
    }
    note("interrupted");
    std::process::exit(130);
}
