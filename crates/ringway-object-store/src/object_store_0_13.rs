//! The store for object_store 0.13.

use object_store_0_13 as object_store;

#[path = "store/file_system.rs"]
mod file_system;

pub use file_system::RingwayFileSystem;
