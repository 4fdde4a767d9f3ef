//! The store. Each release of object_store has a module around this one, with what differs.

mod delete;
mod error;
mod file_system;
mod get;
mod list;
mod multipart;
mod put;
mod relocate;

pub use file_system::RingwayFileSystem;

use super::{e_tag, get_result, in_turn, object_store, put_result};
