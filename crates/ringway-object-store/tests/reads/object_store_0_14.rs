//! The tests for object_store 0.14.

use ::object_store;
use ringway_object_store::object_store_0_14 as ringway_store;

/// Prefix of the names of these tests.
const RELEASE: &str = "object_store_0_14";

#[path = "parity.rs"]
mod parity;
#[path = "streams.rs"]
mod streams;
