//! The stores that are compared, by name.

use anyhow::Context;
use datafusion::prelude::SessionContext;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use ringway::Engine;
use ringway_datafusion::RingwayFileSystem;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A store with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// object_store's LocalFileSystem
    Local,
    /// RingwayFileSystem with default settings
    Ringway,
    /// The same with direct I/O
    RingwayDirect,
    /// The same on Linux AIO
    RingwayKaio,
    /// The same on threads
    RingwayThreads,
}

impl Contestant {
    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ringway => "ringway",
            Self::RingwayDirect => "ringway-direct",
            Self::RingwayKaio => "ringway-kaio",
            Self::RingwayThreads => "ringway-threads",
        }
    }

    /// The value of `RINGWAY_BACKEND` in the contestant's process.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            Self::RingwayKaio => Some("kaio"),
            Self::RingwayThreads => Some("threads"),
            Self::Local | Self::Ringway | Self::RingwayDirect => None,
        }
    }

    /// The store of all local files.
    pub fn store(self) -> Arc<dyn ObjectStore> {
        match self.ringway() {
            Some(store) => Arc::new(store),
            None => Arc::new(LocalFileSystem::new()),
        }
    }

    /// A new session whose local files are in this store, registered as a program would do it.
    pub fn session(self) -> SessionContext {
        let session = SessionContext::new();
        // Without a store of ours, a session has a LocalFileSystem.
        if let Some(store) = self.ringway() {
            ringway_datafusion::register_store(&session, store);
        }
        session
    }

    fn ringway(self) -> Option<RingwayFileSystem> {
        let direct = self == Self::RingwayDirect;
        (self != Self::Local).then(|| RingwayFileSystem::new().with_direct(direct))
    }

    /// What the engine has done so far; `None` without one.
    ///
    /// # Errors
    ///
    /// Those of creating the engine.
    pub fn engine_statistics(self) -> anyhow::Result<Option<String>> {
        if self == Self::Local {
            return Ok(None);
        }
        let engine = Engine::global().context("ringway's engine")?;
        Ok(Some(format!("{:?}", engine.stats())))
    }
}
