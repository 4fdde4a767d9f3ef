//! The tests for object_store 0.14.

use ::object_store;
use ringway_object_store::object_store_0_14::RingwayFileSystem;

/// Prefix of the names of these tests.
const RELEASE: &str = "object_store_0_14";

#[path = "blocking.rs"]
mod blocking;
#[path = "dont_cache.rs"]
mod dont_cache;
#[path = "durable.rs"]
mod durable;
#[path = "environments.rs"]
mod environments;
#[path = "failures.rs"]
mod failures;
#[path = "integration.rs"]
mod integration;
#[path = "multipart.rs"]
mod multipart;
#[path = "names.rs"]
mod names;
#[path = "parity.rs"]
mod parity;
#[path = "storm.rs"]
mod storm;
#[path = "update.rs"]
mod update;
