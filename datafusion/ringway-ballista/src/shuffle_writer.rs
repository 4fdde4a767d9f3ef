//! [`PassthroughStage`]: runs a stage whose output keeps its partitions, and writes a file for each
//! of them with ringway. Results of queries are written this way, and so is the input of merges and
//! broadcasts.

use crate::shuffle_file::about;
use ballista_core::execution_plans::{
    ShuffleWriterExec, collect_runtime_stats_reports, compute_global_output_partition_ids,
    create_shuffle_path, window_state_to_proto,
};
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, WindowStateReport,
};
use ballista_core::utils;
use ballista_executor::execution_engine::QueryStageExecutor;
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use futures::TryStreamExt;
use ringway::fs::OpenOptions;
use ringway::{Engine, Writer};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A stage below a `ShuffleWriterExec`. The files are those that this writer would write; it is not
/// executed itself.
#[derive(Debug)]
pub(crate) struct PassthroughStage {
    writer: ShuffleWriterExec,
    engine: Engine,
    metrics: ExecutionPlanMetricsSet,
}

impl PassthroughStage {
    pub(crate) fn new(writer: ShuffleWriterExec, engine: &Engine) -> Self {
        Self { writer, engine: engine.clone(), metrics: ExecutionPlanMetricsSet::new() }
    }

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        self.writer.children()[0]
    }
}

impl fmt::Display for PassthroughStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics: Vec<_> =
            self.metrics.clone_inner().iter().map(|metric| metric.to_string()).collect();
        write!(f, "PassthroughStage({})\n{}", metrics.join(", "), self.writer)
    }
}

#[async_trait::async_trait]
impl QueryStageExecutor for PassthroughStage {
    /// Dropping the future ends the stage.
    async fn execute_query_stage(
        &self,
        _task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let task_id = self.writer.task_id() as u64;
        let writer: Arc<dyn ExecutionPlan> = Arc::new(self.writer.clone());
        let ids = self.writer.global_output_partition_ids();
        let ids = compute_global_output_partition_ids(&writer, ids);
        let codec = context.session_config().ballista_config().shuffle_compression_codec()?;
        let options = utils::create_write_options(codec)?;
        let partitions = self.input().properties().output_partitioning().partition_count();
        // All at the same time: operators that distribute rows wait until each partition is read.
        let mut tasks = JoinSet::new();
        for local in 0..partitions {
            let global = ids.get(local).copied().unwrap_or(local);
            let path = create_shuffle_path(
                self.writer.work_dir(),
                self.writer.job_id(),
                self.writer.stage_id(),
                global,
                Some(task_id),
                false,
            )?;
            let output = Output {
                engine: self.engine.clone(),
                path,
                options: options.clone(),
                metrics: OutputMetrics::new(local, &self.metrics),
            };
            let batches = self.input().execute(local, context.clone())?;
            tasks.spawn(async move {
                let written = output.write(batches).await?;
                Ok::<_, DataFusionError>(ShuffleWritePartition {
                    partition_id: global as u64,
                    num_batches: written.batches,
                    num_rows: written.rows,
                    num_bytes: written.bytes,
                    file_id: Some(task_id),
                    is_sort_shuffle: false,
                })
            });
        }
        let mut written = Vec::with_capacity(partitions);
        while let Some(done) = tasks.join_next().await {
            let done = done.map_err(|error| DataFusionError::Execution(error.to_string()))?;
            written.push(done?);
        }
        Ok(written)
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        let mut all = vec![self.metrics.clone_inner()];
        all.extend(utils::collect_plan_metrics(self.input().as_ref()));
        all
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        let writer: Arc<dyn ExecutionPlan> = Arc::new(self.writer.clone());
        // They only help to plan the next stages.
        collect_runtime_stats_reports(&writer).unwrap_or_else(|error| {
            log::warn!("no statistics of this task: {error}");
            Vec::new()
        })
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        let states = self.writer.collect_window_state()?;
        states.iter().map(|(partition, state)| window_state_to_proto(*partition, state)).collect()
    }
}

struct OutputMetrics {
    write_time: Time,
    input_rows: Count,
    output_rows: Count,
}

impl OutputMetrics {
    fn new(partition: usize, metrics: &ExecutionPlanMetricsSet) -> Self {
        Self {
            write_time: MetricBuilder::new(metrics).subset_time("write_time", partition),
            input_rows: MetricBuilder::new(metrics).counter("input_rows", partition),
            output_rows: MetricBuilder::new(metrics).output_rows(partition),
        }
    }
}

/// What a file has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    rows: u64,
    batches: u64,
    bytes: u64,
}

/// A file to be written.
struct Output {
    engine: Engine,
    path: PathBuf,
    options: IpcWriteOptions,
    metrics: OutputMetrics,
}

impl Output {
    /// Writes all batches as one stream in Arrow's IPC format. After an error, and if the future is
    /// dropped, a part of the file may be left; the executor removes it with the job's data.
    async fn write(self, mut batches: SendableRecordBatchStream) -> Result<Written> {
        let mut written = Written::default();
        let mut encoder = StreamWriter::try_new_with_options(
            Vec::new(),
            &batches.schema(),
            self.options.clone(),
        )?;
        let mut file = self.create().await?;
        while let Some(batch) = batches.try_next().await? {
            let _timer = self.metrics.write_time.timer();
            encoder.write(&batch)?;
            file.append(encoder.get_mut()).await?;
            written.rows += batch.num_rows() as u64;
            written.batches += 1;
        }
        let _timer = self.metrics.write_time.timer();
        encoder.finish()?;
        file.append(encoder.get_mut()).await?;
        written.bytes = file.flush().await?;
        self.metrics.input_rows.add(written.rows as usize);
        self.metrics.output_rows.add(written.rows as usize);
        Ok(written)
    }

    async fn create(&self) -> Result<OutputFile> {
        let fs = self.engine.fs();
        if let Some(folder) = self.path.parent() {
            let created = fs.create_dir_all(folder).await;
            created.map_err(|error| about(folder, "create", error))?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).engine(&self.engine);
        let file = options.open(&self.path).await;
        let file = file.map_err(|error| about(&self.path, "create", error))?;
        Ok(OutputFile { path: self.path.clone(), writer: Some(file.writer()) })
    }
}

/// A file that is being written. Dropping it discards what has not been written yet: then nobody
/// will read the file.
struct OutputFile {
    path: PathBuf,
    writer: Option<Writer>,
}

impl OutputFile {
    /// Writes the bytes, and clears them.
    async fn append(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if let Some(writer) = &mut self.writer {
            let written = writer.write_all(bytes).await;
            written.map_err(|error| about(&self.path, "write", error))?;
        }
        bytes.clear();
        Ok(())
    }

    /// Waits until everything is written, and returns how many bytes that is.
    async fn flush(mut self) -> io::Result<u64> {
        let Some(writer) = &mut self.writer else { return Ok(0) };
        writer.flush().await.map_err(|error| about(&self.path, "write", error))?;
        Ok(writer.written())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abandon();
        }
    }
}
