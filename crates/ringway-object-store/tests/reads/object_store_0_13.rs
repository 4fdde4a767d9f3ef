//! The tests for object_store 0.13, of what differs between the releases.

use object_store_0_13 as object_store;
use ringway_object_store::object_store_0_13 as ringway_store;

/// Prefix of the names of these tests.
const RELEASE: &str = "object_store_0_13";

#[path = "parity.rs"]
mod parity;
