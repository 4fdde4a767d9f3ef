//! Runs statements one after the other, with a way to cancel the one that runs.

use crate::args::{Args, Format, StatsForm, Store};
use crate::cost::{Cost, Start, Work};
use crate::output::Output;
use crate::{note, one_line, tables};
use anyhow::Result;
use datafusion::common::TableReference;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use futures::StreamExt;
use ringway_datafusion::RingwayFileSystem;
use ringway_datafusion::ringway::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io, mem};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// A session with its tables, and how its results are written.
pub struct Runner {
    opened: Opened,
    args: Args,
    interactive: bool,
    interrupts: mpsc::Receiver<()>,
    /// The runtime of queries, besides that of the program.
    queries: Runtime,
    /// Those of cancelled queries, while they end.
    ending: Vec<JoinHandle<()>>,
}

/// How long the program waits at its end until queries have removed their files: what they have
/// spilled, and what they were writing.
const PATIENCE: Duration = Duration::from_secs(2);

/// How statements ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of them ran.
    Done,
    /// Ctrl-C cancelled one; those after it did not run.
    Cancelled,
}

/// Drops a runtime, which drops its tasks where they next yield. A cancelled join may compute for
/// minutes before it does, so another thread waits for them.
fn end(runtime: Runtime) -> JoinHandle<()> {
    thread::spawn(|| drop(runtime))
}

/// A session with the tables of the folders.
pub struct Opened {
    session: SessionContext,
    engine: Option<Engine>,
    missing: Missing,
}

/// Names that the folders have and that are no tables, with the reasons.
type Missing = Arc<BTreeMap<String, String>>;

/// Opens the store and registers the tables of the folders. Those that cannot be registered are
/// reported.
pub async fn open(args: &Args) -> Result<Opened> {
    let mut config = SessionConfig::new().with_information_schema(true);
    if let Some(partitions) = args.partitions {
        config = config.with_target_partitions(partitions.get());
    }
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(limit) = args.memory_limit {
        runtime = runtime.with_memory_limit(limit, 1.0);
    }
    let session = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
    let engine = match args.store {
        Store::Local => None,
        Store::Ringway => {
            let mut builder = Engine::builder();
            if let Some(backend) = args.backend {
                builder = builder.backend(backend.into());
            }
            let engine = builder.build()?;
            let store = RingwayFileSystem::new().with_engine(&engine).with_direct(args.direct);
            ringway_datafusion::register_store(&session, store);
            Some(engine)
        }
    };
    let start = Start::now(engine.as_ref());
    let (mut registered, mut missing) = (0, BTreeMap::new());
    for (name, table) in tables::find(&args.folders)? {
        let result = match table {
            Ok(table) => table.register(&session, &name).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => registered += 1,
            Err(error) => {
                let reason = format!("no table {name}: {}", one_line(&error));
                note(format_args!("ringway-sql: {reason}"));
                missing.insert(name, reason);
            }
        }
    }
    if args.stats.is_some() {
        report(args, false, &start.cost(engine.as_ref(), Work::Tables(registered)))?;
    }
    Ok(Opened { session, engine, missing: Arc::new(missing) })
}

impl Runner {
    /// Runs statements in a session. Each message of `interrupts` is a Ctrl-C.
    pub fn new(
        args: Args,
        interactive: bool,
        opened: Opened,
        interrupts: mpsc::Receiver<()>,
    ) -> Result<Self> {
        let queries = Runtime::new()?;
        Ok(Self { opened, args, interactive, interrupts, queries, ending: Vec::new() })
    }

    /// Ends what queries have left, and waits for it a moment.
    pub fn finish(self) {
        let Self { opened, queries, mut ending, .. } = self;
        let disk = opened.session.runtime_env().disk_manager.clone();
        drop(opened);
        ending.push(end(queries));
        let start = Instant::now();
        while !ending.iter().all(JoinHandle::is_finished) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        // An operator that still computes would have removed them later.
        for spilled in disk.temp_dir_paths() {
            let _ = fs::remove_dir_all(spilled);
        }
    }

    /// Waits for Ctrl-C.
    pub async fn interrupted(&mut self) {
        self.interrupts.recv().await;
    }

    /// Runs all statements of a text; stops at the first that fails or is cancelled.
    pub async fn run(&mut self, sql: &str) -> Result<End> {
        for statement in DFParser::parse_sql(sql)? {
            let Opened { session, engine, missing } = &self.opened;
            let start = Start::now(engine.as_ref());
            // A task, so that this one only waits, and notices Ctrl-C at once.
            let query = execute(session.clone(), missing.clone(), self.args.format, statement);
            let mut query = self.queries.spawn(query);
            let rows = tokio::select! {
                rows = &mut query => rows??,
                _ = self.interrupts.recv() => {
                    // Dropping the query cancels its tasks, and their reads. Until its operators
                    // notice, they may keep their threads busy, so the next query has new ones.
                    query.abort();
                    let cancelled = mem::replace(&mut self.queries, Runtime::new()?);
                    self.ending.retain(|one| !one.is_finished());
                    self.ending.push(end(cancelled));
                    return Ok(End::Cancelled);
                }
            };
            let cost = start.cost(engine.as_ref(), Work::Rows(rows));
            report(&self.args, self.interactive, &cost)?;
        }
        Ok(End::Done)
    }
}

fn report(args: &Args, interactive: bool, cost: &Cost) -> Result<()> {
    match args.stats {
        Some(StatsForm::Text) => note(cost),
        Some(StatsForm::Json) => note(serde_json::to_string(cost)?),
        None if interactive => note(format_args!("{} in {:.3} s", cost.work, cost.wall)),
        None => {}
    }
    Ok(())
}

/// Runs one statement and writes its result; returns its number of rows.
async fn execute(
    session: SessionContext,
    missing: Missing,
    format: Format,
    statement: Statement,
) -> Result<u64> {
    let state = session.state();
    let names = state.resolve_table_references(&statement)?;
    let plan = state.statement_to_plan(statement).await.map_err(|error| {
        let error = anyhow::Error::from(error);
        let is_missing =
            |name: &&TableReference| !session.table_exist((*name).clone()).unwrap_or(true);
        let reason = names.iter().filter(is_missing).find_map(|name| missing.get(name.table()));
        match reason {
            Some(reason) => error.context(reason.clone()),
            None => error,
        }
    })?;
    let frame = session.execute_logical_plan(plan).await?;
    let mut stream = frame.execute_stream().await?;
    let stdout = io::BufWriter::new(io::stdout());
    let mut output = Output::new(format, stream.schema(), stdout);
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        output.batch(batch)?;
    }
    output.finish()?;
    Ok(rows)
}
