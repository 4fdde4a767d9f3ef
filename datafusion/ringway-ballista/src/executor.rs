//! Executors on ringway.

use crate::engine::RingwayExecutionEngine;
use crate::flight;
use ballista_executor::executor_process::ExecutorProcessConfig;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use ringway::Engine;
use std::sync::Arc;
use std::time::Duration;

/// Makes an executor use this engine:
///
/// - tables in local files are read and written through a `RingwayFileSystem`;
/// - shuffle files of the executor's own machine are read with ringway;
/// - shuffle files and results are sent to other executors and clients with ringway.
///
/// Ballista writes them. A cancelled task also stops reading, which Ballista's own does not.
///
/// It sets `override_runtime_producer`, `override_execution_engine` and
/// `override_arrow_flight_service`, and uses the other fields as they are at this moment, so call
/// it last. It does no I/O.
///
/// Dropping the future of `start_executor_process` does not end the executor's tasks; dropping its
/// tokio runtime does.
pub fn use_ringway(config: &mut ExecutorProcessConfig, engine: &Engine) {
    let idle_timeout = Duration::from_secs(config.client_ttl);
    let execution = RingwayExecutionEngine::new(engine, &config.executor_id, idle_timeout);
    config.override_execution_engine = Some(Arc::new(execution));
    config.override_arrow_flight_service = Some(flight::provider(
        engine,
        config.grpc_max_encoding_message_size as usize,
        config.grpc_max_decoding_message_size as usize,
    ));
    let (engine, work_dir) = (engine.clone(), config.work_dir.clone());
    config.override_runtime_producer = Some(Arc::new(move |_| {
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(work_dir) = &work_dir {
            runtime = runtime.with_temp_file_path(work_dir);
        }
        let runtime = runtime.build_arc()?;
        crate::use_store(&runtime, &engine);
        Ok(runtime)
    }));
}
