//! Local files as a store reads and writes them, without object_store's types: what the modules for
//! its releases share.

pub(crate) mod copy;
#[cfg(unix)]
pub(crate) mod dir_lock;
#[cfg(windows)]
#[path = "no_dir_lock.rs"]
pub(crate) mod dir_lock;
pub(crate) mod durable_dirs;
pub(crate) mod error;
pub(crate) mod etag;
pub(crate) mod open;
pub(crate) mod publication;
pub(crate) mod ranges;
pub(crate) mod read_ahead;
pub(crate) mod staged_file;
pub(crate) mod staging;
pub(crate) mod stream;
pub(crate) mod turns;
pub(crate) mod write_error;
