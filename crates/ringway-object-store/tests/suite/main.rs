//! The whole store: object_store's own integration suite, and what it leaves out: durability,
//! failures, conditional updates, cancelled writes, and parity with `LocalFileSystem`.
// One source serves each release; only the types differ.
#![allow(clippy::duplicate_mod)]

mod common;
#[cfg(feature = "object_store_0_13")]
mod object_store_0_13;
#[cfg(feature = "object_store_0_14")]
mod object_store_0_14;
/// Changes of a whole process, in a process of its own.
#[allow(dead_code, reason = "this suite uses a part")]
#[path = "../../../ringway-core/tests/common/mod.rs"]
mod process;
