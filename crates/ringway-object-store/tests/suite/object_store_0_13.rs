//! The tests for object_store 0.13, of what differs between the releases: the types and the
//! `LocalFileSystem` that lists, copies, renames and deletes.

use object_store_0_13 as object_store;
use ringway_object_store::object_store_0_13::RingwayFileSystem;

/// Prefix of the names of these tests.
const RELEASE: &str = "object_store_0_13";

#[path = "integration.rs"]
mod integration;
#[path = "names.rs"]
mod names;
#[path = "parity.rs"]
mod parity;
