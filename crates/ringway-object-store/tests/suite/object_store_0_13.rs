//! The tests for object_store 0.13.

use object_store_0_13 as object_store;
use ringway_object_store::object_store_0_13::RingwayFileSystem;

/// Prefix of the names of these tests.
const RELEASE: &str = "object_store_0_13";

#[path = "durable.rs"]
mod durable;
#[path = "failures.rs"]
mod failures;
#[path = "integration.rs"]
mod integration;
#[path = "locks.rs"]
mod locks;
#[path = "multipart.rs"]
mod multipart;
#[path = "parity.rs"]
mod parity;
#[path = "storm.rs"]
mod storm;
#[path = "update.rs"]
mod update;
