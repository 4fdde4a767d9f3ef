//! Ends the reading of a task when the task is cancelled. Ballista drops the future of a cancelled
//! task, but the tokio tasks that its shuffle writers have started go on to the end of their input.

use ballista_core::error::BallistaError;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
};
use ballista_executor::execution_engine::QueryStageExecutor;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics, StatisticsArgs,
};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::watch;

/// Cancels everything that has its [`Token`] when it is dropped.
pub(crate) type Source = watch::Sender<()>;

/// Whether the [`Source`] still exists.
pub(crate) type Token = watch::Receiver<()>;

/// A source and its token.
pub(crate) fn new() -> (Source, Token) {
    watch::channel(())
}

/// Stands for a leaf of a plan. Its streams end with an error when the token is cancelled.
#[derive(Debug)]
pub(crate) struct CancellableLeaf {
    leaf: Arc<dyn ExecutionPlan>,
    token: Token,
}

impl CancellableLeaf {
    pub(crate) fn new(leaf: Arc<dyn ExecutionPlan>, token: Token) -> Self {
        Self { leaf, token }
    }
}

impl DisplayAs for CancellableLeaf {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaf.fmt_as(t, f)
    }
}

impl ExecutionPlan for CancellableLeaf {
    fn name(&self) -> &str {
        self.leaf.name()
    }

    /// Operators that look for the leaf's type find it.
    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.leaf.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.leaf.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.leaf.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        no_children(self, &children)
    }

    /// A recursive query gives its leaves their rows this way.
    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let leaf = self.leaf.with_new_state(state)?;
        Some(Arc::new(Self { leaf, token: self.token.clone() }))
    }

    /// A recursive query calls this before each round: scans start anew.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let leaf = self.leaf.clone().reset_state()?;
        Ok(Arc::new(Self { leaf, token: self.token.clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = self.leaf.execute(partition, context)?;
        let schema = batches.schema();
        let mut token = self.token.clone();
        let mut cancelled: BoxFuture<'static, ()> =
            async move { while token.changed().await.is_ok() {} }.boxed();
        let mut batches = Some(batches);
        let until_cancelled = stream::poll_fn(move |cx| {
            let Some(running) = &mut batches else { return Poll::Ready(None) };
            if cancelled.poll_unpin(cx).is_ready() {
                // Dropping the stream cancels its reads. An end without an error would look like
                // the end of the input.
                batches = None;
                return Poll::Ready(Some(Err(BallistaError::Cancelled.into_datafusion())));
            }
            running.poll_next_unpin(cx)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, until_cancelled)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.leaf.metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.leaf.statistics_from_inputs(inputs, args)
    }
}

/// What a leaf answers to new children.
pub(crate) fn no_children(
    leaf: Arc<dyn ExecutionPlan>,
    children: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    if children.is_empty() {
        Ok(leaf)
    } else {
        Err(DataFusionError::Internal(format!("{} has no children", leaf.name())))
    }
}

/// A stage whose source is dropped with the future that runs the stage, or with the stage.
pub(crate) struct CancellableStage {
    stage: Arc<dyn QueryStageExecutor>,
    source: Mutex<Option<Source>>,
}

impl CancellableStage {
    pub(crate) fn new(stage: Arc<dyn QueryStageExecutor>, source: Source) -> Self {
        Self { stage, source: Mutex::new(Some(source)) }
    }
}

impl fmt::Debug for CancellableStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

impl fmt::Display for CancellableStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.stage, f)
    }
}

#[async_trait::async_trait]
impl QueryStageExecutor for CancellableStage {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let _source = self.source.lock().ok().and_then(|mut source| source.take());
        self.stage.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.stage.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.stage.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.stage.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.stage.collect_column_stats()
    }
}
