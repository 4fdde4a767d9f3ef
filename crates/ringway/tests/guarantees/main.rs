//! Tests of the guarantees of the design through the Rust API: on every backend and executor, with
//! several runtimes at once, cancels at random moments, panics, shutdowns, forks, refusals and
//! overload.
//!
//! `RINGWAY_STORM=60` runs the cancel storm for that many seconds. A test that cannot run here
//! prints `skipped: why`; where `CI` is set, an unexpected skip fails.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod busy_workers;
#[path = "../common/mod.rs"]
mod common;
mod compile;
mod contracts;
mod durable;
mod examples;
mod global;
mod hung;
mod idle;
mod log;
mod overload;
mod panics;
mod process;
mod runtimes;
mod shared_syncs;
mod shutdown;
mod slow_disk;
mod storm;
mod surroundings;
