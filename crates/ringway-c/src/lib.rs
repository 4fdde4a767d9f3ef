//! The C API: implements the functions that `include/ringway.h` declares over the queue of
//! `ringway-core`. The header documents them; this crate has no Rust API.
//!
//! Each function checks its arguments, translates them for the core, and translates the result
//! back. Queueing, backends and retries are in the core. Nothing unwinds out of this library: a
//! panic, which would be a defect, or a C++ exception out of a callback aborts the program.

mod abi;
mod cancellation;
mod completion;
mod error;
mod files;
mod info;
mod multi_read;
mod opcode;
mod operation;
mod options;
mod queue_handle;
mod read_now;
mod records;
mod registration;
mod waited_reads;
mod warm;
