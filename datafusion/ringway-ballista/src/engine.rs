//! The execution engine of an executor: Ballista's, with readers of shuffle files that use ringway
//! put into the plans of stages.

use crate::cancellation::{self, CancellableLeaf, CancellableStage, Token};
use crate::client_pool::ClientPool;
use crate::shuffle_reader::ShuffleReader;
use ballista_core::JobId;
use ballista_core::client_pool::BallistaClientPool;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use ringway::Engine;
use std::sync::Arc;
use std::time::Duration;

/// Ballista's `DefaultExecutionEngine` over ringway.
pub(crate) struct RingwayExecutionEngine {
    engine: Engine,
    /// The executor that has this engine.
    executor_id: String,
    /// The connections to other executors; `None` makes one for each file.
    pool: Option<Arc<dyn BallistaClientPool>>,
}

impl RingwayExecutionEngine {
    /// Unused connections to other executors are kept for this time, zero for not at all.
    pub(crate) fn new(engine: &Engine, executor_id: &str, idle_timeout: Duration) -> Self {
        let pool = || Arc::new(ClientPool::new(idle_timeout)) as Arc<dyn BallistaClientPool>;
        Self {
            engine: engine.clone(),
            executor_id: executor_id.to_owned(),
            pool: (!idle_timeout.is_zero()).then(pool),
        }
    }
}

impl RingwayExecutionEngine {
    /// Replaces the leaves of a plan: readers of shuffle files by those that use ringway, and all
    /// leaves by ones that end with the token. (Ballista's engine puts its own readers of range
    /// shuffles back.)
    fn with_leaves(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        token: &Token,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = plan.transform(|node| {
            if !node.children().is_empty() {
                return Ok(Transformed::no(node));
            }
            let leaf: Arc<dyn ExecutionPlan> = if let Some(reader) = node.downcast_ref() {
                let pool = self.pool.clone();
                let (engine, executor_id) = (&self.engine, &self.executor_id);
                Arc::new(ShuffleReader::new(reader, engine, executor_id, work_dir, pool))
            } else {
                node
            };
            let leaf: Arc<dyn ExecutionPlan> = Arc::new(CancellableLeaf::new(leaf, token.clone()));
            Ok(Transformed::yes(leaf))
        });
        Ok(replaced?.data)
    }
}

impl ExecutionEngine for RingwayExecutionEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let (source, token) = cancellation::new();
        let plan = self.with_leaves(plan, work_dir, &token)?;
        let ballista = match &self.pool {
            Some(pool) => DefaultExecutionEngine::with_client_pool(pool.clone()),
            None => DefaultExecutionEngine::new(),
        };
        let stage = ballista.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(CancellableStage::new(stage, source)))
    }
}
