//! Reading through `RingwayFileSystem`: for each release of object_store, on each backend.
#![allow(clippy::duplicate_mod, reason = "one source tests each release")]
#![allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

mod common;
#[path = "../../../ringway-core/tests/common/evict.rs"]
mod evict;
#[cfg(feature = "object_store_0_13")]
mod object_store_0_13;
#[cfg(feature = "object_store_0_14")]
mod object_store_0_14;
/// Changes of a whole process, in a process of its own.
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../../../ringway-core/tests/common/mod.rs"]
mod process;
