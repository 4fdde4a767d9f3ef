//! The stores that are compared, by name.

use anyhow::Context;
use datafusion::prelude::SessionContext;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use ringway::Engine;
use ringway_datafusion::RingwayFileSystem;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use url::Url;

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
    pub fn name(self) -> &'static str {
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
        match self {
            Self::Local => Arc::new(LocalFileSystem::new()),
            Self::RingwayDirect => Arc::new(RingwayFileSystem::new().with_direct(true)),
            _ => Arc::new(RingwayFileSystem::new()),
        }
    }

    /// A new session whose local files are in this store.
    ///
    /// # Errors
    ///
    /// None in practice: the URL is valid.
    pub fn session(self) -> anyhow::Result<SessionContext> {
        let session = SessionContext::new();
        match self {
            Self::Ringway | Self::RingwayKaio | Self::RingwayThreads => {
                ringway_datafusion::register(&session);
            }
            Self::Local | Self::RingwayDirect => {
                session.register_object_store(&Url::parse("file://")?, self.store());
            }
        }
        Ok(session)
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
