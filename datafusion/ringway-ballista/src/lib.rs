//! Ballista, DataFusion on several machines, with ringway under it: what the programs
//! `ringway-ballista-scheduler`, `-executor` and `-sql` consist of, for programs of your own.
//!
//! Each function takes a configuration of Ballista and changes what reads and writes local files.
//! Everything else stays as it was, also the formats of files and messages, so that a cluster may
//! have executors with and without ringway.
//!
//! ```no_run
//! use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
//! use ringway::Engine;
//! use std::sync::Arc;
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! let mut config = ExecutorProcessConfig {
//!     scheduler_host: "scheduler.example".to_owned(),
//!     work_dir: Some("/var/lib/ballista".to_owned()),
//!     ..Default::default()
//! };
//! ringway_ballista::executor::use_ringway(&mut config, Engine::global()?);
//! start_executor_process(Arc::new(config)).await?;
//! # Ok(()) }
//! ```

mod cancellation;
pub mod client;
mod client_pool;
mod engine;
pub mod executor;
mod flight;
#[cfg(test)]
mod flight_tests;
mod ipc_messages;
pub mod program;
pub mod scheduler;
mod shuffle_file;
mod shuffle_reader;
#[cfg(test)]
mod shuffle_tests;

use datafusion::execution::runtime_env::RuntimeEnv;
use ringway::Engine;
use ringway_datafusion::RingwayFileSystem;
use std::sync::Arc;
use url::Url;

/// Makes a runtime environment read and write local files with this engine, with the options that
/// `ringway_datafusion::register_store` has.
fn use_store(runtime: &RuntimeEnv, engine: &Engine) {
    if let Ok(url) = Url::parse("file://") {
        let store = RingwayFileSystem::new().with_engine(engine).with_file_payload(true);
        runtime.register_object_store(&url, Arc::new(store));
    }
}
