//! Sessions whose queries run on a cluster.

use ballista_core::JobId;
use ballista_core::config::{BALLISTA_ADAPTIVE_PLANNER_ENABLED, BALLISTA_CLIENT_PULL};
use ballista_core::execution_plans::DistributedQueryExec;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use ballista_core::serde::protobuf::CancelJobParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::utils::{GrpcClientConfig, create_grpc_client_endpoint};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::protobuf::LogicalPlanNode;
use ringway::Engine;

/// The configuration of a session on a cluster. It differs from Ballista's in two settings, which a
/// program may set back:
///
/// - `ballista.planner.adaptive.enabled` is off. With the adaptive planner of Ballista 55, a query
///   waits for ever when it has lost a shuffle file: its scheduler cannot repeat a stage ("Can't
///   find active stage to update stage outputs").
/// - `ballista.client.pull` is on. The client knows the [`jobs`] of a query as soon as the
///   scheduler has them, so it can cancel them; it asks for their state every 50 ms.
pub fn config() -> SessionConfig {
    SessionConfig::new_with_ballista()
        .set_bool(BALLISTA_ADAPTIVE_PLANNER_ENABLED, false)
        .set_bool(BALLISTA_CLIENT_PULL, true)
}

/// Makes a session whose queries run on the cluster of this scheduler, `HOST:PORT`. With an engine,
/// the session itself reads local files with it, for instance to find out the schema of a table
/// that is registered; executors and the scheduler read them in any case, by the same paths.
///
/// Nothing is connected yet. Dropping a query does not end its job on the cluster; [`cancel`] does.
///
/// # Errors
///
/// Those of DataFusion for an invalid configuration.
pub fn session(
    scheduler: &str,
    config: SessionConfig,
    engine: Option<&Engine>,
) -> Result<SessionContext> {
    let state = SessionStateBuilder::new_with_default_features().with_config(config).build();
    let state = state.upgrade_for_ballista(format!("http://{scheduler}"))?;
    if let Some(engine) = engine {
        crate::use_store(state.runtime_env(), engine);
    }
    Ok(SessionContext::new_with_state(state))
}

/// The jobs that the scheduler has made for a physical plan of a [`session`]; none before it has
/// begun to execute.
pub fn jobs(plan: &dyn ExecutionPlan) -> Vec<JobId> {
    let query = plan.downcast_ref::<DistributedQueryExec<LogicalPlanNode>>();
    let mut jobs: Vec<_> = query.and_then(DistributedQueryExec::job_id).into_iter().collect();
    jobs.extend(plan.children().into_iter().flat_map(|child| self::jobs(child.as_ref())));
    jobs
}

/// Asks this scheduler, `HOST:PORT`, to cancel a job, and returns when it has the request. Then
/// executors stop reading for the job. A job that has ended, or that the scheduler does not know,
/// is no error.
///
/// # Errors
///
/// The scheduler cannot be reached, or refuses.
pub async fn cancel(scheduler: &str, job: &JobId) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        DataFusionError::Execution(format!("cancel {job} at {scheduler}: {error}"))
    };
    let config = GrpcClientConfig::default();
    let endpoint = create_grpc_client_endpoint(format!("http://{scheduler}"), Some(&config));
    let endpoint = endpoint.map_err(|error| failed(&error))?;
    let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
    let request = CancelJobParams { job_id: job.to_string() };
    let answer = SchedulerGrpcClient::new(channel).cancel_job(request).await;
    answer.map(drop).map_err(|error| failed(&error))
}
