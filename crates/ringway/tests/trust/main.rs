//! Tests of the guarantees of the design through the Rust API: on every backend and executor, with
//! several runtimes at once, cancels at random moments, panics, shutdowns, forks, refusals and
//! overload.
//!
//! `RINGWAY_CASE=part-of-a-name` runs only the cases of `contracts` whose names contain that text.
//! `RINGWAY_STORM=60` runs the cancel storm for that many seconds. A test that cannot run here
//! prints `skipped: why`; where `CI` is set, an unexpected skip fails.

mod busy;
#[path = "../../../ringway-core/tests/common/mod.rs"]
mod common;
mod compile;
mod contracts;
mod durable;
mod examples;
mod executor;
mod global;
mod guarded;
mod idle;
mod life;
mod log;
mod panics;
mod pressure;
mod process;
mod runtimes;
mod shutdown;

mod storm;
mod watchdog;
mod world;
