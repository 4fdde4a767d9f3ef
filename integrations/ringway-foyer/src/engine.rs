//! The engine and its configuration.

use crate::files::Files;
use crate::memory::Memory;
use foyer_common::error::{Error, ErrorKind, Result};
use foyer_storage::{
    IoBuf, IoBufMut, IoEngine, IoEngineBuildContext, IoEngineConfig, IoHandle, Partition,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use ringway::{CustomBuffer, Engine};
use std::io;
use std::sync::Arc;

/// Builds the engine: pass it to foyer's `with_io_engine_config`.
#[derive(Clone, Debug, Default)]
pub struct RingwayIoEngineConfig {
    engine: Option<Engine>,
}

impl RingwayIoEngineConfig {
    /// Returns a configuration with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the engine that runs the operations. Default: [`Engine::global`].
    pub fn with_engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }
}

impl From<RingwayIoEngineConfig> for Box<dyn IoEngineConfig> {
    fn from(config: RingwayIoEngineConfig) -> Self {
        config.boxed()
    }
}

impl IoEngineConfig for RingwayIoEngineConfig {
    fn build(
        self: Box<Self>,
        _: IoEngineBuildContext,
    ) -> BoxFuture<'static, Result<Arc<dyn IoEngine>>> {
        async move {
            let engine = match self.engine {
                Some(engine) => engine,
                None => Engine::global().map_err(|error| failed("start", error))?.clone(),
            };
            let engine: Arc<dyn IoEngine> = Arc::new(RingwayIoEngine { files: Files::new(engine) });
            Ok(engine)
        }
        .boxed()
    }
}

/// foyer's operations on ringway's engine. An operation begins when its handle is polled for the
/// first time; dropping the handle cancels it.
///
/// Errors are of the kind `Io`; their source is the [`io::Error`], UnexpectedEof for a read beyond
/// the end of the device.
#[derive(Debug)]
pub struct RingwayIoEngine {
    files: Files,
}

impl IoEngine for RingwayIoEngine {
    fn read(&self, buf: Box<dyn IoBufMut>, partition: &dyn Partition, offset: u64) -> IoHandle {
        self.start(Memory::Read(buf), partition, offset)
    }

    fn write(&self, buf: Box<dyn IoBuf>, partition: &dyn Partition, offset: u64) -> IoHandle {
        self.start(Memory::Write(buf), partition, offset)
    }
}

impl RingwayIoEngine {
    fn start(&self, memory: Memory, partition: &dyn Partition, offset: u64) -> IoHandle {
        let found = self.files.of(partition, offset);
        async move {
            let reads = matches!(memory, Memory::Read(_));
            let action = if reads { "read" } else { "write" };
            let (file, offset) = match found {
                Ok(found) => found,
                Err(error) => return (memory.into_iob(), Err(failed(action, error))),
            };
            let memory: Box<dyn CustomBuffer> = Box::new(memory);
            let (result, memory) = match reads {
                true => file.read_exact_at(memory, offset).await,
                false => file.write_all_at(memory, offset).await,
            };
            let result = result
                .map_err(|error| failed(action, error).with_context("offset", offset.to_string()));
            (Memory::returned(memory), result)
        }
        .boxed()
        .into()
    }
}

fn failed(action: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("ringway: {action} failed")).with_source(error)
}
