//! Reading through `RingwayFileSystem`: for each release of object_store, on each backend.
#![allow(clippy::duplicate_mod, reason = "one source tests each release")]
#![allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

mod common;
#[cfg(feature = "object_store_0_13")]
mod object_store_0_13;
#[cfg(feature = "object_store_0_14")]
mod object_store_0_14;
