//! Schedulers on ringway.

use ballista_core::error::Result;
use ballista_core::utils::default_session_builder;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use ringway::Engine;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Makes a scheduler use this engine to list the files of tables and to read their metadata, which
/// it does when it plans a query. It replaces `override_session_builder` and does no I/O.
pub fn use_ringway(config: SchedulerConfig, engine: &Engine) -> SchedulerConfig {
    let engine = engine.clone();
    config.with_override_session_builder(Arc::new(move |session| {
        let state = default_session_builder(session)?;
        crate::use_store(state.runtime_env(), &engine);
        Ok(state)
    }))
}

/// Runs a scheduler that accepts connections from this listener. The port in the configuration is
/// replaced by the listener's.
///
/// It returns only after an error. Dropping the future stops accepting connections; tasks that the
/// scheduler has started end with the tokio runtime.
///
/// # Errors
///
/// An invalid configuration; an error of the listener.
pub async fn serve(listener: TcpListener, mut config: SchedulerConfig) -> Result<()> {
    config.bind_port = listener.local_addr()?.port();
    config.validate()?;
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await?;
    start_grpc_service_with_listener(listener, scheduler).await
}
