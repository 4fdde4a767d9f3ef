//! Readers, writers and range streams: they transfer the same bytes as the standard library on
//! every backend, runtime and kind of file, whatever fails below them.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod cursor;
mod cursor_overlap;
mod dont_cache;
mod drops;
mod files;
mod full_disk;
mod ranges;
mod reader;
mod script;
mod spare;
mod traits;
mod writer;
mod yields;
