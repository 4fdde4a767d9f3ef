//! The tests for object_store 0.13, of what differs between the releases.

use object_store_0_13 as object_store;
use ringway_object_store::object_store_0_13 as ringway_store;

#[path = "parity.rs"]
mod parity;
