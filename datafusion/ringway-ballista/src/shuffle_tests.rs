//! Tests of stages: what one writes the next one reads, with ringway and with Ballista; damaged
//! files are errors; cancelled tasks stop reading.

use crate::engine::RingwayExecutionEngine;
use crate::shuffle_reader::ShuffleReader;
use ballista_core::error::BallistaError;
use ballista_core::execution_plans::sort_shuffle::{SortShuffleConfig, get_index_path};
use ballista_core::execution_plans::{ShuffleReaderExec, ShuffleWriterExec, SortShuffleWriterExec};
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::ShuffleWritePartition;
use ballista_core::serde::scheduler::{
    ExecutorMetadata, PartitionId, PartitionLocation, PartitionStats,
};
use ballista_executor::execution_engine::ExecutionEngine;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::{self, StreamExt, TryStreamExt};
use ringway::{BackendKind, Engine};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const STAGE: usize = 7;
const TASK: usize = 3;
pub(crate) const PARTITIONS: usize = 3;
/// The executor that has written the files.
pub(crate) const WRITER: &str = "writer";

/// A job whose first stage has written its files.
pub(crate) struct Job {
    work_dir: TempDir,
    pub(crate) schema: SchemaRef,
    written: Vec<ShuffleWritePartition>,
    pub(crate) session: SessionContext,
    engine: Engine,
}

fn schema() -> SchemaRef {
    let fields = [("key", DataType::Int64), ("text", DataType::Utf8)];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
    Arc::new(Schema::new(fields.to_vec()))
}

/// Rows of a key and a text, the same for the same number.
fn batches(schema: &SchemaRef, number: i64) -> Vec<RecordBatch> {
    let batch = |batch: i64| {
        let keys: Vec<_> = (0..400).map(|row| number * 10_000 + batch * 1000 + row).collect();
        let texts: Vec<_> = keys.iter().map(|key| format!("text {}", key % 97)).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(keys)), Arc::new(StringArray::from(texts))];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    (0..3).map(batch).collect()
}

/// The root of a stage. If the output is sorted, the task spills.
fn writer(
    input: Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
    is_sorted: bool,
) -> Arc<dyn ExecutionPlan> {
    if is_sorted {
        let by_key = Partitioning::Hash(vec![col("key", schema).unwrap()], PARTITIONS);
        let spilling = SortShuffleConfig::new(true, 100).with_memory_limit_per_task_bytes(10_000);
        let writer = SortShuffleWriterExec::try_new(
            "job".into(),
            STAGE,
            input,
            String::new(),
            by_key,
            spilling,
        );
        Arc::new(writer.unwrap())
    } else {
        Arc::new(ShuffleWriterExec::try_new("job".into(), STAGE, input, String::new()).unwrap())
    }
}

impl Job {
    /// Runs a stage of three inputs. Sorted output has one file with an index, of several streams
    /// since the task spills; otherwise there is a file for each input.
    pub(crate) async fn run(engine: &Engine, is_sorted: bool, codec: &str) -> Self {
        let config = SessionConfig::new_with_ballista();
        let config = config.set_str("ballista.shuffle.compression.codec", codec);
        let session = SessionContext::new_with_config(config.clone());
        let schema = schema();
        let inputs: Vec<_> = (0..3).map(|number| batches(&schema, number)).collect();
        let input = MemorySourceConfig::try_new_exec(&inputs, schema.clone(), None).unwrap();
        let work_dir = tempfile::tempdir().unwrap();
        let path = work_dir.path().to_str().unwrap();
        let writer = writer(input, &schema, is_sorted);
        let execution = RingwayExecutionEngine::new(engine, WRITER, Duration::ZERO);
        let ids = (0..PARTITIONS).collect();
        let stage = execution
            .create_query_stage_exec("job".into(), STAGE, TASK, ids, writer, path, &config)
            .unwrap();
        let written = stage.execute_query_stage(TASK, session.task_ctx()).await.unwrap();
        assert_eq!(written.len(), PARTITIONS);
        // The writer's and the input's, as the scheduler expects.
        assert_eq!(stage.collect_plan_metrics().len(), 2);
        Self { work_dir, schema, written, session, engine: engine.clone() }
    }

    pub(crate) fn work_dir(&self) -> &str {
        self.work_dir.path().to_str().unwrap()
    }

    pub(crate) fn locations(&self) -> Vec<Vec<PartitionLocation>> {
        let location = |written: &ShuffleWritePartition| PartitionLocation {
            map_partition_id: 0,
            partition_id: PartitionId {
                job_id: "job".into(),
                stage_id: STAGE,
                partition_id: written.partition_id as usize,
            },
            executor_meta: ExecutorMetadata {
                id: WRITER.to_owned(),
                host: "127.0.0.1".to_owned(),
                // No executor is there.
                port: 9,
                grpc_port: 9,
                specification: Default::default(),
                os_info: Default::default(),
            },
            partition_stats: PartitionStats::new(
                Some(written.num_rows),
                Some(written.num_batches),
                Some(written.num_bytes),
            ),
            file_id: written.file_id,
            is_sort_shuffle: written.is_sort_shuffle,
        };
        let mut written = self.written.clone();
        written.sort_by_key(|written| written.partition_id);
        written.iter().map(|written| vec![location(written)]).collect()
    }

    fn original(&self) -> ShuffleReaderExec {
        let partitioning = Partitioning::UnknownPartitioning(PARTITIONS);
        let locations = self.locations();
        let reader =
            ShuffleReaderExec::try_new(STAGE, locations, self.schema.clone(), partitioning)
                .unwrap();
        reader.with_work_dir(self.work_dir().to_owned())
    }

    fn reader(&self) -> ShuffleReader {
        ShuffleReader::new(&self.original(), &self.engine, WRITER, self.work_dir(), None)
    }

    /// The keys of a partition in order.
    pub(crate) async fn keys(
        &self,
        reader: &dyn ExecutionPlan,
        partition: usize,
    ) -> Result<Vec<i64>> {
        self.keys_in(&self.session, reader, partition).await
    }

    pub(crate) async fn keys_in(
        &self,
        session: &SessionContext,
        reader: &dyn ExecutionPlan,
        partition: usize,
    ) -> Result<Vec<i64>> {
        let batches = reader.execute(partition, session.task_ctx())?;
        let batches: Vec<_> = batches.try_collect().await?;
        let mut keys = Vec::new();
        for batch in &batches {
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            keys.extend(column.values());
        }
        keys.sort_unstable();
        Ok(keys)
    }

    pub(crate) fn data(&self, partition: usize) -> PathBuf {
        let location = &self.locations()[partition][0];
        location.path(self.work_dir()).unwrap()
    }

    /// Expects that reading a partition fails in the way that makes the scheduler write it anew.
    async fn expect_failure(&self, partition: usize, text: &str) {
        let error = self.keys(&self.reader(), partition).await.unwrap_err();
        let failure = match &error {
            DataFusionError::External(error) => error.downcast_ref::<BallistaError>(),
            _ => None,
        };
        match failure {
            Some(BallistaError::FetchFailed(executor, STAGE, from, reason)) => {
                assert_eq!((executor.as_str(), *from), (WRITER, partition));
                assert!(reason.contains(text), "{reason}");
            }
            _ => panic!("{error:?}"),
        }
    }
}

/// A table of one batch that never ends. Its streams hold `alive`.
#[derive(Debug)]
struct Endless {
    schema: SchemaRef,
    alive: Arc<()>,
}

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let alive = self.alive.clone();
        let batches = batches(&self.schema, 0).into_iter().map(Ok);
        let batches = stream::iter(batches).chain(stream::pending());
        let batches = batches.inspect(move |_| _ = &alive);
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

pub(crate) async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A cancelled task stops reading, although the tasks that Ballista's writer has started go on.
#[tokio::test]
async fn a_cancelled_task_drops_its_input() {
    let engine = Engine::global().unwrap();
    for is_sorted in [true, false] {
        let (schema, alive) = (schema(), Arc::new(()));
        let endless = Arc::new(Endless { schema: schema.clone(), alive: alive.clone() });
        let input =
            StreamingTableExec::try_new(schema.clone(), vec![endless], None, [], true, None);
        let writer = writer(Arc::new(input.unwrap()), &schema, is_sorted);
        let work_dir = tempfile::tempdir().unwrap();
        let config = SessionConfig::new_with_ballista();
        let stage = RingwayExecutionEngine::new(engine, WRITER, Duration::ZERO)
            .create_query_stage_exec(
                "job".into(),
                STAGE,
                TASK,
                vec![0],
                writer,
                work_dir.path().to_str().unwrap(),
                &config,
            )
            .unwrap();
        let context = SessionContext::new_with_config(config).task_ctx();
        let task = tokio::spawn({
            let stage = stage.clone();
            async move { stage.execute_query_stage(TASK, context).await }
        });
        // This function and the plan have the others.
        wait_for("the task to read", || Arc::strong_count(&alive) > 2).await;
        task.abort();
        wait_for("the input to be dropped", || Arc::strong_count(&alive) == 2).await;
    }
}

/// Each round of a recursive query reads its tables from the start.
#[tokio::test]
async fn a_recursive_query_reads_its_tables_again() {
    let engine = Engine::global().unwrap();
    let config = SessionConfig::new_with_ballista().with_target_partitions(1);
    let session = SessionContext::new_with_config(config.clone());
    let work_dir = tempfile::tempdir().unwrap();
    let table = work_dir.path().join("steps.csv");
    fs::write(&table, "step\n1\n").unwrap();
    session.register_csv("steps", table.to_str().unwrap(), Default::default()).await.unwrap();
    let sql = "WITH RECURSIVE numbers AS (
            SELECT 1 AS number
            UNION ALL
            SELECT number + step FROM numbers, steps WHERE number < 5
        ) SELECT number FROM numbers";
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let schema = plan.schema();
    let stage = RingwayExecutionEngine::new(engine, WRITER, Duration::ZERO)
        .create_query_stage_exec(
            "job".into(),
            STAGE,
            TASK,
            vec![0],
            writer(plan, &schema, false),
            work_dir.path().to_str().unwrap(),
            &config,
        )
        .unwrap();
    let written = stage.execute_query_stage(TASK, session.task_ctx()).await.unwrap();
    assert_eq!(written.iter().map(|written| written.num_rows).sum::<u64>(), 5);
}

fn backends() -> impl Iterator<Item = Engine> {
    let backends = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
    backends.into_iter().filter_map(|backend| {
        let engine = Engine::builder().backend(backend).build();
        engine.inspect_err(|error| println!("skipped: {backend:?}: {error}")).ok()
    })
}

#[tokio::test]
async fn what_is_written_is_read_with_ringway_and_with_ballista() {
    for engine in backends() {
        for (is_sorted, codec) in
            [(true, "lz4"), (true, "none"), (false, "lz4"), (false, "none"), (false, "zstd")]
        {
            let job = Job::run(&engine, is_sorted, codec).await;
            let (reader, original) = (job.reader(), job.original());
            let mut all = Vec::new();
            for partition in 0..PARTITIONS {
                let keys = job.keys(&reader, partition).await.unwrap();
                assert_eq!(keys, job.keys(&original, partition).await.unwrap());
                let rows = job.locations()[partition][0].clone();
                assert_eq!(Some(keys.len() as u64), rows_of(&rows), "{codec}");
                all.extend(keys);
            }
            all.sort_unstable();
            let expected: Vec<i64> = (0..3)
                .flat_map(|input| (0..3).map(move |batch| input * 10_000 + batch * 1000))
                .flat_map(|first| first..first + 400)
                .collect();
            assert_eq!(all, expected, "sorted {is_sorted}, {codec}");
            let rows = reader.metrics().unwrap().output_rows().unwrap();
            assert_eq!(rows, expected.len());
        }
    }
}

/// Operators charge whole allocations for a batch. With blocks instead of messages they would
/// spill, or fail, with a fraction of their memory in use.
#[tokio::test]
async fn a_batch_keeps_little_more_than_its_own_bytes() {
    let engine = Engine::global().unwrap();
    let job = Job::run(engine, false, "none").await;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8192));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..8192).map(|_| "text")));
    let batch = RecordBatch::try_new(job.schema.clone(), vec![keys, texts]).unwrap();
    let file = File::create(job.data(0)).unwrap();
    let mut writer = StreamWriter::try_new_buffered(file, &job.schema).unwrap();
    for _ in 0..40 {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    let mut bytes = [0, 0];
    let readers: [&dyn ExecutionPlan; 2] = [&job.reader(), &job.original()];
    for (reader, bytes) in readers.into_iter().zip(&mut bytes) {
        // The number of rows is not what was reported, which Ballista does not notice.
        let mut batches = reader.execute(0, job.session.task_ctx()).unwrap().take(40);
        while let Some(received) = batches.next().await {
            let received = received.unwrap();
            assert_eq!(received, batch);
            *bytes += get_record_batch_memory_size(&received);
        }
    }
    let [ours, ballistas] = bytes;
    assert!(ours <= 2 * ballistas, "{ours} bytes instead of {ballistas}");
}

fn rows_of(location: &PartitionLocation) -> Option<u64> {
    super::shuffle_reader::rows_of(std::slice::from_ref(location))
}

/// The offset after the first batch of a file: a cut there leaves a stream that Ballista reads.
pub(crate) fn after_first_batch(bytes: &[u8]) -> usize {
    let mut decoder = datafusion::arrow::ipc::reader::StreamDecoder::new();
    let mut rest = datafusion::arrow::buffer::Buffer::from(bytes.to_vec());
    decoder.decode(&mut rest).unwrap().unwrap();
    bytes.len() - rest.len()
}

#[tokio::test]
async fn damaged_files_are_errors() {
    let engine = Engine::global().unwrap();
    for is_sorted in [true, false] {
        let job = Job::run(engine, is_sorted, "lz4").await;
        let path = job.data(1);
        let bytes = fs::read(&path).unwrap();
        let index = fs::read(get_index_path(&path)).ok();
        let reader = job.reader();
        let good = [job.keys(&reader, 0).await.unwrap(), job.keys(&reader, 1).await.unwrap()];
        let start = index
            .as_ref()
            .map_or(0, |index| usize::from_le_bytes(index[8..16].first_chunk().copied().unwrap()));

        // Cut between two batches, in a batch, and before everything.
        for len in [start + after_first_batch(&bytes[start..]), start + 300, start] {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(len as u64).unwrap();
            job.expect_failure(1, "data").await;
            if is_sorted {
                // The partition before it is whole.
                assert_eq!(job.keys(&job.reader(), 0).await.unwrap(), good[0]);
            }
            fs::write(&path, &bytes).unwrap();
        }
        // Bytes of the schema and of the first batch, one of each length in it: never fewer rows or
        // more, never a panic. (Values have no checksum.)
        for at in (start..start + 700).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            fs::write(&path, &damaged).unwrap();
            if let Ok(keys) = job.keys(&job.reader(), 1).await {
                assert_eq!(keys.len(), good[1].len(), "byte {at}");
            }
        }
        fs::write(&path, &bytes).unwrap();
        assert_eq!(job.keys(&job.reader(), 1).await.unwrap(), good[1]);

        if let Some(index) = index {
            fs::write(get_index_path(&path), &index[..12]).unwrap();
            job.expect_failure(1, "data.arrow.index").await;
            fs::remove_file(get_index_path(&path)).unwrap();
            job.expect_failure(1, "data.arrow.index").await;
        }
    }
}

/// As after damage to the schema in a file.
#[tokio::test]
async fn other_columns_are_an_error() {
    let engine = Engine::global().unwrap();
    let job = Job::run(engine, false, "none").await;
    let keys = || Arc::new(UInt64Array::from_iter_values(0..1200)) as ArrayRef;
    let texts = || Arc::new(StringArray::from(vec!["text"; 1200])) as ArrayRef;
    for columns in [vec![("key", keys()), ("text", texts())], vec![("text", texts())]] {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(job.data(1)).unwrap();
        let mut writer = StreamWriter::try_new_buffered(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        job.expect_failure(1, "other columns").await;
    }
}

/// The scheduler lists the output of a task twice when it has repeated the stage.
#[tokio::test]
async fn no_rows_are_read_twice() {
    let job = Job::run(Engine::global().unwrap(), true, "lz4").await;
    let mut locations = job.locations();
    let again = locations[1][0].clone();
    locations[1].push(again);
    let partitioning = Partitioning::UnknownPartitioning(PARTITIONS);
    let reader =
        ShuffleReaderExec::try_new(STAGE, locations, job.schema.clone(), partitioning).unwrap();
    let reader = ShuffleReader::new(&reader, &job.engine, WRITER, job.work_dir(), None);
    assert!(!job.keys(&reader, 0).await.unwrap().is_empty());
    let error = job.keys(&reader, 1).await.unwrap_err().to_string();
    assert!(error.contains("stage 7 was repeated"), "{error}");
}

/// A file that is not here is asked for at its executor, which nobody is.
#[tokio::test]
async fn a_removed_file_is_an_error() {
    let engine = Engine::global().unwrap();
    let mut job = Job::run(engine, true, "lz4").await;
    let config = job.session.copied_config();
    let config = config
        .set_usize("ballista.client.io_retries_times", 1)
        .set_usize("ballista.client.io_retry_wait_time_ms", 1);
    job.session = SessionContext::new_with_config(config);
    fs::remove_file(job.data(1)).unwrap();
    job.expect_failure(1, "").await;
}
