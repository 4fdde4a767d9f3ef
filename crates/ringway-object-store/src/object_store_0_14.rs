//! The store for object_store 0.14.

use object_store_0_14 as object_store;

#[path = "store/file_system.rs"]
mod file_system;

pub use file_system::RingwayFileSystem;
