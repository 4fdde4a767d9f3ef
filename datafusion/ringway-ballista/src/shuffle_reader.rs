//! [`ShuffleReader`]: takes the place of Ballista's `ShuffleReaderExec` in an executor's plans. It
//! reads the files of its own machine with ringway and leaves those of others to Ballista's reader.

use crate::cancellation::no_children;
use crate::ipc_messages::{Message, Messages};
use crate::shuffle_file::{Part, is_ipc_file};
use ballista_core::client_pool::BallistaClientPool;
use ballista_core::error::BallistaError;
use ballista_core::execution_plans::{ShuffleReaderExec, stats_for_partitions};
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::scheduler::PartitionLocation;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce::LimitedBatchCoalescer;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, Statistics,
    StatisticsArgs,
};
use futures::future::ready;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use ringway::Engine;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

/// How many files are opened before their turn.
const OPEN_AHEAD: usize = 4;

/// A work directory without files: nothing is below a device.
const NO_FILES: &str = "/dev/null";

/// Reads partitions that earlier stages of the job have written: files that this executor has
/// written with ringway, all others through Ballista's reader, at the same time.
///
/// Unlike Ballista, it does not look in the work directory for files of other executors. After a
/// failure, the scheduler may run a stage again from the start, and gives the same numbers to other
/// tasks on other executors: a file with the right name may be of the first attempt.
///
/// The number of rows must be what the writing task has reported. Ballista takes a file that ends
/// between two batches for complete; here it is an error, so that the scheduler repeats the task
/// that wrote it.
#[derive(Clone, Debug)]
pub(crate) struct ShuffleReader {
    /// What this reader stands for.
    original: Arc<ShuffleReaderExec>,
    engine: Engine,
    /// The executor that reads.
    executor_id: String,
    work_dir: String,
    pool: Option<Arc<dyn BallistaClientPool>>,
    metrics: ExecutionPlanMetricsSet,
    /// Ballista's readers.
    others: Arc<Mutex<Vec<ShuffleReaderExec>>>,
}

impl ShuffleReader {
    /// Takes the place of `original`. The files of this executor are in `work_dir`; connections to
    /// others come from the pool, if there is one.
    pub(crate) fn new(
        original: &ShuffleReaderExec,
        engine: &Engine,
        executor_id: &str,
        work_dir: &str,
        pool: Option<Arc<dyn BallistaClientPool>>,
    ) -> Self {
        Self {
            original: Arc::new(original.clone()),
            engine: engine.clone(),
            executor_id: executor_id.to_owned(),
            work_dir: work_dir.to_owned(),
            pool,
            metrics: ExecutionPlanMetricsSet::new(),
            others: Arc::default(),
        }
    }

    /// Reads these locations, of which there is one at least, with Ballista's readers.
    fn read_others(
        self,
        locations: Vec<PartitionLocation>,
        context: Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let batches = self.read_with_ballista(locations.clone(), &context)?;
        let wanted = rows_of(&locations);
        Ok(counted(batches, wanted, |rows, wanted| async move {
            let found = self.find_incomplete(&locations, &context).await.err();
            found.unwrap_or_else(|| {
                let text = format!("{rows} rows instead of {wanted} from other executors");
                fetch_failed(&locations[0], text)
            })
        }))
    }

    /// Whether this executor has written the location.
    fn is_own(&self, location: &PartitionLocation) -> bool {
        location.executor_meta.id == self.executor_id
    }

    /// Reads these locations with Ballista's readers, which mix them.
    fn read_with_ballista(
        &self,
        locations: Vec<PartitionLocation>,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let (own, others): (Vec<_>, Vec<_>) =
            locations.into_iter().partition(|location| self.is_own(location));
        let mut batches = Vec::new();
        for (locations, work_dir) in [(own, self.work_dir.as_str()), (others, NO_FILES)] {
            if !locations.is_empty() {
                batches.push(self.read_below(work_dir, locations, context)?);
            }
        }
        Ok(stream::select_all(batches).boxed())
    }

    /// Reads these locations with Ballista's reader: files below the directory, all others from
    /// their executors.
    fn read_below(
        &self,
        work_dir: &str,
        locations: Vec<PartitionLocation>,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let reader = ShuffleReaderExec::try_new(
            self.original.stage_id,
            vec![locations],
            self.original.schema(),
            Partitioning::UnknownPartitioning(1),
        )?;
        let mut reader = reader.with_work_dir(work_dir.to_owned());
        if let Some(pool) = &self.pool {
            reader = reader.with_client_pool(pool.clone());
        }
        let batches = reader.execute(0, context.clone())?;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        Ok(batches)
    }

    /// Separates the locations of this executor whose files exist, with their paths, from others.
    /// Files in the IPC file format count as others: Ballista's reader finds them by itself.
    async fn split(
        &self,
        locations: Vec<PartitionLocation>,
    ) -> Result<(Vec<(PartitionLocation, PathBuf)>, Vec<PartitionLocation>)> {
        let (mut local, mut others) = (Vec::new(), Vec::new());
        for location in locations {
            let path = location.path(&self.work_dir)?;
            let is_local = self.is_own(&location)
                && if location.is_sort_shuffle {
                    self.engine.fs().try_exists(&path).await.unwrap_or(false)
                } else {
                    is_ipc_file(&self.engine, &path).await.is_ok_and(|is_ipc_file| !is_ipc_file)
                };
            if is_local {
                local.push((location, path));
            } else {
                others.push(location);
            }
        }
        Ok((local, others))
    }

    /// Reads locations one by one, and fails with the first that has not its rows: the scheduler
    /// repeats only tasks of the executor that the error names.
    async fn find_incomplete(
        &self,
        locations: &[PartitionLocation],
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        for location in locations {
            let batches = self.read_with_ballista(vec![location.clone()], context)?;
            let rows = batches.try_fold(0, |rows, batch| ready(Ok(rows + batch.num_rows() as u64)));
            let (rows, wanted) = (rows.await?, rows_of(slice::from_ref(location)));
            if wanted.is_some_and(|wanted| wanted != rows) {
                let text = format!("{rows} rows instead of {} in its file", wanted.unwrap_or(0));
                return Err(fetch_failed(location, text));
            }
        }
        Ok(())
    }
}

impl DisplayAs for ShuffleReader {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ringway")?;
        self.original.fmt_as(t, f)
    }
}

impl ExecutionPlan for ShuffleReader {
    fn name(&self) -> &str {
        "RingwayShuffleReader"
    }

    fn schema(&self) -> SchemaRef {
        self.original.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        no_children(self, &children)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let config = context.session_config();
        let is_local_read = !config.ballista_shuffle_reader_force_remote_read();
        // Every task reads all of a broadcast, which is one partition.
        let source = if self.original.broadcast { 0 } else { partition };
        let Some(locations) = self.original.partition.get(source).cloned() else {
            let text = format!("no partition {source} of stage {}", self.original.stage_id);
            return Err(DataFusionError::Internal(text));
        };
        check_unique(&locations)?;
        let local_rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let local_files = MetricBuilder::new(&self.metrics).counter("local_partitions", partition);
        let batch_size = config.batch_size();
        let schema = self.schema();
        let reader = self.clone();
        let opened = {
            let schema = schema.clone();
            async move {
                let (local, others) = if is_local_read {
                    reader.split(locations).await?
                } else {
                    (Vec::new(), locations)
                };
                local_files.add(local.len());
                let local = read_local(reader.engine.clone(), local, &schema);
                let local = coalesced(local, schema, batch_size, local_rows);
                if others.is_empty() {
                    return Ok::<_, DataFusionError>(local);
                }
                let others = reader.read_others(others, context)?;
                Ok(stream::select(local, others).boxed())
            }
        };
        let batches = stream::once(opened).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.metrics.clone_inner();
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for reader in others.iter() {
            for metric in reader.metrics().unwrap_or_default().iter() {
                all.push(metric.clone());
            }
        }
        Some(all)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.original.statistics_from_inputs(inputs, args)
    }
}

/// Checks that each task has written each partition once. When Ballista's scheduler repeats a stage
/// of which some tasks have ended, it may keep their output next to that of their repetition: rows
/// would count twice.
fn check_unique(locations: &[PartitionLocation]) -> Result<()> {
    let mut seen = HashSet::new();
    for location in locations {
        // Despite its name, this is the number of the task.
        let (partition, task) = (&location.partition_id, location.map_partition_id);
        if !seen.insert((partition.partition_id, task)) {
            return Err(DataFusionError::Execution(format!(
                "stage {} was repeated, and the output of its task {task} is there twice: \
                 run the query again",
                partition.stage_id
            )));
        }
    }
    Ok(())
}

/// Reads files one after the other; the next ones are open already.
fn read_local(
    engine: Engine,
    locations: Vec<(PartitionLocation, PathBuf)>,
    schema: &SchemaRef,
) -> BoxStream<'static, Result<RecordBatch>> {
    let schema = schema.clone();
    let open = move |(location, path): (PartitionLocation, PathBuf)| {
        let (engine, schema) = (engine.clone(), schema.clone());
        async move {
            let part = if location.is_sort_shuffle {
                let partition = location.partition_id.partition_id;
                Part::indexed(&engine, &path, partition).await.map(|(_, part)| part)
            } else {
                Part::whole(&engine, &path).await
            };
            let part = part.map_err(|error| fetch_failed(&location, error.to_string()))?;
            let path = part.path().display().to_string();
            let rows = rows_of(slice::from_ref(&location));
            let of = location.clone();
            let batches =
                decoded(part, schema).map_err(move |error| fetch_failed(&of, error.to_string()));
            Ok::<_, DataFusionError>(counted(batches.boxed(), rows, move |rows, wanted| {
                let text = format!("{path}: {rows} rows instead of {wanted}");
                ready(fetch_failed(&location, text))
            }))
        }
    };
    stream::iter(locations).map(open).buffered(OPEN_AHEAD).try_flatten().boxed()
}

/// Decodes the batches of a file. It may have several streams, one directly after the other: for
/// each input of the task that wrote it, and for what the task has spilled. Damaged bytes are an
/// error with the path, also where Arrow's decoder panics, and so are columns of other types, with
/// which operators would panic.
fn decoded(part: Part, schema: SchemaRef) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let path = part.path().display().to_string();
    let len = part.len();
    let state = (Messages::new(part.blocks().boxed(), len), StreamDecoder::new());
    let batches = stream::try_unfold(state, |(mut messages, mut decoder)| async move {
        let Some(message) = messages.next().await? else { return Ok(None) };
        let (pieces, is_end): (&[Buffer], _) = match &message {
            Message::Content(pieces) => (pieces, false),
            Message::EndOfStream(prefix) => (slice::from_ref(prefix), true),
        };
        // The decoder is not used after a panic.
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&mut decoder, pieces)));
        let batches = decoded.map_err(|_| io::Error::other("Arrow's decoder panicked"))??;
        if is_end {
            decoder = StreamDecoder::new();
        }
        Ok::<_, DataFusionError>(Some((
            stream::iter(batches).map(Ok::<_, DataFusionError>),
            (messages, decoder),
        )))
    });
    let fitting = batches.try_flatten().and_then(move |batch: RecordBatch| {
        let other = || DataFusionError::Execution("a batch of other columns".to_owned());
        ready(if fits(&batch, &schema) { Ok(batch) } else { Err(other()) })
    });
    fitting.map_err(move |error: DataFusionError| {
        DataFusionError::Execution(format!("decode {path}: {error}"))
    })
}

/// Whether a batch has the columns of the schema. Nested types may differ in what their fields are
/// called.
fn fits(batch: &RecordBatch, schema: &SchemaRef) -> bool {
    let fields = schema.fields();
    let mut columns = batch.columns().iter().map(|column| column.data_type()).zip(fields);
    batch.num_columns() == fields.len()
        && columns.all(|(found, field)| found.is_nested() || found == field.data_type())
}

/// The batches that a message completes: itself, or the one before it if that has no body.
fn decode(decoder: &mut StreamDecoder, pieces: &[Buffer]) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for piece in pieces {
        let mut piece = piece.clone();
        while !piece.is_empty() {
            batches.extend(decoder.decode(&mut piece)?);
        }
    }
    Ok(batches)
}

/// Adds an error at the end unless there were as many rows as wanted. `None` wants any number.
fn counted<F: Future<Output = DataFusionError> + Send + 'static>(
    batches: BoxStream<'static, Result<RecordBatch>>,
    wanted: Option<u64>,
    error: impl FnOnce(u64, u64) -> F + Send + 'static,
) -> BoxStream<'static, Result<RecordBatch>> {
    let state = (batches, 0, error);
    let counted = stream::try_unfold(state, move |(mut batches, rows, error)| async move {
        match (batches.try_next().await?, wanted) {
            (Some(batch), _) => {
                let rows = rows + batch.num_rows() as u64;
                Ok(Some((batch, (batches, rows, error))))
            }
            (None, Some(wanted)) if wanted != rows => Err(error(rows, wanted).await),
            (None, _) => Ok(None),
        }
    });
    counted.boxed()
}

/// Makes batches of about `batch_size` rows from smaller ones, and counts the rows.
fn coalesced(
    batches: BoxStream<'static, Result<RecordBatch>>,
    schema: SchemaRef,
    batch_size: usize,
    rows: Count,
) -> BoxStream<'static, Result<RecordBatch>> {
    let coalescer = LimitedBatchCoalescer::new(schema, batch_size, None);
    let state = (batches.fuse(), coalescer, rows);
    let coalesced = stream::try_unfold(state, |(mut batches, mut coalescer, rows)| async move {
        loop {
            if let Some(batch) = coalescer.next_completed_batch() {
                rows.add(batch.num_rows());
                return Ok(Some((batch, (batches, coalescer, rows))));
            }
            match batches.try_next().await? {
                Some(batch) => {
                    coalescer.push_batch(batch)?;
                }
                None if coalescer.is_empty() => return Ok(None),
                None => coalescer.finish()?,
            }
        }
    });
    coalesced.boxed()
}

/// The rows of these locations as their writers have reported them; `None` if one has not.
pub(crate) fn rows_of(locations: &[PartitionLocation]) -> Option<u64> {
    let statistics = locations.iter().map(|location| location.partition_stats);
    match stats_for_partitions(0, statistics).num_rows {
        Precision::Exact(rows) => Some(rows as u64),
        _ => None,
    }
}

/// The error that makes the scheduler repeat the task which has written this location.
fn fetch_failed(location: &PartitionLocation, text: String) -> DataFusionError {
    let partition = &location.partition_id;
    let executor = location.executor_meta.id.clone();
    BallistaError::FetchFailed(executor, partition.stage_id, partition.partition_id, text)
        .into_datafusion()
}
