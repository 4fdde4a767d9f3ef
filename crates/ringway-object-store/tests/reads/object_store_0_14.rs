//! The tests for object_store 0.14.

use ::object_store;
use ringway_object_store::object_store_0_14 as ringway_store;

#[path = "parity.rs"]
mod parity;
#[path = "streams.rs"]
mod streams;
