//! The tests for object_store 0.13.

use object_store_0_13 as object_store;
use ringway_object_store::object_store_0_13 as ringway_store;

#[path = "parity.rs"]
mod parity;
#[path = "streams.rs"]
mod streams;
